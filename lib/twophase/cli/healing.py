"""`twophase prune --heal`: what is left is trained by what the whole model says of a text."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twophase.cli.smaller import Bar, Source, read_text

if TYPE_CHECKING:
    import numpy as np
    import torch

    from twophase.models.transformer import Transformer

CORPUS = "corpus"  # in place of a file: the course's


@dataclass(frozen=True)
class Lesson:
    """A text to heal on, and how much of it."""

    text: bytes
    n_tokens: int
    seed: int

    @classmethod
    def on(cls, file: Path, n_tokens: int, seed: int) -> Lesson:
        """A lesson on the text of a file, or on the course's. ValueError if it cannot be read."""
        return cls(read_text(None if str(file) == CORPUS else file, "train"), n_tokens, seed)

    def data(self, source: Source) -> np.ndarray:
        """The text as tokens: of a long one with a tokenizer the beginning."""
        from twophase.models.quantize.texts import SOME_BYTES, as_tokens

        return as_tokens(self.text, source.encode, SOME_BYTES if source.encode else len(self.text))

    def check(self, source: Source, T: int) -> None:
        """ValueError if it fills no step: before the work, not after it."""
        from twophase.models.recipe import Recipe, batch

        if self.n_tokens < Recipe().B * T:
            raise ValueError(
                f"--tokens: a step of healing reads {Recipe().B * T:,}; got {self.n_tokens:,}."
            )
        batch(self.data(source), 0, Recipe().B, T, self.seed)

    def heal(
        self,
        cut: Transformer,
        source: Source,
        T: int,
        judged: Callable[[Transformer], float],
        stored: torch.dtype,
    ) -> tuple[Transformer, dict[str, Any]]:
        """What is left, trained by the whole model's logits, unless it was better without; and
        what was seen. In fp32, and back to the dtype that it had, rounded as it will be stored."""
        from twophase.models.pruning.healing import RECIPE
        from twophase.models.pruning.teaching import LOGITS, teach

        recipe = replace(RECIPE, n_tokens=self.n_tokens, seed=1000 + self.seed)
        student, dtype = copy.deepcopy(cut).float(), cut.embed_tokens.weight.dtype
        started = time.perf_counter()
        with Bar("healing") as bar:
            told = partial(bar, "steps")
            teach(student, source.model, [], LOGITS, recipe, self.data(source), T=T, progress=told)
        took_s = time.perf_counter() - started
        made = student.to(stored).to(dtype).eval().requires_grad_(False)
        bits = [judged(cut), judged(made)]
        better = bits[1] < bits[0]
        facts = {"tokens": recipe.steps(T) * recipe.B * T, "bits_per_byte": bits, "kept": better}
        return made if better else cut, {**facts, "healing_s": took_s}


def healing_words(healed: dict[str, Any] | None) -> str:
    """What healing did, as part of a sentence; nothing if nobody asked for it."""
    if healed is None:
        return ""
    before, after = healed["bits_per_byte"]
    how = f"healed on {healed['tokens']:,} tokens in {healed['healing_s']:.1f} s"
    if healed["kept"]:
        return f"{how}: {before:.4f} bits per byte before that; "
    return f"{how}, it had {after:.4f} and was left as it was cut; "
