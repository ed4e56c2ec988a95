"""The target in the loop: it reads the prompts, then drafts in one pass, and judges them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from twophase.kernels.speculative_decoding import (
    Verified,
    chain,
    tree_mask,
    verify_greedy,
    verify_tree,
)
from twophase.models.cache import Cache
from twophase.models.generate import last_logits
from twophase.models.speculative_decoding.drafts import Draft, FeatureReader
from twophase.models.speculative_decoding.law import Dice, Law
from twophase.models.transformer import Transformer


@dataclass
class Judge:
    """The model that judges, with the law and the dice that it shares with the draft."""

    model: Transformer
    run: Callable[..., torch.Tensor]
    law: Law
    dice: Dice
    reader: FeatureReader | None = None  # a draft that reads the target's stream

    def first(self, prompts: Sequence[Sequence[int]], cache: Cache) -> list[int]:
        """Read the prompts; the first token of each."""
        if self.reader is None:
            logits = last_logits(self.run, self.model.device, prompts, cache)  # [B, V]
        else:
            block, counts = _padded(prompts, self.model.device)
            stream = self.model.hidden(block, cache, n_new=counts)  # [B, T, D]
            ends = torch.tensor(counts, device=self.model.device) - 1  # [B]
            logits = self.model.logits(stream, ends)
            self.reader.see([row[:n] for row, n in zip(stream, counts, strict=True)])
        if self.law.greedy:
            return [int(best) for best in logits.argmax(-1)]
        return [self.dice.of(b)(probs) for b, probs in enumerate(self.law.probs(logits))]

    def judge(
        self, said: Sequence[int | None], drafts: Sequence[Draft], cache: Cache
    ) -> list[Verified | None]:
        """The last token said and the drafted ones, of every sequence that goes on (`said[b]` is
        not None), in one pass, or in one each where trees differ; what stays is committed."""
        verdicts: list[Verified | None] = [None] * len(said)
        for rows in _passes(drafts):
            fed: list[list[int]] = [[] for _ in said]
            for b in rows:
                last = said[b]
                fed[b] = [] if last is None else [last, *drafts[b].tokens]
            if any(fed):
                tree = _mask(drafts[b] for b in rows)
                for b, verdict in self._judge(fed, drafts, tree, cache).items():
                    verdicts[b] = verdict
        return verdicts

    def _judge(
        self,
        fed: Sequence[Sequence[int]],
        drafts: Sequence[Draft],
        tree: torch.Tensor | None,
        cache: Cache,
    ) -> dict[int, Verified]:
        """One pass over the tokens that are fed."""
        block, counts = _padded(fed, self.model.device)
        options: dict[str, Any] = {"n_new": counts, "tree": tree, "commit": False}
        if self.reader is None:
            logits = self.run(block, cache, **options)  # [B, T, V]
        else:
            stream = self.model.hidden(block, cache, **options)  # [B, T, D]
            logits = self.model.logits(stream)
        verdicts = {
            b: self._verdict(logits[b, :n], drafts[b], b) for b, n in enumerate(counts) if n
        }
        paths = [[0, *(i + 1 for i in verdicts[b].kept)] if n else [] for b, n in enumerate(counts)]
        if tree is None:
            cache.commit([len(path) for path in paths])
        else:
            cache.commit(paths=paths)
        if self.reader is not None:
            self.reader.see([stream[b, path] if path else None for b, path in enumerate(paths)])
        return verdicts

    def _verdict(self, logits: torch.Tensor, draft: Draft, b: int) -> Verified:
        """What stays of one draft, from logits [n + 1, V]."""
        parents = draft.parents or []
        if self.law.greedy:
            return verify_greedy(logits.argmax(-1).tolist(), draft.tokens, parents)
        probs = self.law.probs(logits)  # [n + 1, V]
        laws = draft.law(probs.shape[-1]).to(probs.device)  # [n, V]
        return verify_tree(probs, laws, draft.tokens, parents, self.dice.of(b))


def _padded(fed: Sequence[Sequence[int]], device: torch.device) -> tuple[torch.Tensor, list[int]]:
    """What is fed to each sequence as one block, int64 [B, T], and how many of each are real."""
    T = max(map(len, fed))
    block = torch.tensor([[*own, *[0] * (T - len(own))] for own in fed])  # [B, T]
    return block.to(device), [len(own) for own in fed]


def _passes(drafts: Sequence[Draft]) -> list[list[int]]:
    """The sequences that are verified together: all of them, if each one's tree is the beginning of
    the largest, since a pass has one tree; else each by itself."""
    trees = [draft.parents or [] for draft in drafts]
    largest = max(trees, key=len)
    if all(tree == largest[: len(tree)] for tree in trees):
        return [list(range(len(drafts)))]
    return [[b] for b in range(len(drafts))]


def _mask(drafts: Iterable[Draft]) -> torch.Tensor | None:
    """What the tokens of these drafts see, bool [T, T]; None where one follows the other."""
    largest = max((draft.parents or [] for draft in drafts), key=len)
    return None if largest == chain(len(largest)) else tree_mask(largest)
