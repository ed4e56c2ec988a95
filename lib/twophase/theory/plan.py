"""Size a deployment: what memory holds, what a decode step takes, what that gives and costs, what
binds."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from twophase.theory import (
    arithmetic_intensity,
    kv_cache,
    latency_throughput,
    mixture_of_experts,
    two_phases,
)
from twophase.theory.architecture import Architecture
from twophase.theory.hardware import Hardware, bytes_per_value

LARGEST = 10**12


@dataclass(frozen=True)
class Workload:
    """What is asked of a deployment. `context` positions are cached per sequence; the other sizes
    are in bytes.

    `n_prompt` is what TTFT is for; `n_output` adds the latency of a whole request. `compute` is the
    format that products run in, whatever `weights` are stored in.
    """

    batch: int = 1
    context: int = 1024
    n_prompt: int | None = None
    n_output: int | None = None
    n_chips: int = 1
    weights: str = "bf16"
    kv: str = "bf16"
    compute: str = "bf16"
    activation_bytes: float = 0.0
    overhead_bytes: float = 0.0
    overhead_fraction: float = 0.0
    price_per_chip_hour: float | None = None

    def __post_init__(self) -> None:
        for name in ("batch", "context", "n_prompt", "n_output", "n_chips"):
            value = getattr(self, name)
            optional = name in ("n_prompt", "n_output")
            if not (value is None and optional) and (
                isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST
            ):
                raise ValueError(
                    f"{name} must be a whole number from 1 to 10^12, but it is {value!r}."
                )
        for name in (
            "activation_bytes",
            "overhead_bytes",
            "overhead_fraction",
            "price_per_chip_hour",
        ):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1e24:
                raise ValueError(
                    f"{name} must be zero or more and at most 10^24, but it is {value!r}."
                )
        if self.prompt < 1 or self.prompt + (self.n_output or 0) > self.context:
            raise ValueError(
                f"Prompt and output must fit the context of {self.context} positions, but the"
                f" prompt has {self.prompt} and the output {self.n_output or 0}."
            )
        for dtype in (self.weights, self.kv, self.compute):
            bytes_per_value(dtype)

    @property
    def prompt(self) -> int:
        """The prompt's length: what the output leaves of the context, unless given."""
        return self.context - (self.n_output or 0) if self.n_prompt is None else self.n_prompt


@dataclass(frozen=True)
class Plan:
    """The answers, in SI units. Times of a step and what follows from them take perfect overlap
    unless named sum."""

    model: str
    hardware: str
    workload: Workload
    n_params: int
    n_active_params: int
    weight_bytes: float
    cache_bytes: float
    cache_bytes_per_sequence: float
    activation_bytes: float
    overhead_bytes: float
    total_bytes: float
    capacity_bytes: float
    fits: bool
    max_batch: int
    max_context: int | None
    critical_batch: float
    step_weight_bytes: float
    step_bytes: float
    step_flops: float
    step_memory_s: float
    step_compute_s: float
    step_time_floor_s: float
    step_time_s: float
    step_time_sum_s: float
    throughput_tokens_per_s: float
    throughput_sum_tokens_per_s: float
    throughput_ceiling_tokens_per_s: float
    ttft_s: float
    request_latency_s: float | None
    requests_per_s: float | None
    chip_hours_per_million_tokens: float
    cost_per_million_tokens: float | None
    binds: str
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with a schema number."""
        return {"schema": 1} | asdict(self)


def plan_deployment(arch: Architecture, chip: Hardware, workload: Workload) -> Plan:
    """The plan for this model on `workload.n_chips` of these chips. ValueError if the chip lacks
    the compute format."""
    sizes = _memory(arch, chip, workload)
    step = _step(arch, chip, workload, sizes)
    return Plan(
        model=arch.name,
        hardware=chip.name,
        workload=workload,
        n_params=arch.n_params(),
        n_active_params=arch.n_active_params(),
        binds=_binds(sizes, step),
        assumptions=_assumptions(arch, workload),
        warnings=_warnings(arch, workload, sizes),
        **sizes,
        **step,
        **_service(arch, chip, workload, step["step_time_s"]),
    )


def _memory(arch: Architecture, chip: Hardware, w: Workload) -> dict[str, Any]:
    weights = kv_cache.weight_bytes(arch.n_params(), bytes_per_value(w.weights))
    per_sequence = arch.cache_bytes(w.context, bytes_per_value(w.kv))
    capacity = chip.hbm_bytes * w.n_chips
    total = kv_cache.memory_bytes(
        weights, w.batch * per_sequence, w.activation_bytes, w.overhead_bytes, w.overhead_fraction
    )
    # A fraction on top of everything is the same as less capacity for everything.
    usable = (capacity - w.overhead_bytes) / (1 + w.overhead_fraction)
    return {
        "weight_bytes": weights,
        "cache_bytes": w.batch * per_sequence,
        "cache_bytes_per_sequence": per_sequence,
        "activation_bytes": w.activation_bytes,
        "overhead_bytes": total - weights - w.batch * per_sequence - w.activation_bytes,
        "total_bytes": total,
        "capacity_bytes": capacity,
        "fits": bool(total <= capacity),
        "max_batch": max(0, math.floor((usable - weights - w.activation_bytes) / per_sequence)),
        "max_context": _max_context(arch, w, usable - weights - w.activation_bytes),
    }


def _max_context(arch: Architecture, w: Workload, free_bytes: float) -> int | None:
    """The longest context that B sequences can have in `free_bytes`; None if the cache stops
    growing before."""

    def used(S: int) -> float:
        return float(w.batch * arch.cache_bytes(S, bytes_per_value(w.kv)))

    if used(1) > free_bytes:
        return 0
    if used(LARGEST) <= free_bytes:
        return None
    low, high = 1, LARGEST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if used(middle) <= free_bytes else (low, middle)
    return low


def step_weight_bytes(arch: Architecture, B: int, bytes_per_param: float = 2) -> float:
    """Weights that a decode step of B sequences reads: all of a dense model, the touched experts of
    a mixture."""
    if arch.moe is None:
        return float(arch.n_params() * bytes_per_param)
    moe = arch.moe
    always = arch.n_params() - arch.n_moe_layers * moe.E * arch.n_expert_params()
    routed = mixture_of_experts.expected_expert_bytes(
        B, moe.E, moe.k, arch.n_moe_layers, arch.n_expert_params(), bytes_per_param
    )
    return float(always * bytes_per_param + routed)


def _step(arch: Architecture, chip: Hardware, w: Workload, sizes: dict[str, Any]) -> dict[str, Any]:
    peak, bandwidth = chip.peak_flops_per_s(w.compute), chip.hbm_bytes_per_s
    read = step_weight_bytes(arch, w.batch, bytes_per_value(w.weights))
    flops = arch.decode_step_flops(w.batch, w.context)
    cache = sizes["cache_bytes_per_sequence"]
    times = [
        latency_throughput.step_time_s(
            read, w.batch, cache, flops, bandwidth, peak, w.n_chips, overlap
        )
        for overlap in (True, False)
    ]
    E, k = (arch.moe.E, arch.moe.k) if arch.moe else (1, 1)
    return {
        "critical_batch": arithmetic_intensity.critical_batch(
            peak, bandwidth, bytes_per_value(w.weights), E, k
        ),
        "step_weight_bytes": read,
        "step_bytes": latency_throughput.step_bytes(read, w.batch, cache),
        "step_flops": flops,
        "step_memory_s": latency_throughput.memory_step_time_s(
            read, w.batch, cache, bandwidth, w.n_chips
        ),
        "step_compute_s": flops / (w.n_chips * peak),
        "step_time_floor_s": latency_throughput.step_time_floor_s(read, bandwidth, w.n_chips),
        "step_time_s": times[0],
        "step_time_sum_s": times[1],
        "throughput_tokens_per_s": latency_throughput.throughput_tokens_per_s(w.batch, times[0]),
        "throughput_sum_tokens_per_s": latency_throughput.throughput_tokens_per_s(
            w.batch, times[1]
        ),
        "throughput_ceiling_tokens_per_s": latency_throughput.throughput_ceiling_tokens_per_s(
            cache, bandwidth, w.n_chips
        ),
    }


def _service(arch: Architecture, chip: Hardware, w: Workload, step_s: float) -> dict[str, Any]:
    prefill = arch.prefill_flops(1, w.prompt, head_at_last_only=True)
    read = step_weight_bytes(arch, w.prompt, bytes_per_value(w.weights))
    peak = chip.peak_flops_per_s(w.compute)
    ttft = latency_throughput.ttft_s(prefill, read, chip.hbm_bytes_per_s, peak, w.n_chips)
    latency = None if w.n_output is None else two_phases.total_latency_s(ttft, step_s, w.n_output)
    rate, price = w.batch / step_s, w.price_per_chip_hour
    return {
        "ttft_s": ttft,
        "request_latency_s": latency,
        "requests_per_s": None if latency is None else two_phases.requests_per_s(w.batch, latency),
        "chip_hours_per_million_tokens": latency_throughput.chip_hours_per_million_tokens(
            rate, w.n_chips
        ),
        "cost_per_million_tokens": (
            None
            if price is None
            else latency_throughput.cost_per_million_tokens(price, rate, w.n_chips)
        ),
    }


def _binds(sizes: dict[str, Any], step: dict[str, Any]) -> str:
    """What stands in the way first: "memory" (it does not fit), "bandwidth" or "compute"."""
    if not sizes["fits"]:
        return "memory"
    return "compute" if step["step_compute_s"] > step["step_memory_s"] else "bandwidth"


def _assumptions(arch: Architecture, w: Workload) -> tuple[str, ...]:
    lines = [
        (
            f"weights in {w.weights}, cache in {w.kv}, products in {w.compute}; scales of quantized"
            " formats not counted"
        ),
        (
            "peak rates of the catalog; a step reads all weights it needs once and every sequence's"
            " whole cache"
        ),
        (
            f"every sequence has {w.context:,} positions; TTFT is for one prompt of {w.prompt:,} on"
            " an idle machine"
        ),
    ]
    if arch.moe is not None:
        lines.append(
            "a step reads the experts its batch touches: E (1 - (1 - k/E)^B) per layer, routing"
            " uniform and independent"
        )
    if w.n_chips > 1:
        lines.append(
            f"weights, cache and work split evenly over {w.n_chips} chips; communication not"
            " counted"
        )
    if w.n_output is not None:
        lines.append(
            "latency = TTFT + (output - 1) x step time at full context, which is the longest step"
        )
    if "mla" in arch.layer_kinds:
        lines.append("latent attention decodes in its absorbed form, straight from the latents")
    if not (w.activation_bytes or w.overhead_bytes or w.overhead_fraction):
        lines.append(
            "activations and overhead set to 0: give --activations-gb and --overhead to count them"
        )
    return tuple(lines)


def _warnings(arch: Architecture, w: Workload, sizes: dict[str, Any]) -> tuple[str, ...]:
    lines = []
    free = 1 - sizes["total_bytes"] / sizes["capacity_bytes"]
    if sizes["fits"] and free < 0.1:
        lines.append(f"only {free:.1%} of memory is left for what the assumptions leave out")
    if arch.max_context is not None and w.context > arch.max_context:
        lines.append(f"the model is made for at most {arch.max_context:,} positions")
    if w.n_chips > arch.K and "mla" not in arch.layer_kinds:
        lines.append(
            f"{arch.K} KV heads do not split over {w.n_chips} chips by head: the cache is split by"
            " position"
        )
    return tuple(lines)
