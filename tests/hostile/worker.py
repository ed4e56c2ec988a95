"""One fork server and one zygote for all tests of this process: they take seconds to start, and a submission takes milliseconds."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from hostile.course import release

from twophase.grading.files.notebook import parse
from twophase.grading.judge.benches import Benches
from twophase.grading.judge.one_submission import SubmissionJudge
from twophase.grading.results.grade import Grade
from twophase.grading.sandbox.launch import ForkServer
from twophase.grading.sandbox.limits import Limits
from twophase.grading.sandbox.session import Session
from twophase.grading.sandbox.zygote_handle import Zygote

LIMITS = Limits(cell_s=1.5, submission_s=60.0, memory_bytes=10**9)


@contextmanager
def outside_of_runs() -> Iterator[None]:
    """For folders that must outlive a run, which removes its own with all temporary ones in it."""
    before, tempfile.tempdir = tempfile.tempdir, None
    try:
        yield
    finally:
        tempfile.tempdir = before


class KeptServer(ForkServer):
    """A fork server that outlives the runs that use it."""

    def _start(self) -> None:
        with outside_of_runs():
            super()._start()

    def close(self) -> None:
        """Not now: the next test wants it."""


@cache
def server() -> ForkServer:
    one = KeptServer()
    atexit.register(ForkServer.close, one)
    return one


class Kept(Zygote):
    """A zygote that outlives the runs that use it."""

    def stop(self) -> None:
        """Not now: the next test wants it."""

    def close(self) -> None:
        """Not now either."""


@cache
def zygote() -> Zygote:
    with outside_of_runs():
        one = Kept(server=server())
    atexit.register(Zygote.close, one)
    return one


BENCHES = Benches()


def grade(data: bytes) -> Grade:
    return SubmissionJudge(zygote(), release(), BENCHES, LIMITS, 1, parse(data)).grade()


def output(session: Session, source: str) -> str:
    """What a cell prints, which must not fail."""
    ran = session.run_cell(source, 60.0)
    assert not ran.error, ran.error
    return ran.output.strip()
