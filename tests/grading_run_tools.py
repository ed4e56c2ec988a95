"""What tests of whole runs share: a course that other processes can load, and ways to run and to read."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import cache
from pathlib import Path

from hostile.course import release
from hostile.worker import LIMITS, zygote

from twophase.grading.records import Record
from twophase.grading.release import Release
from twophase.grading.results import Results
from twophase.grading.run import Course, find, grade_folder


@cache
def graders_release(topic: str) -> Release:
    """The release of the grader's own tests, whatever the topic."""
    return release()


def course(released: Release | None = None, seed: int = 1) -> Course:
    """The tests' course, or one of this release: that one cannot go to another process."""
    return Course(seed, LIMITS, (lambda topic: released) if released else graders_release)


def run(
    folder: Path, out: Path, one: Course | None = None, workers: int = 0, again: Collection[str] = ()
) -> list[Record | None]:
    """Grade a folder with so many processes, or with 0 in this one. Returns what was told."""
    told: list[Record | None] = []
    with Results(out) as results:
        in_here = None if workers else zygote()
        grade_folder(find(folder), one or course(), results, workers, told.append, in_here, again)
    return told


def lines(out: Path) -> list[Record]:
    return [json.loads(line) for line in (out / "results.jsonl").read_bytes().splitlines()]


def write(folder: Path, files: dict[str, bytes]) -> Path:
    """Write these files below a folder."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder
