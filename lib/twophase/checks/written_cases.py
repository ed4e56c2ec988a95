"""Exercises of the kind *test*: the learner writes the cases. What is right must pass all of them,
and each broken thing must fail one."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import plain
from twophase.checks.exercise import Case


@dataclass(frozen=True)
class WrittenCases:
    """How an answer's cases are met, one exercise case for what is right and one for each of
    `mutants`.

    right, mutant: as reports call them, such as "a right mask", "a mask that". `problem(cases)`:
    what makes them no cases, in one sentence, or "". `passes(thing, case)`: whether a thing shows
    what a case expects. `fails_right(case)`: what a case expects that the right thing does not
    show, as part of a sentence, or "".
    """

    entry: str
    right: str
    mutant: str
    mutants: Mapping[str, Any]
    problem: Callable[[Any], str]
    passes: Callable[[Any, Any], bool]
    fails_right: Callable[[Any], str]

    def observe(self, answer: Answer, case: Case) -> dict[str, Any]:
        """Whether the right thing passes, or whether the case's broken one is caught."""
        written = plain(answer.call(self.entry))
        found = self.problem(written)
        if case.args:
            broken = self.mutants[case.args[0]]
            return {"caught": not found and not all(self.passes(broken, one) for one in written)}
        failed = found or next(filter(None, map(self.fails_right, written)), "")
        return {"the cases": failed or f"can be used, and {self.right} passes them"}

    def cases(self, rng: random.Random) -> list[Case]:
        """What is right first, then the broken things in an order of the seed's choosing."""
        names = sorted(self.mutants)
        rng.shuffle(names)
        return [Case(self.right), *(Case(f"{self.mutant} {name}", (name,)) for name in names)]
