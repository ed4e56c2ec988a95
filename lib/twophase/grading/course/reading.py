"""From course.yml to a Scheme. Every mistake in the file is told, each in one sentence with its
place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from twophase.grading.course import fields
from twophase.grading.course.consistency import cross_mistakes
from twophase.grading.course.scheme import Scheme


def read_course(path: Path) -> Scheme:
    """The scheme in a file. Raises ValueError with a line for every mistake in it."""
    given: dict[str, Any] = {"zone": None, "folder": path.parent}  # the zone, once it was read
    scheme = replace(fields.read(Scheme, path, given), path=path)
    mistakes = cross_mistakes(scheme)
    if given["zone"] is None and any(a.due for a in scheme.assignments.values()):
        mistakes.append("time_zone: is missing; due dates need one, such as Europe/Berlin")
    if mistakes:
        raise ValueError("\n".join(f"{path}: {m}" for m in mistakes))
    return scheme
