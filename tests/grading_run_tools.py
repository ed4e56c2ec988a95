"""What tests of whole runs share: a course that other processes can load, and ways to run and to
read."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hostile.course import TOPIC, release
from hostile.worker import LIMITS, zygote
from patience import PATIENCE_S

from twophase.grading.errors import Unreadable
from twophase.grading.files.notebook import Notebook
from twophase.grading.intake.submissions import find
from twophase.grading.judge.judge import Course
from twophase.grading.release.release import Release
from twophase.grading.results.records import Record
from twophase.grading.results.writer import Results
from twophase.grading.run.folder import grade_folder


@cache
def _release() -> Release:
    return release()


@dataclass(frozen=True)
class Made:
    """The grader's own tests as a source of releases: one topic, made in the process that needs it,
    or the one given."""

    given: Release | None = None

    def load(self, topic: str) -> Release:
        return self.given or _release()

    def digest(self, topic: str) -> str:
        return self.load(topic).digest

    def topics(self) -> list[str]:
        return [TOPIC]

    def topic_of(self, notebook: Notebook, name: str) -> str:
        if any(c.grade_id.startswith(f"{TOPIC}-") for c in notebook.cells):
            return TOPIC
        raise Unreadable("no cell of it belongs to an exercise of this course")

    def besides(self, notebook: Notebook, topic: str) -> dict[str, int]:
        return {}


def course(released: Release | None = None, seed: int = 1) -> Course:
    """The tests' course, or one of this release: that one cannot go to another process."""
    return Course(seed, LIMITS, Made(released))


def run(
    folder: Path,
    out: Path,
    one: Course | None = None,
    workers: int = 0,
    again: Collection[str] = (),
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


def alive(mark: str) -> set[int]:
    """The processes, but for this one, that have `mark` somewhere in their environment."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes():
                found.add(int(path.parent.name))
    return found - {os.getpid()}


def all_end(mark: str, within_s: float = PATIENCE_S) -> bool:
    """Wait until no process has the mark. False if some still do when the time is over."""
    until = time.monotonic() + within_s
    while left := alive(mark):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                watch = os.pidfd_open(pid)
                ended, _, _ = select.select([watch], [], [], max(0.0, until - time.monotonic()))
                os.close(watch)
                if not ended:
                    return False
    return True


def main() -> None:
    """`python grading_run_tools.py IN OUT WORKERS`: grade by processes, and print the name of each
    that is done."""
    folder, out, workers = sys.argv[1:]
    with Results(Path(out)) as results:
        print("began", flush=True)
        grade_folder(
            find(Path(folder)),
            course(),
            results,
            int(workers),
            lambda record: print(record and record["file"], flush=True),
        )


if __name__ == "__main__":
    import grading_run_tools  # by its own name, so that other processes find its classes

    grading_run_tools.main()
