"""Drafts that branch: several candidates for one place, so that one refusal is not the end."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import mul

import torch

from twophase.kernels.sampling import Choose
from twophase.kernels.span import whole
from twophase.kernels.speculative_decoding import ROOT, tree_mask
from twophase.models.speculative_decoding.drafts import Draft, ModelDrafter, Text
from twophase.models.speculative_decoding.law import Law
from twophase.models.transformer import Transformer


class TreeDrafter(ModelDrafter):
    """A smaller model drafts a tree: `widths[d]` candidates behind each token of depth d, drawn
    without putting back. Needs a draft without states, which read one token after the other."""

    def __init__(
        self, model: Transformer, widths: Sequence[int] = (3, 2, 1), name: str = "a tree"
    ) -> None:
        super().__init__(model, name)
        self.widths = [whole("the width of a tree", width, 1) for width in widths]

    def size(self, gamma: int) -> int:
        """Tokens of a tree of gamma levels, or as many as there are widths for."""
        return tree_size(self.widths[:gamma])

    def propose(
        self, texts: Sequence[Text], counts: Sequence[int], law: Law, dice: Callable[[int], Choose]
    ) -> list[Draft]:
        """As `Drafter` says; a tree has at most len(widths) levels."""
        self._forget(texts)
        return [
            Draft() if text is None or n < 1 else self._grow(b, text, n, law, dice(b))
            for b, (text, n) in enumerate(zip(texts, counts, strict=True))
        ]

    def _grow(self, b: int, text: Sequence[int], depth: int, law: Law, draw: Choose) -> Draft:
        """One tree, level by level. The whole of it is read again for every level: it is small."""

        def logits_behind(
            level: Sequence[int], tokens: Sequence[int], parents: Sequence[int]
        ) -> torch.Tensor:
            logits = self._read_tree(b, text, tokens, parents)  # [n + 1, V]
            return logits[[node + 1 for node in level]]  # [len(level), V]

        return grow(self.widths[:depth], logits_behind, law, draw)

    def _read_tree(
        self, b: int, text: Sequence[int], tokens: Sequence[int], parents: Sequence[int]
    ) -> torch.Tensor:
        """Logits after the text and after each token of its tree: [n + 1, V]. The cache of row b
        then holds the text but for its last token, which is the tree's root."""
        missing = list(text[len(self.held[b]) : -1])
        if missing:
            self._pass(b, missing, None)
            self.cache.commit()
            self.held[b].extend(missing)
        logits = self._pass(b, [text[-1], *tokens], tree_mask(parents))
        self.cache.discard()
        return logits

    def _pass(self, b: int, tokens: Sequence[int], tree: torch.Tensor | None) -> torch.Tensor:
        """Row b reads tokens, and no other row does: logits [T, V]. Nothing is committed."""
        B = len(self.held)
        block = torch.zeros(B, len(tokens), dtype=torch.int64)
        block[b] = torch.tensor(tokens)
        counts = [len(tokens) if row == b else 0 for row in range(B)]
        logits: torch.Tensor = self.model(
            block.to(self.model.device), self.cache, n_new=counts, tree=tree, commit=False
        )  # [B, T, V]
        return logits[b]


Behind = Callable[[Sequence[int], Sequence[int], Sequence[int]], torch.Tensor]


def grow(widths: Sequence[int], logits_behind: Behind, law: Law, draw: Choose) -> Draft:
    """A tree with `widths[d]` candidates behind each token of depth d.

    `logits_behind(level, tokens, parents)`: the draft's logits [len(level), V] behind each token of
    a level, ROOT for the text, in a tree that has these tokens so far.
    """
    tokens: list[int] = []
    parents: list[int] = []
    laws: list[torch.Tensor] = []
    level = [ROOT]  # the tokens that get children next
    for width in widths:
        logits = logits_behind(level, tokens, parents)  # [len(level), V]
        grown: list[int] = []
        for node, row in zip(level, logits, strict=True):
            for token, probs in _candidates(row, width, law, draw):
                grown.append(len(tokens))
                tokens.append(token)
                parents.append(node)
                laws.append(probs)
        level = grown
    return Draft(tokens, None if law.greedy else torch.stack(laws), parents)


def tree_size(widths: Sequence[int]) -> int:
    """Tokens of a tree of these widths."""
    return sum(accumulate(widths, mul))


def _candidates(
    logits: torch.Tensor, width: int, law: Law, draw: Choose
) -> list[tuple[int, torch.Tensor]]:
    """Up to `width` different tokens, each with the law [V] it was drawn from: what those before it
    have left. At temperature 0 the likeliest."""
    if law.greedy:
        return [(int(token), logits) for token in logits.topk(min(width, len(logits))).indices]
    probs, found = law.probs(logits), []  # [V]
    for _ in range(min(width, int((probs > 0).sum()))):
        token = draw(probs)
        found.append((token, probs))
        probs = probs.clone()
        probs[token] = 0.0
        probs = probs / probs.sum() if probs.sum() > 0 else probs
    return found
