"""Time of a decode step, and the latency, throughput and cost that follow from it.

Sharding over n_chips divides bytes and FLOPs evenly; communication is not counted here.
Every `overlap` switch: True takes the larger of compute and traffic (perfect overlap), False their
sum (none).
"""

from collections.abc import Sequence

from twophase.theory._domain import Number, formula
from twophase.theory._ops import minimum
from twophase.theory.arithmetic_intensity import time_overlapped_s, time_serial_s
from twophase.theory.two_phases import forward_flops

SECONDS_PER_HOUR = 3600
MILLION = 1_000_000


@formula(zero_ok=("B", "cache_bytes_per_sequence"))
def step_bytes(weight_bytes: Number, B: Number, cache_bytes_per_sequence: Number) -> Number:
    """Bytes that one decode step reads: all weights once and each sequence's cache."""
    return weight_bytes + B * cache_bytes_per_sequence


@formula()
def step_time_floor_s(weight_bytes: Number, bytes_per_s: Number, n_chips: Number = 1) -> Number:
    """The weight-load floor: no step is faster, whatever the batch, while the weights live in main
    memory."""
    return memory_step_time_s(weight_bytes, 0, 0, bytes_per_s, n_chips)


@formula(zero_ok=("flops",))
def compute_time_s(flops: Number, flops_per_s: Number, n_chips: Number = 1) -> Number:
    """Seconds that so many FLOPs take at least: all of them at the peak rate of all chips."""
    return flops / (n_chips * flops_per_s)


@formula(zero_ok=("B", "cache_bytes_per_sequence"))
def memory_step_time_s(
    weight_bytes: Number,
    B: Number,
    cache_bytes_per_sequence: Number,
    bytes_per_s: Number,
    n_chips: Number = 1,
) -> Number:
    """Seconds of a decode step if only memory traffic took time: (weights + B caches) /
    bandwidth."""
    return step_bytes(weight_bytes, B, cache_bytes_per_sequence) / (n_chips * bytes_per_s)


@formula(zero_ok=("B", "cache_bytes_per_sequence", "step_flops"))
def step_time_s(
    weight_bytes: Number,
    B: Number,
    cache_bytes_per_sequence: Number,
    step_flops: Number,
    bytes_per_s: Number,
    flops_per_s: Number,
    n_chips: Number = 1,
    overlap: bool = True,
) -> Number:
    """Seconds of a decode step with `step_flops` FLOPs for the whole batch."""
    moved = step_bytes(weight_bytes, B, cache_bytes_per_sequence)
    time_s = time_overlapped_s if overlap else time_serial_s
    return time_s(step_flops, moved, n_chips * flops_per_s, n_chips * bytes_per_s)


@formula(zero_ok=("B", "cache_bytes_per_sequence"))
def step_time_split_s(
    weight_bytes: Number,
    B: Number,
    cache_bytes_per_sequence: Number,
    n_params: Number,
    bytes_per_s: Number,
    flops_per_s: Number,
    n_chips: Number = 1,
) -> Number:
    """Seconds of a step when attention, always memory bound, cannot hide behind the weights' matrix
    products.

    B x cache / bandwidth + max(2 B n_params / peak, weights / bandwidth). Lies between the max and
    the sum form when attention's FLOPs are left out of both.
    """
    attention_s = B * cache_bytes_per_sequence / (n_chips * bytes_per_s)
    rates = (n_chips * flops_per_s, n_chips * bytes_per_s)
    return attention_s + time_overlapped_s(forward_flops(B, n_params), weight_bytes, *rates)


@formula(zero_ok=("B",))
def throughput_tokens_per_s(B: Number, step_s: Number, n_replicas: Number = 1) -> Number:
    """Tokens per second of all sequences together: each step gives one token to each of B
    sequences."""
    return n_replicas * B / step_s


@formula()
def throughput_ceiling_tokens_per_s(
    cache_bytes_per_sequence: Number,
    bytes_per_s: Number,
    n_chips: Number = 1,
    flops_per_token: Number | None = None,
    flops_per_s: Number | None = None,
) -> Number:
    """Where the throughput of decoding goes as B grows without end: bandwidth / cache of one
    sequence, and, if `flops_per_token` and `flops_per_s` are given, no more than those allow."""
    memory_bound = n_chips * bytes_per_s / cache_bytes_per_sequence
    if flops_per_token is None or flops_per_s is None:
        return memory_bound
    return minimum(memory_bound, 1 / compute_time_s(flops_per_token, flops_per_s, n_chips))


@formula(zero_ok=("step_s",), whole=("n_output",))
def machine_time_per_request_s(
    prefill_s: Number, step_s: Number, B: Number, n_output: Number
) -> Number:
    """Seconds of the whole machine that one request takes: its prompt alone, then its share of
    n_output - 1 steps of B sequences.

    One over it is requests per second at full use; B times it is the latency when B requests are
    always in flight (Little's law), for each waits while the prompts of the others are computed.
    """
    return prefill_s + (n_output - 1) * step_s / B


@formula(zero_ok=("queue_s",))
def ttft_s(
    prefill_flops: Number,
    weight_bytes: Number,
    bytes_per_s: Number,
    flops_per_s: Number,
    n_chips: Number = 1,
    queue_s: Number = 0,
    overlap: bool = True,
) -> Number:
    """Time to first token: waiting, then prefill, which cannot beat one read of the weights."""
    return queue_s + step_time_s(
        weight_bytes, 0, 0, prefill_flops, bytes_per_s, flops_per_s, n_chips, overlap
    )


@formula(whole=("n_output",), least={"n_output": 2}, ordered=(("ttft_s", "total_latency_s"),))
def tpot_s(total_latency_s: Number, ttft_s: Number, n_output: Number) -> Number:
    """Time per output token, measured: what came after the first token, over the n_output - 1 that
    came after it. There is none with a single token."""
    return (total_latency_s - ttft_s) / (n_output - 1)


@formula()
def chip_hours_per_million_tokens(tokens_per_s: Number, n_chips: Number = 1) -> Number:
    """Chip-hours (GPU-hours) that a million tokens take at this throughput of all chips
    together."""
    return MILLION / tokens_per_s * n_chips / SECONDS_PER_HOUR


@formula(zero_ok=("price_per_chip_hour",))
def cost_per_million_tokens(
    price_per_chip_hour: Number, tokens_per_s: Number, n_chips: Number = 1
) -> Number:
    """Price of a million tokens, in the currency of the price, at full use of the chips."""
    return price_per_chip_hour * chip_hours_per_million_tokens(tokens_per_s, n_chips)


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the (latency, throughput) points that no other point beats, by rising latency: a
    choice among numbers that are there, not a `formula` for a new one.

    A point is beaten if another has no more latency and no less throughput, and is better in one.
    Of equal points the first stays. Raises ValueError if a coordinate is not a number.
    """
    for latency, throughput in points:
        if latency != latency or throughput != throughput:
            raise ValueError(
                f"Every point needs two numbers, but one is ({latency}, {throughput})."
            )
    best = float("-inf")
    front = []
    for index in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1], i)):
        if points[index][1] > best:
            best = points[index][1]
            front.append(index)
    return front
