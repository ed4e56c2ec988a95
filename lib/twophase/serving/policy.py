"""What a scheduler may decide otherwise: who comes next, when, and who gives way.

A policy of one's own is a class with these three methods; it sees requests and changes nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from twophase.serving.request import Request

METHODS = ("order", "may_admit", "victim")


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
    """Static batches that wait until they are full, or `patience_s` after the first arrival.
    ValueError for a patience below 0."""

    patience_s: float = 0.1

    def __post_init__(self) -> None:
        if not isinstance(self.patience_s, int | float) or not self.patience_s >= 0:
            raise ValueError(
                f"a patience is a number of seconds from 0 on; got {self.patience_s!r}."
            )

    def may_admit(
        self, waiting: Sequence[Request], running: Sequence[Request], seats: int, now_s: float
    ) -> bool:
        """When the batch would be full, or the first has waited long enough."""
        there = [*running, *waiting]
        if any(request.tokens for request in running) or not there:
            return False
        first = min(request.arrival_s for request in there)
        return len(there) >= seats or now_s - first >= self.patience_s


def check_policy(policy: Policy) -> Policy:
    """The policy. ValueError for what is none: better now than when the blocks run out."""
    if isinstance(policy, type):
        raise ValueError(f"a policy is an object, not its class: write {policy.__name__}().")
    if lacks := [name for name in METHODS if not callable(getattr(policy, name, None))]:
        raise ValueError(
            f"a policy has the methods {', '.join(METHODS)}; {policy!r} lacks {', '.join(lacks)}."
        )
    return policy


def asked_to_admit(
    policy: Policy,
    waiting: Sequence[Request],
    running: Sequence[Request],
    seats: int,
    now_s: float,
) -> bool:
    """What a policy's `may_admit` says. ValueError for None, after which all would wait for
    ever."""
    says = policy.may_admit(waiting, running, seats, now_s)
    if says is None:
        raise ValueError("a policy's may_admit gives True or False; got None: a return is missing.")
    return bool(says)


def check_admits(policy: Policy, waiting: Sequence[Request], seats: int, now_s: float) -> None:
    """ValueError for a policy that lets none of these join though nobody runs, and would not,
    however long they wait: nothing that it sees will change."""
    later = (now_s, *(now_s + 2**i / 1000 for i in range(50)))  # up to thousands of years
    admits = any(asked_to_admit(policy, waiting, (), seats, at_s) for at_s in later)
    if admits and ordered(policy, waiting):
        return
    raise ValueError(
        f"nobody runs, and the policy lets none of {named(waiting)} join, however long they wait:"
        " its may_admit and its order must let somebody in when nobody runs."
    )


def ordered(policy: Policy, waiting: Sequence[Request]) -> list[Request]:
    """What a policy's `order` says. ValueError for others than those that wait, and for one that
    is named twice."""
    says: object = policy.order(waiting)
    order = list(says) if isinstance(says, Iterable) else None
    there, numbers = set(map(id, waiting)), list(map(id, order or ()))  # who knows what was given
    if order is None or not there.issuperset(numbers):
        raise ValueError(
            f"a policy orders those that wait, {named(waiting)}; got {named(order or says)}."
        )
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"a policy orders those that wait, each once at most; got {named(order)}.")
    return order


def named(what: object) -> str:
    """Requests by their numbers, since all of what they hold is no sentence; others as they are."""
    if isinstance(what, Request):
        return f"request {what.id}"
    if isinstance(what, list | tuple):
        return f"[{', '.join(map(named, what))}]"
    return repr(what)
