"""Grading again: the same seed must give the same result, another seed the same verdicts.

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
from twophase.grading.run.already_graded import AlreadyGraded
from twophase.grading.run.folder import grade_tasks
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
    """By digests of names, about this share of what was graded under today's conditions. Raises
    ValueError for none."""
    done = AlreadyGraded(course, index)
    graded = [s for s in submissions if s in done]
    if not graded:
        raise ValueError(
            "there is nothing to audit: no submission has a result under these conditions; grade"
            " first"
        )
    chosen = [s for s in graded if _place(s.name) < share]
    return chosen or graded[:1]


def _place(name: str) -> float:
    """A number from 0 to 1, always the same for this name."""
    digest = hashlib.sha256(name.encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:4]) / 2**32


def audit(
    submissions: Sequence[Submission],
    course: Course,
    index: Index,
    workers: int,
    zygote: Zygote | None = None,
) -> Iterator[Audited]:
    """Each submission graded again, with its seed and with another, in the order of finishing."""
    tasks = []
    for submission in submissions:
        seed = course.seed_for(submission)
        tasks += [Task(submission, seed), Task(submission, other_seed(seed))]
    with contextlib.closing(grade_tasks(tasks, course, workers, zygote)) as graded:
        for after in graded:
            before = json.loads(next(index.lines([after["file"]])))
            same_seed = after["seed"] == before["seed"]
            found = verdicts(before, after)
            if same_seed:
                found = differences(result_of(before), result_of(after))
            yield Audited(after["file"], before["key"], same_seed, tuple(found))


def differences(before: Any, after: Any, where: str = "") -> Iterator[Difference]:
    """Every place where two results differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            at = f"{where}.{name}" if where else name
            yield from differences(before.get(name), after.get(name), at)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for n, (a, b) in enumerate(zip(before, after, strict=True)):
            at = a["id"] if isinstance(a, dict) and "id" in a else n
            yield from differences(a, b, f"{where}[{at}]")
    elif before != after or type(before) is not type(after):
        yield Difference(where, _text(before), _text(after))


def verdicts(before: Record, after: Record) -> Iterator[Difference]:
    """Where gradings on different cases differ: in being judged at all, or in a verdict."""
    if before["points"] is None or after["points"] is None:
        if before["status"] != after["status"]:
            yield Difference("status", before["status"], after["status"])
        return
    now = {q["id"]: q["status"] for q in after["questions"]}
    for question in before["questions"]:
        if now.get(question["id"]) != question["status"]:
            where = f"questions[{question['id']}].status"
            yield Difference(where, question["status"], str(now.get(question["id"])))


def _text(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
