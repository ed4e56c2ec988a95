"""What a scheduler may decide otherwise: who comes next, when, and who gives way.

A policy of one's own is a class with these three methods; it sees requests and changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from twophase.serving.request import Request


class Policy(Protocol):
    """The three decisions."""

    def order(self, waiting: Sequence[Request]) -> Sequence[Request]:
        """Those that wait, the next one first."""

    def may_admit(
        self, waiting: Sequence[Request], running: Sequence[Request], seats: int, now_s: float
    ) -> bool:
        """Whether anybody may join those that run, where `seats` run at most."""

    def victim(self, running: Sequence[Request]) -> Request:
        """Who gives its blocks back when there are none left."""


class ContinuousBatching:
    """Iteration-level scheduling (Orca): whoever arrived first joins as soon as there is a seat,
    and whoever was admitted last gives way."""

    def order(self, waiting: Sequence[Request]) -> Sequence[Request]:
        """As they stand in the queue: preempted ones first, then by arrival."""
        return waiting

    def may_admit(
        self, waiting: Sequence[Request], running: Sequence[Request], seats: int, now_s: float
    ) -> bool:
        """Always."""
        return True

    def victim(self, running: Sequence[Request]) -> Request:
        """The last one."""
        return running[-1]


class ShortestFirst(ContinuousBatching):
    """The shortest prompt first: good for the mean wait, bad for whoever asks much."""

    def order(self, waiting: Sequence[Request]) -> Sequence[Request]:
        """By the tokens that are still to be read."""
        return sorted(waiting, key=lambda request: request.n_missing)


class StaticBatching(ContinuousBatching):
    """Request-level scheduling: a batch starts when nobody runs, with whoever is there; once it has
    drawn a token nobody joins it. Seats of those that have ended stay empty until the last one
    ends."""

    def may_admit(
        self, waiting: Sequence[Request], running: Sequence[Request], seats: int, now_s: float
    ) -> bool:
        """Until the first token of a batch."""
        return not any(request.tokens for request in running)


@dataclass
class DynamicBatching(StaticBatching):
    """Static batches that wait until they are full, or `patience_s` after the first arrival."""

    patience_s: float = 0.1

    def may_admit(
        self, waiting: Sequence[Request], running: Sequence[Request], seats: int, now_s: float
    ) -> bool:
        """When the batch would be full, or the first has waited long enough."""
        there = [*running, *waiting]
        if any(request.tokens for request in running) or not there:
            return False
        first = min(request.arrival_s for request in there)
        return len(there) >= seats or now_s - first >= self.patience_s
