"""From course.yml to a Scheme. Every mistake in the file is told, each in one sentence with its
place; those that only two places together show are found here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from twophase.grading.course import fields
from twophase.grading.course.extensions import Excusal, Extension
from twophase.grading.course.fields import absent, shown
from twophase.grading.course.scheme import Assignment, Group, Scheme


def read_course(path: Path) -> Scheme:
    """The scheme in a file. Raises ValueError with a line for every mistake in it."""
    given: dict[str, Any] = {"zone": None, "folder": path.parent}  # the zone, once it was read
    scheme = replace(fields.read(Scheme, path, given), path=path)
    mistakes = [*_mistakes(scheme)]
    if given["zone"] is None and any(a.due for a in scheme.assignments.values()):
        mistakes.append("time_zone: is missing; due dates need one, such as Europe/Berlin")
    if mistakes:
        raise ValueError("\n".join(f"{path}: {m}" for m in mistakes))
    return scheme


def _mistakes(scheme: Scheme) -> Iterator[str]:
    """A name that is nowhere, an extension before the due date, and the like."""
    if not scheme.assignments:
        yield "assignments: there are none; name the notebooks that count, such as `kv_cache:`"
        return
    for e in scheme.exceptions:
        if e.assignment not in scheme.assignments:
            yield f"{e.where}.assignment: {absent('assignment', e.assignment, scheme.assignments)}"
        group = scheme.groups.get(e.student)
        if group and not group.covers(e.assignment):
            where = ", ".join(group.assignments)
            yield f"{e.where}.student: {e.student} is a group in {where} only"
    for extension in scheme.extensions:
        yield from _short(extension, scheme.assignments.get(extension.assignment))
    for excusal in scheme.excused:
        yield from _no_exercise(excusal, scheme.assignments.get(excusal.assignment))
    yield from _twice(scheme)
    groups = list(scheme.groups.values())
    for n, group in enumerate(groups):
        for topic in group.assignments:
            if topic not in scheme.assignments:
                said = absent("assignment", topic, scheme.assignments)
                yield f"groups.{group.name}.assignments: {said}"
        for other in groups[:n]:
            yield from _overlap(group, other, scheme)
    if scheme.drop_lowest >= len(scheme.assignments):
        of = f"{len(scheme.assignments)} assignments leaves nothing to count"
        yield f"drop_lowest: dropping {scheme.drop_lowest} of {of}"
    for assignment in scheme.assignments.values():
        yield from _all_dropped(assignment)


def _short(extension: Extension, assignment: Assignment | None) -> Iterator[str]:
    if assignment is None:
        return
    due, until = assignment.due, extension.until
    if due is None:
        yield f"{extension.where}: {assignment.topic} has no due date that could be extended"
    elif until is not None and until.end < due.end:
        yield f"{extension.where}.until: {until} is before the due date, {due}"


def _no_exercise(excusal: Excusal, assignment: Assignment | None) -> Iterator[str]:
    if assignment and assignment.exercises is not None and excusal.exercise:
        known = {*assignment.exercises, *assignment.by_hand}
        if excusal.exercise not in known:
            yield f"{excusal.where}.exercise: {absent('exercise', excusal.exercise, known)}"


def _twice(scheme: Scheme) -> Iterator[str]:
    """files.manual names a cell by its id alone."""
    seen: dict[str, str] = {}
    for topic, assignment in scheme.assignments.items():
        for cell in assignment.by_hand:
            if cell in seen:
                twice = f"{cell!r} is in {seen[cell]} too; give it another name"
                yield f"assignments.{topic}.by_hand: {twice}"
            seen.setdefault(cell, topic)


def _overlap(group: Group, other: Group, scheme: Scheme) -> Iterator[str]:
    both = [m for m in group.members if m in other.members]
    shared = [t for t in scheme.assignments if group.covers(t) and other.covers(t)]
    if both and shared:
        yield f"groups.{group.name}: {shown(both[0])} is in {other.name} too, for {shared[0]}"


def _all_dropped(assignment: Assignment) -> Iterator[str]:
    if not assignment.exercises or not assignment.drop_lowest:
        return
    rules = (*assignment.exercises.values(), *assignment.by_hand.values())
    counting = sum(not rule.extra for rule in rules)
    if assignment.drop_lowest >= counting:
        of = f"{counting} exercise{'s' * (counting != 1)} leaves nothing to count"
        where = f"assignments.{assignment.topic}.drop_lowest"
        yield f"{where}: dropping {assignment.drop_lowest} of {of}"
