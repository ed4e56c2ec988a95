"""One fork server and one zygote for all tests of this process: they take seconds to start, and a submission takes milliseconds."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from hostile.course import release

from twophase.checks import registry
from twophase.checks.answer import LocalAnswer
from twophase.checks.judge import Bench
from twophase.grading.files.notebook import parse
from twophase.grading.judge.benches import Benches
from twophase.grading.judge.remote_answer import RemoteAnswer
from twophase.grading.judge.supervisor import Supervisor
from twophase.grading.release import release as registered
from twophase.grading.results.grade import Grade
from twophase.grading.sandbox.confinement import Limits
from twophase.grading.sandbox.launch import ForkServer
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


@cache
def supervisor() -> Supervisor:
    return Supervisor(zygote(), release(), Benches(), LIMITS, 1)


def grade(data: bytes) -> Grade:
    return supervisor().grade(parse(data))


def output(session: Session, source: str) -> str:
    """What a cell prints, which must not fail."""
    ran = session.run_cell(source, 60.0)
    assert not ran.error, ran.error
    return ran.output.strip()


def right_here_and_withheld_there(exercise_id: str, source: str, without: str = "") -> None:
    """A cell made of the library answers an exercise in this process, and not in a worker, where
    something that it is made of is withheld. `without`: a case that it would answer for minutes."""
    bench = Bench(registry.load(exercise_id), 7)
    if without:
        kept = [i for i, case in enumerate(bench.cases) if case.name != without]
        assert len(kept) == len(bench.cases) - 1, f"there is no case {without!r}"
        bench.cases = [bench.cases[i] for i in kept]
        bench.expected = [bench.expected[i] for i in kept]
    names: dict[str, object] = {}
    exec(source, names)
    assert bench.judge(LocalAnswer(names)).right, "it would be an answer"
    withheld = registered.Source().load(exercise_id.split("-")[0]).withholds
    with zygote().fork(withheld, LIMITS) as session:
        ran = session.run_cell(source, 20.0)
        said = bench.judge(RemoteAnswer(session))
    assert not said.right
    # What stands in the place of a compiled function has no Python function inside.
    refused = ("Withheld", "object has no attribute 'py_func'", "object has no attribute 'serial'")
    assert any(why in ran.error + said.message for why in refused), (ran.error, said.message)
