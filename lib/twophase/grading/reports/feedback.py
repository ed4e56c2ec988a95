"""The report that a person reads: a page per submission and an index, each without script."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from twophase.grading.files.atomic import replace_text
from twophase.grading.files.digests import library_digest
from twophase.grading.reports.pages import TEMPLATES, render
from twophase.grading.results.records import Record, line_of, result_of

WORDS = {
    "right": "right",
    "wrong": "not right",
    "not_yet": "not written yet",
    "missing": "missing",
    "failed": "could not be judged",
}
STATUS_WORDS = {
    "ok": "graded",
    "partial": "graded; some of it broke while it ran",
    "protocol": "graded; it spoke out of turn on the grader's channel",
    "unreadable": "not graded: the file cannot be read",
    "internal": "not graded: the grader failed, not the work",
}
MADE_FROM = ("reports/base.html", "reports/page.css", "reports/feedback.html")
SHOWN_AT_ONCE = 3  # wrong cases that stand open


def page_name(file: str) -> str:
    """A file name for a submission's page that no submission's name can choose."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", file.removesuffix(".ipynb")).strip("-")[:60]
    digest = hashlib.sha256(file.encode("utf-8", "replace")).hexdigest()
    return f"{readable or 'submission'}-{digest[:10]}.html"


def write(folder: Path, records: Iterable[Record]) -> Path:
    """Write `feedback/` below `folder`: a page per record and `index.html`, whose path is returned.

    Pages that are there and up to date stay; one record is in memory at a time. Raises OSError.
    """
    feedback = folder / "feedback"
    feedback.mkdir(parents=True, exist_ok=True)
    rows = []
    for record in records:
        rows.append(_row(record))
        path, mark = feedback / page_name(record["file"]), _mark(record)
        if not _is_marked(path, mark):
            replace_text(path, page(record, mark))
    return replace_text(feedback / "index.html", render("reports/index.html", rows=rows))


def _mark(record: Record) -> str:
    """What a page was made from and by: another mark, another page."""
    made_by = library_digest().encode("ascii") + _templates()
    return hashlib.sha256(made_by + line_of(result_of(record))).hexdigest()


@cache
def _templates() -> bytes:
    return b"".join((TEMPLATES / name).read_bytes() for name in MADE_FROM)


def _is_marked(path: Path, mark: str) -> bool:
    try:
        with path.open("rb") as f:
            return f'content="{mark}"'.encode("ascii") in f.read(400)
    except OSError:
        return False


def points(record: Record) -> str:
    """`6 of 8`, or a dash for work that was not graded."""
    return "–" if record["points"] is None else f"{record['points']:g} of {record['out_of']:g}"


def page(record: Record, mark: str = "") -> str:
    """The page of one submission."""
    return render(
        "reports/feedback.html",
        record=record,
        mark=mark,
        earned=points(record),
        status=STATUS_WORDS[record["status"]],
        unofficial=unofficial(record),
        words=WORDS,
        shown=_shown,
    )


def unofficial(record: Record) -> str:
    """Why a result does not count as the official grader's, as a heading."""
    if "practice" in record["confined_by"]:
        return "Practice, not an official result: this system cannot confine a submission."
    return (
        "Not an official result: it was graded without what should confine a submission (--unsafe)."
    )


def _shown(q: Record) -> tuple[list[Record], list[Record]]:
    """The public cases: the first wrong ones, which stand open, and all others, which are folded.
    If the process broke, only what broke it, and no case after it."""
    shown = [c for c in q["cases"] if c["public"]]
    if q["status"] == "failed":
        shown = [c for c in shown if c.get("inputs")]
    first = [c for c in shown if not c["right"]][:SHOWN_AT_ONCE] or shown[:SHOWN_AT_ONCE]
    return first, [c for c in shown if c not in first]


def _row(r: Record) -> tuple[str, str, str, str, str, int]:
    status = STATUS_WORDS[r["status"]] + ("" if r["official"] else "; not official")
    return page_name(r["file"]), r["file"], r["topic"], points(r), status, len(r["flags"])
