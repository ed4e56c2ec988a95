"""Which result belongs to which notebook of an nbgrader course, as it was collected last."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from twophase.grading.errors import Unreadable
from twophase.grading.files import notebook
from twophase.grading.intake.layouts import NBGRADER
from twophase.grading.nbgrader.course import NbCourse
from twophase.grading.results.records import Record
from twophase.grading.results.run_summary import why as why_not_judged

JUDGED = ("ok", "partial", "protocol")


@dataclass(frozen=True, order=True)
class NotebookPath:
    """Where nbgrader has a notebook: `submitted/<student>/<assignment>/<notebook>.ipynb`."""

    student: str
    assignment: str
    notebook: str

    def __str__(self) -> str:
        return f"{self.student}/{self.assignment}/{self.notebook}"


@dataclass(frozen=True)
class GradedNotebook:
    """A collected notebook and its result."""

    place: NotebookPath
    record: Record

    @property
    def judged(self) -> bool:
        return self.record["status"] in JUDGED


@dataclass
class Notices:
    """What a person should know. `waiting`: what keeps a score away; `notes`: the rest."""

    waiting: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def submitted_path(course: NbCourse, place: NotebookPath) -> Path:
    """The file that nbgrader has collected."""
    return course.folder("submitted", place.student, place.assignment) / f"{place.notebook}.ipynb"


def path_of(record: Record) -> NotebookPath | None:
    """Where nbgrader has a result's file; None if that was graded in another layout, or lies where
    nbgrader does not look. What names the student first in the path is the platform's; below it
    students name folders as they like."""
    student, parts = record.get("student", ""), record["file"].split("/")
    if not student or {"", ".", ".."} & set(parts):
        return None
    for n, part in enumerate(parts[:-1]):
        handed = NBGRADER.fullmatch(part)
        if handed is not None and handed["student"] == student:  # the exchange's inbound/
            return _notebook(student, handed["assignment"], parts[n + 1 :])
        if part == student and not (part == "submitted" and parts[n + 1] == student):
            return _notebook(student, parts[n + 1], parts[n + 2 :])
    return None


def _notebook(student: str, assignment: str, rest: list[str]) -> NotebookPath | None:
    if len(rest) != 1 or not rest[0].endswith(".ipynb"):
        return None
    return NotebookPath(student, assignment, rest[0].removesuffix(".ipynb"))


def match_records(
    course: NbCourse, records: Iterable[Record], told: Notices, assignment: str = ""
) -> list[GradedNotebook]:
    """The result of every collected notebook, of one assignment or of all, by place. If another
    version was collected than the one graded, the notebook waits."""
    by_place: dict[NotebookPath, list[Record]] = defaultdict(list)
    for record in records:
        place = path_of(record)
        if place is None:
            why = "nbgrader has notebooks in submitted/<student>/<assignment>/ only"
            why = why if record["status"] in JUDGED else why_not_judged(record)
            told.waiting.append(f"{record['file']}: passed over, {why}")
        elif assignment in ("", place.assignment):
            by_place[place].append(record)
    works = []
    for place, found in sorted(by_place.items()):
        counts = _of_collected(course, place, found)
        if isinstance(counts, str):
            told.waiting.append(f"{place}: {counts}")
        else:
            works.append(GradedNotebook(place, counts))
    if unofficial := sum(not w.record["official"] for w in works):
        told.notes.append(
            f"{unofficial:,} of these results are not official: submissions were not confined, or"
            " only for practice"
        )
    return works


def _of_collected(course: NbCourse, place: NotebookPath, found: list[Record]) -> Record | str:
    """The record of the version that was collected, or why there is none."""
    path = submitted_path(course, place)
    broken = [r for r in found if r["status"] not in JUDGED]
    try:
        digest = hashlib.sha256(notebook.read_bytes(path)).hexdigest()
    except Unreadable as e:
        if broken:
            return broken[-1]
        return f"there is no such file in {path.parent} ({e}); run `nbgrader collect` first"
    same = [r for r in found if r["digests"]["submission"] == digest]
    judged = [r for r in same if r["status"] in JUDGED]
    unread = [r for r in broken if not r["digests"]["submission"]]
    if counts := judged or same or unread:
        return counts[-1]
    return "what is collected now is another version than the one graded; grade it again"
