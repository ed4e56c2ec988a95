"""What judging one submission gives, before it is a record: verdicts, and what is worth a flag."""

from __future__ import annotations

from dataclasses import dataclass, field

from twophase.checks.judge import Verdict
from twophase.grading.sandbox.session import CellRun

BROKEN = ("timeout", "died", "protocol")  # errors of a case: its process can no longer be used
NOT_ASKED = "not_asked"  # a flag: the notebook asks an exercise that its release does not
OTHER_TOPIC = "other_topic"  # a flag: the notebook has exercises of a second topic, too


@dataclass(frozen=True)
class Flag:
    """Something an instructor may want to look at. It changes no score by itself."""

    name: str
    where: str
    says: str


@dataclass(frozen=True)
class Graded:
    """One exercise of one submission: the verdict, and what its cell did when it ran."""

    verdict: Verdict
    cell: CellRun = field(default_factory=CellRun)
    alone: bool = False  # right only by itself: another cell of the notebook breaks it


@dataclass
class Grade:
    """Everything that grading one submission gave. `trouble`: the kinds of it on the way."""

    questions: list[Graded] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)
    trouble: set[str] = field(default_factory=set)
    forks: int = 0
