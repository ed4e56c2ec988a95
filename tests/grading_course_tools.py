"""Stored results and course files made up for tests: as `twophase grade` writes them, without
running anything."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twophase.grading.results import reader
from twophase.grading.results.records import SCHEMA, Record, keyed
from twophase.grading.scores import gradebook
from twophase.grading.scores.gradebook import Gradebook, Total

NOW = datetime(2026, 12, 1, tzinfo=UTC)
Answer = str  # right, wrong, not_yet, missing, failed; or the slug of a misconception


def digest(of: str) -> str:
    return hashlib.sha256(of.encode()).hexdigest()


def question(
    exercise: str, answer: Answer, out_of: float = 4, hidden: Sequence[bool] = (False, False)
) -> Record:
    """What a record holds of one exercise."""
    named = None if answer in ("right", "wrong", "not_yet", "missing", "failed") else answer
    status = "wrong" if named else answer
    cases = [
        ("worked", True, status == "right"),
        *(("fresh", False, status == "right" or h) for h in hidden),
    ]
    return {
        "id": exercise,
        "title": f"Title of {exercise}",
        "status": status,
        "points": out_of if status == "right" else 0,
        "out_of": out_of,
        "message": f"Says {answer}.",
        "misconception": named,
        "hint": "",
        "alone": False,
        "cases": [
            {"case": c, "public": p, "right": r, "message": "", "error": ""} for c, p, r in cases
        ],
        "cell": {"error": "", "output": ""},
    }


def record(
    file: str,
    answers: Mapping[str, Answer] | Sequence[Record] = (),
    topic: str = "t",
    status: str = "ok",
    submitted: str = "",
    **more: Any,
) -> Record:
    """One line of results.jsonl. `answers`: exercise to answer, each out of 4."""
    asked = (
        [question(i, a) for i, a in answers.items()]
        if isinstance(answers, Mapping)
        else list(answers)
    )
    judged = status not in ("unreadable", "internal")
    made: Record = {
        "schema": SCHEMA,
        "key": "",
        "file": file,
        "status": status,
        "topic": topic,
        "points": sum(q["points"] for q in asked) if judged else None,
        "out_of": sum(q["out_of"] for q in asked) if judged else None,
        "message": "" if judged else "Not graded.",
        "questions": asked if judged else [],
        "flags": [],
        "digests": {"submission": digest(file), "release": "", "library": ""},
        "seed": 1,
        "official": True,
        "confined_by": [],
        "environment": {},
        "varies": {},
    }
    return keyed(made | ({"submitted": submitted} if submitted else {}) | more)


def dump(folder: Path, records: Sequence[Record]) -> Path:
    """Write results.jsonl."""
    path = folder / "results.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return path


def scored(
    folder: Path, course: str, records: Sequence[Record], now: datetime = NOW, **files: str
) -> Gradebook:
    """The gradebook of a class. `course` is the text of course.yml; `files` (roster_csv="...") lie
    beside it."""
    for name, content in files.items():
        stem, _, ending = name.rpartition("_")
        (folder / f"{stem}.{ending}").write_text(content, encoding="utf-8")
    path = folder / "course.yml"
    path.write_text(course, encoding="utf-8")
    scheme, beside = gradebook.load_course(path)
    return gradebook.make_gradebook(
        scheme, beside, reader.latest_records(dump(folder, records)), now
    )


def totals(book: Gradebook) -> dict[str, Total]:
    return {t.student.key: t for t in book.totals}


def points(book: Gradebook, student: str, topic: str = "t") -> float | str:
    """A student's points in an assignment, or the word in their place."""
    o = totals(book)[student].outcomes[topic]
    return o.status if o.points is None else float(o.points)


def said(book: Gradebook, student: str, topic: str = "t") -> str:
    """Everything that is said about a score."""
    from twophase.grading.reports.exports import remarks

    return remarks(totals(book)[student].outcomes[topic])
