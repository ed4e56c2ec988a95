"""Grading many submissions: finds them, skips what is done, grades on several processes, writes as it goes."""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from twophase.grading import notebook, release
from twophase.grading.benches import Benches
from twophase.grading.confine import Limits
from twophase.grading.forks import Zygote
from twophase.grading.notebook import Notebook, Unreadable
from twophase.grading.records import Record, Results, blank, filled, key
from twophase.grading.release import Release
from twophase.grading.session import GraderFault
from twophase.grading.submissions import Submission, find
from twophase.grading.supervisor import Supervisor

__all__ = ["DEFAULT_SEED", "Course", "Submission", "find", "grade_folder", "grade_one"]

DEFAULT_SEED = 1  # the notebooks practise with seed 0


@dataclass
class Course:
    """What submissions are graded against. `releases` finds a topic's release; a test puts its own here."""

    seed: int = DEFAULT_SEED
    limits: Limits = field(default_factory=Limits)
    releases: Callable[[str], Release] = release.load
    benches: Benches = field(default_factory=Benches)


def grade_one(submission: Submission, course: Course, zygote: Zygote, done: set[tuple[str, ...]]) -> Record | None:
    """The record of one submission, or None if `done` has it. Never raises for what the submission is or does."""
    began = time.monotonic()
    record = blank(submission.name, "", course.seed)
    try:
        data = notebook.read_bytes(submission.path)
        record["digests"]["submission"] = hashlib.sha256(data).hexdigest()
        work = notebook.parse(data)
        if not done:  # else there may be nothing to do
            zygote.launch()
        record["topic"] = release.topic_of(work, submission.path.name)
        with course.benches.turn:  # two imports at once may meet a half-loaded module
            released = course.releases(record["topic"])
        record["digests"]["release"] = released.digest
        if key(record) in done:
            return None
        record = _judged(record, work, released, course, zygote)
    except Unreadable as e:
        record |= {"status": "unreadable", "message": f"This file could not be graded: {e}."}
        if key(record) in done:
            return None
    except Exception as e:  # our own fault, whatever it is: said, and never a zero
        record |= {
            "status": "internal",
            "message": f"The grader failed here ({type(e).__name__}: {e}): not graded."[:2000],
        }
    record["varies"]["seconds"] = round(time.monotonic() - began, 3)
    return record


def _judged(record: Record, work: Notebook, released: Release, course: Course, zygote: Zygote) -> Record:
    grade = Supervisor(zygote, released, course.benches, course.limits, course.seed).grade(work)
    return filled(record, grade, released.exercises)


def grade_folder(
    submissions: list[Submission],
    course: Course,
    results: Results,
    workers: int,
    told: Callable[[Record | None], None] = lambda record: None,
    make: Callable[[], Zygote] = Zygote,
) -> None:
    """Grade all, append to `results`, call `told` after each (None: it was done before).

    Interrupted, it stops where it is: what is in `results` stays, and the next run goes on from there.
    """
    done = {key(r) for r in results.records if r["status"] != "internal"}
    todo: queue.SimpleQueue[Submission] = queue.SimpleQueue()
    for submission in submissions:
        todo.put(submission)
    answers: queue.SimpleQueue[Record | None] = queue.SimpleQueue()
    zygotes = [make() for _ in range(max(1, min(workers, len(submissions))))]

    def work(zygote: Zygote) -> None:
        with zygote:
            while not zygote.stopped:
                try:
                    submission = todo.get_nowait()
                except queue.Empty:
                    return
                answers.put(grade_one(submission, course, zygote, done))

    threads = [threading.Thread(target=work, args=(z,), daemon=True) for z in zygotes]
    for thread in threads:
        thread.start()
    try:
        for _ in submissions:
            record = _next(answers, threads)
            if record is not None:
                results.append(record)
            told(record)
    finally:
        for zygote in zygotes:
            zygote.stop()
        for thread in threads:
            thread.join()


def _next(answers: queue.SimpleQueue[Record | None], threads: list[threading.Thread]) -> Record | None:
    """The next result, or GraderFault if nobody is left to give one."""
    while True:
        alive = any(t.is_alive() for t in threads)
        try:
            return answers.get(timeout=1.0 if alive else 0.0)
        except queue.Empty:
            if not alive:
                raise GraderFault("the grader's threads ended before the work was done") from None
