"""A model on its chips in a layout, what they send each other counted: the loads are those of
`sharded_layouts`, as chapter 10 prices them.

A step reads and computes at the same time, and then sends; the sum of all three is what it takes
without any overlap.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache

from twophase.theory import sharded_layouts
from twophase.theory._domain import Number
from twophase.theory.deployment import Deployment, Times, largest
from twophase.theory.grid import Grid
from twophase.theory.hardware import bytes_per_value
from twophase.theory.links import Link
from twophase.theory.sharded_grid import combined, held, held_by_stages
from twophase.theory.sharded_pass import Load, Pass

MOST_SEARCHED = 1024  # chips


@dataclass(frozen=True)
class ShardedDeployment(Deployment):
    """An architecture on `w.n_chips` of these chips, joined by `link`, in the layout `w.layout`, or
    on the grid `w.grid`: then `link` joins `machine` chips (None: all), and `between` machines.
    ValueError for one that cannot cut this model over so many chips."""

    link: Link = field(kw_only=True)
    between: Link | None = field(default=None, kw_only=True)
    machine: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.load(1, 1)

    def load(self, B: int, S: Number, T: int = 1, *, drafted: bool = False) -> Load:
        """What the fullest chip has to do in a pass of B sequences of S positions, T of them new:
        of a prompt, or `drafted`."""
        w, p = self.w, self._pass(B, S, T, drafted)
        if w.grid is not None:
            return grid_load(p, w.grid, self.link, self.machine, w.skew)
        return sharded_layouts.load(str(w.layout), p, w.n_chips, self.link)

    def _pass(self, B: int, S: Number, T: int = 1, drafted: bool = False) -> Pass:
        w, widest = self.w, bytes_per_value(self.w.compute)
        return Pass(
            self.arch, B, S, T,
            bytes_per_param=w.bytes_per_weight(),
            bytes_per_kv=Fraction(bytes_per_value(w.kv)),
            bytes_per_activation=max(widest, bytes_per_value("bf16")),
            bytes_per_kept=Fraction(bytes_per_value(w.kept)),
            bytes_per_attention=w.bytes_per_attention(),
            bytes_per_dispatched=w.bytes_per_dispatched(),
            drafted=drafted,
        )  # fmt: skip

    @property
    def sequences_at_once(self) -> int:
        """In multiples of how many sequences no chip waits for another."""
        if self.w.grid is not None:
            return self.w.grid.dp * self.w.grid.pp
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

    def held_by_stages(self, B: int, S: int) -> list[tuple[Fraction, Fraction]]:
        """Weights, and caches of B sequences, on a chip of each stage of layers."""
        grid = Grid(pp=self.w.n_chips) if self.w.layout == "pipeline" else self.w.grid
        if grid is None:
            return super().held_by_stages(B, S)
        return [(Fraction(w), Fraction(c)) for w, c in held_by_stages(self._pass(B, S), grid)]

    def total_bytes(self, B: int, S: int) -> Fraction:
        """Weights, caches, activations and overhead."""
        if self.w.grid is not None:
            weights, caches = held(self._pass(B, S), self.w.grid)
        else:
            load = self.load(B, S)
            weights, caches = load.weight_bytes, load.cache_bytes
        return self._total(Fraction(weights), Fraction(caches))

    def max_batch(self, S: int) -> int:
        """The most sequences of S positions that fit."""
        return largest(lambda B: self.fits(B, S))

    def fits(self, B: int, S: int) -> bool:
        """Whether B sequences of S positions fit."""
        return self.total_bytes(B, S) <= self.usable_bytes

    def on(self, n_chips: int) -> Deployment:
        """The same on another number of chips; of a grid, other chips for a copy. ValueError if it
        cannot be."""
        w, grid = self.w, self.w.grid
        if grid is None:
            return self.with_workload(replace(w, n_chips=n_chips))
        tp, rest = divmod(n_chips, grid.dp * grid.pp)
        if rest:
            raise ValueError(f"{n_chips:,} chips are not {grid} with another --tp.")
        return self.with_workload(replace(w, n_chips=n_chips, grid=replace(grid, tp=tp)))

    def chips_needed(self, B: int, S: int) -> int | None:
        """As `fewest_chips`."""
        return fewest_chips(self, B, S)

    def step_weight_bytes(self, B: int, T: int = 1) -> float:
        """Weights that a step of B sequences reads, T tokens of each."""
        return self._step_load(B, 1, T).weight_read_bytes

    def step_bytes(self, B: int, S: int, T: int = 1) -> float:
        """Weights and caches that such a step reads."""
        return self._step_load(B, S, T).read_bytes

    def step_flops(self, B: int, S: Number, T: int = 1) -> float:
        """FLOPs of a decode step of B sequences, T tokens of each, S keys for each."""
        return self._step_load(B, S, T).flops

    def step_sent_bytes(self, B: int, S: int, T: int = 1) -> float | None:
        """Bytes that the chip sends in it."""
        return self._step_load(B, S, T).sent_bytes

    def _step_load(self, B: int, S: Number, T: int) -> Load:
        return self.load(B, S, T, drafted=T > 1)

    def prefill_flops(self, T: int, found: int = 0) -> float:
        """FLOPs of one prompt of T tokens, where no chip waits for another."""
        return self.load(self.sequences_at_once, T, T - found).flops / self.sequences_at_once

    def step(self, B: int, S: Number, T: int = 1) -> Times:
        """Times of that step."""
        load = self._step_load(B, S, T)
        return self._loaded(load, load.read_bytes, load.flops)

    def mean_step(self, B: int, T: int = 1) -> Times:
        """Times of a decode step in the steady state."""
        read = float(self._mean(lambda S: self._step_load(B, S, T).read_bytes))
        flops = float(self._mean(lambda S: self._step_load(B, S, T).flops))
        same = self._step_load(B, self.w.mean_context, T)  # messages are, whatever the context
        return self._loaded(same, read, flops)

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

    def prefill(self, T: int, found: int = 0) -> Times:
        """Times of one prompt of T tokens, alone."""
        return self._prompts(1, T, found)

    def prompt(self, T: int, found: int = 0) -> Times:
        """Times that a prompt takes of the machine's: as many run together as are in flight, and
        as keep all chips busy."""
        n = min(self.w.batch, self.sequences_at_once)
        return self._prompts(n, T, found) * (1 / n)

    def weights_alone(self, B: int, T: int = 1) -> Times:
        """Times of a step of B sequences, T tokens of each, without any attention to caches."""
        one, two = self._step_load(B, 1, T), self._step_load(B, 2, T)
        flops = 2 * one.flops - two.flops if self.arch.window != 1 else one.flops
        return self._loaded(one, self.step_weight_bytes(B, T), flops)

    def _prompts(self, n: int, T: int, found: int) -> Times:
        load = self.load(n, T, T - found)
        return self._loaded(load, load.read_bytes, load.flops)

    def _loaded(self, load: Load, read_bytes: float, flops: float) -> Times:
        memory_s = read_bytes / self.chip.hbm_bytes_per_s
        compute_s = flops / self.chip.peak_flops_per_s(self.w.compute)
        send_s = load.sending_s(self.link, self.between)
        work_s = max(memory_s, compute_s)
        return Times(memory_s, compute_s, work_s + send_s, memory_s + compute_s + send_s, send_s)


@lru_cache(maxsize=4096)
def grid_load(
    p: Pass, grid: Grid, link: Link, machine: int | None = None, skew: Number = 1
) -> Load:
    """`sharded_grid.combined` on these links, remembered: a search asks for the same again."""
    return combined(p, grid, link.mesh, machine, skew)


def fewest_chips(d: Deployment, B: int, S: int) -> int | None:
    """The fewest chips, of those up to 1,024 that the layout can cut the model over, on which B
    sequences of S positions fit; None if there are none. A grid keeps its copies and stages and
    gets other chips for each copy."""

    def fits(n_chips: int) -> bool | None:
        try:
            return d.on(n_chips).fits(B, S)
        except ValueError:  # the layout cannot cut the model so
            return None

    each = 1 if d.w.grid is None else d.w.grid.dp * d.w.grid.pp
    most = MOST_SEARCHED // each * each
    if fits(most) is False:  # no chip has less than one of so many
        return None
    return next((n for n in range(each, most + 1, each) if fits(n)), None)
