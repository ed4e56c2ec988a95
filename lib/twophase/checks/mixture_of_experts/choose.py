"""mixture_of_experts-choose: how many copies of attention on a slice of chips."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import Tolerance, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions
from twophase.checks.mixture_of_experts import _copies as c
from twophase.checks.mixture_of_experts._close_steps import close_steps
from twophase.checks.mixture_of_experts._copies import Chip, Choice, Model, best

wrong = Misconceptions()

Choose = Callable[[Model, Chip, int, int], Choice]
reference = best


def _add(choose: Choose, slug: str, seen: str, says: str) -> None:
    wrong.add(slug, choose, seen, says)


_add(
    c.never_copied,
    "never_copied",
    "“shard everything over all chips”",
    "You never copy. Copies cost bytes, but each copy's all-reduce is among fewer chips and of"
    " fewer tokens.",
)
_add(
    c.as_many_as_fit,
    "as_many_as_fit",
    "“attention is small: copy it everywhere”",
    "You took the most copies that fit: each is read in every step, and beyond some number that"
    " costs more than the communication it spares.",
)
_add(
    c.memory_left_out,
    "memory_left_out",
    "plausible",
    "You did not ask whether it fits: weights and caches must have room on every chip.",
)
_add(
    c.cache_left_out_of_memory,
    "cache_takes_no_room",
    "plausible",
    "You left the caches out of the memory: they lie beside the weights.",
)
_add(
    c.active_experts_stored,
    "active_experts_stored",
    "“only the active parameters count”",
    "You gave room to the experts that a step reads. All E must be stored.",
)
_add(
    c.all_experts_read,
    "all_experts_read",
    "“a step reads all weights”",
    "You read all experts in each step: on average E (1 − (1 − k/E)^B) of them are touched.",
)
_add(
    c.reading_only,
    "reading_only",
    "plausible",
    "You compared reading times only: communication takes its part of every step.",
)
_add(
    c.talking_only,
    "communication_only",
    "plausible",
    "You compared communication only: every copy is read as well.",
)
_add(
    c.overlapped,
    "overlapped",
    "plausible",
    "You took the longer of reading and communication. Here they come one after the other: add"
    " them.",
)
_add(
    c.whole_batch_reduced,
    "whole_batch_reduced",
    "plausible",
    "You reduce the whole batch in each group: a group has its own share, B/copies tokens.",
)
_add(
    c.group_of_all,
    "group_of_all",
    "plausible",
    "Your all-reduce is among all chips: it is among the n/copies chips that share a copy.",
)
_add(
    c.no_way_back,
    "no_way_back",
    "plausible",
    "Your tokens do not come back: all-to-all happens twice in a layer.",
)


def observe(answer: Answer, case: Case) -> Any:
    """The pair; the tolerance is for seconds, and a number of copies must be an int."""
    found = plain(answer.call("choose", *case.args))
    if isinstance(found, list | tuple) and len(found) == 2 and isinstance(found[0], float):
        return [f"the float {found[0]!r}, no int", found[1]]
    return found


def cases(rng: random.Random) -> list[Case]:
    """The worked mixture on the 8 × 16 slice at several batches; each argument changed; memory to
    the byte and one less; slow and quick links; primes of chips; steps of nearly the same length;
    fresh ones."""
    made = [Case(name, args) for name, args in (c.EDGES | close_steps()).items()]
    return [*made, *(Case(f"fresh {i + 1}", c.fresh(rng), public=False) for i in range(6))]


EXERCISE = Exercise(
    id="mixture_of_experts-choose",
    title="How many copies of attention",
    kind="judgement",
    points=5,
    minutes=25,
    entries=("choose",),
    cases=cases,
    observe=observe,
    reference=reference,
    compare=Tolerance(rtol=1e-6, why="seconds in float64, added in another order"),
    misconceptions=tuple(wrong),
    hints=(
        "Try every number of copies that divides the chips; leave out those that do not fit.",
        (
            "Stored: (copies·dense + E·expert)·b/n and B·cache/n. Read: the same with the touched"
            " experts in place of E."
        ),
        (
            "All-reduce: 2·L of them, 2·(g − 1)/g of B/copies·D·2 bytes each, g = n/copies."
            " All-to-all does not depend on copies, but is part of the seconds."
        ),
    ),
    recall=(
        "What does a copy of attention cost, and what does it spare?",
        (
            "It is stored and read once more; in return the chips that share a copy are fewer, and"
            " reduce fewer tokens."
        ),
    ),
)
