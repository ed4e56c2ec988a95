"""The question the other way round: so many requests a second, with so much patience: which chips,
how many, which batch, at what price?

Every choice is one that the planner expects to keep the promise: times per token and to the first
token at the upper end of what eight of ten measured runs took (so that about nine of ten would keep
it), and a machine that is used for a given share of what it is expected to do, since a queue grows
without end as that share nears one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from twophase.theory.architecture import Architecture
from twophase.theory.deployment import Deployment, largest
from twophase.theory.expected import CHIPS_A_MACHINE, Expected, expect
from twophase.theory.hardware import Hardware, usual_compute
from twophase.theory.latency_throughput import cost_per_million_tokens
from twophase.theory.layout import uneven_cuts
from twophase.theory.plan import deployment
from twophase.theory.plan_notes import beyond
from twophase.theory.workload import Workload

GROUPS = (1, 2, 4, 8, 16, 32, 64)  # chips that share one copy: a dense model within a machine
USED = 0.8


@dataclass(frozen=True)
class Demand:
    """Requests of `n_prompt` tokens in and `n_output` out, so many a second; the first token within
    `ttft_s` and each further one within `tpot_s`, if these are given; machines used for `used` of
    what they are expected to do."""

    n_prompt: int
    n_output: int
    requests_per_s: float
    ttft_s: float | None = None
    tpot_s: float | None = None
    used: float = USED

    def __post_init__(self) -> None:
        for name in ("requests_per_s", "ttft_s", "tpot_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1e12:
                raise ValueError(f"{name} must be a positive number below 1e12, but it is {value}.")
        if not 0 < self.used <= 1:
            raise ValueError(f"used must lie above 0 and be at most 1, but it is {self.used}.")

    def kept_by(self, e: Expected) -> bool:
        """Whether these times keep the promise, at the upper end of their range."""
        first = self.ttft_s is None or e.expected_ttft_range_s[1] <= self.ttft_s
        return first and (self.tpot_s is None or e.expected_tpot_range_s[1] <= self.tpot_s)


@dataclass(frozen=True)
class Choice:
    """`n_replicas` copies of the model on `n_chips` chips each, with `batch` requests in flight on
    each at the load that is asked for; `best`: no other choice has both a lower price (without
    prices: fewer chips of its kind) and a lower time per token. `minds`: what of it no measured
    run had."""

    hardware: str
    n_chips: int
    n_replicas: int
    batch: int
    expected: Expected
    price_per_hour: float | None
    cost_per_million_tokens: float | None
    minds: tuple[str, ...] = ()
    best: bool = False

    @property
    def all_chips(self) -> int:
        """Of all copies together."""
        return self.n_chips * self.n_replicas


def choices(
    arch: Architecture,
    chips: Sequence[Hardware],
    demand: Demand,
    asked: Workload,
    prices: Mapping[str, float] | None = None,
) -> list[Choice]:
    """Every choice that keeps the promise: for each kind of chip and each number of chips that
    share a copy, the fewest copies, and the batch that they then have in flight. `asked` says the
    formats, its products those of the weights where a chip has them; `prices` those of a chip and
    hour, by the chip's name. The cheapest first; without prices, those of fewest chips.

    ValueError for a demand or a format that cannot be.
    """
    found = []
    for chip in chips:
        own = replace(asked, compute=usual_compute(chip, asked.weights))
        for n_chips in GROUPS:
            choice = _choice(arch, chip, n_chips, demand, own, (prices or {}).get(chip.name))
            if choice is not None:
                found.append(choice)
    ranked = sorted(found, key=_rank)
    return [replace(one, best=not any(_beats(other, one) for other in ranked)) for one in ranked]


def _choice(
    arch: Architecture,
    chip: Hardware,
    n_chips: int,
    demand: Demand,
    asked: Workload,
    price: float | None,
) -> Choice | None:
    w = replace(
        asked,
        batch=1,
        context=demand.n_prompt + demand.n_output,
        n_prompt=demand.n_prompt,
        n_output=demand.n_output,
        n_chips=n_chips,
        split_cache="heads" if arch.mla is None else "evenly",
    )
    d = deployment(arch, chip, w)
    uneven = any("query heads" in line for line in uneven_cuts(arch, n_chips, w.split_cache))
    if uneven or (arch.moe is None and n_chips > CHIPS_A_MACHINE):
        return None
    most = d.max_batch(w.context)
    most = largest(lambda B: demand.kept_by(_expected(d, B)), most) if most else 0
    if not most:
        return None
    n_replicas = math.ceil(demand.requests_per_s / (demand.used * _rate(d, most)))
    each = demand.requests_per_s / demand.used / n_replicas
    batch = largest(lambda B: _rate(d, B) < each, most) + 1  # as many in flight as that takes
    hourly, cost = None, None
    if price is not None:
        hourly = price * n_chips * n_replicas
        rate = demand.requests_per_s * demand.n_output
        cost = cost_per_million_tokens(price, rate, n_chips * n_replicas)
    batch = min(batch, most)
    found, minds = _expected(d, batch), tuple(beyond(d))
    return Choice(chip.name, n_chips, n_replicas, batch, found, hourly, cost, minds)


def _rate(d: Deployment, batch: int) -> float:
    """Requests per second that are expected of one copy with so many in flight."""
    rate = _expected(d, batch).expected_requests_per_s
    assert rate is not None  # a demand has an output
    return rate


def _expected(d: Deployment, batch: int) -> Expected:
    return expect(d.with_workload(replace(d.w, batch=batch)))


def _rank(one: Choice) -> tuple[float, float, float]:
    price = math.inf if one.price_per_hour is None else one.price_per_hour
    return price, one.all_chips, one.expected.expected_tpot_s


def _beats(other: Choice, one: Choice) -> bool:
    """Whether `other` is better in one of price and time per token, and no worse in the other."""
    if other.price_per_hour is None or one.price_per_hour is None:
        if other.hardware != one.hardware:
            return False
        mine, theirs = float(one.all_chips), float(other.all_chips)
    else:
        mine, theirs = one.price_per_hour, other.price_per_hour
    a, b = other.expected.expected_tpot_s, one.expected.expected_tpot_s
    return theirs <= mine and a <= b and (theirs < mine or a < b)
