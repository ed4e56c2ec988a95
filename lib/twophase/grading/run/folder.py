"""Grading many submissions: what is done is skipped, the rest graded by several processes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Generator, Sequence

from twophase.grading.errors import GraderFault
from twophase.grading.intake.submissions import Submission
from twophase.grading.judge.judge import Course, Judge, Task, record_line
from twophase.grading.results.reader import Index
from twophase.grading.results.records import Record
from twophase.grading.results.writer import Results
from twophase.grading.run import pool
from twophase.grading.run.already_graded import AlreadyGraded
from twophase.grading.sandbox.zygote_handle import Zygote

MIN_DIGEST = 8


def grade_folder(
    submissions: Sequence[Submission],
    course: Course,
    results: Results,
    workers: int,
    told: Callable[[Record | None], None] = lambda record: None,
    zygote: Zygote | None = None,
    again: Collection[str] = (),
) -> None:
    """Grade all, append to `results`, call `told` after each (None: it was done before). `again`
    names what is graded though it was done.

    Interrupted, it stops where it is: what is in `results` stays, and the next run goes on from
    there. With a `zygote` all is judged in this process. Raises CannotWrite, and GraderFault if
    nothing can be graded at all.
    """
    done = AlreadyGraded(course, results.index)
    todo = []
    for submission in submissions:
        if submission.name not in again and submission in done:
            told(None)
        else:
            todo.append(Task(submission, course.seed_for(submission)))
    with contextlib.closing(grade_tasks(todo, course, workers, zygote)) as graded:
        for record in graded:
            results.append(record)
            told(record)


def selected(ids: Sequence[str], submissions: Sequence[Submission], index: Index) -> set[str]:
    """The submissions that `ids` mean: a file's name, a student or first folder, the beginning of a
    digest. Raises ValueError."""
    out: set[str] = set()
    if not ids:
        return out
    known = {s.name for s in submissions}
    digests = {r["file"]: r["digests"]["submission"] for r in index.latest() if r["file"] in known}
    for wanted in ids:
        found = {
            s.name
            for s in submissions
            if wanted and wanted in (s.name, s.student, s.name.split("/")[0])
        }
        if not found and len(wanted) >= MIN_DIGEST:
            found = {file for file, digest in digests.items() if digest.startswith(wanted.lower())}
        if not found:
            raise ValueError(
                f"no submission is called {wanted!r}; give a file's name below the folder, a"
                f" student, or at least {MIN_DIGEST} digits of the digest of one that was graded"
            )
        out |= found
    return out


def grade_tasks(
    tasks: Sequence[Task], course: Course, workers: int, zygote: Zygote | None = None
) -> Generator[Record, None, None]:
    """A record for each task, in the order of finishing. Close it to end the processes."""
    if zygote is not None:
        judge = Judge(course, zygote)
        yield from (json.loads(record_line(judge.grade(task))) for task in tasks)
    elif tasks:
        yield from pool.graded(tasks, course, workers)


def grade_alone(task: Task, course: Course) -> Record:
    """The record of one submission, by a judge that is shut in as in a run of many."""
    try:
        with contextlib.closing(grade_tasks([task], course, workers=1)) as records:
            return next(records)
    except GraderFault as e:
        return pool.given_up(task, str(e))
