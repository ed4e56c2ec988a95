"""A run in numbers: what was right, and which mistakes were made, one record at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from twophase.grading.results.grade import BROKEN, NOT_ASKED, OTHER_TOPIC
from twophase.grading.results.records import Record


@dataclass
class ExerciseCounts:
    """One exercise: how many were judged, how many are right, which misconceptions were named."""

    judged: int = 0
    right: int = 0
    misconceptions: Counter[str] = field(default_factory=Counter)

    def add(self, question: Record) -> None:
        self.judged += 1
        self.right += question["status"] == "right"
        if question["misconception"]:
            self.misconceptions[question["misconception"]] += 1


@dataclass
class TopicCounts:
    """One topic: the points of what was judged, and its exercises in the order of the release."""

    out_of: float = 0
    points: list[float] = field(default_factory=list)
    exercises: dict[str, ExerciseCounts] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        self.out_of = record["out_of"]
        self.points.append(record["points"])
        for question in record["questions"]:
            self.exercises.setdefault(question["id"], ExerciseCounts()).add(question)


@dataclass
class Counts:
    """All results: by status, by topic; `labels` of those that are not official; `alone`: answers
    right only by themselves, by file."""

    statuses: Counter[str] = field(default_factory=Counter)
    topics: dict[str, TopicCounts] = field(default_factory=dict)
    labels: Counter[str] = field(default_factory=Counter)
    alone: Counter[str] = field(default_factory=Counter)
    # exercises that notebooks ask and nobody graded
    not_asked: Counter[str] = field(default_factory=Counter)
    # notebooks of two topics, by file: the topics that were not graded
    other_topics: dict[str, list[str]] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        self.statuses[record["status"]] += 1
        self.not_asked.update(f["where"] for f in record["flags"] if f["name"] == NOT_ASKED)
        if others := [f["where"] for f in record["flags"] if f["name"] == OTHER_TOPIC]:
            self.other_topics[record["file"]] = others
        if alone := sum(question["alone"] for question in record["questions"]):
            self.alone[record["file"]] = alone
        if record["points"] is not None:
            self.topics.setdefault(record["topic"], TopicCounts()).add(record)
        if not record["official"]:
            self.labels["practice" if "practice" in record["confined_by"] else "unsafe"] += 1

    @property
    def n(self) -> int:
        return self.statuses.total()


def count(records: Iterable[Record]) -> Counts:
    """The counts of these records."""
    counts = Counts()
    for record in records:
        counts.add(record)
    return counts


def why(record: Record) -> str:
    """One line on what was wrong with a troubled submission."""
    if record["message"]:
        return str(record["message"]).removeprefix("This file could not be graded: ")
    broken = [f"{f['where']}: {f['says']}" for f in record["flags"] if f["name"] == "cell_broke"]
    for question in record["questions"]:
        errors = [c["message"] for c in question["cases"] if c["error"] in BROKEN]
        broken += [f"{question['id']}: {message}" for message in errors[:1]]
    more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
    again = "something broke once, and went well when it was tried again: nothing is lost"
    return broken[0] + more if broken else again
