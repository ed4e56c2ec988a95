"""A judge: grades one submission after the other. In this process, or in one of its own for each
worker of a run.

A judge's process reads what to grade from a socket, and answers with one line of JSON for each. It
ends when the socket closes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import queue
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

import twophase
from twophase.grading.course.secret import SETS, seed_of
from twophase.grading.errors import GraderFault, ServerGone, Unreadable
from twophase.grading.files import notebook, scratch
from twophase.grading.intake.submissions import Submission
from twophase.grading.judge.benches import Benches
from twophase.grading.judge.one_submission import SubmissionJudge
from twophase.grading.release.release import Release, Source
from twophase.grading.results.grade import OTHER_TOPIC, Flag
from twophase.grading.results.records import Record, blank, filled, keyed, line_of
from twophase.grading.sandbox import what_confines
from twophase.grading.sandbox.affinity import one_processor
from twophase.grading.sandbox.launch import ENVIRONMENT, LOG, ForkServer
from twophase.grading.sandbox.limits import Limits
from twophase.grading.sandbox.zygote_handle import Zygote, make_zygote

DEFAULT_SEED = 1  # the notebooks practise with seed 0
GRACE_S = 300.0


@dataclass(frozen=True)
class Course:
    """What submissions are graded against.

    `source` has the releases; it goes to other processes, so it must pickle. With a `secret` the
    seed is the student's, else `seed` is everybody's. A judge that takes `grace_s` longer than a
    submission may take and wait is given up. With `public_only` the cases are those that a learner
    may see.
    """

    seed: int = DEFAULT_SEED
    limits: Limits = field(default_factory=Limits)
    source: Source = field(default_factory=Source)
    secret: bytes = field(default=b"", repr=False)
    case_sets: int = SETS
    grace_s: float = GRACE_S
    hidden: tuple[Path, ...] = ()
    public_only: bool = False

    def seed_for(self, submission: Submission) -> int | str:
        """The seed of this submission's cases. What is inside of it has no say."""
        if not self.secret:
            return self.seed
        return seed_of(self.secret, submission.student or submission.name, self.case_sets)

    def release_digest(self, topic: str) -> str:
        """The digest of a topic's release today; for what belongs to no topic ("") that of the list
        of topics. Raises ValueError."""
        if topic:
            return self.source.digest(topic)
        return hashlib.sha256("\n".join(self.source.topics()).encode()).hexdigest()

    def without_secret(self) -> Course:
        """For processes that need not know it: they are told the seeds."""
        return replace(self, secret=b"")


@dataclass(frozen=True)
class Task:
    """What a judge is asked: this submission, on the cases of this seed."""

    submission: Submission
    seed: int | str


class Judge:
    """Grades, in this process, with a zygote of its own."""

    def __init__(self, course: Course, zygote: Zygote) -> None:
        self._course = course
        self._zygote = zygote
        self._benches = Benches(public_only=course.public_only)
        self._no_release = course.release_digest("")
        self._started = False
        self.fault = ""  # why nothing can be graded here at all

    def grade(self, task: Task) -> Record:
        """The record of one submission. Never raises for what the submission is or does."""
        began = time.monotonic()
        submission = task.submission
        record = blank(submission.name, task.seed, submission.student, submission.submitted)
        try:
            record = self._judged(record, task)
        except Unreadable as e:
            record["digests"]["release"] = self._no_release
            record |= {"status": "unreadable", "message": f"This file could not be graded: {e}."}
        except ServerGone as e:  # another judge, from another one, can go on
            self.fault = str(e)
        except Exception as e:
            record |= {"status": "internal", "message": fault_message(f"{type(e).__name__}: {e}")}
        record["varies"]["seconds"] = round(time.monotonic() - began, 3)
        return keyed(record)

    def _judged(self, record: Record, task: Task) -> Record:
        data = task.submission.read()
        record["digests"]["submission"] = hashlib.sha256(data).hexdigest()
        work = notebook.parse(data)
        name = task.submission.name.rpartition("/")[2]
        record["topic"] = self._course.source.topic_of(work, name)
        self._zygote.launch()  # it loads its libraries while we load ours
        released = self._course.source.load(record["topic"])
        record["digests"]["release"] = released.digest
        self._start(released, task.seed)
        limits, seed = self._course.limits, task.seed
        with one_processor():
            judge = SubmissionJudge(self._zygote, released, self._benches, limits, seed, work)
            grade = judge.grade()
        others = self._course.source.besides(work, record["topic"])
        grade.flags += [_not_graded(t, n, record["topic"]) for t, n in others.items()]
        return filled(record, grade, released.exercises)

    def _start(self, released: Release, seed: int | str) -> None:
        if not self._started:  # while it loads: the right answers
            with contextlib.suppress(GraderFault):  # said when the exercise is asked, if it is
                for exercise in released.exercises.values():
                    self._benches.of(exercise, seed)
        try:
            self._zygote.start()
            self._started = True
        except GraderFault as e:
            self.fault = "" if self._started else str(e)
            raise


def _not_graded(other: str, n: int, topic: str) -> Flag:
    """Said of `n` exercises of another topic in a notebook that was graded as one of `topic`."""
    its, were, those = ("exercise", "was", "that") if n == 1 else ("exercises", "were", "those")
    says = (
        f"The notebook was graded as one of {topic}, and its {n} {its} of {other} {were} not: hand"
        f" {those} in as a notebook of {other}."
    )
    return Flag(OTHER_TOPIC, other, says)


def fault_message(why: str) -> str:
    """What an `internal` record says."""
    return f"The grader failed here ({why}): not graded."[:2000]


def apart(hidden: Iterable[Path]) -> list[Path]:
    """Of these paths those that can be kept from submissions: not a folder in which the libraries
    are that they need."""
    needed = [Path(p).resolve() for p in (*twophase.__path__, sys.prefix, sys.base_prefix)]
    return [p for p in hidden if not any(path.is_relative_to(p.resolve()) for path in needed)]


def serve(pipe: socket.socket, server: ForkServer) -> None:
    """The process of a judge: everything that it does. It is told where it works first, then
    its course; its zygotes come from `server`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started us decides
    stream = pipe.makefile("rb")
    try:
        sys.path[:], folder, environment = pickle.load(stream)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment | ENVIRONMENT)
        course, home, labels = pickle.load(stream)
    except EOFError:  # they want no judge any more
        return
    tempfile.tempdir = home
    with open(Path(home, LOG), "wb", buffering=0) as log:
        os.dup2(log.fileno(), 2)
    zygote = make_zygote(apart(course.hidden), server)
    what_confines.tell(labels)
    blank("", 0)  # what a record says of this machine is asked while everything can be read
    if not what_confines.practice():
        from twophase.grading.sandbox import judge_jail  # Linux has it

        judge_jail.enter()
    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()

    def end() -> None:
        zygote.close()
        server.close()
        scratch.leave(Path(home))

    threading.Thread(target=_listen, args=(stream, tasks, end), daemon=True).start()
    _say(pipe, b'"ready"\n')
    judge = Judge(course, zygote)
    while True:
        record = judge.grade(tasks.get())
        if judge.fault:
            _say(pipe, json.dumps({"fault": judge.fault}).encode() + b"\n")
        else:
            _say(pipe, record_line(record))


def record_line(record: Record) -> bytes:
    """The record as a line; if it cannot be one, an `internal` record that says so."""
    try:
        return line_of(record)
    except ValueError as e:  # a check of ours has put something into it that is no JSON
        why = fault_message(f"a result that cannot be written: {e}")
        judged: Record = {"questions": [], "flags": [], "points": None, "out_of": None}
        return line_of(record | judged | {"status": "internal", "message": why})


def _say(pipe: socket.socket, line: bytes) -> None:
    # nobody listens any more: the other thread knows, and ends us
    with contextlib.suppress(OSError):
        pipe.sendall(line)


def _listen(stream: IO[bytes], tasks: queue.SimpleQueue[Task], end: Callable[[], None]) -> None:
    """Take tasks until the other end is closed, also by the death of its process; then end, and
    leave nothing behind."""
    try:
        while True:
            tasks.put(pickle.load(stream))
    except (EOFError, OSError):
        pass
    finally:
        try:
            end()
        finally:
            os._exit(0)
