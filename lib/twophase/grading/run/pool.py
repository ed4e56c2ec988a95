"""Judges in processes of their own, fed one submission at a time; one that hangs is replaced."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import select
import signal
import socket
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from twophase.grading.errors import GraderFault, Unreadable
from twophase.grading.files import scratch
from twophase.grading.judge import judge
from twophase.grading.judge.judge import Course, Task, fault_message
from twophase.grading.results.reader import require_sound
from twophase.grading.results.records import Record, blank, keyed
from twophase.grading.sandbox import what_confines
from twophase.grading.sandbox.launch import LOG, ForkServer, last_line, make_server

START_S = 180.0
END_S = 10.0
ATTEMPTS = 2
FAILED_STARTS = 5
MAX_LINE_BYTES = 64 * 2**20


class Vanished(Exception):
    """A judge ended, hangs or speaks nonsense. The message says which."""


class JudgeProcess:
    """A judge's process as the main process sees it: what it works on, and until when it may."""

    def __init__(self, course: Course, home: Path, server: ForkServer) -> None:
        self.task: Task | None = None
        self.ready = False
        self._course = course
        self._folder = Path(tempfile.mkdtemp(dir=home))
        self._heard = bytearray()
        self._pipe, theirs = socket.socketpair()
        self.until = time.monotonic() + START_S
        self._server = server
        with theirs:
            self._name = server.judge(judge.__name__, theirs)
        with contextlib.suppress(OSError):  # it is gone: `hear` will say so
            self._pipe.sendall(pickle.dumps((sys.path, os.getcwd(), dict(os.environ))))
            labels = what_confines.confined_by()  # tried while the libraries are loaded there
            told = course.without_secret(), str(self._folder), labels
            self._pipe.sendall(pickle.dumps(told))

    def fileno(self) -> int:
        return self._pipe.fileno()

    def give(self, task: Task) -> None:
        """Have it grade this: now, or when it has started."""
        self.task = task
        if self.ready:
            limits = self._course.limits
            most_s = limits.submission_s + limits.waiting_s + self._course.grace_s
            self.until = time.monotonic() + most_s
            self._pipe.settimeout(END_S)
            with contextlib.suppress(OSError):  # it is gone: `hear` will say so
                self._pipe.sendall(pickle.dumps(task))

    def hear(self) -> Record | None:
        """Read what is there. Returns a record if one is complete. Raises Vanished; GraderFault if
        the judge can grade nothing at all."""
        try:
            self._pipe.settimeout(0)
            data = self._pipe.recv(2**20)
        except BlockingIOError:
            return None
        except OSError as e:
            raise Vanished(str(e.strerror)) from None
        if not data:
            raise Vanished(self._last_words())
        self._heard += data
        if not self._heard.endswith(b"\n"):
            if len(self._heard) > MAX_LINE_BYTES:
                raise Vanished("its process sent more than a result can be")
            return None
        line, self._heard = bytes(self._heard), bytearray()
        return self._understood(line)

    def _understood(self, line: bytes) -> Record | None:
        try:
            said: Any = json.loads(line)
            if said == "ready" and not self.ready:
                self.ready = True
                if self.task is not None:
                    self.give(self.task)
                return None
            if (fault := said.get("fault")) is not None:
                raise GraderFault(str(fault))
            require_sound(said)
            asked = self.task and (self.task.submission.name, self.task.seed)
            if (said["file"], said["seed"]) != asked:
                raise ValueError("nobody asked for it")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            raise Vanished(f"its process sent nonsense ({type(e).__name__}: {e})") from None
        self.task = None
        return said  # type: ignore[no-any-return]

    def _last_words(self) -> str:
        """Why the process ended, as far as it can be known."""
        code = self._server.ended(self._name, END_S)
        said = last_line(self._folder / LOG)
        if said and code not in (0, None) and code > 0:
            return f"its process ended: {said}"
        if code and code < 0:
            return f"its process was killed by {signal.Signals(-code).name}"
        return "its process ended"

    def hang_up(self) -> None:
        """Let the process end: it sees the socket close, and takes all below it along."""
        self._pipe.close()

    def close(self, at_once: bool = False) -> None:
        """End the process and wait until it has. `at_once`: kill it, which ends its zygote too."""
        self.hang_up()
        if at_once or self._server.ended(self._name, END_S) is None:
            self._server.kill(self._name)
            self._server.ended(self._name, END_S)
        scratch.leave(self._folder)


class Pool:
    """So many judges, and what is left to do."""

    def __init__(self, tasks: Sequence[Task], course: Course, workers: int, home: Path) -> None:
        self._todo = deque(tasks)
        self._course = course
        self._home = home
        self._server = make_server()
        self._attempts: Counter[Task] = Counter()  # of those that a judge did not survive
        self._failed_starts = 0  # since the last record
        self.judges = [self._start_judge() for _ in range(min(max(1, workers), len(tasks)))]

    def close(self) -> None:
        for process in self.judges:
            process.hang_up()  # all first, so that they end side by side
        for process in self.judges:
            process.close()
        self._server.close()

    def _start_judge(self) -> JudgeProcess:
        return JudgeProcess(self._course, self._home, self._server)

    def records(self) -> Iterator[Record]:
        """A record for each task, as they come. Raises GraderFault if nothing can be graded."""
        while True:
            for process in self.judges:
                if process.task is None and self._todo:
                    process.give(self._todo.popleft())
            busy = [process for process in self.judges if process.task is not None]
            if not busy:
                return
            left_s = min(process.until for process in busy) - time.monotonic()
            heard, _, _ = select.select(busy, [], [], max(0.0, left_s))
            for process in busy:
                record = self._heard(process, process in heard)
                if record is not None:
                    if self._todo and process in self.judges:
                        process.give(self._todo.popleft())  # it works while we write
                    yield record

    def _heard(self, process: JudgeProcess, spoke: bool) -> Record | None:
        """What a judge has to say. If its judge is gone, another takes its place and its work."""
        was_ready = process.ready
        try:
            if spoke:
                record = process.hear()
                self._failed_starts = 0 if record is not None else self._failed_starts
                return record
            if time.monotonic() < process.until:
                return None
            raise Vanished("its process did not answer in time")
        except (Vanished, GraderFault) as e:
            task, why, started = process.task, str(e), was_ready and isinstance(e, Vanished)
        assert task is not None
        self.judges.remove(process)
        process.close(at_once=True)
        record = None
        if started:
            record = self._tried(task, why)
        else:
            self._require_starts(why)
        if record is None or self._todo:
            self.judges.append(self._start_judge())
            self.judges[-1].give(task if record is None else self._todo.popleft())
        return record

    def _require_starts(self, why: str) -> None:
        """One judge's bad start, or its worker's, does not end a run. Raises GraderFault if none
        starts any more."""
        self._failed_starts += 1
        if self._failed_starts >= FAILED_STARTS:
            raise GraderFault(f"the processes that grade do not start: {why}")

    def _tried(self, task: Task, why: str) -> Record | None:
        """None if the task is to be tried again, else its record."""
        self._attempts[task] += 1
        if self._attempts[task] < ATTEMPTS:
            return None
        return given_up(task, f"{why}, {ATTEMPTS} times")


def given_up(task: Task, why: str) -> Record:
    """The record of a submission that no judge survived: the grader's fault, never a zero."""
    submission = task.submission
    record = blank(submission.name, task.seed, submission.student, submission.submitted)
    with contextlib.suppress(Unreadable):
        record["digests"]["submission"] = hashlib.sha256(submission.read()).hexdigest()
    return keyed(record | {"message": fault_message(why)})


def graded(tasks: Sequence[Task], course: Course, workers: int) -> Iterator[Record]:
    """A record for each task, in the order of finishing, by `workers` processes. Close it to end
    them."""
    with scratch.scratch() as home, contextlib.closing(Pool(tasks, course, workers, home)) as pool:
        yield from pool.records()
