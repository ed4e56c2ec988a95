"""The question the other way round: so many requests a second, with so much patience: which chips,
how many, in which layout, with which batch, at what price?

Every choice is one that the planner expects to keep the promise: times per token and to the first
token at the upper end of what eight of ten measured runs took (so that about nine of ten would keep
it), and a machine that is used for a given share of what it is expected to do, since a queue grows
without end as that share nears one.

At a percentile: arrivals are random (Poisson), all requests of the same length. As many are in
flight as Poisson's law says, and the time per token is that with as many as the percentile asks
for; the first token comes after the prompts that came before at the same copy, one after the other
(`wait_exceeded_s`, of prompts that all take equally long). Neither is taken to be below what is
expected without a percentile.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from twophase.theory import catalog
from twophase.theory.architecture import Architecture
from twophase.theory.continuous_batching import most_in_flight, wait_exceeded_s
from twophase.theory.deployment import Deployment, largest
from twophase.theory.engine_memory import beside_engine
from twophase.theory.expected import (
    CHIPS_A_MACHINE,
    Expected,
    expect,
    expected_times_s,
    prompt_machine_s,
    upper_times_s,
)
from twophase.theory.grid import Grid
from twophase.theory.hardware import Hardware, usual_compute
from twophase.theory.latency_throughput import cost_per_million_tokens
from twophase.theory.layout import uneven_cuts
from twophase.theory.plan import deployment
from twophase.theory.plan_notes import beyond
from twophase.theory.workload import Workload

TENSOR = (1, 2, 4, 8)  # chips of a copy, within a machine
EXPERTS = (2, 4, 8, 16, 32, 64)  # chips that share experts
USED = 0.8


@dataclass(frozen=True)
class Demand:
    """Requests of `n_prompt` tokens in and `n_output` out, so many a second; the first token within
    `ttft_s` and each further one within `tpot_s`, if these are given, for the percentiles `ttft_p`
    and `tpot_p` of requests, if those are; machines used for `used` of what they are expected to
    do."""

    n_prompt: int
    n_output: int
    requests_per_s: float
    ttft_s: float | None = None
    tpot_s: float | None = None
    used: float = USED
    ttft_p: float | None = None
    tpot_p: float | None = None

    def __post_init__(self) -> None:
        for name in ("requests_per_s", "ttft_s", "tpot_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1e12:
                raise ValueError(f"{name} must be a positive number below 1e12, but it is {value}.")
        if self.n_output == 1 and self.tpot_s is not None:
            raise ValueError("An answer of 1 token has none after the first: leave --tpot away.")
        if not 0 < self.used <= 1:
            raise ValueError(f"used must lie above 0 and be at most 1, but it is {self.used}.")
        for name, limit in (("ttft_p", self.ttft_s), ("tpot_p", self.tpot_s)):
            value = getattr(self, name)
            if value is not None and not 0 < value < 100:
                raise ValueError(f"{name} must lie between 0 and 100, but it is {value}.")
            if value is not None and limit is None:
                raise ValueError(f"{name} is a percentile of a limit: give --{name[:4]}, too.")


@dataclass(frozen=True)
class Choice:
    """`n_replicas` copies of the model on `n_chips` chips each, sharing it as `grid` says (None: by
    tensor parallelism over links that the catalog does not know, messages not counted), with
    `batch` requests in flight on each at the load that is asked for; `best`: no other choice has
    both a lower price (without prices: fewer chips of its kind) and a lower time per token. The
    two limits are what is held against the demand's (`tpot_limit_s` None for answers of one token);
    `minds`: what of it no measured run had."""

    hardware: str
    n_chips: int
    n_replicas: int
    batch: int
    expected: Expected
    price_per_hour: float | None
    cost_per_million_tokens: float | None
    grid: Grid | None
    ttft_limit_s: float
    tpot_limit_s: float | None
    minds: tuple[str, ...] = ()
    best: bool = False

    @property
    def all_chips(self) -> int:
        """Of all copies together."""
        return self.n_chips * self.n_replicas

    @property
    def waited_s(self) -> float:
        """What decides beside the price: seconds a token, or to the only one."""
        by_token = self.tpot_limit_s is not None
        return self.expected.expected_tpot_s if by_token else self.expected.expected_ttft_s

    @property
    def layout(self) -> str:
        """How the chips of a copy share it."""
        return str(self.grid or Grid(tp=self.n_chips))


@dataclass(frozen=True)
class Found:
    """Choices that keep a promise, the cheapest first, and of each kind of chip how many layouts
    were tried and what the others lack: "memory", "TPOT" or "TTFT"."""

    choices: list[Choice]
    refused: dict[str, Counter[str]] = field(default_factory=dict)


def choices(
    arch: Architecture,
    chips: Sequence[Hardware],
    demand: Demand,
    asked: Workload,
    prices: Mapping[str, float] | None = None,
) -> list[Choice]:
    """Those of `search`."""
    return search(arch, chips, demand, asked, prices).choices


def search(
    arch: Architecture,
    chips: Sequence[Hardware],
    demand: Demand,
    asked: Workload,
    prices: Mapping[str, float] | None = None,
) -> Found:
    """Every choice that keeps the promise: for each kind of chip and each layout of `grids`, the
    fewest copies, and the batch that they then have in flight. `asked` says the formats, its
    products those of the weights where a chip has them; `prices` those of a chip and hour, by the
    chip's name. Without prices, those of fewest chips come first.

    ValueError for a demand or a format that cannot be.
    """
    found: list[Choice] = []
    refused: dict[str, Counter[str]] = {chip.name: Counter() for chip in chips}
    for chip in chips:
        own = replace(asked, compute=usual_compute(chip, asked.weights))
        for grid in grids(arch, chip):
            d = _deployed(arch, chip, grid, demand, own)
            if d is None:
                continue
            choice = _Candidate(d, demand).choice((prices or {}).get(chip.name))
            if isinstance(choice, Choice):
                found.append(choice)
            else:
                refused[chip.name][choice] += 1
    ranked = sorted(found, key=_rank)
    ranked = [replace(one, best=not any(_beats(other, one) for other in ranked)) for one in ranked]
    return Found(ranked, refused)


def grids(arch: Architecture, chip: Hardware) -> list[Grid]:
    """The layouts that are tried: tensor parallel within a machine, alone and in stages of a
    pipeline; with experts also copies of attention that share them. (Whole experts dealt out among
    a copy's own chips cost what their columns do, while routers are even.)"""
    machine = catalog.usual_chips(chip) or CHIPS_A_MACHINE
    tensor = [tp for tp in TENSOR if tp <= machine]
    found = [Grid(tp) for tp in tensor] + [Grid(tensor[-1], pp=4)]
    found += [Grid(tp, pp=2) for tp in (1, tensor[-1])]
    if arch.moe is None:
        return found
    for ep in EXPERTS:
        between = ep > 2 * machine  # then attention over one chip or a whole machine
        sides = (1, tensor[-1]) if between else tensor
        found += [Grid(tp, ep // tp, ep) for tp in sides if tp < ep <= arch.moe.E]
    return found


def _deployed(
    arch: Architecture, chip: Hardware, grid: Grid, demand: Demand, asked: Workload
) -> Deployment | None:
    """The model on this grid; None if it cannot be cut so, or what joins the chips is not known and
    it is more than tensor parallel."""
    known = chip.name in catalog.USUAL_LINKS or grid.n_chips == 1
    plain = grid == Grid(tp=grid.n_chips)
    if not (known or plain) or any("query" in line for line in uneven_cuts(arch, grid.tp, "heads")):
        return None
    w = replace(
        asked, batch=1, context=demand.n_prompt + demand.n_output, n_prompt=demand.n_prompt,
        n_output=demand.n_output, n_chips=grid.n_chips,
        grid=grid if known and grid.n_chips > 1 else None,
        split_cache="evenly" if (arch.mla or arch.compressed) and not known else "heads",
    )  # fmt: skip
    try:
        return deployment(arch, chip, w)
    except ValueError:
        if grid.pp > 1:  # layers that read the keys of another stage's
            return None
        raise


class _Candidate:
    """One deployment held against a demand."""

    def __init__(self, d: Deployment, demand: Demand) -> None:
        self.d, self.demand = d, demand
        self.times: Callable[[int], tuple[float, float]] = cache(
            lambda B: expected_times_s(self._with(B))
        )

    def choice(self, price: float | None) -> Choice | str:
        """The fewest copies that keep the promise; or what this lacks for any."""
        d, demand = self.d, self.demand
        most = max(0, beside_engine(d).max_batch(d.w.context))
        if not most:
            return "memory"
        lacks = self._lacks(1, most)
        if lacks:
            return lacks
        held = most
        most = largest(lambda B: not self._lacks(B, held), held)
        n_replicas = math.ceil(demand.requests_per_s / (demand.used * self._rate(most)))
        each = demand.requests_per_s / demand.used / n_replicas
        batch = min(largest(lambda B: self._rate(B) < each, most) + 1, most)
        token_s = self.token_s(batch) if demand.n_output > 1 else None
        hourly = cost = None
        if price is not None:
            n_chips, rate = d.w.n_chips * n_replicas, demand.requests_per_s * demand.n_output
            hourly, cost = price * n_chips, cost_per_million_tokens(price, rate, n_chips)
        return Choice(
            d.chip.name, d.w.n_chips, n_replicas, batch, expect(self._with(batch)), hourly, cost,
            d.w.grid, self.first_s(batch), token_s, tuple(beyond(self._with(batch))),
        )  # fmt: skip

    def _with(self, B: int) -> Deployment:
        return self.d.with_workload(replace(self.d.w, batch=B))

    def _lacks(self, B: int, held: int) -> str:
        """What breaks the promise with B in flight on average, of `held` that fit; nothing if it is
        kept."""
        if self.in_flight(B) > held:
            return "memory"
        if self.demand.tpot_s is not None and self.token_s(B) > self.demand.tpot_s:
            return "TPOT"
        late = self.demand.ttft_s is not None and self.first_s(B) > self.demand.ttft_s
        return "TTFT" if late else ""

    def in_flight(self, B: int) -> int:
        """With B in flight on average at full use, as many as the percentile of the time per token
        has to do with."""
        if self.demand.tpot_p is None:
            return B
        return max(B, most_in_flight(self.demand.used * B, self.demand.tpot_p / 100))

    def token_s(self, B: int) -> float:
        """The time per token that is held against the limit."""
        return upper_times_s(self.d, self.times(self.in_flight(B)))[0]

    def first_s(self, B: int) -> float:
        """The time to the first token that is held against the limit: at a percentile that of a
        prompt alone, after the wait in the queue of its copy."""
        p, expected = self.demand.ttft_p, self.times(B)[1]
        if p is not None:
            copies, per_s = self.d.sequences_at_once, self.demand.used * self._rate(B)
            each = copies * prompt_machine_s(self._with(max(B, copies)))
            wait = wait_exceeded_s(per_s / copies, each, each**2, 1 - p / 100)
            expected = max(expected, self.times(1)[1] + float(wait))
        return upper_times_s(self.d, (0.0, expected))[1]

    def _rate(self, B: int) -> float:
        """Requests per second that are expected of one copy with so many in flight."""
        token_s, first_s = self.times(B)
        return B / (first_s + (self.demand.n_output - 1) * token_s)


def _rank(one: Choice) -> tuple[float, float, float]:
    price = math.inf if one.price_per_hour is None else one.price_per_hour
    return price, one.all_chips, one.waited_s


def _beats(other: Choice, one: Choice) -> bool:
    """Whether `other` is better in one of price and time waited, and no worse in the other."""
    if other.price_per_hour is None or one.price_per_hour is None:
        if other.hardware != one.hardware:
            return False
        mine, theirs = float(one.all_chips), float(other.all_chips)
    else:
        mine, theirs = one.price_per_hour, other.price_per_hour
    a, b = other.waited_s, one.waited_s
    return theirs <= mine and a <= b and (theirs < mine or a < b)
