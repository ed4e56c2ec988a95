"""Grading again what was graded: with the same seed the result must be identical, with another the
verdicts must be the same.

Nothing is changed: what is found goes to `audit.jsonl`, a line for each submission and seed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from twophase.grading.intake.submissions import Submission
from twophase.grading.judge.judge import Course, Task
from twophase.grading.results.reader import Index
from twophase.grading.results.records import Record, result_of
from twophase.grading.run.folder import AlreadyGraded, grade_tasks
from twophase.grading.sandbox.zygote_handle import Zygote

SHOWN = 200  # characters of a value that differs


@dataclass(frozen=True)
class Difference:
    """A place in a result, and what was there before and now."""

    where: str
    before: str
    after: str


@dataclass(frozen=True)
class Audited:
    """One submission graded again."""

    file: str
    key: str
    same_seed: bool
    differences: tuple[Difference, ...]

    def line(self) -> dict[str, Any]:
        """A line of audit.jsonl."""
        return {
            "file": self.file,
            "key": self.key,
            "seed": "same" if self.same_seed else "other",
            "equal": not self.differences,
            "differences": [vars(d) for d in self.differences],
        }


def other_seed(seed: int | str) -> str:
    """Another seed, the same for all that share this one."""
    return hashlib.sha256(f"another than {seed}".encode()).hexdigest()


def choose(
    submissions: Sequence[Submission], course: Course, index: Index, share: float
) -> list[Submission]:
    """Those graded under today's conditions; of these, by a digest of their names, about this
    share. Raises ValueError for none."""
    done = AlreadyGraded(course, index)
    graded = [s for s in submissions if s in done]
    if not graded:
        raise ValueError(
            "there is nothing to audit: no submission has a result under these conditions; grade"
            " first"
        )
    chosen = [
        s
        for s in graded
        if int.from_bytes(hashlib.sha256(s.name.encode("utf-8", "replace")).digest()[:4], "big")
        < share * 2**32
    ]
    return chosen or graded[:1]


def audit(
    submissions: Sequence[Submission],
    course: Course,
    index: Index,
    workers: int,
    zygote: Zygote | None = None,
) -> Iterator[Audited]:
    """Each submission graded again, twice: with its seed and with another. In the order in which
    they are done."""
    tasks = []
    for submission in submissions:
        seed = course.seed_for(submission)
        tasks += [Task(submission, seed), Task(submission, other_seed(seed))]
    with contextlib.closing(grade_tasks(tasks, course, workers, zygote)) as graded:
        for after in graded:
            before = json.loads(next(index.lines([after["file"]])))
            same_seed = after["seed"] == before["seed"]
            found = (
                differences(result_of(before), result_of(after))
                if same_seed
                else verdicts(before, after)
            )
            yield Audited(after["file"], before["key"], same_seed, tuple(found))


def differences(before: Any, after: Any, where: str = "") -> Iterator[Difference]:
    """Every place where two results differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            yield from differences(
                before.get(name), after.get(name), f"{where}.{name}" if where else name
            )
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for n, (a, b) in enumerate(zip(before, after, strict=True)):
            yield from differences(
                a, b, f"{where}[{a['id'] if isinstance(a, dict) and 'id' in a else n}]"
            )
    elif before != after or type(before) is not type(after):
        yield Difference(where, _text(before), _text(after))


def verdicts(before: Record, after: Record) -> Iterator[Difference]:
    """What two gradings on different cases may not differ in: whether a submission is judged, and
    each exercise's verdict."""
    if before["points"] is None or after["points"] is None:
        if before["status"] != after["status"]:
            yield Difference("status", before["status"], after["status"])
        return
    now = {q["id"]: q["status"] for q in after["questions"]}
    for question in before["questions"]:
        if now.get(question["id"]) != question["status"]:
            yield Difference(
                f"questions[{question['id']}].status",
                question["status"],
                str(now.get(question["id"])),
            )


def _text(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
