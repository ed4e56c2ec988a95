"""How long a class takes: `python bench/grading.py [submissions] [workers]` grades that many solved and half-solved notebooks.

The answers are those of tests/answers. Prints submissions per second from a cold start, processes included, and from a warm one.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from twophase.checks import registry
from twophase.grading import release
from twophase.grading.records import Results
from twophase.grading.run import Course, find, grade_folder

ANSWERS = Path(__file__).parents[1] / "tests" / "answers"


def notebook(topic: str, wrong: int) -> bytes:
    """A notebook of this topic with right answers but for one, which is a stub; every fourth is all right."""
    cells = []
    released = release.load(topic)
    for n, (exercise_id, exercise) in enumerate(released.exercises.items()):
        found = sorted((ANSWERS / topic).glob(f"{exercise.slug}__*.py"))
        source = found[wrong % len(found)].read_text(encoding="utf-8")
        if wrong % 4 and n == wrong % len(released.exercises):
            source = f"def {exercise.entries[0]}(*args, **kwargs):\n    return 1"
        marks = {"grade_id": exercise_id, "grade": False, "locked": False, "solution": True, "schema_version": 3}
        cells.append({"cell_type": "code", "metadata": {"nbgrader": marks}, "source": source, "outputs": []})
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {"student": wrong}, "cells": cells}).encode()


def measure(topic: str, n: int, workers: int) -> float:
    """Seconds to grade `n` submissions, from nothing."""
    with tempfile.TemporaryDirectory() as home:
        folder, out = Path(home, "in"), Path(home, "out")
        folder.mkdir()
        for i in range(n):
            (folder / f"{i:04}.ipynb").write_bytes(notebook(topic, i))
        began = time.perf_counter()
        with Results(out) as results:
            grade_folder(find(folder), Course(), results, workers)
            took = time.perf_counter() - began
            bad = [r["file"] for r in results.records if r["status"] != "ok"]
            points = sorted({r["points"] for r in results.records})
        print(
            f"{n:5} submissions of {topic}, {workers} workers: {took:6.2f} s, {n / took:6.1f} per s; points {points}; not ok: {bad}"
        )
        return took


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    workers = int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count() or 1
    for topic in registry.topics():
        few, many = measure(topic, n, workers), measure(topic, 4 * n, workers)
        print(f"      each one more: {(many - few) / (3 * n) * 1000:.1f} ms")


if __name__ == "__main__":
    main()
