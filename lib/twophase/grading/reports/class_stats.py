"""Numbers about a class: how its scores lie, which exercises and misconceptions cost most."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from twophase.grading.scores.gradebook import Gradebook
from twophase.grading.scores.outcome import Outcome
from twophase.grading.scores.rubric import ZERO, ExerciseScore, Rubric, RubricItem

JUDGED = ("right", "wrong", "not_yet", "missing", "failed", "by hand", "override")


@dataclass(frozen=True)
class Spread:
    """How some percentages lie: mean and quartiles."""

    n: int
    mean: Fraction
    lower: Fraction
    median: Fraction
    upper: Fraction


def spread(values: Iterable[Fraction]) -> Spread | None:
    """Mean and quartiles (linear between the two nearest values); None of nothing."""
    there = list(values)
    if not there:
        return None
    quartiles = statistics.quantiles(there * 2 if len(there) == 1 else there, method="inclusive")
    return Spread(len(there), statistics.mean(there), *quartiles)


def histogram(percents: Iterable[Fraction]) -> list[tuple[str, int]]:
    """How many in each tenth, 100% in the last; what is above, if anything (extra), in one more."""
    counts = [0] * 11
    for p in percents:
        counts[10 if p > 100 else min(9, int(p // 10))] += 1
    named = [(f"{10 * n}–{10 * (n + 1)}", c) for n, c in enumerate(counts[:10])]
    return [*named, ("over 100", counts[10])] if counts[10] else named


@dataclass
class AssignmentStats:
    """One assignment over the class. Percentages are of its worth, of those who are graded."""

    rubric: Rubric
    percents: list[Fraction] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    late: int = 0
    cost: Fraction = ZERO


@dataclass
class ExerciseStats:
    """One exercise over all who handed it in. `lost`: in the course's points, which compare."""

    rubric: Rubric
    item: RubricItem
    n: int = 0
    full: int = 0
    lost: Fraction = ZERO
    statuses: Counter[str] = field(default_factory=Counter)

    @property
    def lost_share(self) -> Fraction:
        return self.lost / self.n / self.worth if self.n and self.worth else ZERO

    @property
    def worth(self) -> Fraction:
        return course_points(self.rubric, self.item.out_of)


@dataclass
class MisconceptionStats:
    """A named wrong answer: how many gave it, and what it cost them together."""

    name: str
    item: RubricItem
    says: str
    n: int = 0
    lost: Fraction = ZERO


@dataclass(frozen=True)
class ClassStats:
    """All of it. Exercises and misconceptions come dearest first."""

    percents: Sequence[Fraction]
    assignments: Sequence[AssignmentStats]
    exercises: Sequence[ExerciseStats]
    misconceptions: Sequence[MisconceptionStats]


def course_points(rubric: Rubric, points: Fraction) -> Fraction:
    """An exercise's points in the course's: an assignment's worth may be another than their sum."""
    regular = sum((s.out_of for s in rubric.items if not s.rule.extra), ZERO)
    return points * rubric.worth / regular


def class_stats(book: Gradebook) -> ClassStats:
    """The statistics of a class."""
    assignments = {topic: AssignmentStats(rubric) for topic, rubric in book.rubrics.items()}
    exercises = {
        (topic, s.id): ExerciseStats(rubric, s)
        for topic, rubric in book.rubrics.items()
        for s in rubric.items
    }
    named: dict[tuple[str, str], MisconceptionStats] = {}
    for o in book.outcomes:
        _count(assignments[o.topic], o)
        for cell in o.exercises if o.file or o.status == "graded" else ():
            if cell.points is None or cell.status not in JUDGED:
                continue
            lost = course_points(book.rubrics[o.topic], max(cell.item.out_of - cell.points, ZERO))
            _count_cell(exercises[o.topic, cell.item.id], cell, lost)
            if cell.misconception and lost > 0:
                m = named.setdefault(
                    (cell.item.id, cell.misconception),
                    MisconceptionStats(cell.misconception, cell.item, cell.says),
                )
                m.n, m.lost = m.n + 1, m.lost + lost
    return ClassStats(
        [t.percent for t in book.totals if t.percent is not None],
        list(assignments.values()),
        sorted(exercises.values(), key=lambda e: (-e.lost, e.item.id)),
        sorted(named.values(), key=lambda m: (-m.lost, -m.n, m.item.id, m.name)),
    )


def _count(stats: AssignmentStats, o: Outcome) -> None:
    stats.statuses[o.status] += 1
    stats.late += o.late.days > 0
    stats.cost += o.cost
    if o.status == "graded" and o.points is not None:
        stats.percents.append(100 * o.points / o.worth)


def _count_cell(stats: ExerciseStats, cell: ExerciseScore, lost: Fraction) -> None:
    stats.n += 1
    stats.full += lost == 0
    stats.statuses[cell.status] += 1
    if not cell.item.rule.extra:
        stats.lost += lost
