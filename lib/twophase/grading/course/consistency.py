"""Mistakes in course.yml that only two places together show: a name that is nowhere, an extension
before the due date."""

from __future__ import annotations

from twophase.grading.course.fields import nearest, shown
from twophase.grading.course.scheme import Assignment, Extension, Group, Scheme


def cross_mistakes(scheme: Scheme) -> list[str]:
    """Mistakes that only two places together show."""
    if not scheme.assignments:
        return ["assignments: there are none; name the notebooks that count, such as `kv_cache:`"]
    told: list[str] = []
    for e in scheme.exceptions:
        if e.assignment not in scheme.assignments:
            told.append(
                f"{e.where}.assignment: there is no assignment"
                f" {e.assignment!r}{nearest(e.assignment, scheme.assignments)}"
            )
        group = scheme.groups.get(e.student)
        if group and not group.covers(e.assignment):
            told.append(
                f"{e.where}.student: {e.student} is a group in {', '.join(group.assignments)} only"
            )
    for extension in scheme.extensions:
        told += _short(extension, scheme.assignments.get(extension.assignment))
    for excusal in scheme.excused:
        assignment = scheme.assignments.get(excusal.assignment)
        known = (
            {*(assignment.exercises or ()), *assignment.by_hand}
            if assignment and assignment.exercises is not None
            else None
        )
        if excusal.exercise and known is not None and excusal.exercise not in known:
            told.append(
                f"{excusal.where}.exercise: there is no exercise"
                f" {excusal.exercise!r}{nearest(excusal.exercise, known)}"
            )
    told += _twice(scheme)
    groups = list(scheme.groups.values())
    for n, group in enumerate(groups):
        told += [
            f"groups.{group.name}.assignments: there is no assignment"
            f" {t!r}{nearest(t, scheme.assignments)}"
            for t in group.assignments
            if t not in scheme.assignments
        ]
        told += [m for other in groups[:n] for m in _overlap(group, other, scheme)]
    if scheme.drop_lowest >= len(scheme.assignments):
        told.append(
            f"drop_lowest: dropping {scheme.drop_lowest} of {len(scheme.assignments)} assignments"
            " leaves nothing to count"
        )
    return told + [m for a in scheme.assignments.values() for m in _all_dropped(a)]


def _all_dropped(assignment: Assignment) -> list[str]:
    if not assignment.exercises or not assignment.drop_lowest:
        return []
    rules = (*assignment.exercises.values(), *assignment.by_hand.values())
    counting = sum(not rule.extra for rule in rules)
    return (
        [
            f"assignments.{assignment.topic}.drop_lowest: dropping {assignment.drop_lowest} of"
            f" {counting} exercise{'s' * (counting != 1)} leaves nothing to count"
        ]
        if assignment.drop_lowest >= counting
        else []
    )


def _short(extension: Extension, assignment: Assignment | None) -> list[str]:
    if assignment is None:
        return []
    if assignment.due is None:
        return [f"{extension.where}: {assignment.topic} has no due date that could be extended"]
    if extension.until is not None and extension.until.end < assignment.due.end:
        return [
            f"{extension.where}.until: {extension.until} is before the due date, {assignment.due}"
        ]
    return []


def _overlap(group: Group, other: Group, scheme: Scheme) -> list[str]:
    both = [m for m in group.members if m in other.members]
    shared = [t for t in scheme.assignments if group.covers(t) and other.covers(t)]
    return (
        [f"groups.{group.name}: {shown(both[0])} is in {other.name} too, for {shared[0]}"]
        if both and shared
        else []
    )


def _twice(scheme: Scheme) -> list[str]:
    """files.manual names a cell by its id alone."""
    seen: dict[str, str] = {}
    told = []
    for topic, assignment in scheme.assignments.items():
        for cell in assignment.by_hand:
            if cell in seen:
                told.append(
                    f"assignments.{topic}.by_hand: {cell!r} is in {seen[cell]} too; give it another"
                    " name"
                )
            seen.setdefault(cell, topic)
    return told
