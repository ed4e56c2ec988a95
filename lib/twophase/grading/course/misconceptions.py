"""Whether the misconceptions that course.yml gives points for are ones that a check can name: a
misspelt one gives nobody anything."""

from __future__ import annotations

from collections.abc import Iterable

from twophase.checks import registry
from twophase.grading.course.fields import nearest
from twophase.grading.course.scheme import Assignment, Scheme


def unknown_names(scheme: Scheme) -> list[str]:
    """A sentence for every name in `partial.misconceptions` that no check of the exercises it
    stands for has."""
    found: list[str] = []
    for assignment in scheme.assignments.values():
        rules = assignment.exercises or {}
        for exercise_id, rule in rules.items():
            if rule.partial is not assignment.partial:
                found += _unknown(
                    scheme,
                    f"{assignment.topic}.{exercise_id}",
                    rule.partial.misconceptions,
                    [exercise_id],
                )
    for names in {
        id(a.partial): a.partial.misconceptions for a in scheme.assignments.values()
    }.values():
        meant = [a for a in scheme.assignments.values() if a.partial.misconceptions is names]
        where = "partial" if len(meant) > 1 else f"{meant[0].topic}.partial"
        found += _unknown(scheme, where, names, [i for a in meant for i in _ids(a)])
    return found


def _ids(assignment: Assignment) -> list[str]:
    if assignment.exercises is not None:
        return list(assignment.exercises)
    return (
        registry.ids(assignment.topic)
        if assignment.topic in registry.topics()
        else [assignment.topic]
    )


def _unknown(
    scheme: Scheme, where: str, names: Iterable[str], exercise_ids: list[str]
) -> list[str]:
    """The sentences for those of `names` that none of the exercises has; none if one of them is not
    known here."""
    if not names:
        return []
    try:
        known = {m.slug for i in exercise_ids for m in registry.load(i).misconceptions}
    except ValueError:  # an instructor's own exercise, whose checks are elsewhere
        return []
    return [
        f"{scheme.path}: {where}: no check names the misconception {name!r}{nearest(name, known)}"
        for name in names
        if name not in known
    ]
