"""Ways to verify a draft that were published, or shipped, and are wrong: each is called as `verify`
is, says something at every step, and looks right until its law is enumerated.

Notes and loops draw again from the target after a refusal, swap the two laws, take the likeliest of
the residual, or judge by another place's row. A threshold in place of the ratio is the simplest
form of what Medusa calls typical acceptance (Cai et al. 2024, arXiv 2401.10774), which gives up the
target's law on purpose.
"""

from collections.abc import Sequence

import torch

from twophase.kernels.sampling import Choose
from twophase.kernels.speculative_decoding import (
    Verified,
    acceptance_probability,
    residual,
    verify,
)


def draws_again_from_the_target(
    target_probs: torch.Tensor, draft_probs: torch.Tensor, drafted: Sequence[int], choose: Choose
) -> Verified:
    """After a refusal the target's whole law, and not what the draft had left of it."""
    for i, token in enumerate(drafted):
        if not _kept(acceptance_probability(target_probs[i], draft_probs[i], token), choose):
            return Verified(tuple(range(i)), choose(target_probs[i]))
    return Verified(tuple(range(len(drafted))), choose(target_probs[-1]))


def swaps_the_two_laws(
    target_probs: torch.Tensor, draft_probs: torch.Tensor, drafted: Sequence[int], choose: Choose
) -> Verified:
    """Draft over target, and draft less target: papers and notes use p and q both ways round."""
    for i, token in enumerate(drafted):
        if not _kept(acceptance_probability(draft_probs[i], target_probs[i], token), choose):
            return Verified(tuple(range(i)), choose(residual(draft_probs[i], target_probs[i])))
    return Verified(tuple(range(len(drafted))), choose(target_probs[-1]))


def takes_the_likeliest_of_the_residual(
    target_probs: torch.Tensor, draft_probs: torch.Tensor, drafted: Sequence[int], choose: Choose
) -> Verified:
    """After a refusal nothing is drawn."""
    for i, token in enumerate(drafted):
        if not _kept(acceptance_probability(target_probs[i], draft_probs[i], token), choose):
            best = int(residual(target_probs[i], draft_probs[i]).argmax())
            return Verified(tuple(range(i)), best)
    return Verified(tuple(range(len(drafted))), choose(target_probs[-1]))


def does_not_normalize_the_residual(
    target_probs: torch.Tensor, draft_probs: torch.Tensor, drafted: Sequence[int], choose: Choose
) -> Verified:
    """Drawn by a running sum that never reaches 1: what is missing falls to the last token."""
    for i, token in enumerate(drafted):
        if not _kept(acceptance_probability(target_probs[i], draft_probs[i], token), choose):
            left = (target_probs[i] - draft_probs[i]).clamp(min=0)  # [V]
            left[-1] += 1 - left.sum()
            return Verified(tuple(range(i)), choose(left))
    return Verified(tuple(range(len(drafted))), choose(target_probs[-1]))


def reads_the_target_one_row_late(
    target_probs: torch.Tensor, draft_probs: torch.Tensor, drafted: Sequence[int], choose: Choose
) -> Verified:
    """Each token is judged by the law of the place behind it."""
    return verify(torch.cat([target_probs[1:], target_probs[-1:]]), draft_probs, drafted, choose)


def keeps_what_the_target_finds_likely(
    target_probs: torch.Tensor, draft_probs: torch.Tensor, drafted: Sequence[int], choose: Choose
) -> Verified:
    """A threshold in place of a ratio."""
    for i, token in enumerate(drafted):
        if target_probs[i, token] < 0.3:
            return Verified(tuple(range(i)), choose(residual(target_probs[i], draft_probs[i])))
    return Verified(tuple(range(len(drafted))), choose(target_probs[-1]))


def leaves_out_the_bonus(
    target_probs: torch.Tensor, draft_probs: torch.Tensor, drafted: Sequence[int], choose: Choose
) -> Verified:
    """When all are kept nothing is added: the law is the target's still, a token a call is lost."""
    found = verify(target_probs, draft_probs, drafted, choose)
    if drafted and len(found.kept) == len(drafted):
        return Verified(found.kept[:-1], drafted[-1])
    return found


# what breaks the law; `leaves_out_the_bonus` only costs tokens
FAULTS = {
    "draws again from the target": draws_again_from_the_target,
    "swaps the two laws": swaps_the_two_laws,
    "takes the likeliest of the residual": takes_the_likeliest_of_the_residual,
    "does not normalize the residual": does_not_normalize_the_residual,
    "reads the target one row late": reads_the_target_one_row_late,
    "keeps what the target finds likely": keeps_what_the_target_finds_likely,
}


def _kept(probability: float, choose: Choose) -> bool:
    """Whether a token is kept."""
    return choose(torch.tensor([1 - probability, probability], dtype=torch.float64)) == 1
