"""What no engine can undercut in a deployment: the least time of a step, of a prompt, of a whole
request."""

from twophase.theory import latency_throughput
from twophase.theory._domain import SOME
from twophase.theory.arithmetic_intensity import time_overlapped_s
from twophase.theory.deployment import Deployment


def floor_step_s(d: Deployment) -> float:
    """The least time of a step, whatever the engine: weights read once, of the experts only those
    that one token visits, and every sequence's cache; or its FLOPs at the peak rate."""
    times = d.mean_step(d.w.batch)
    unread = d.further_expert_bytes(d.w.batch) / d.tokens_per_step
    return max(times.memory_s - unread / d.chip.hbm_bytes_per_s, times.compute_s)


def floor_ttft_s(d: Deployment) -> float:
    """The least time of a prompt: its FLOPs at the peak rate, or the weights of one token read."""
    flops = d.prefill_flops(d.w.prompt, d.w.found)
    moved = d.token_weight_bytes
    peak, bandwidth = d.chip.peak_flops_per_s(d.w.compute), d.chip.hbm_bytes_per_s
    return float(time_overlapped_s(flops, moved, peak, bandwidth))


def floor_request_s(d: Deployment, n_output: int) -> float:
    """Of the machine's time, the least that a request takes with `w.batch` in flight: its FLOPs at
    the peak rate, prompt and steps; or its part of what its steps read, whichever takes longer.
    ValueError for an answer without a token."""
    SOME.check("n_output", n_output)
    steps = n_output - 1
    flops = d.prefill_flops(d.w.prompt, d.w.found) + steps * d.mean_token_flops
    computing = latency_throughput.compute_time_s(flops, d.chip.peak_flops_per_s(d.w.compute))
    return float(max(computing, steps * floor_step_s(d) / d.w.batch))
