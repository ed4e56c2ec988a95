"""An exercise: its cases, its right answer, and the wrong answers people give. Data and functions,
no machinery."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from twophase.checks.answer import Answer
from twophase.checks.compare import Tolerance

Kind = Literal["formula", "kernel", "predict", "fault", "trace", "judgement", "test"]
Namespace = Mapping[str, Any]  # the names that an answer defines


@dataclass(frozen=True)
class Case:
    """One situation to try an answer in. A public case may be shown to the person whose answer
    fails it."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    public: bool = True


@dataclass(frozen=True)
class Misconception:
    """A wrong answer that people give, as code.

    `slug` names it in reports; `answer` is one function or class (for the exercise's only entry) or
    a dict of them; `seen` says where it was met (a public repository's issue, a lecture, a pilot,
    or "plausible"); `says` is one sentence for the person who made it.
    """

    slug: str
    answer: Any
    seen: str
    says: str


def call_entry(answer: Answer, case: Case, entry: str) -> Any:
    """The ordinary way to observe an answer: call it once with the case's arguments."""
    return answer.call(entry, *case.args, **case.kwargs)


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """Everything a check knows about one exercise. CONTRIBUTING.md, "Exercises", says what each
    field is for."""

    id: str
    title: str
    kind: Kind
    points: int
    minutes: int
    entries: tuple[str, ...]
    cases: Callable[[random.Random], list[Case]]
    reference: Any
    misconceptions: tuple[Misconception, ...]
    hints: tuple[str, str, str]
    recall: tuple[str, str]
    observe: Callable[[Answer, Case], Any] | None = None
    compare: Tolerance = field(default_factory=Tolerance)
    time_limit_s: float = 10.0
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    relayed: bool = False  # officially its calls go to two processes in turn: see answer.Relay

    @property
    def topic(self) -> str:
        return self.id.split("-", 1)[0]

    @property
    def slug(self) -> str:
        return self.id.split("-", 1)[1]

    def make_cases(self, seed: int | str) -> list[Case]:
        """The cases for this seed: the same on every machine, different for every exercise."""
        return self.cases(random.Random(f"{seed}/{self.id}"))

    def look(self, answer: Answer, case: Case) -> Any:
        """What one case shows of an answer, as plain data. Raises AnswerError if the answer gives
        nothing to look at."""
        if self.observe is not None:
            return self.observe(answer, case)
        return call_entry(answer, case, self.entries[0])

    def namespace(self, answer: Any) -> Namespace:
        """The names that a reference or a misconception stands for: a dict of some of the entries
        leaves the others to the reference."""
        if not isinstance(answer, Mapping):
            answer = {self.entries[0]: answer}
        whole = self.reference if isinstance(self.reference, Mapping) else {}
        return {**whole, **answer}
