"""Whatever is done to the rows of a cache, in whatever order, each goes on as it would alone."""

from __future__ import annotations

import random

import pytest
import torch
from test_models_cache import (
    EVERY,
    NAN,
    STATES,
    alone,
    damaged,
    feed,
    interrupt,
    same,
    tree_of,
)

B, STEPS = 3, 12
DEEDS = ["feed"] * 4 + ["draft", "tree"] * 2 + ["break_off", "cut", "poison"] * 2 + ["fork", "new"]


class Rows:
    """A cache, and beside it what each of its rows should hold."""

    def __init__(self, kind: str, seed: int) -> None:
        self.draw = random.Random(f"{kind} {seed}")
        self.kind, self.model = kind, damaged(kind)  # one token's embedding is NaN
        self.S_max, self.rollback = self.draw.choice([4, 7, 30]), self.draw.choice([0, 1, 2, 5])
        self.cache = self.model.new_cache(B, self.S_max, rollback=self.rollback)
        self.held: list[list[int]] = [[] for _ in range(B)]

    def new(self) -> list[list[int]]:
        """Up to 6 new tokens of each row: one each, as many each, or of any number; none too."""
        T = self.draw.choice([1, 1, 2, 3, 6])
        even = self.draw.random() < 0.4
        counts = [T if even else self.draw.randint(0, T) for _ in range(B)]
        room = [min(n, self.S_max - len(h)) for n, h in zip(counts, self.held, strict=True)]
        return [self.draw.choices(range(NAN), k=n) for n in room]

    def feed(self, commit: bool = True) -> list[list[int]]:
        new = self.new()
        found = feed(self.model, self.cache, new, commit=commit)
        for held, some, logits in zip(self.held, new, found, strict=True):
            if some:
                same(logits, alone(self.model, held + some)[len(held) :])
        if commit:
            self.held = [held + some for held, some in zip(self.held, new, strict=True)]
        return new

    def draft(self) -> None:
        new = self.feed(commit=False)
        if self.draw.random() < 0.2:  # never committed: another deed comes between
            return
        kept = [self.draw.randint(0, len(some)) for some in new]
        try:
            self.cache.commit(kept)
        except ValueError:
            assert self.kind in STATES
            self.cache.commit(kept := [0] * B)
        self.held = [h + some[:n] for h, some, n in zip(self.held, new, kept, strict=True)]

    def tree(self) -> None:
        """Drafts that branch: each gets what it would after its own path, and one path stays."""
        if self.kind in STATES:
            return
        new = self.new()
        T = max(1, *map(len, new))
        parents = [self.draw.randrange(-1, t) for t in range(T)]
        paths = [[t] for t in range(T)]
        for t, parent in enumerate(parents):
            if parent >= 0:
                paths[t] = [*paths[parent], t]
        found = feed(self.model, self.cache, new, tree=tree_of(parents), commit=False)
        for held, some, logits in zip(self.held, new, found, strict=True):
            for t in range(len(some)):
                way = held + [some[s] for s in paths[t]]
                same(logits[t], alone(self.model, way)[-1])
        kept = [self.draw.choice([[], *paths[: len(some)]]) for some in new]
        self.cache.commit(paths=kept)
        for held, some, path in zip(self.held, new, kept, strict=True):
            held += [some[t] for t in path]

    def poison(self) -> None:
        """Drafts of NaN that do not stay."""
        drafts = [[NAN] * len(some) for some in self.new()]
        feed(self.model, self.cache, drafts, commit=False)
        if self.draw.random() < 0.5:
            self.cache.commit(0)

    def break_off(self) -> None:
        layer = self.model.layers[self.draw.randrange(self.model.config.L)]
        part = self.draw.choice([layer.self_attn, layer.mlp, self.model.lm_head])
        hook = part.register_forward_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            feed(self.model, self.cache, self.new())
        hook.remove()

    def cut(self) -> None:
        lengths = [max(0, len(h) - self.draw.choice([0, 0, 1, 2, 99])) for h in self.held]
        try:
            self.cache.truncate(lengths)
        except ValueError:  # further back than the layers can go: nothing has changed
            return
        self.held = [h[:n] for h, n in zip(self.held, lengths, strict=True)]

    def do(self, deed: str) -> None:
        a, b = self.draw.randrange(B), self.draw.randrange(B)
        if deed == "fork":
            self.cache.fork(a, b)
            self.held[b] = list(self.held[a])
        elif deed == "new":
            self.cache.release(a)
            assert self.cache.admit() == a
            self.held[a] = []
        else:
            getattr(self, deed)()
        assert self.cache.lengths == tuple(map(len, self.held))


@EVERY
@pytest.mark.parametrize(
    "seeds", [range(1), pytest.param(range(1, 25), marks=pytest.mark.more)], ids=["few", "many"]
)
def test_rows_survive_any_order_of_deeds(kind, seeds):
    with torch.inference_mode():
        for seed in seeds:
            rows = Rows(kind, seed)
            for deed in rows.draw.choices(DEEDS, k=STEPS):
                rows.do(deed)
            rows.feed()
