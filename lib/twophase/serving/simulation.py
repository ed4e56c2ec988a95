"""The same engine, its passes priced instead of run: what it would do with another model on another
machine.

Scheduler, block manager and events are the engine's own; only the runner is another one. It draws
nothing (every token is 0), so answers are as long as their `max_tokens`.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from twophase.serving.engine import IDLE_S, Engine
from twophase.serving.request import Request, SamplingParams
from twophase.serving.workload import Arrival

VOCABULARY = 10**9  # prompts are counted, not read: any token will do
PATIENCE_STEP_S = 1e-3  # how often a policy that lets them wait is asked again
PassTime = Callable[[Sequence[int], Sequence[int]], float]


@dataclass
class VirtualClock:
    """A clock that shows what it is told."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


class SimulatedRunner:
    """Moves a clock by what each pass takes: `pass_s(starts, n_new)`, as
    `theory.continuous_batching.pass_s` of a deployment, or a fit to measured passes."""

    has_states, V, most_positions = False, VOCABULARY, 0

    def __init__(self, pass_s: PassTime, clock: VirtualClock) -> None:
        self.pass_s, self.clock = pass_s, clock

    def seat(self, seq: int) -> None:
        """Nothing is kept."""

    def unseat(self, seq: int) -> None:
        """Nothing was kept."""

    def copy_block(self, source: int, target: int) -> None:
        """A block is copied in no time."""

    def copy_window_block(self, source: int, target: int) -> None:
        """The same."""

    def copy_state(self, source: int, target: int) -> None:
        """There is no state."""

    def save(
        self, seq: int, table: Sequence[int], window_table: Sequence[int] = ()
    ) -> list[torch.Tensor]:
        """Nothing, in no time: `theory.paging.swap_s` says what it would take."""
        return []

    def restore(
        self,
        seq: int,
        table: Sequence[int],
        saved: Sequence[torch.Tensor],
        window_table: Sequence[int] = (),
    ) -> None:
        """Nothing to put back."""

    def run(
        self,
        n_new: dict[Request, int],
        tables: dict[int, list[int]],
        window_tables: dict[int, list[int]] | None = None,
    ) -> dict[Request, torch.Tensor]:
        """Let the time of the pass go by."""
        starts = [request.n_computed for request in n_new]
        self.clock.now_s += self.pass_s(starts, list(n_new.values()))
        logits = torch.tensor([1.0, 0.0])  # [V]
        return {request: logits for request, n in n_new.items() if request.n_missing == n}


def replay(
    engine: Engine, trace: Iterable[Arrival], clock: VirtualClock | None = None
) -> list[Request]:
    """Serve a trace, each request from its time on, and give all in the order of arrival.

    With a virtual clock, which skips what nobody uses; without one in real time, on the engine's
    clock. ValueError for a trace that goes back in time, and for a policy that would let those who
    wait do so for ever.
    """
    arrivals = list(trace)
    if any(later.at_s < before.at_s for before, later in pairwise(arrivals)):
        raise ValueError("a trace lists its arrivals in the order of their times.")
    first = len(engine.requests)
    while arrivals or engine.busy:
        while arrivals and arrivals[0].at_s <= engine.clock():
            one = arrivals.pop(0)
            engine.add(one.prompt, SamplingParams(max_tokens=one.n_output), one.at_s)
        before = engine.clock()
        engine.step()
        if engine.scheduler.running:
            continue
        if not arrivals:
            engine.scheduler.check_admits(engine.clock())
        if clock is None:
            time.sleep(IDLE_S)
        elif engine.clock() == before:
            clock.now_s = _next_s(engine, arrivals, before)
    return [engine.requests[i] for i in range(first, len(engine.requests))]


def _next_s(engine: Engine, arrivals: Sequence[Arrival], now_s: float) -> float:
    """When something can happen next: an arrival, or a policy's patience at an end."""
    if not engine.busy and arrivals:
        return max(now_s, arrivals[0].at_s)
    return min([now_s + PATIENCE_STEP_S, *(one.at_s for one in arrivals[:1])])
