"""Attention to a window of positions and to a summary of all before it, as DeepSeek V4 has it.

Each position has one vector of width H, key and value at once. Beside those of the window, a layer
keeps one for every `ratio` positions, a mean with learned weights; where the ratio is small, a
second one of width `index_dim`, by which a query chooses the `top_k` summaries that it meets.
(Vectors that wait for their summary to be complete are not counted.)
"""

from dataclasses import dataclass, replace

from twophase.theory._domain import COUNT, SOME, Number
from twophase.theory._ops import ceil_div, minimum
from twophase.theory.arithmetic_intensity import attention_pairs, window_pairs


@dataclass(frozen=True)
class CompressedKeys:
    """`ratios`: for each layer, how many positions one summary stands for, 0 where there are none;
    `chosen_ratio`: that of the layers which choose. Queries come from `q_rank` numbers; the outputs
    of `group_heads` heads are made `o_rank` numbers, and all of these the layer's output.
    ValueError for what are no whole numbers."""

    window: int
    ratios: tuple[int, ...]
    chosen_ratio: int
    top_k: int
    index_heads: int
    index_dim: int
    q_rank: int
    group_heads: int
    o_rank: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name != "ratios":
                SOME.check(name, value)
        for ratio in self.ratios:
            COUNT.check("a ratio", ratio)

    @property
    def bends(self) -> tuple[int, ...]:
        """From how many positions on a query meets no more of something."""
        chooses = self.chosen_ratio in self.ratios
        return (self.window, *([self.top_k * self.chosen_ratio] if chooses else []))

    @property
    def n_choosing(self) -> int:
        """Layers whose queries choose."""
        return self.ratios.count(self.chosen_ratio)

    def of_layers(self, start: int, end: int) -> "CompressedKeys":
        """The same for some of the layers."""
        return replace(self, ratios=self.ratios[start:end])

    def kept_values(self, S: Number, H: int) -> Number:
        """Numbers that the caches of one sequence hold."""
        window = len(self.ratios) * minimum(S, self.window) * H
        summaries = sum(_per(S, ratio) for ratio in self.ratios) * H
        return window + summaries + self.n_choosing * _per(S, self.chosen_ratio) * self.index_dim

    def met_values(self, S: Number, H: int) -> Number:
        """Those of them that a step reads: of summaries that are chosen from, the chosen ones."""
        every = _per(S, self.chosen_ratio)
        return self.kept_values(S, H) - self.n_choosing * (every - self._met(S)) * H

    def decode_flops(self, S: Number, N: int, H: int) -> Number:
        """FLOPs of one token's scores and weighted values, and of choosing."""
        met = len(self.ratios) * minimum(S, self.window) + self.n_choosing * self._met(S)
        met = met + sum(_per(S, ratio) for ratio in self.ratios if ratio != self.chosen_ratio)
        return met * 4 * N * H + self._choosing_flops(_per(S, self.chosen_ratio))

    def prefill_flops(self, T: Number, N: int, H: int) -> Number:
        """The same of T tokens under a causal mask."""
        pairs = attention_pairs(T, T, causal=True)
        chosen = window_pairs(T, self.top_k * self.chosen_ratio) / self.chosen_ratio
        met = len(self.ratios) * window_pairs(T, self.window) + self.n_choosing * chosen
        met = met + sum(pairs / r for r in self.ratios if r not in (0, self.chosen_ratio))
        return met * 4 * N * H + self._choosing_flops(pairs / self.chosen_ratio)

    def params(self, ratio: int, D: int, N: int, H: int, norms: bool = True) -> int:
        """Parameters of one layer's attention; without norms, sinks and biases of positions those
        that a token is multiplied with."""
        groups = ceil_div(N, self.group_heads)
        total = D * self.q_rank + self.q_rank * N * H + D * H
        total += N * H * self.o_rank + groups * self.o_rank * D
        beside = self.q_rank + H + N
        if ratio:
            both = 2 if ratio == self.chosen_ratio else 1  # each position is in two means
            total += 2 * D * both * H
            beside += ratio * both * H + H
        if ratio == self.chosen_ratio:
            total += 4 * D * self.index_dim + D * self.index_heads
            total += self.q_rank * self.index_heads * self.index_dim
            beside += (2 * ratio + 1) * self.index_dim
        return int(total + beside * norms)

    def _met(self, S: Number) -> Number:
        return minimum(_per(S, self.chosen_ratio), self.top_k)

    def _choosing_flops(self, pairs: Number) -> Number:
        return self.n_choosing * pairs * 2 * self.index_heads * self.index_dim


def _per(S: Number, ratio: int) -> Number:
    """Summaries of S positions, the part of one that is not complete counted as a part."""
    return S / ratio if ratio else 0
