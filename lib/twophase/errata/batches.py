"""What the texts say of batches of requests, counted on the engine's own scheduler."""

from collections.abc import Sequence

from twophase.serving.config import EngineConfig
from twophase.serving.engine import Engine
from twophase.serving.policy import ContinuousBatching, Policy, StaticBatching
from twophase.serving.request import Request
from twophase.serving.simulation import SimulatedRunner, VirtualClock, replay
from twophase.serving.workload import Arrival

CHART = (
    "R1 R1 R1 R1 R4 R4 R4 R5",
    "R2 R2 R3 R3 R3 R5 R5 R5",
    "R3 R3 R3 R4 R4 R4 R6 R6",
)  # of the deep dive: a row for each slot, a column for each step
POLICIES: dict[str, type[Policy]] = {"static": StaticBatching, "continuous": ContinuousBatching}


def _columns(rows: Sequence[str]) -> list[tuple[str, ...]]:
    return list(zip(*(row.split() for row in rows), strict=True))


def seats_taken_twice(n_slots: int) -> int:
    """Steps of the chart's first so many slots in which one request sits in two of them."""
    return sum(len(set(column)) < len(column) for column in _columns(CHART[:n_slots]))


def served_twice() -> int:
    """Requests that the chart has in two slots at once."""
    return len({one for column in _columns(CHART) for one in column if column.count(one) > 1})


def _served(policy: str, lengths: Sequence[int], seats: int, every_s: float) -> list[Request]:
    clock = VirtualClock()
    engine = Engine(
        SimulatedRunner(lambda starts, n_new: 1.0, clock),
        EngineConfig(max_seqs=seats),
        policy=POLICIES[policy](),
        clock=clock,
    )
    return replay(engine, [Arrival(i * every_s, (0,), n) for i, n in enumerate(lengths)], clock)


def steps_to_serve(policy: str, lengths: Sequence[int], seats: int) -> float:
    """Steps until all answers are there, all asked for at the start."""
    return max(request.times_s[-1] for request in _served(policy, lengths, seats, 0.0))


def longest_wait(policy: str, lengths: Sequence[int], seats: int) -> float:
    """Steps that somebody waits before the pass that has the first token; one comes each step."""
    return max(request.ttft_s - 1 for request in _served(policy, lengths, seats, 1.0))


def ragged_error(lengths: Sequence[int], whole_row: bool) -> float:
    """The largest difference between attention sequence by sequence on a flat row and each sequence
    alone; `whole_row`: if the row were taken for one sequence."""
    import torch

    from twophase.kernels.attention import causal_attention
    from twophase.kernels.continuous_batching import ragged_attention

    x = torch.randn(
        sum(lengths), 2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    alone = torch.cat(
        [causal_attention(y[None], y[None], y[None])[0] for y in torch.split(x, list(lengths))]
    )
    found = ragged_attention(x, x, x, [sum(lengths)] if whole_row else lengths)
    return float((found - alone).abs().max())
