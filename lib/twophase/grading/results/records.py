"""A result: a JSON object for each submission. grading/README.md lists the fields."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from twophase.checks.exercise import Exercise
from twophase.grading.files.digests import library_digest
from twophase.grading.results.grade import Grade, Graded
from twophase.grading.sandbox import what_confines

SCHEMA = 2
Record = dict[str, Any]
# what may differ between two gradings of the same work
AROUND = ("varies", "environment", "confined_by")
OUTSIDE_KEY = "internal"  # a submission with this status is graded again by the next run


@cache
def environment() -> Mapping[str, str]:
    """What graded: versions of what can matter to a verdict."""
    out = {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
    }
    for package in ("twophase", "torch", "numpy", "ipython"):
        try:
            out[package] = version(package)
        except PackageNotFoundError:
            out[package] = "unknown"
    return out


@cache
def confinement() -> tuple[tuple[str, ...], bool]:
    """What confines submissions here, and `unsafe` if a part is missing; whether it is official."""
    labels = what_confines.confined_by()
    practice, lacks = "practice" in labels, bool(what_confines.missing())
    return (*labels, *(["unsafe"] if lacks and not practice else [])), not practice and not lacks


def blank(file: str, seed: int | str, student: str = "", submitted: str = "") -> Record:
    """What every record has, whatever became of the submission. It has no key yet: see `keyed`."""
    confined_by, official = confinement()
    who = {name: value for name, value in (("student", student), ("submitted", submitted)) if value}
    return {
        "schema": SCHEMA,
        "key": "",
        "file": file,
        **who,
        "status": "internal",
        "topic": "",
        "points": None,
        "out_of": None,
        "message": "",
        "questions": [],
        "flags": [],
        "digests": {"submission": "", "release": "", "library": library_digest()},
        "seed": seed,
        "official": official,
        "confined_by": list(confined_by),
        "environment": dict(environment()),
        "varies": {"at": datetime.now(UTC).isoformat(timespec="seconds")},
    }


def filled(record: Record, grade: Grade, exercises: Mapping[str, Exercise]) -> Record:
    """The record of what was judged: `protocol` if it spoke nonsense, else `partial` if something
    broke, else `ok`."""
    status = "protocol" if "protocol" in grade.trouble else "partial" if grade.trouble else "ok"
    questions = [_question(q, exercises[q.verdict.exercise_id]) for q in grade.questions]
    return record | {
        "status": status,
        "points": sum(q["points"] for q in questions),
        "out_of": sum(q["out_of"] for q in questions),
        "questions": questions,
        "flags": [asdict(f) for f in grade.flags],
        "varies": record["varies"] | {"processes": grade.forks},
    }


def _question(graded: Graded, exercise: Exercise) -> Record:
    v = graded.verdict
    return {
        "id": v.exercise_id,
        "title": exercise.title,
        "status": v.status,
        "points": v.points,
        "out_of": v.out_of,
        "message": v.message,
        "misconception": v.misconception,
        "hint": "" if v.right else exercise.hints[0],
        "alone": graded.alone,
        "cases": [dict(vars(o)) for o in v.outcomes],
        "cell": {"error": graded.cell.error, "output": graded.cell.output},
    }


def key(
    file: str, submission: str, release: str, library: str, seed: int | str, official: bool
) -> str:
    """SHA-256 over the JSON list of these. Equal keys: the same work under the same conditions."""
    conditions = json.dumps([file, submission, release, library, seed, official])
    return hashlib.sha256(conditions.encode("ascii")).hexdigest()


def keyed(record: Record) -> Record:
    """The record with the key of its contents."""
    d = record["digests"]
    digests = (d["submission"], d["release"], d["library"])
    return record | {"key": key(record["file"], *digests, record["seed"], record["official"])}


def result_of(record: Record) -> Record:
    """The part of a record that grading again must give again."""
    return {name: value for name, value in record.items() if name not in AROUND}


def line_of(record: Record) -> bytes:
    """A record as its line. Raises ValueError for what JSON does not have."""
    return json.dumps(record, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"
