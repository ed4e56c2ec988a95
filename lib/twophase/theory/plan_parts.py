"""The parts of a plan: what memory holds, what a decode step takes, what the steady state gives."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Memory:
    """Bytes on the fullest chip, and what fits. `cache_tokens_ceiling`: positions of all caches if
    nothing lay beside weights and them; expected: if an engine sets `engine_bytes` aside."""

    weight_bytes: float
    cache_bytes: float
    cache_bytes_per_sequence: float
    activation_bytes: float
    overhead_bytes: float
    total_bytes: float
    usable_bytes: float
    capacity_bytes: float
    fits: bool
    max_batch: int
    max_context: int | None
    chips_needed: int | None
    engine_bytes: float
    cache_tokens_ceiling: int
    expected_cache_tokens: int
    expected_max_batch: int
    expected_chips_needed: int | None
    draft_bytes: float | None = None  # of weights and caches, the draft's


@dataclass(frozen=True)
class Step:
    """One decode step at the full context, on the fullest chip; with a draft a round, which gives
    `tokens_per_step` tokens a sequence and in the steady state `speedup` times the tokens a second
    of the model alone. `step_time_s` takes perfect overlap of reading and computing,
    `step_time_sum_s` none; in a layout what is sent comes after them in both."""

    critical_batch: int | None
    critical_batch_weights: int | None
    step_weight_bytes: float
    step_bytes: float
    step_flops: float
    step_memory_s: float
    step_compute_s: float
    step_time_floor_s: float
    step_time_s: float
    step_time_sum_s: float
    step_sent_bytes: float | None = None
    step_send_s: float | None = None
    tokens_per_step: float = 1.0
    speedup: float | None = None


@dataclass(frozen=True)
class Service:
    """The steady state: `batch` requests always in flight, every step as one is on average, every
    prompt computed alone and charged to the machine. Without an output only decoding is known."""

    ttft_s: float
    decode_tokens_per_s: float
    decode_ceiling_tokens_per_s: float
    requests_per_s: float | None = None
    requests_per_s_sum: float | None = None
    request_latency_s: float | None = None
    tpot_s: float | None = None
    prefill_share: float | None = None
    tokens_per_s: float | None = None
    tokens_per_s_sum: float | None = None
    ceiling_tokens_per_s: float | None = None
    chip_hours_per_million_tokens: float | None = None
    cost_per_million_tokens: float | None = None
