"""An assignment's exercises, and what one submission has earned in each, before lateness."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from twophase.grading.course.by_hand_file import HandScore, Override
from twophase.grading.course.fields import absent, nearest
from twophase.grading.course.scheme import Assignment, ExerciseRule, Partial, Scheme
from twophase.grading.results.records import Record
from twophase.grading.scores.dropping import Weighted
from twophase.grading.scores.rounding import points_text

ZERO = Fraction(0)


@dataclass(frozen=True)
class RubricItem:
    """An exercise of an assignment: what it is out of, and its rule."""

    id: str
    title: str
    out_of: Fraction
    rule: ExerciseRule


@dataclass(frozen=True)
class Rubric:
    """An assignment with what its results tell about it. `worth`: what it counts in the course."""

    assignment: Assignment
    items: tuple[RubricItem, ...]
    worth: Fraction

    @property
    def only_by_hand(self) -> bool:
        return all(s.rule.by_hand for s in self.items)


@dataclass(frozen=True)
class ExerciseScore:
    """What a student has in one exercise. `points` None: pending, and `note` says why. `kept`
    False: left out of the percentage."""

    item: RubricItem
    points: Fraction | None
    status: str
    note: str = ""
    misconception: str = ""
    says: str = ""  # what the check told the student
    excused: bool = False
    kept: bool = True

    @property
    def weighted(self) -> Weighted:
        out_of = ZERO if self.item.rule.extra else self.item.out_of
        return Weighted(self.points or ZERO, out_of, self.excused)


def make_rubric(
    scheme: Scheme, assignment: Assignment, records: Iterable[Record], notes: list[str]
) -> Rubric | None:
    """The rubric of an assignment; None, and a note, if nothing is known of it yet. Raises
    ValueError if course.yml and results disagree."""
    seen = _questions(records)
    rules = assignment.exercises
    if not seen and rules != {}:
        notes.append(
            f"{assignment.topic}: there are no results of it yet, so it counts for nobody."
        )
        return None
    if rules is None:
        rules = {i: ExerciseRule(partial=assignment.partial) for i in seen}
    where = f"{scheme.path}: assignments.{assignment.topic}.exercises"
    items = [_item(i, rule, seen, where) for i, rule in rules.items()]
    items += [
        RubricItem(i, rule.title or i, rule.points or ZERO, rule)
        for i, rule in assignment.by_hand.items()
    ]
    left = [i for i in seen if i not in rules]
    if left:
        names = f"{', '.join(left)} {'is' if len(left) == 1 else 'are'}"
        notes.append(f"{assignment.topic}: {names} not in course.yml: not counted.")
    regular = sum((s.out_of for s in items if not s.rule.extra), ZERO)
    return Rubric(assignment, tuple(items), assignment.points or regular)


def _questions(records: Iterable[Record]) -> dict[str, tuple[str, set[Fraction]]]:
    """Every exercise judged: its title, and what it was out of. In the longest record's order."""
    found: dict[str, tuple[str, set[Fraction]]] = {}
    for record in sorted(records, key=lambda r: (-len(r["questions"]), str(r["file"]))):
        for q in record["questions"]:
            found.setdefault(q["id"], (str(q["title"]), set()))[1].add(Fraction(str(q["out_of"])))
    return found


def _item(
    exercise: str, rule: ExerciseRule, seen: Mapping[str, tuple[str, set[Fraction]]], where: str
) -> RubricItem:
    if exercise not in seen:
        new = f"so grade again if it is new{nearest(exercise, seen)}"
        raise ValueError(f"{where}: no result has an exercise {exercise!r}, {new}")
    title, out_of = seen[exercise]
    if rule.points is None and len(out_of) > 1:
        both = " and ".join(points_text(p) for p in sorted(out_of))
        which = f"say which with `{exercise}: {points_text(max(out_of))}`"
        raise ValueError(f"{where}.{exercise}: results are out of {both} points; {which}")
    return RubricItem(exercise, rule.title or title, rule.points or min(out_of), rule)


def partial_credit(q: Mapping[str, Any], partial: Partial) -> Fraction:
    """The part of its points that an answer has earned; none if it died or ran out of time."""
    if q["status"] == "right":
        return Fraction(1)
    if q["status"] != "wrong":
        return ZERO
    hidden = [c["right"] for c in q["cases"] if not c["public"]]
    by_cases = partial.cases * Fraction(sum(hidden), len(hidden)) if hidden else ZERO
    return max(by_cases, partial.misconceptions.get(q["misconception"] or "", ZERO))


@dataclass(frozen=True)
class ManualGrades:
    """What people have said beside the grader: scores by hand and overrides."""

    scheme: Scheme
    hand: Sequence[HandScore] = ()
    overrides: Sequence[Override] = ()

    @cached_property
    def _by_cell(self) -> dict[tuple[str, str], list[HandScore]]:
        found: dict[tuple[str, str], list[HandScore]] = {}
        for h in self.hand:
            found.setdefault((h.who, h.exercise), []).append(h)
        return found

    def override(self, record: Record | None, exercise: str) -> Override | None:
        """The override for an exercise of this submission, or ("") for the whole of it."""
        digest = record["digests"]["submission"] if record else ""
        theirs = (o for o in self.overrides if digest and digest.startswith(o.digest))
        return next((o for o in theirs if o.exercise == exercise), None)

    def by_hand(self, student: str, topic: str, exercise: str) -> list[HandScore]:
        """The scores for this cell: the student's own, else the group's, else a member's if the
        members' agree. One version's first."""
        group = self.scheme.group_of(student, topic)
        for names in [[student], [group.name], group.members] if group else [[student]]:
            found = [h for n in names for h in self._by_cell.get((n, exercise), [])]
            if found:
                versions = {h.submission for h in found}
                alike = len({(h.points, h.submission) for h in found}) == len(versions)
                return sorted(found, key=lambda h: h.submission == "") if alike else []
        return []


def exercise_scores(
    student: str, rubric: Rubric, record: Record | None, manual: ManualGrades
) -> tuple[ExerciseScore, ...]:
    """What a student has in each exercise for one submission; `record` None if there is none."""
    topic, made = rubric.assignment.topic, []
    questions = {q["id"]: q for q in record["questions"]} if record else {}
    for item in rubric.items:
        excused = manual.scheme.excusal(student, topic, item.id) is not None
        override = manual.override(record, item.id)
        if override:
            why = f"set by hand: {override.because}"
            cell = ExerciseScore(item, override.points, "override", why)
        elif item.rule.by_hand:
            scores = manual.by_hand(student, topic, item.id)
            cell = _by_hand(item, record, scores, rubric.only_by_hand)
        else:
            cell = _judged(item, record, questions.get(item.id), manual.scheme)
        made.append(replace(cell, excused=excused))
    return tuple(made)


def _by_hand(
    item: RubricItem, record: Record | None, scores: Sequence[HandScore], alone: bool
) -> ExerciseScore:
    digest = record["digests"]["submission"] if record else ""
    for score in scores:
        if digest.startswith(score.submission):
            return ExerciseScore(item, score.points, "by hand", score.comment)
    if record is None and not alone:
        return ExerciseScore(item, ZERO, "missing", "not handed in")
    how = "was graded by hand for another version of the work"
    how = how if scores else "is not graded by hand yet"
    return ExerciseScore(item, None, "pending", f"{item.id} {how}")


def _judged(
    item: RubricItem, record: Record | None, q: Mapping[str, Any] | None, scheme: Scheme
) -> ExerciseScore:
    if record is None:
        return ExerciseScore(item, ZERO, "missing", "not handed in")
    file, rules = record["file"], scheme.submissions
    if record["status"] == "unreadable":
        worth = ZERO if rules.unreadable == "zero" else None
        return ExerciseScore(item, worth, "unreadable", f"{file} cannot be read")
    if record["status"] == "internal":
        why = f"the grader failed on {file}: grade it again"
        return ExerciseScore(item, None, "internal", why)
    if q is None:
        why = f"{item.id} was not judged in {file}: grade it again"
        return ExerciseScore(item, None, "pending", why)
    if q["status"] == "right" and q.get("alone") and rules.right_alone == "pending":
        why = f"{item.id} is right only by itself in {file}: look, and set it by an override"
        return ExerciseScore(item, None, "pending", why)
    points = item.out_of * partial_credit(q, item.rule.partial)
    named, says = q["misconception"] or "", str(q["message"])
    return ExerciseScore(item, points, q["status"], "", named, says)


def require_bounds(rubrics: Iterable[Rubric], manual: ManualGrades, digests: Iterable[str]) -> None:
    """Raise ValueError for points by hand or by override beyond what the cell is out of, or for a
    cell that is not there. An override of work that is not stored here may be of other results."""
    items: dict[str, RubricItem] = {s.id: s for rubric in rubrics for s in rubric.items}
    rules = {i: rule for a in manual.scheme.assignments.values() for i, rule in a.by_hand.items()}
    hand = {i: RubricItem(i, i, rule.points or ZERO, rule) for i, rule in rules.items()}
    for h in manual.hand:
        if h.exercise in items and h.exercise not in hand:
            why = "is judged, not graded by hand; to change its points use files.overrides"
            raise ValueError(f"{h.where}: {h.exercise} {why}")
        _require(h.exercise, h.points, hand, f"{h.where}: exercise")
    there = list(digests)
    for o in manual.overrides:
        if o.exercise and any(d.startswith(o.digest) for d in there):
            _require(o.exercise, o.points, items, o.where)


def _require(exercise: str, points: Fraction, known: Mapping[str, RubricItem], where: str) -> None:
    if exercise not in known:
        raise ValueError(f"{where}: {absent('exercise', exercise, known)}")
    require_at_most(points, known[exercise].out_of, exercise, where)


def require_at_most(points: Fraction, most: Fraction, of: str, where: str) -> None:
    """Raise ValueError for points that somebody gave beyond the most that there are."""
    if points > most:
        more = f"{points_text(points)} points are more than the {points_text(most)}"
        raise ValueError(f"{where}: {more} of {of}")
