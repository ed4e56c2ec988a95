"""The law that tokens are drawn from, the same for target and draft, and the dice of each
sequence."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from twophase.kernels.sampling import Choose, check_sampling, sampling_probs


@dataclass(frozen=True)
class Law:
    """How logits become probabilities, of target and draft alike. Raises ValueError for settings
    out of range."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        check_sampling(self.temperature, self.top_k, self.top_p)

    @property
    def greedy(self) -> bool:
        """Whether nothing is drawn: the likeliest token is taken."""
        return self.temperature == 0

    def probs(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits [..., V] → probabilities [..., V] in fp64: what is drafted with them and what is
        accepted with them are then the same numbers, to the last of sixteen digits."""
        found = sampling_probs(logits, self.temperature, self.top_k, self.top_p).double()
        return found / found.sum(-1, keepdim=True)  # [..., V]


class Dice:
    """What draws for B sequences: each from a generator of its own, so that it gets what it would
    get alone, or all from `choose`, which a test replays over every branch."""

    def __init__(
        self,
        generators: Sequence[torch.Generator] | None = None,
        choose: Choose | None = None,
    ) -> None:
        self.generators, self.choose = generators, choose

    def of(self, b: int) -> Choose:
        """The dice of sequence b."""
        if self.choose is not None:
            return self.choose
        generator = None if self.generators is None else self.generators[b]

        def draw(probs: torch.Tensor) -> int:
            if generator is not None:
                probs = probs.to(generator.device)
            return int(torch.multinomial(probs, 1, generator=generator))

        return draw
