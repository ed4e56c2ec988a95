"""Size a deployment: what memory holds, what a decode step takes, what that gives and costs, what
binds."""

from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from twophase.theory import catalog, latency_throughput
from twophase.theory.architecture import Architecture
from twophase.theory.arithmetic_intensity import time_overlapped_s
from twophase.theory.deployment import Deployment
from twophase.theory.drafted import DraftedDeployment, draft_workload
from twophase.theory.engine_memory import cache_room, chips_for_engine
from twophase.theory.expected import Expected, expect
from twophase.theory.hardware import Hardware
from twophase.theory.plan_notes import assumptions, warnings
from twophase.theory.plan_parts import Memory, Service, Step
from twophase.theory.remedies import Change, remedies
from twophase.theory.sharded_deployment import ShardedDeployment
from twophase.theory.workload import Workload

BETWEEN = "InfiniBand NDR"  # machines, if nothing else is said


@dataclass(frozen=True)
class Plan:
    """The answers, in SI units. What does not fit has no step, no service and nothing to expect,
    and in `would_fit` changes of the workload, each of which fits."""

    model: str
    hardware: str
    workload: Workload
    n_params: int
    n_active_params: int
    memory: Memory
    step: Step | None
    service: Service | None
    expected: Expected | None
    binds: str
    would_fit: tuple[Change, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    draft: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with a schema number; the four parts side by side."""
        found = {"schema": 6} | asdict(self)
        parts: dict[str, Any] = {"memory": Memory, "step": Step}
        parts |= {"service": Service, "expected": Expected}
        for part, kind in parts.items():
            found |= found.pop(part) or dict.fromkeys(kind.__dataclass_fields__)
        return found


def plan_deployment(
    arch: Architecture, chip: Hardware, workload: Workload, draft: Architecture | None = None
) -> Plan:
    """The plan for this model, with a `draft` if there is one, on `workload.n_chips` of these
    chips. ValueError if the chip lacks the compute format, or the layout cannot cut the model
    so."""
    chip.peak_flops_per_s(workload.compute)
    d = deployment(arch, chip, workload, draft)
    memory = _memory(d)
    step = _step(d) if memory.fits else None
    return Plan(
        model=arch.name,
        hardware=chip.name,
        workload=workload,
        n_params=arch.n_params(),
        n_active_params=arch.n_active_params(),
        memory=memory,
        step=step,
        service=_service(d) if memory.fits else None,
        expected=expect(d) if memory.fits else None,
        binds=_binds(step),
        would_fit=remedies(d),
        assumptions=assumptions(d, runs=memory.fits),
        warnings=warnings(d),
        draft=None if draft is None else draft.name,
    )


def deployment(
    arch: Architecture, chip: Hardware, w: Workload, draft: Architecture | None = None
) -> Deployment:
    """The model on its chips, in the workload's layout or on its grid if it has one, beside its
    draft if it has one."""
    if (draft is None) != (w.draft_length is None):
        raise ValueError("A draft is a model with a length and an acceptance: give all of them.")
    if draft is not None:
        target = deployment(arch, chip, replace(w, draft_length=None, acceptance=None))
        beside = deployment(draft, chip, draft_workload(target.w, draft))
        return DraftedDeployment(arch, chip, w, target=target, draft=beside)
    if w.layout is None and w.grid is None:
        return Deployment(arch, chip, w)
    link = catalog.link(w.link) if w.link is not None else catalog.usual_link(chip)
    if w.grid is None:
        return ShardedDeployment(arch, chip, w, link=link)
    machine = catalog.usual_chips(chip) if w.link is None else link.usual_chips
    between = catalog.link(w.between or BETWEEN) if machine is not None else None
    return ShardedDeployment(arch, chip, w, link=link, between=between, machine=machine)


def _memory(d: Deployment) -> Memory:
    w = d.w
    per_sequence, total = d.cache_bytes(w.context), d.total_bytes(w.batch, w.context)
    activations, caches = w.exact("activation_bytes"), d.held_cache_bytes(w.batch, w.context)
    max_batch, room = d.max_batch(w.context), cache_room(d)
    return Memory(
        weight_bytes=_plain(d.weight_bytes),
        cache_bytes=_plain(caches),
        cache_bytes_per_sequence=_plain(per_sequence),
        activation_bytes=_plain(activations),
        overhead_bytes=_plain(total - d.weight_bytes - caches - activations),
        total_bytes=_plain(total),
        usable_bytes=_plain(d.usable_bytes),
        capacity_bytes=d.chip.hbm_bytes,
        fits=w.batch <= max_batch,
        max_batch=max_batch,
        max_context=d.max_context(w.batch),
        chips_needed=d.chips_needed(w.batch, w.context),
        engine_bytes=room.set_aside_bytes,
        cache_tokens_ceiling=room.tokens_ceiling,
        expected_cache_tokens=room.expected_tokens,
        expected_max_batch=room.expected_sequences,
        expected_chips_needed=chips_for_engine(d, w.batch, w.context),
        draft_bytes=_draft_bytes(d),
    )


def _draft_bytes(d: Deployment) -> float | None:
    if not isinstance(d, DraftedDeployment):
        return None
    return _plain(d.draft_weight_bytes + d.draft.held_cache_bytes(d.w.batch, d.w.context))


def _step(d: Deployment) -> Step:
    w = d.w
    times = d.step(w.batch, w.context)
    sent = d.step_sent_bytes(w.batch, w.context)
    return Step(
        critical_batch=d.critical_batch(lambda B: d.step(B, w.context)),
        critical_batch_weights=d.critical_batch(d.weights_alone),
        step_weight_bytes=d.step_weight_bytes(w.batch),
        step_bytes=d.step_bytes(w.batch, w.context),
        step_flops=d.step_flops(w.batch, w.context),
        step_memory_s=times.memory_s,
        step_compute_s=times.compute_s,
        step_time_floor_s=latency_throughput.step_time_floor_s(
            d.step_weight_bytes(1), d.chip.hbm_bytes_per_s
        ),
        step_time_s=times.overlapped_s,
        step_time_sum_s=times.sum_s,
        step_sent_bytes=sent,
        step_send_s=None if sent is None else times.send_s,
        tokens_per_step=d.tokens_per_step,
        speedup=d.speedup() if isinstance(d, DraftedDeployment) else None,
    )


def _service(d: Deployment) -> Service:
    w, prefill = d.w, d.prefill(d.w.prompt, d.w.found)
    step = d.mean_step(w.batch)
    ceiling = latency_throughput.throughput_ceiling_tokens_per_s(
        d.mean_cache_bytes,
        d.chip.hbm_bytes_per_s,
        flops_per_token=d.mean_token_flops,
        flops_per_s=d.chip.peak_flops_per_s(w.compute),
    )
    decoding = Service(
        ttft_s=prefill.overlapped_s,
        decode_tokens_per_s=latency_throughput.throughput_tokens_per_s(w.batch, step.overlapped_s),
        decode_ceiling_tokens_per_s=ceiling,
    )
    if w.n_output is None:
        return decoding
    charged = d.prompt(w.prompt, w.found)
    request_s, request_sum_s = (
        latency_throughput.machine_time_per_request_s(p, s, w.batch, w.n_output)
        for p, s in zip(charged.both(), step.both(), strict=True)
    )
    at_best_s = _least_machine_time_s(d, w.n_output)
    latency_s, rate, price = w.batch * request_s, w.n_output / request_s, w.price_per_chip_hour
    hours = latency_throughput.chip_hours_per_million_tokens(rate, w.n_chips)
    cost = None
    if price is not None:
        cost = latency_throughput.cost_per_million_tokens(price, rate, w.n_chips)
    tpot = None
    if w.n_output > 1:
        tpot = latency_throughput.tpot_s(latency_s, decoding.ttft_s, w.n_output)
    return Service(
        ttft_s=decoding.ttft_s,
        decode_tokens_per_s=decoding.decode_tokens_per_s,
        decode_ceiling_tokens_per_s=ceiling,
        requests_per_s=1 / request_s,
        requests_per_s_sum=1 / request_sum_s,
        request_latency_s=latency_s,
        tpot_s=tpot,
        prefill_share=charged.overlapped_s / request_s,
        tokens_per_s=rate,
        tokens_per_s_sum=w.n_output / request_sum_s,
        ceiling_tokens_per_s=w.n_output / at_best_s,
        chip_hours_per_million_tokens=hours,
        cost_per_million_tokens=cost,
    )


def _least_machine_time_s(d: Deployment, n_output: int) -> float:
    """What no engine can undercut on these chips: a request's FLOPs at the peak rate, or its cache
    read for each further token, whichever takes longer; weights and everything else for free."""
    steps = n_output - 1
    flops = d.prefill_flops(d.w.prompt, d.w.found) + steps * d.mean_token_flops
    moved = steps * d.mean_cache_bytes
    peak, bandwidth = d.chip.peak_flops_per_s(d.w.compute), d.chip.hbm_bytes_per_s
    return float(time_overlapped_s(flops, moved, peak, bandwidth))


def _binds(step: Step | None) -> str:
    """What stands in the way first: "memory" (it does not fit), "bandwidth", "compute", or
    "links"."""
    if step is None:
        return "memory"
    if step.step_send_s is not None and step.step_send_s > max(
        step.step_memory_s, step.step_compute_s
    ):
        return "links"
    return "compute" if step.step_compute_s > step.step_memory_s else "bandwidth"


def _plain(exact: Fraction) -> float:
    """An int where it is one, so that bytes are printed to the byte; else a float."""
    return exact.numerator if exact.denominator == 1 else float(exact)
