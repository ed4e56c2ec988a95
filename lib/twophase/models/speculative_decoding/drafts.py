"""Who drafts: a smaller model, or the text itself. All propose to a batch of texts of any
lengths."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch

from twophase.kernels.sampling import Choose
from twophase.kernels.span import whole
from twophase.kernels.speculative_decoding import chain
from twophase.models.generate import on_path
from twophase.models.speculative_decoding.law import Law
from twophase.models.transformer import Transformer

Text = Sequence[int] | None  # the tokens of a sequence so far; None: it has ended


@dataclass(frozen=True)
class Draft:
    """Tokens that are proposed to continue one text."""

    tokens: list[int] = field(default_factory=list)  # n of them
    probs: torch.Tensor | None = (
        None  # [n, V], the law each was drawn from; None: they were certain
    )
    parents: list[int] | None = None  # the token that each follows; None: one follows the other

    def __post_init__(self) -> None:
        if self.parents is None:
            object.__setattr__(self, "parents", chain(len(self.tokens)))

    def law(self, V: int) -> torch.Tensor:
        """The law of each token, [n, V]: what was certain has all the mass."""
        if self.probs is not None:
            return self.probs
        sure = torch.zeros(len(self.tokens), V, dtype=torch.float64)  # [n, V]
        return sure.scatter_(1, torch.tensor(self.tokens, dtype=torch.int64)[:, None], 1.0)


class Drafter(Protocol):
    """What proposes tokens."""

    name: str

    def begin(self, V: int, B: int, S_max: int, gamma: int) -> int:
        """B new texts of at most S_max tokens begin, over a vocabulary of V; drafts reach at most
        gamma tokens ahead. Returns how many tokens the largest has, branches included. ValueError
        if this drafter is not for them."""

    def propose(
        self, texts: Sequence[Text], counts: Sequence[int], law: Law, dice: Callable[[int], Choose]
    ) -> list[Draft]:
        """Drafts that reach up to `counts[b]` tokens ahead of each text, drawn by `dice(b)`."""


@runtime_checkable
class FeatureReader(Drafter, Protocol):
    """A drafter that reads, besides the text, what the target made of it."""

    def see(self, features: Sequence[torch.Tensor | None]) -> None:
        """The target's stream after its last norm at the tokens of each text that it has read and
        that stay, [n, D], from where the last call ended; None for a text that it did not read. The
        last token of a text is read by the next verification only."""


class ModelDrafter:
    """A smaller model drafts, one token after the other, over a cache of its own."""

    def __init__(self, model: Transformer, name: str = "a model", path: str = "plain") -> None:
        self.model, self.name = model, name
        self.run = on_path(model, path)

    def begin(self, V: int, B: int, S_max: int, gamma: int) -> int:
        """As `Drafter` says."""
        check_vocabulary(V, self.model.config.V)
        size = self.size(gamma)
        self.cache = self.model.new_cache(B, S_max + size, rollback=gamma)
        self.held: list[list[int]] = [[] for _ in range(B)]  # the tokens that the cache has read
        return size

    def size(self, gamma: int) -> int:
        """Tokens of a draft that reaches gamma tokens ahead."""
        return gamma

    def propose(
        self, texts: Sequence[Text], counts: Sequence[int], law: Law, dice: Callable[[int], Choose]
    ) -> list[Draft]:
        """As `Drafter` says. What the target refused is forgotten first."""
        self._forget(texts)
        tokens: list[list[int]] = [[] for _ in texts]
        probs: list[list[torch.Tensor]] = [[] for _ in texts]
        for i in range(max(counts)):
            asked = [b for b, text in enumerate(texts) if text is not None and i < counts[b]]
            logits = self._read(texts, tokens, asked)  # [B, V]
            for b in asked:
                if law.greedy:
                    tokens[b].append(int(logits[b].argmax()))
                    continue
                probs[b].append(law.probs(logits[b]))  # [V]
                tokens[b].append(dice(b)(probs[b][-1]))
        return [
            Draft(own, torch.stack(laws) if laws else None)
            for own, laws in zip(tokens, probs, strict=True)
        ]

    def _forget(self, texts: Sequence[Text]) -> None:
        """Cut the cache back to what it shares with each text, its last token left to be read."""
        for held, text in zip(self.held, texts, strict=True):
            if text is not None:
                del held[_shared(held, text) :]
        self.cache.truncate([len(held) for held in self.held])

    def _read(
        self, texts: Sequence[Text], tokens: Sequence[Sequence[int]], asked: Sequence[int]
    ) -> torch.Tensor:
        """Read what the cache has not seen of the texts that are asked for; logits [B, V] after
        each."""
        new: list[list[int]] = [[] for _ in texts]
        for b in asked:
            new[b] = [*(texts[b] or ()), *tokens[b]][len(self.held[b]) :]
        T = max(map(len, new))
        block = torch.tensor([[*own, *[0] * (T - len(own))] for own in new])  # [B, T]
        counts = [len(own) for own in new]
        logits: torch.Tensor = self.run(
            block.to(self.model.device), self.cache, n_new=counts, at=-1
        )  # [B, V]
        for held, own in zip(self.held, new, strict=True):
            held.extend(own)
        return logits


class LookupDrafter:
    """The text itself drafts: what followed the last few tokens where they stood before (prompt
    lookup; Saxena 2023). The longest match wins, of several the last. No model, no cache."""

    name = "lookup"

    def __init__(self, longest: int = 8, shortest: int = 2) -> None:
        self.shortest = whole("the shortest match", shortest, 1)
        self.longest = whole("the longest match", longest, self.shortest)

    def begin(self, V: int, B: int, S_max: int, gamma: int) -> int:
        """As `Drafter` says: nothing to prepare."""
        return gamma

    def propose(
        self, texts: Sequence[Text], counts: Sequence[int], law: Law, dice: Callable[[int], Choose]
    ) -> list[Draft]:
        """As `Drafter` says. Nothing is drawn: each token is certain."""
        return [
            Draft([] if text is None else self.after(text, n))
            for text, n in zip(texts, counts, strict=True)
        ]

    def after(self, text: Sequence[int], n: int) -> list[int]:
        """Up to n tokens that followed where the end of the text stood before; none if nowhere."""
        for size in range(min(self.longest, len(text) - 1), self.shortest - 1, -1):
            end = list(text[-size:])
            for start in range(len(text) - size - 1, -1, -1):
                if text[start] == end[0] and list(text[start : start + size]) == end:
                    return list(text[start + size : start + size + n])
        return []


def check_vocabulary(target_V: int, draft_V: int) -> None:
    """ValueError unless target and draft have one vocabulary."""
    if target_V != draft_V:
        raise ValueError(
            f"target and draft must share a vocabulary; they have {target_V} and {draft_V} tokens."
        )


def _shared(held: Sequence[int], text: Sequence[int]) -> int:
    """How many tokens both begin with; the last of the text never counts, so that one is read."""
    n = 0
    while n < min(len(held), len(text) - 1) and held[n] == text[n]:
        n += 1
    return n
