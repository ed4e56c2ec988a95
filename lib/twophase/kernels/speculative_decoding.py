"""Speculative decoding: which drafted tokens a target keeps, and what it says in place of the first
that it refuses.

A draft proposes tokens and says with which probabilities it drew each. A token is kept with
probability min(1, target / draft); after a refusal the next token is drawn from what the target has
and the draft had not, max(0, target − draft), normalized. What comes out follows the target's law
exactly, whatever the draft (Leviathan et al. 2023, arXiv 2211.17192, algorithm 1 and appendix A.1;
Chen et al. 2023, arXiv 2302.01318). Several candidates for one place are tried in turn, each
against what the ones before it have left (Miao et al. 2024, arXiv 2305.09781, algorithm 2).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from twophase.kernels.attention_inputs import check_tensors
from twophase.kernels.sampling import Choose
from twophase.kernels.span import whole

ROOT = -1  # the parent of a token that follows the text itself


@dataclass(frozen=True)
class Verified:
    """What a target makes of a draft."""

    kept: tuple[
        int, ...
    ]  # drafted tokens that stay, numbered from 0, each following the one before
    token: int  # what the target says after them


def acceptance_probability(
    target_probs: torch.Tensor, draft_probs: torch.Tensor, token: int
) -> float:
    """The probability that a token drawn from draft_probs [V] is kept: min(1, target / draft).

    ValueError if the draft says that it never draws this token, and for laws of other vocabularies.
    """
    _check_laws(target_probs, draft_probs)
    if whole("a token", token, 0) >= len(target_probs):
        raise ValueError(f"tokens are from 0 to {len(target_probs) - 1}; got {token}.")
    drawn = float(draft_probs[token])
    if not drawn > 0:
        raise ValueError(
            f"token {token} was drafted, but its draft_probs say {drawn}: hand over the law that it"
            " was drawn from, temperature, top-k and top-p included."
        )
    return min(1.0, float(target_probs[token]) / drawn)


def residual(target_probs: torch.Tensor, draft_probs: torch.Tensor) -> torch.Tensor:
    """The law of the token after a refusal: max(0, target − draft) over its sum, [V]. Where nothing
    is left nothing can be refused, but for rounding: the target's own law. ValueError for laws of
    other vocabularies."""
    _check_laws(target_probs, draft_probs)
    left = (target_probs - draft_probs).clamp(min=0)  # [V]
    total = left.sum()
    return left / total if total > 0 else target_probs


def _check_laws(target_probs: torch.Tensor, draft_probs: torch.Tensor) -> None:
    check_tensors("the rule of acceptance", target_probs, draft_probs)
    if target_probs.ndim != 1 or target_probs.shape != draft_probs.shape or not len(target_probs):
        raise ValueError(
            "target_probs and draft_probs are laws [V] over one vocabulary; got"
            f" {list(target_probs.shape)} and {list(draft_probs.shape)}."
        )


def verify(
    target_probs: torch.Tensor,
    draft_probs: torch.Tensor,
    drafted: Sequence[int],
    choose: Choose,
) -> Verified:
    """Keep the first few of gamma drafted tokens, and say one more.

    target_probs: [gamma + 1, V], the target's law before each drafted token and after the last.
    draft_probs: [gamma, V], the law that each was drawn from, given those before it.
    `choose(probs)` draws an index. ValueError for other shapes, or a token that is never drafted.
    """
    _check(target_probs, draft_probs, drafted)
    for i, token in enumerate(drafted):
        if not _happens(acceptance_probability(target_probs[i], draft_probs[i], token), choose):
            return Verified(
                tuple(range(i)), choose(residual(target_probs[i], draft_probs[i]))
            )  # in its place
    return Verified(tuple(range(len(drafted))), choose(target_probs[-1]))  # one more, for nothing


def verify_tree(
    target_probs: torch.Tensor,
    draft_probs: torch.Tensor,
    drafted: Sequence[int],
    parents: Sequence[int],
    choose: Choose,
) -> Verified:
    """`verify` for drafts that branch: one way down the tree is kept, and one more token said.

    target_probs: [n + 1, V], the target's law at the root, then after each of the n drafted tokens.
    draft_probs: [n, V], the law that each was drawn from, given its parent and the siblings before
    it. `parents[i]`: the token that token i follows, ROOT for the text itself, before it in the
    list. ValueError as in `verify`, or for a parent that does not come before its child.
    """
    _check(target_probs, draft_probs, drafted)
    check_parents(parents, len(drafted))
    kept: list[int] = []
    while True:
        here = kept[-1] if kept else ROOT
        left = target_probs[here + 1]  # [V]
        for i in (i for i, parent in enumerate(parents) if parent == here):
            if _happens(acceptance_probability(left, draft_probs[i], drafted[i]), choose):
                kept.append(i)
                break
            left = residual(left, draft_probs[i])  # [V]: what this candidate has not covered
        else:
            return Verified(tuple(kept), choose(left))


def verify_greedy(best: Sequence[int], drafted: Sequence[int], parents: Sequence[int]) -> Verified:
    """`verify_tree` at temperature 0, where nothing is drawn: a token is kept if it is the target's
    likeliest. `best`: that one at the root, then after each of the n drafted tokens, n + 1."""
    check_parents(parents, len(drafted))
    kept: list[int] = []
    while True:
        here = kept[-1] if kept else ROOT
        said = best[here + 1]
        children = (i for i, parent in enumerate(parents) if parent == here)
        child = next((i for i in children if drafted[i] == said), None)
        if child is None:
            return Verified(tuple(kept), said)
        kept.append(child)


def chain(n: int) -> list[int]:
    """The parents of n tokens that follow one another. ValueError for no whole number."""
    n = whole("the number of tokens", n, 0)
    return list(range(ROOT, n - 1))


def tree_mask(parents: Sequence[int]) -> torch.Tensor:
    """Which tokens of a verification see which: bool [n + 1, n + 1], the text's last token, then
    the n drafted ones. Each sees itself, its parent, and what its parent sees."""
    check_parents(parents, len(parents))
    mask = torch.eye(len(parents) + 1, dtype=torch.bool)
    for i, parent in enumerate(parents):
        mask[i + 1] |= mask[parent + 1]
    return mask


def depths(parents: Sequence[int]) -> list[int]:
    """How many tokens behind the text each token of a tree stands: 1 for those that follow it.
    ValueError for a parent that comes after its child."""
    check_parents(parents, len(parents))
    found: list[int] = []
    for parent in parents:
        found.append(1 if parent == ROOT else found[parent] + 1)
    return found


def check_parents(parents: Sequence[int], n: int) -> None:
    """ValueError unless there are n, each ROOT or a token before its child."""
    if len(parents) != n or any(
        not hasattr(parent, "__index__") or not ROOT <= parent < i
        for i, parent in enumerate(parents)
    ):
        raise ValueError(
            f"`parents` names, for each of {n} drafted tokens, one before it, or {ROOT} for the"
            f" text; got {list(parents)}."
        )


def _happens(probability: float, choose: Choose) -> bool:
    """Whether something of this probability happens. What is certain is not drawn."""
    if probability in (0.0, 1.0):
        return probability == 1.0
    return choose(torch.tensor([1 - probability, probability], dtype=torch.float64)) == 1


def _check(target_probs: torch.Tensor, draft_probs: torch.Tensor, drafted: Sequence[int]) -> None:
    n, V = len(drafted), target_probs.shape[-1]
    if target_probs.shape != (n + 1, V) or draft_probs.shape != (n, V):
        raise ValueError(
            f"{n} drafted tokens need target_probs of [{n + 1}, V] and draft_probs of [{n}, V]; got"
            f" {list(target_probs.shape)} and {list(draft_probs.shape)}."
        )
    if strange := [t for t in drafted if not hasattr(t, "__index__") or not 0 <= t < V]:
        raise ValueError(f"tokens are from 0 to {V - 1}; got {strange[0]}.")
