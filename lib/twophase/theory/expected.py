"""What to expect of an engine, beside what no engine can undercut.

The floor counts bytes and FLOPs. An engine also launches kernels, waits for messages and computes
the prompts of others in between. Three things that were measured on real engines and fitted
(`twophase.measure.serving_runs`, which says with what error) add that: seconds a layer and step,
seconds a layer and sequence, and how much longer a prompt takes than its FLOPs at the peak rate.
"""

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import Any

from twophase.theory import catalog, collectives, latency_throughput
from twophase.theory._domain import Number, formula
from twophase.theory.deployment import Deployment, Times
from twophase.theory.floors import floor_request_s, floor_step_s, floor_ttft_s

CHIPS_A_MACHINE = 8  # joined by the fastest links, where the catalog does not say
FITTED = Path(__file__).with_name("expected.json")


@dataclass(frozen=True)
class Overheads:
    """What an engine spends beyond the floor. Seconds a layer, whatever its size; `..._experts` and
    `..._between_machines` come on top where there are experts, and chips in several machines."""

    layer_s: float
    layer_s_per_sequence: float
    layer_s_experts: float
    layer_s_between_machines: float
    prompt_factor: float
    prompt_factor_experts: float
    first_token: dict[str, list[float]]  # dense, experts: factor, per sequence, seconds a layer

    def of_layer_s(self, d: Deployment) -> float:
        """Seconds a layer and step in this deployment, whatever the batch."""
        total = self.layer_s
        if d.arch.moe is not None:
            total += self.layer_s_experts
            if in_several_machines(d):
                total += self.layer_s_between_machines
        return total

    def of_prompt(self, d: Deployment) -> float:
        """How many times as long as at the peak rates a prompt takes in this deployment."""
        return self.prompt_factor if d.arch.moe is None else self.prompt_factor_experts


def in_several_machines(d: Deployment) -> bool:
    """Whether more chips share a layer than the fastest links join."""
    return d.w.layer_chips > (catalog.usual_chips(d.chip) or CHIPS_A_MACHINE)


def kind(d: Deployment) -> str:
    """Which runs a deployment is held against: "dense" or "experts"."""
    return "dense" if d.arch.moe is None else "experts"


@dataclass(frozen=True)
class Fitted:
    """The constants of the fit, and how far the runs that it had not seen lay from them: the
    middle eight of ten (measured / expected) and the median miss, for dense models and for
    experts; `each`: the median miss of every model, engine and chip that was left out."""

    overheads: Overheads
    measured_over_expected: dict[str, tuple[float, float]]
    first_over_expected: dict[str, tuple[float, float]]
    held_out: dict[str, dict[str, float]]
    each: dict[str, dict[str, dict[str, float]]]
    n_runs: int
    n_left_out: int


@lru_cache(maxsize=1)
def fitted() -> Fitted:
    """The constants in `expected.json`, written by `python -m twophase.measure.serving_runs`."""
    found: dict[str, Any] = json.loads(FITTED.read_text(encoding="utf-8"))
    return Fitted(**(found | {"overheads": Overheads(**found["overheads"])}))


def overheads(d: Deployment) -> Overheads:
    """What is added to the floor of this deployment: what its chip's card says, else the fit. A
    card's constants hold for experts as well; how long prompts wait for others is the fit's."""
    found, own = fitted().overheads, d.chip.overheads
    if own is None:
        return found
    layer_s, factor = own["layer_s"], own["prompt_factor"]
    first = {name: [factor, fit[1], layer_s] for name, fit in found.first_token.items()}
    return Overheads(layer_s, own["layer_s_per_sequence"], 0, 0, factor, factor, first)


@formula(zero_ok=("step_s", "prompt_s", "layer_s", "layer_s_per_sequence", "prompt_factor"))
def expected_tpot_s(
    step_s: Number,
    prompt_s: Number,
    B: Number,
    n_output: Number,
    L: Number,
    layer_s: Number,
    layer_s_per_sequence: Number,
    prompt_factor: Number,
) -> Number:
    """Seconds from token to token with B sequences in flight: the step at its floor, the prompts
    that start meanwhile (B / n_output a step, each `prompt_factor` times `prompt_s`, its time at
    the peak rates), and what each of L layers costs beyond its bytes."""
    own = L * (layer_s + B * layer_s_per_sequence)
    return step_s + prompt_factor * B / n_output * prompt_s + own


@formula(zero_ok=("factor", "per_sequence", "layer_s"))
def expected_ttft_s(
    prompt_s: Number, B: Number, L: Number, factor: Number, per_sequence: Number, layer_s: Number
) -> Number:
    """Seconds to the first token with B sequences in flight: the prompt, part of the prompts of the
    others, and what L layers cost beyond their FLOPs. Rough: how long a prompt waits is up to the
    engine's scheduler and to when requests come."""
    return (factor + per_sequence * B) * prompt_s + L * layer_s


@dataclass(frozen=True)
class Expected:
    """Floors of times, which no measurement may be below; ceilings of rates at this batch, which
    none may be above; and what to expect of an engine, with the range in which eight of ten runs
    lay that the fit had not seen. Rates are those of the steady state."""

    ttft_floor_s: float
    tpot_floor_s: float
    expected_ttft_s: float
    expected_ttft_range_s: tuple[float, float]
    expected_tpot_s: float
    expected_tpot_range_s: tuple[float, float]
    expected_decode_tokens_per_s: float
    latency_floor_s: float | None = None
    expected_latency_s: float | None = None
    requests_ceiling_per_s: float | None = None
    expected_requests_per_s: float | None = None
    tokens_ceiling_per_s: float | None = None
    expected_tokens_per_s: float | None = None
    expected_chip_hours_per_million_tokens: float | None = None
    expected_cost_per_million_tokens: float | None = None


def expect(d: Deployment) -> Expected:
    """What to expect of this deployment; without an output there are no requests."""
    found, (tpot, ttft) = fitted(), expected_times_s(d)
    step_floor, first_floor = floor_step_s(d), floor_ttft_s(d)
    steps = Expected(
        ttft_floor_s=first_floor,
        tpot_floor_s=step_floor,
        expected_ttft_s=ttft,
        expected_ttft_range_s=_range(ttft, found.first_over_expected[kind(d)], first_floor),
        expected_tpot_s=tpot,
        expected_tpot_range_s=_range(tpot, found.measured_over_expected[kind(d)], step_floor),
        expected_decode_tokens_per_s=latency_throughput.throughput_tokens_per_s(d.w.batch, tpot),
    )
    return steps if d.w.n_output is None else _with_requests(steps, d, d.w.n_output)


def expected_times_s(d: Deployment) -> tuple[float, float]:
    """To the next token, and to the first."""
    own = overheads(d)
    return step_tpot_s(d, own), first_token_s(d, own)


def upper_times_s(d: Deployment, times: tuple[float, float]) -> tuple[float, float]:
    """The upper ends of their ranges, which nine of ten runs kept. What is expected is no less than
    the floor, so that these are the ratios of the fit."""
    found, own = fitted(), kind(d)
    ratios = found.measured_over_expected[own][1], found.first_over_expected[own][1]
    return max(ratios[0], 1.0) * times[0], max(ratios[1], 1.0) * times[1]


def _with_requests(steps: Expected, d: Deployment, n_output: int) -> Expected:
    """The same with latency, rates and cost, by Little's law."""
    B, price = d.w.batch, d.w.price_per_chip_hour
    least_s = floor_request_s(d, n_output)
    latency_s = steps.expected_ttft_s + (n_output - 1) * steps.expected_tpot_s
    tokens_per_s = B / latency_s * n_output
    hours = latency_throughput.chip_hours_per_million_tokens(tokens_per_s, d.w.n_chips)
    return replace(
        steps,
        latency_floor_s=max(steps.ttft_floor_s + (n_output - 1) * steps.tpot_floor_s, B * least_s),
        expected_latency_s=latency_s,
        requests_ceiling_per_s=1 / least_s,
        expected_requests_per_s=B / latency_s,
        tokens_ceiling_per_s=n_output / least_s,
        expected_tokens_per_s=tokens_per_s,
        expected_chip_hours_per_million_tokens=hours,
        expected_cost_per_million_tokens=None if price is None else price * hours,
    )


def _range(expected: float, ratios: tuple[float, float], floor: float) -> tuple[float, float]:
    return max(floor, ratios[0] * expected), max(floor, ratios[1] * expected)


def step_tpot_s(d: Deployment, o: Overheads) -> float:
    """`expected_tpot_s` of a deployment. Latents are read whole on every chip of a machine: tensor
    parallel attention has a copy on each. Prompts of the others come between where there is a step
    after the first. What a layer costs in the runs has messages in it: those of a layout count
    where they take longer."""
    B, n_output, L = d.w.batch, d.w.n_output, d.layers_per_token
    times = d.mean_step(B)
    step = times.overlapped_s - times.send_s
    if (d.arch.mla or d.arch.compressed) and d.w.split_cache == "evenly":
        copies = min(d.w.n_chips, CHIPS_A_MACHINE) - 1
        step += copies * B * d.mean_cache_bytes / d.chip.hbm_bytes_per_s
    share = prompt_at_peak_s(d) if (n_output or 1) > 1 else 0.0
    if share:
        step += B / (n_output or 1) * prompt_beyond_s(d)
    own = o.of_layer_s(d) + o.layer_s_per_sequence * ceil(B / d.sequences_at_once)  # of one chip
    own = max(own, times.send_s / L)
    return float(expected_tpot_s(step, share, B, n_output or 1, L, own, 0.0, o.of_prompt(d)))


def first_token_s(d: Deployment, o: Overheads) -> float:
    """`expected_ttft_s` of a deployment; at least what the prompts take that start in one step, so
    that no more of them start than the machine can do."""
    B, each = d.w.batch, prompt_at_peak_s(d)
    factor, per_sequence, layer_s = o.first_token[kind(d)]
    alone = expected_ttft_s(prompt_at_peak_s(d, alone=True), 1, d.arch.L, factor, 0, layer_s)
    starting = 0.0
    if d.w.n_output is not None:
        starting = B / d.w.n_output * (o.of_prompt(d) * each + prompt_beyond_s(d))
    waited = prompt_beyond_s(d, alone=True) + per_sequence * B * each
    return max(float(alone) + waited, starting, floor_ttft_s(d))


def prompt_at_peak_s(d: Deployment, *, alone: bool = False) -> float:
    """A prompt's FLOPs at the peak rate, and what its chips send at the rate of their links, one
    after the other, as far as tensor parallel chips of a machine would: weights are read anyway,
    for the sequences that decode meanwhile. Its part of the machine's time; `alone`: its own, which
    is longer where chips work on different prompts."""
    times = _prompt(d, alone)
    sums = _sums_s(d)
    return times.compute_s + (sums if not _shared(d) else min(sums, times.send_s))


def prompt_beyond_s(d: Deployment, *, alone: bool = False) -> float:
    """What a prompt's messages take beyond that in a layout: between machines, say."""
    return max(_prompt(d, alone).send_s - _sums_s(d), 0.0) if _shared(d) else 0.0


def prompt_machine_s(d: Deployment) -> float:
    """Of the machine's time, what a prompt is expected to take: that at the peak rates, as many
    times as in the runs."""
    return overheads(d).of_prompt(d) * prompt_at_peak_s(d) + prompt_beyond_s(d)


def _prompt(d: Deployment, alone: bool) -> Times:
    return (d.prefill if alone else d.prompt)(d.w.prompt, d.w.found)


def _shared(d: Deployment) -> bool:
    """Whether its messages are counted one by one."""
    return d.w.layout is not None or d.w.grid is not None


def _sums_s(d: Deployment) -> float:
    """A prompt's sums over all chips at the rate of their links: two a layer, in bf16."""
    n, rate = d.w.n_chips, (d.chip.link_bytes_per_s or 0) / 2  # of both directions
    if n == 1 or not rate:
        return 0.0
    summed = (d.w.prompt - d.w.found) * d.arch.D * 2
    return 2 * d.arch.L * float(collectives.all_reduce_s(summed, n, rate))
