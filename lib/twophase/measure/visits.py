"""Which token sits where in the bins of `expert_capacity`, as events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from twophase.kernels import expert_capacity

from .events import EventLog


@contextmanager
def expert_visits() -> Iterator[EventLog]:
    """The log of every visit that `run_in_bins` seats or drops until the block ends, in the order
    in which they come: the kernel's own step is wrapped, and put back."""
    log, seats = EventLog(), expert_capacity.seats

    def noted(
        experts: torch.Tensor, E: int, capacity: int, *, first_choices_first: bool = False
    ) -> torch.Tensor:
        place = seats(experts, E, capacity, first_choices_first=first_choices_first)
        n, k = experts.shape
        by_token = [(t, c) for t in range(n) for c in range(k)]
        for t, c in sorted(by_token, key=lambda at: at[1]) if first_choices_first else by_token:
            found = int(place[t, c])
            log.write(
                "visit",
                token=t,
                choice=c,
                expert=int(experts[t, c]),
                place=None if found == expert_capacity.DROPPED else found,
            )
        return place

    expert_capacity.seats = noted
    try:
        yield log
    finally:
        expert_capacity.seats = seats
