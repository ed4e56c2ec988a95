"""Points that a person gave: for cells graded by hand, and in place of what the grader found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, PlainValidator

from twophase.grading.course import fields
from twophase.grading.course.csv_reading import read_csv, require_columns
from twophase.grading.course.values import Text, number, text

DIGEST = re.compile(r"[0-9a-f]{12,64}")


@dataclass(frozen=True)
class HandScore:
    """Points for one cell graded by hand. With `submission`, for that version of the work only."""

    who: str
    exercise: str
    points: Fraction
    comment: str = ""
    submission: str = ""
    where: str = ""


def read_manual(path: Path) -> list[HandScore]:
    """Columns student, exercise, points, if wanted comment and submission. A row without points is
    not graded yet. Raises ValueError."""
    header, rows = read_csv(path)
    require_columns(path, header, ("student", "exercise", "points"), ("comment", "submission"))
    found: dict[tuple[str, str, str], HandScore] = {}
    for row in rows:
        if not row.cells["points"]:
            continue
        digest = row.cells.get("submission", "")
        if digest and not DIGEST.fullmatch(digest):
            raise ValueError(
                f"{row.where}: submission: {digest!r} is no digest of 12 or more hexadecimal digits"
            )
        who, exercise = row.need("student", text), row.need("exercise", text)
        points, comment = row.need("points", number), row.cells.get("comment", "")
        key = (who, exercise, digest)
        if key in found:
            before = found[key].where
            raise ValueError(f"{row.where}: {who} has points for {exercise} already ({before})")
        found[key] = HandScore(who, exercise, points, comment, digest, row.where)
    return list(found.values())


@dataclass(frozen=True)
class Override:
    """Points in place of the grader's, for an exercise of a submission, or ("") for the whole."""

    digest: str
    exercise: str
    points: Fraction
    because: str
    where: str


@dataclass(frozen=True)
class Decision:
    """What somebody decided about an exercise, or the whole, of a submission."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    points: Annotated[Fraction, PlainValidator(number)]
    because: Text


def read_overrides(path: Path) -> list[Override]:
    """Submission's digest to exercise (or `all`) to points and because. Raises ValueError."""
    decisions = fields.read(Mapping[str, Mapping[str, Decision]], path)  # type: ignore[type-abstract]
    mistakes = [
        f"{digest}: is no digest of 12 or more lower-case hexadecimal digits"
        for digest in decisions
        if not DIGEST.fullmatch(digest)
    ] + [
        f"{digest}: begins another digest of this file; write more of its digits"
        for digest in sorted(decisions)
        if any(digest != d and d.startswith(digest) for d in decisions)
    ]
    if mistakes:
        raise ValueError("\n".join(f"{path}: {m}" for m in mistakes))
    found = []
    for digest, parts in decisions.items():
        for exercise, said in parts.items():
            of, where = "" if exercise == "all" else exercise, f"{path}: {digest}.{exercise}"
            found.append(Override(digest, of, said.points, said.because, where))
    return found
