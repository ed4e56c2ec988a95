"""A class of made-up students for timings: the released notebook, each answer a right one, a wrong
one, or not written.

The right answers are those of tests/answers, each written independently; the wrong ones return 1.
All follows from the student's number.
"""

from __future__ import annotations

import copy
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

from twophase.checks import registry

ROOT = Path(__file__).resolve().parents[1]
WEIGHTS = {"right": 0.75, "wrong": 0.15, "not written": 0.10}


@cache
def _released(topic: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(
        (ROOT / "exercises" / f"{registry.stem(topic)}.ipynb").read_text(encoding="utf-8")
    )
    return made


@cache
def _right(exercise_id: str) -> tuple[str, ...]:
    exercise = registry.load(exercise_id)
    found = sorted((ROOT / "tests" / "answers" / exercise.topic).glob(f"{exercise.slug}__*.py"))
    return tuple(path.read_text(encoding="utf-8") for path in found)


def _wrong(exercise_id: str) -> str:
    entries = registry.load(exercise_id).entries
    return "\n\n".join(f"def {name}(*args, **kwargs):\n    return 1" for name in entries)


def _exercise_of(cell: dict[str, Any]) -> str:
    return str(cell["metadata"].get("nbgrader", {}).get("grade_id", "")).removesuffix("-check")


def notebook(topic: str, student: int, exercises: int = 100) -> tuple[bytes, float]:
    """A submission with the first `exercises` of the topic's, as its file's bytes, and the points
    that it must get."""
    rng = random.Random(f"{topic}/{student}")
    made = copy.deepcopy(_released(topic))
    points = 0.0
    left_out = registry.ids(topic)[exercises:]
    made["cells"] = [c for c in made["cells"] if _exercise_of(c) not in left_out]
    for cell in made["cells"]:
        marks = cell["metadata"].get("nbgrader", {})
        if not marks.get("solution"):
            continue
        kind = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if kind == "right":
            cell["source"] = rng.choice(_right(marks["grade_id"]))
            points += registry.load(marks["grade_id"]).points
        elif kind == "wrong":
            cell["source"] = _wrong(marks["grade_id"])
    made["metadata"]["student"] = student  # no two files have the same bytes
    return json.dumps(made).encode(), points
