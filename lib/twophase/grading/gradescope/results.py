"""What Gradescope reads of a graded submission: results.json, made from the grader's record.

Every text that is shown goes out as plain text (`output_format: text`), without control
characters. What a student may know at once is visible; what failed on cases that are not shown is
there after the grades are published. The grader's own fault has no score at all: Gradescope then
tells the instructor that the autograder failed, and nobody gets a zero.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from twophase.grading.files.atomic import replacing
from twophase.grading.reports.feedback import STATUS_WORDS, points
from twophase.grading.reports.printable import printable
from twophase.grading.results.records import Record

ResultsJson = dict[str, Any]
LONGEST = 4_000  # characters of one text
LONGEST_KEPT = 1_000  # of what a cell printed, in the record for the instructor
HIDDEN_TITLE = "Cases that are not shown"
READING_TITLE = "Reading the notebook"


def results(record: Record, seconds: float, worth: float | None = None) -> ResultsJson:
    """The whole of results.json. `worth`: of the assignment, for a file that cannot be graded."""
    if record["status"] == "internal":
        return without_score(record["message"], seconds, record)
    if record["status"] == "unreadable":
        return unreadable(record["message"], seconds, worth, record)
    tests = [_exercise(n, q) for n, q in enumerate(record["questions"], 1)]
    tests += _hidden(record, len(tests) + 1)
    return _frame(_remarks(record), seconds, record) | {"score": record["points"], "tests": tests}


def unreadable(
    message: str, seconds: float, worth: float | None = None, record: Record | None = None
) -> ResultsJson:
    """No points, for a reason that the student can mend: no notebook, several, a broken one."""
    test = _test(1, READING_TITLE, message, score=0.0)
    test |= {} if worth is None else {"max_score": worth}
    return _frame(message, seconds, record) | {"score": 0.0, "tests": [test]}


def without_score(message: str, seconds: float, record: Record | None = None) -> ResultsJson:
    """The grader's own fault: said, and no score."""
    said = (
        "The autograder failed here, not your work, and this is no grade. Your submission is"
        f" stored; tell your instructor if submitting again does not help. ({message})"
    )
    return _frame(said, seconds, record)


def _frame(output: str, seconds: float, record: Record | None) -> ResultsJson:
    return {
        "output": text(output),
        "output_format": "text",
        "test_output_format": "text",
        "test_name_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "execution_time": round(seconds, 2),
        "extra_data": {"finished": True} | (_for_instructors(record) if record else {}),
    }


def _test(n: int, name: str, output: str, **more: Any) -> ResultsJson:
    """One of Gradescope's tests: failed and visible, unless `more` says otherwise."""
    return {
        "name": text(name),
        "name_format": "text",
        "number": str(n),
        "status": "failed",
        "output": text(output),
        "output_format": "text",
        "visibility": "visible",
        **more,
    }


def _exercise(n: int, q: Record) -> ResultsJson:
    status = "passed" if q["status"] == "right" else "failed"
    earned = {"score": q["points"], "max_score": q["out_of"], "status": status, "tags": [q["id"]]}
    return _test(n, q["title"], "\n".join(_lines(q)), **earned)


def _lines(q: Record) -> list[str]:
    """What the student reads at once."""
    if q["status"] == "right":
        return ["Right."]
    named = f"{q['misconception'].replace('_', ' ')}: " if q["misconception"] else ""
    lines = [f"{named}{q['message']}"]
    if q["hint"] and q["status"] in ("wrong", "failed"):
        lines.append(f"A hint: {q['hint']}")
    shown = [c for c in q["cases"] if c["public"]]
    if q["status"] == "wrong" and shown:
        lines.append(
            f"Of the {len(shown)} cases that are shown, {sum(c['right'] for c in shown)} are right."
        )
    if q["cell"]["error"] not in q["message"]:  # "" is in each
        lines.append(f"Its cell stopped with {q['cell']['error']}")
    return lines


def _hidden(record: Record, n: int) -> list[ResultsJson]:
    """One entry about the cases that are not shown, if any of them failed: how many, and nothing of
    what they ask or expect, since others who hand in later may meet the same."""
    lines = []
    for q in record["questions"]:
        hidden = [c for c in q["cases"] if not c["public"]]
        failed = sum(not c["right"] for c in hidden)
        if failed:
            lines.append(f"{q['title']}: {failed} of {len(hidden)} are not right.")
    said = "\n".join(lines)
    return [_test(n, HIDDEN_TITLE, said, visibility="after_published")] if lines else []


def _remarks(record: Record) -> str:
    """The text above all exercises."""
    lines = [f"{points(record)} points ({STATUS_WORDS[record['status']]})."]
    noticed = (f for f in record["flags"] if f["name"] != "missing_cell")
    lines += [f"Noticed, {f['where']}: {f['says']}" for f in noticed]
    return "\n".join(lines)


def _for_instructors(record: Record) -> ResultsJson:
    """The record that `twophase grade` would store; of the seed a digest, to tell equal ones."""
    kept = copy.deepcopy(record)
    seed = str(kept.pop("seed", ""))
    for q in kept["questions"]:
        q["cell"] = {k: v[:LONGEST_KEPT] for k, v in q["cell"].items()}
    return {
        "digests": kept["digests"],
        "seed_digest": hashlib.sha256(f"seed {seed}".encode()).hexdigest()[:16],
        "confined_by": kept["confined_by"],
        "record": kept,
    }


def text(value: object) -> str:
    """Somebody else's text: no control characters, nothing that reorders a line, not endless."""
    said = printable(str(value).encode("utf-8", "replace").decode())
    return said if len(said) <= LONGEST else f"{said[:LONGEST]} …"


def write(path: Path, made: ResultsJson) -> None:
    """Put the results in place in one step: nobody reads a part of them."""
    data = json.dumps(made, ensure_ascii=True, allow_nan=False, indent=1).encode("ascii")
    with replacing(path) as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(data)
