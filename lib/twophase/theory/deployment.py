"""A model on its chips: what the fullest chip holds, reads and computes.

The chips work in step, so that the fullest one sets the pace; communication is not counted. Bytes
that decide whether something fits are exact fractions.
"""

from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

from twophase.theory import kv_cache, latency_throughput
from twophase.theory._domain import COUNT, SOME, Number
from twophase.theory._ops import exact
from twophase.theory.architecture import Architecture
from twophase.theory.hardware import Hardware, bytes_per_value
from twophase.theory.layout import chip_part
from twophase.theory.sharded_pass import prompt_flops
from twophase.theory.two_phases import forward_flops
from twophase.theory.weight_format import stored_bytes
from twophase.theory.workload import LARGEST, Workload

MOST_CHIPS = 10**6


@dataclass(frozen=True)
class Times:
    """Seconds of a step if only reading took time, if only computing did, and of both together;
    what is sent after them is in the latter two. Times of steps one after the other add up."""

    memory_s: float
    compute_s: float
    overlapped_s: float
    sum_s: float
    send_s: float = 0.0

    def both(self) -> tuple[float, float]:
        """With perfect overlap, and with none."""
        return self.overlapped_s, self.sum_s

    def __add__(self, other: "Times") -> "Times":
        return Times(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, factor: float) -> "Times":
        return Times(*(factor * seconds for seconds in astuple(self)))


def largest(good: Callable[[int], bool], most: int = LARGEST) -> int:
    """The largest whole number up to `most` that is good, if all below it are; 0 if none is."""
    if good(most):
        return most
    low, high = 0, 1
    while high < most and good(high):  # the answer is mostly small: double before halving
        low, high = high, 2 * high
    high = min(high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if good(middle) else (low, middle)
    return low


@dataclass(frozen=True)
class Deployment:
    """An architecture on `w.n_chips` of these chips. All sizes are those of the fullest chip."""

    arch: Architecture
    chip: Hardware
    w: Workload

    @cached_property
    def part(self) -> Architecture:
        """That chip's part of the model."""
        return chip_part(self.arch, self.w.n_chips)

    @cached_property
    def usable_bytes(self) -> Fraction:
        """What an engine may use of the chip's memory."""
        return self.w.exact("usable_fraction") * Fraction(exact(self.chip.hbm_bytes)[0])

    def _in_formats(self, parts: dict[str, Number]) -> Number:
        """Bytes of parameters by part."""
        kept = Fraction(bytes_per_value(self.w.kept))
        w = self.w
        return stored_bytes(parts, w.bytes_per_weight(), kept, w.bytes_per_attention())

    @cached_property
    def weight_bytes(self) -> Fraction:
        """All weights that the chip stores."""
        return Fraction(self._in_formats(dict(self.part.breakdown())))

    def cache_bytes(self, S: Number) -> Fraction:
        """The chip's part of the cache of one sequence of S positions."""
        bytes_per_kv = Fraction(bytes_per_value(self.w.kv))
        if self.w.split_cache == "evenly":
            return Fraction(self.arch.cache_bytes(S, bytes_per_kv)) / self.w.n_chips
        return Fraction(self.part.cache_bytes(S, bytes_per_kv))

    def cache_read_bytes(self, S: Number) -> float:
        """What a step reads of that cache: all of it, but where keys are chosen."""
        held = float(self.cache_bytes(S))
        if not self.arch.chooses:
            return held
        own = self.arch if self.w.split_cache == "evenly" else self.part
        return held * float(own.cache_read_bytes(S) / own.cache_bytes(S))

    def total_bytes(self, B: int, S: int) -> Fraction:
        """Weights, caches, activations and overhead."""
        return self._total(self.weight_bytes, self.held_cache_bytes(B, S))

    def held_cache_bytes(self, B: int, S: int) -> Fraction:
        """Caches of B sequences that the chip keeps. ValueError for no whole number of them."""
        COUNT.check("B", B)
        return B * self.cache_bytes(S)

    def held_by_stages(self, B: int, S: int) -> list[tuple[Fraction, Fraction]]:
        """Weights, and caches of B sequences, on a chip of each stage of layers: here of one."""
        return [(self.weight_bytes, self.held_cache_bytes(B, S))]

    def _total(self, weight_bytes: Fraction, cache_bytes: Fraction) -> Fraction:
        w = self.w
        total = kv_cache.memory_bytes(
            weight_bytes,
            cache_bytes,
            w.exact("activation_bytes"),
            w.exact("overhead_bytes"),
            w.exact("overhead_fraction"),
        )
        return Fraction(total)

    def max_batch(self, S: int) -> int:
        """The most sequences of S positions that fit: the one predicate that decides what fits."""
        overhead = self.w.exact("overhead_fraction")
        reserved = self.w.exact("activation_bytes") * (1 + overhead) + self.w.exact(
            "overhead_bytes"
        )
        return int(
            kv_cache.max_batch(
                self.usable_bytes, self.weight_bytes, self.cache_bytes(S), reserved, overhead
            )
        )

    def fits(self, B: int, S: int) -> bool:
        """Whether B sequences of S positions fit. ValueError for no whole number of them."""
        COUNT.check("B", B)
        return self.max_batch(S) >= B

    def max_context(self, B: int) -> int | None:
        """The longest context that B sequences can have; None if every cache stops growing
        before."""
        found = largest(lambda S: self.fits(B, S))
        return None if found == LARGEST else found

    def chips_needed(self, B: int, S: int) -> int | None:
        """The fewest chips on which B sequences of S positions fit; None if a million do not do:
        what every chip keeps a copy of is too much for one."""

        def too_few(n: int) -> bool:
            return not self.on(n).fits(B, S)

        fewest = largest(too_few, MOST_CHIPS) + 1
        return None if fewest > MOST_CHIPS else fewest

    def on(self, n_chips: int) -> "Deployment":
        """The same on another number of chips."""
        return self.with_workload(replace(self.w, n_chips=n_chips))

    def with_workload(self, w: Workload) -> "Deployment":
        """The same for another workload."""
        return replace(self, w=w)

    def step_weight_bytes(self, B: int, T: int = 1) -> float:
        """Weights that a step of B sequences reads, T tokens of each: one in decoding, the drafted
        ones and one more where they are checked, the whole prompt in prefill."""
        return float(self._in_formats(self.part.step_breakdown(B * T)))

    def step_bytes(self, B: int, S: int, T: int = 1) -> float:
        """Weights and caches that a decode step of B sequences reads, T tokens of each."""
        read = self.step_weight_bytes(B, T)
        return float(latency_throughput.step_bytes(read, B, self.cache_read_bytes(S)))

    def step_flops(self, B: int, S: Number, T: int = 1) -> float:
        """FLOPs of a decode step of B sequences, T tokens of each (1 at least), S keys for each."""
        SOME.check("T", T)
        return T * float(self.part.decode_step_flops(B, S))

    def step_sent_bytes(self, B: int, S: int, T: int = 1) -> float | None:
        """Bytes that a chip sends in it; None where messages are not counted."""
        return None

    def prefill_flops(self, T: int, found: int = 0) -> float:
        """FLOPs of one prompt of T tokens, the first `found` of which are in the cache; the head
        runs at its last position only."""
        return float(prompt_flops(self.part, 1, T, found))

    def step(self, B: int, S: Number, T: int = 1) -> Times:
        """Times of that step."""
        cache = self.cache_read_bytes(S)
        return self._times(self.step_weight_bytes(B, T), B, cache, self.step_flops(B, S, T))

    def mean_step(self, B: int, T: int = 1) -> Times:
        """Times of a decode step in the steady state: caches and FLOPs as over a request's steps on
        average."""
        read = self.step_weight_bytes(B, T)
        return self._times(read, B, self.mean_cache_bytes, B * T * self.mean_token_flops)

    @cached_property
    def mean_cache_bytes(self) -> float:
        """What the chip's steps read of a sequence's cache, over a request's steps on average."""
        return float(self._mean(self.cache_read_bytes))

    @cached_property
    def mean_token_flops(self) -> float:
        """FLOPs of a token of one sequence, over a request's steps on average."""
        return float(self._mean(lambda S: self.part.decode_step_flops(1, S)))

    def _mean(self, of: Callable[[Number], Number]) -> Number:
        """The mean of what depends on the context, which bends where a window is full: between
        bends it is what the mean context gives."""
        prompt, steps = self.w.prompt, (self.w.n_output or 1) - 1
        if not steps or not self.arch.bends:
            return of(self.w.mean_context)
        ends = [min(max(bend - prompt, 0), steps) for bend in self.arch.bends] + [steps]
        total: Number = Fraction(0)
        for start, end in pairwise([0, *ends]):
            if end > start:
                total += (end - start) * of(prompt + start + Fraction(end - start + 1, 2))
        return total / steps

    def prefill(self, T: int, found: int = 0) -> Times:
        """Times of one prompt of T tokens, alone, the first `found` of which are in the cache."""
        read = self.step_weight_bytes(T - found), int(found > 0), float(self.cache_bytes(found))
        return self._times(*read, self.prefill_flops(T, found))

    def prompt(self, T: int, found: int = 0) -> Times:
        """Times that a prompt takes of the machine's: here those of one alone."""
        return self.prefill(T, found)

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a step gives each sequence: one, without a draft."""
        return 1.0

    @property
    def token_weight_bytes(self) -> float:
        """Weights that one token reads."""
        return self.step_weight_bytes(1)

    def further_expert_bytes(self, B: int, T: int = 1) -> float:
        """Weights of experts that such a step reads beyond those of one token: none, where all
        tokens visit the same."""
        if self.arch.moe is None:
            return 0.0
        return self.step_weight_bytes(B, T) - self.step_weight_bytes(1)

    @property
    def layers_per_token(self) -> float:
        """Layers that run for a token, one after the other."""
        return float(self.arch.L)

    @property
    def sequences_at_once(self) -> int:
        """In multiples of how many sequences no chip waits: all chips work on every one."""
        return 1

    def weights_alone(self, B: int, T: int = 1) -> Times:
        """Times of a step of B sequences, T tokens of each, without any attention to caches."""
        flops = float(forward_flops(B * T, self.part.n_matmul_params()))
        return self._times(self.step_weight_bytes(B, T), 0, 0.0, flops)

    def _times(self, weight_bytes: float, B: int, cache: float, flops: float) -> Times:
        peak, bandwidth = self.chip.peak_flops_per_s(self.w.compute), self.chip.hbm_bytes_per_s
        overlapped, summed = (
            latency_throughput.step_time_s(
                weight_bytes, B, cache, flops, bandwidth, peak, overlap=overlap
            )
            for overlap in (True, False)
        )
        return Times(
            latency_throughput.memory_step_time_s(weight_bytes, B, cache, bandwidth),
            latency_throughput.compute_time_s(flops, peak),
            overlapped,
            summed,
        )

    def critical_batch(self, times: Callable[[int], Times]) -> int | None:
        """The smallest batch whose products take longer than its reading; None if no batch's do.

        Weights are read once and a mixture's experts less and less often, so that there is one
        such point at most; where sequences are dealt out, of the batches that leave no chip idle.
        """
        each = self.sequences_at_once

        def reads_longer(n: int) -> bool:
            found = times(n * each)
            return found.compute_s <= found.memory_s

        last = largest(reads_longer, LARGEST // each)
        return None if last == LARGEST // each else (last + 1) * each
