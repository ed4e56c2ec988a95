"""Whether the misconceptions that course.yml gives points for are ones that a check can name: a
misspelt one gives nobody anything."""

from __future__ import annotations

from twophase.checks import registry
from twophase.grading.course.fields import nearest
from twophase.grading.course.scheme import Assignment, Partial, Scheme


def unknown_names(scheme: Scheme) -> list[str]:
    """A sentence for every name in `partial.misconceptions` that no check of its exercises has."""
    found: list[str] = []
    course = scheme.assignments.values()
    for assignment in course:
        for exercise_id, rule in (assignment.exercises or {}).items():
            if rule.partial is not assignment.partial:
                where = f"{scheme.path}: {assignment.topic}.{exercise_id}"
                found += _unknown(where, rule.partial, [exercise_id])
    for partial in {id(a.partial): a.partial for a in course}.values():
        meant = [a for a in course if a.partial is partial]
        where = "partial" if len(meant) > 1 else f"{meant[0].topic}.partial"
        exercise_ids = [i for a in meant for i in _ids(a)]
        found += _unknown(f"{scheme.path}: {where}", partial, exercise_ids)
    return found


def _ids(assignment: Assignment) -> list[str]:
    if assignment.exercises is not None:
        return list(assignment.exercises)
    in_course = assignment.topic in registry.topics()
    return registry.ids(assignment.topic) if in_course else [assignment.topic]


def _unknown(where: str, partial: Partial, exercise_ids: list[str]) -> list[str]:
    """The sentences for names that no exercise has; none if an exercise is not known here."""
    names = partial.misconceptions
    if not names:
        return []
    try:
        known = {m.slug for i in exercise_ids for m in registry.load(i).misconceptions}
    except ValueError:  # an instructor's own exercise, whose checks are elsewhere
        return []
    return [
        f"{where}: no check names the misconception {name!r}{nearest(name, known)}"
        for name in names
        if name not in known
    ]
