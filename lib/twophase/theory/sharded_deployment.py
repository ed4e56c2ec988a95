"""A model on its chips in a layout, what they send each other counted: the loads are those of
`sharded_layouts`, as chapter 10 prices them.

A step reads and computes at the same time, and then sends; the sum of all three is what it takes
without any overlap.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from twophase.theory import sharded_layouts
from twophase.theory._domain import Number
from twophase.theory.deployment import Deployment, Times, largest
from twophase.theory.hardware import bytes_per_value
from twophase.theory.links import Link
from twophase.theory.sharded_pass import Load, Pass

MOST_SEARCHED = 1024  # chips


@dataclass(frozen=True)
class ShardedDeployment(Deployment):
    """An architecture on `w.n_chips` of these chips, joined by `link`, in the layout `w.layout`.
    ValueError for one that cannot cut this model over so many chips."""

    link: Link

    def __post_init__(self) -> None:
        self.load(1, 1)

    def load(self, B: int, S: Number, T: int = 1) -> Load:
        """What the fullest chip has to do in a pass of B sequences of S positions, T of them
        new."""
        w, widest = self.w, bytes_per_value(self.w.compute)
        p = Pass(
            self.arch, B, S, T,
            bytes_per_param=w.bytes_per_weight(),
            bytes_per_kv=Fraction(bytes_per_value(w.kv)),
            bytes_per_activation=max(widest, bytes_per_value("bf16")),
            bytes_per_kept=Fraction(bytes_per_value(w.kept)),
            bytes_per_attention=w.bytes_per_attention(),
        )  # fmt: skip
        return sharded_layouts.load(str(w.layout), p, w.n_chips, self.link)

    @property
    def sequences_at_once(self) -> int:
        """In multiples of how many sequences no chip waits for another."""
        return sharded_layouts.sequences_at_once(
            str(self.w.layout), self.arch, self.w.n_chips, self.link
        )

    @cached_property
    def weight_bytes(self) -> Fraction:
        """All weights that the fullest chip stores."""
        return Fraction(self.load(self.w.batch, self.w.context).weight_bytes)

    def cache_bytes(self, S: Number) -> Fraction:
        """The chip's part of the cache of one of its sequences."""
        return Fraction(self.load(1, S).cache_bytes)

    def held_cache_bytes(self, B: int, S: int) -> Fraction:
        """Caches that the fullest chip keeps."""
        return Fraction(self.load(B, S).cache_bytes)

    def total_bytes(self, B: int, S: int) -> Fraction:
        """Weights, caches, activations and overhead."""
        load = self.load(B, S)
        return self._total(Fraction(load.weight_bytes), Fraction(load.cache_bytes))

    def max_batch(self, S: int) -> int:
        """The most sequences of S positions that fit."""
        return largest(lambda B: self.fits(B, S))

    def fits(self, B: int, S: int) -> bool:
        """Whether B sequences of S positions fit."""
        return self.total_bytes(B, S) <= self.usable_bytes

    def chips_needed(self, B: int, S: int) -> int | None:
        """The fewest chips, of those up to 1,024 that the layout can cut the model over, on which
        B sequences of S positions fit; None if there are none."""
        if self._fits_on(MOST_SEARCHED, B, S) is False:  # no chip has less than one of so many
            return None
        tried = range(1, MOST_SEARCHED + 1)
        return next((n for n in tried if self._fits_on(n, B, S)), None)

    def _fits_on(self, n_chips: int, B: int, S: int) -> bool | None:
        """Whether they fit on so many chips; None if the layout cannot cut the model so."""
        try:
            return self.with_workload(replace(self.w, n_chips=n_chips)).fits(B, S)
        except ValueError:
            return None

    def step_weight_bytes(self, n_tokens: int) -> float:
        """Weights that a step of so many tokens reads, one per sequence."""
        return self.load(n_tokens, 1).weight_read_bytes

    def step_bytes(self, B: int, S: int) -> float:
        """Weights and caches that such a step reads."""
        return self.load(B, S).read_bytes

    def step_flops(self, B: int, S: Number) -> float:
        """FLOPs of a decode step of B sequences, S keys each."""
        return self.load(B, S).flops

    def prefill_flops(self, T: int) -> float:
        """FLOPs of one prompt of T tokens, where no chip waits for another."""
        return self.load(self.sequences_at_once, T, T).flops / self.sequences_at_once

    def step(self, B: int, S: Number) -> Times:
        """Times of that step."""
        load = self.load(B, S)
        return self._loaded(load, load.read_bytes, load.flops)

    def mean_step(self, B: int) -> Times:
        """Times of a decode step in the steady state."""
        read = float(self._mean(lambda S: self.load(B, S).read_bytes))
        flops = float(self._mean(lambda S: self.load(B, S).flops))
        return self._loaded(self.load(B, 1), read, flops)

    @cached_property
    def mean_cache_bytes(self) -> float:
        """Of a sequence's cache, what a chip reads over a request's steps on average, where no chip
        waits for another."""
        B = self.sequences_at_once
        return float(self._mean(lambda S: self.load(B, S).cache_read_bytes)) / B

    @cached_property
    def mean_token_flops(self) -> float:
        """FLOPs of a token of one sequence, over a request's steps on average, likewise."""
        B = self.sequences_at_once
        return float(self._mean(lambda S: self.load(B, S).flops)) / B

    def prefill(self, T: int) -> Times:
        """Times of one prompt of T tokens, alone."""
        return self._prompts(1, T)

    def prompt(self, T: int) -> Times:
        """Times that a prompt takes of the machine's: as many run together as are in flight, and
        as keep all chips busy."""
        n = min(self.w.batch, self.sequences_at_once)
        t = self._prompts(n, T)
        return Times(t.memory_s / n, t.compute_s / n, t.overlapped_s / n, t.sum_s / n, t.send_s / n)

    def weights_alone(self, B: int) -> Times:
        """Times of a step of B tokens without any attention to caches."""
        one, two = self.load(B, 1), self.load(B, 2)
        flops = 2 * one.flops - two.flops if self.arch.window != 1 else one.flops
        return self._loaded(one, self.step_weight_bytes(B), flops)

    def _prompts(self, n: int, T: int) -> Times:
        load = self.load(n, T, T)
        return self._loaded(load, load.read_bytes, load.flops)

    def _loaded(self, load: Load, read_bytes: float, flops: float) -> Times:
        memory_s = read_bytes / self.chip.hbm_bytes_per_s
        compute_s = flops / self.chip.peak_flops_per_s(self.w.compute)
        send_s = load.sending_s(self.link)
        work_s = max(memory_s, compute_s)
        return Times(memory_s, compute_s, work_s + send_s, memory_s + compute_s + send_s, send_s)
