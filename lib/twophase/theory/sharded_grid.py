"""A pass of a model on a grid of chips (tensor, data, expert and pipeline parallelism together):
what the fullest chip holds, reads and computes, and what it sends.

A copy of attention works as `layout.chip_part` cuts it, sequences are dealt out to copies, layers
to stages, whole experts to groups of chips. In each layer two sums over the chips of a copy; where
copies share experts, tokens travel as well, each chip of a copy sending its part of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from twophase.theory import count, messages
from twophase.theory._domain import Number
from twophase.theory._ops import ceil_div
from twophase.theory.architecture import Architecture
from twophase.theory.grid import Grid
from twophase.theory.layout import Stage, chip_part, stages
from twophase.theory.messages import Collective, Messages
from twophase.theory.mixture_of_experts import expected_experts
from twophase.theory.sharded_pass import Load, Pass

Sides = Callable[[int], tuple[int, ...]]


def one_axis(n_chips: int) -> tuple[int, ...]:
    """The sides of so many chips behind one switch."""
    return (n_chips,)


def combined(
    p: Pass, grid: Grid, sides: Sides = one_axis, machine: int | None = None, skew: Number = 1
) -> Load:
    """What the fullest chip of a grid has to do. `sides`: of a group of neighboring chips along the
    axes of their links; `machine`: chips that the quick links join, None: all of them; `skew`: what
    comes to the busiest experts over what an even router would send them.

    A pipeline has as many micro-batches as stages, or as a copy has sequences; the slowest stage
    sets the pace. ValueError for more stages than layers, experts that are not there, and a skew
    that no router can have.
    """
    check(p.arch, grid, skew)
    weight_bytes, cache_bytes = held(p, grid)
    shared = ceil_div(p.B, grid.dp // grid.sharing)  # sequences of the copies that share experts
    n_micro = min(ceil_div(shared, grid.sharing), grid.pp)
    micro = ceil_div(shared, n_micro)
    work = _Work(p, grid, micro, ceil_div(micro, grid.sharing), skew, sides, machine)
    parts = _parts(p.arch, grid)
    weights_read, cache_read = max((work.read(s) for s in parts), key=sum)
    sent = max((work.messages(s) for s in parts), key=messages.sent_bytes)
    return Load(
        weight_bytes=weight_bytes,
        cache_bytes=cache_bytes,
        weight_read_bytes=grid.pp * weights_read,
        cache_read_bytes=grid.pp * cache_read,
        flops=grid.pp * max(map(work.flops, parts)),
        messages=messages.repeated(sent, grid.pp) + work.handed_on(),
    )


def held(p: Pass, grid: Grid) -> tuple[Number, Number]:
    """Bytes of weights and of caches in the fullest chip's memory."""
    return max(held_by_stages(p, grid), key=sum)


def held_by_stages(p: Pass, grid: Grid) -> list[tuple[Number, Number]]:
    """The same of a chip of each different stage."""
    own = ceil_div(p.B, grid.dp)
    return [(stored(p, grid, s), p.caches(s.arch, own, p.S)) for s in _parts(p.arch, grid)]


def stored(p: Pass, grid: Grid, stage: Stage) -> Number:
    """Bytes of weights: the part of a copy, with the experts of the grid."""
    total = p.stored(stage.stored())
    if stage.arch.moe is None:
        return total
    whole, cut, n_own = _experts(p.arch, grid, stage.arch)
    each = p.bytes_per_param
    return total - stage.arch.moe.E * whole[0] * each + n_own * cut[0] * each


def check(arch: Architecture, grid: Grid, skew: Number = 1) -> None:
    """ValueError for experts that the grid deals out and the model has not, and a skew that no
    router can have."""
    if arch.moe is None and (grid.ep > 1 or skew != 1):
        raise ValueError(f"{arch.name} has no experts to deal out: leave --ep and --skew away.")
    if arch.moe is None:
        return
    if grid.ep > arch.moe.E:
        raise ValueError(
            f"{arch.name} has {arch.moe.E} experts, which cannot be dealt out to {grid.ep:,}"
            " groups of chips."
        )
    most = min(arch.moe.E / arch.moe.k, arch.moe.E / ceil_div(arch.moe.E, grid.ep))
    if not 1 <= skew <= most:
        raise ValueError(
            f"--skew is what the busiest chips get over an even share of the visits: from 1 to"
            f" {most:g} for {arch.moe.E} experts, {arch.moe.k} a token, in {grid.ep} groups; it is"
            f" {skew:g}."
        )


@lru_cache(maxsize=1024)
def _parts(arch: Architecture, grid: Grid) -> tuple[Stage, ...]:
    """The different stages, each as one chip of a copy has it."""
    cut = (replace(s, arch=chip_part(s.arch, grid.tp)) for s in stages(arch, grid.pp))
    return tuple(dict.fromkeys(cut))


@lru_cache(maxsize=1024)
def _expert_sizes(arch: Architecture, F: int) -> tuple[int, int]:
    """Parameters of one expert of width F in every layer of a part, with biases and without."""
    assert arch.moe is not None
    own = replace(arch, moe=replace(arch.moe, F=F))
    sizes = (count.expert_params(own), count.expert_params(own, biases=False))
    return arch.n_moe_layers * sizes[0], arch.n_moe_layers * sizes[1]


@dataclass(frozen=True)
class _Work:
    """A pass on a grid: `micro` sequences at a time of the copies that share experts, `own` of
    them of one copy."""

    p: Pass
    grid: Grid
    micro: int
    own: int
    skew: Number
    sides: Sides
    machine: int | None

    @property
    def tokens(self) -> int:
        """Tokens of one copy at a time."""
        return self.own * self.p.T

    def read(self, stage: Stage) -> tuple[float, float]:
        """Bytes of weights and of caches that a micro-batch reads."""
        p, moe = self.p, stage.arch.moe
        cache = p.read_again(p.caches(stage.arch, self.own, p.S), stage.arch)
        read = float(p.stored(stage.read(self.tokens)))
        if moe is None:
            return read, cache
        whole, cut, n_own = _experts(p.arch, self.grid, stage.arch)
        each, visits = float(p.bytes_per_param), self.micro * p.T
        unread = float(expected_experts(self.tokens, moe.E, moe.k)) * whole[0] * each
        touched = float(expected_experts(visits, n_own, n_own * self.skew * moe.k / moe.E))
        return read - unread + touched * cut[0] * each, cache

    def flops(self, stage: Stage) -> float:
        """FLOPs of a micro-batch."""
        p, a = self.p, stage.arch
        total = p.flops(a, self.own)
        if not stage.last:
            total -= 2 * a.V * a.D * self.own * p.n_logits
        if a.moe is None:
            return total
        whole, cut, n_own = _experts(p.arch, self.grid, a)
        share = float(self.skew) * n_own / a.moe.E  # of all visits, those of one chip's experts
        visits = self.micro * p.T * share * cut[1] - self.tokens * whole[1]
        return total + 2 * a.moe.k * visits

    def messages(self, stage: Stage) -> Messages:
        """What a chip takes part in for a micro-batch: sums of a copy, tokens to experts and back,
        embedded tokens and logits."""
        p, a, g = self.p, stage.arch, self.grid
        inside, width = self.sides(g.tp), p.bytes_per_activation
        once = messages.tensor_part(self.tokens, a.D, inside, width)
        found = messages.repeated(once, a.n_halves)
        rows = (self.tokens, self.own * p.n_logits, a.D, p.arch.V, inside, width)
        embedded, logits = messages.vocabulary_part(*rows)
        found += (embedded,) * stage.first + (logits,) * stage.last
        if a.moe is not None and g.sharing > 1:
            sent = ceil_div(self.tokens, g.tp) * g.ep * self.skew
            experts = (sent, a.moe.latent or a.D, a.moe.k, self.sides(g.ep))
            moved = messages.expert_part(*experts, width, p.bytes_per_dispatched)
            found += messages.repeated(moved, a.n_moe_layers)
        return tuple(part for m in found for part in in_machines(m, self.machine))

    def handed_on(self) -> Messages:
        """The stream of a micro-batch from stage to stage, all the way round."""
        p, g = self.p, self.grid
        if g.pp == 1:
            return ()
        row = self.tokens * p.arch.D * p.bytes_per_activation
        far = crossings(g.tp * g.dp, g.pp, self.machine)
        sends = ((g.pp - far, False), (far, True))
        return tuple(
            Collective("send", row, (g.pp,), "residual stream", times, between)
            for times, between in sends
            if times
        )


def _experts(
    arch: Architecture, grid: Grid, part: Architecture
) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Sizes of an expert as the copy's part has it and as the grid cuts it, and how many of them a
    chip has."""
    assert part.moe is not None
    assert arch.moe is not None
    cut = ceil_div(arch.moe.F, grid.expert_columns)
    sizes = _expert_sizes(part, part.moe.F), _expert_sizes(part, cut)
    return *sizes, ceil_div(arch.moe.E, grid.ep)


def in_machines(m: Collective, machine: int | None) -> Messages:
    """A collective of neighboring chips as messages inside machines and between them: among the
    chips of a machine first, then among those that have the same place in theirs, and back. What
    chips send together is as much as in one piece."""
    n = m.n_chips
    if n == 1:
        return ()
    if machine is None or n <= machine:
        return (m,)
    inner = next(c for c in range(machine, 0, -1) if n % c == 0)
    near = replace(m, sides=(inner,))
    far = replace(m, sides=(n // inner,), between=True)
    if m.kind == "all_to_all":
        found: Sequence[Collective] = (replace(near, array_bytes=m.array_bytes * inner / n), far)
    else:
        far = replace(far, array_bytes=m.array_bytes / inner)
        steps = {
            "all_reduce": (replace(near, kind="reduce_scatter"), far),
            "reduce_scatter": (near, far),
        }
        found = steps.get(m.kind, (far, near))
        if m.kind == "all_reduce":
            found = (*found, replace(near, kind="all_gather"))
    return tuple(part for part in found if part.n_chips > 1)


@lru_cache(maxsize=1024)
def crossings(stage_chips: int, n_stages: int, machine: int | None) -> int:
    """Of the ways from each stage to the next, the last one's to the first included, those on which
    some chip's message leaves its machine."""
    n = stage_chips * n_stages
    if machine is None or n <= machine:
        return 0
    if stage_chips >= machine:
        return n_stages

    def leaves(stage: int) -> bool:
        starts = range(stage * stage_chips, (stage + 1) * stage_chips)
        return any(c // machine != (c + stage_chips) % n // machine for c in starts)

    return sum(map(leaves, range(n_stages)))
