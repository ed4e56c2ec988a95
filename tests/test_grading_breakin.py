"""What a break-in found open, shut: each tried in a submission's own process."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from hostile.course import RIGHT, TOPIC, cells, dump, release
from hostile.worker import LIMITS, output, zygote
from test_grading_seccomp import ALLOW, AUDIT, run

from twophase.grading.files.notebook import parse
from twophase.grading.judge.benches import Benches
from twophase.grading.judge.one_submission import SubmissionJudge
from twophase.grading.judge.time_budget import Allowance
from twophase.grading.sandbox import what_confines
from twophase.grading.sandbox.allowed_syscalls import ALLOWED
from twophase.grading.sandbox.session import Session

LABELS = what_confines.confined_by()
needs_seccomp = pytest.mark.skipif(
    "seccomp" not in LABELS, reason="nothing here confines by seccomp"
)

SO_TYPE, SO_PEERCRED, SO_PEERPIDFD = 3, 17, 77
CHANNEL = "import os, socket\nend = socket.socket(fileno=os.dup(255))\n"


@pytest.fixture
def session() -> Iterator[Session]:
    with zygote().fork(LIMITS) as one:
        yield one


@needs_seccomp
@pytest.mark.parametrize("option", [SO_PEERCRED, SO_PEERPIDFD])
def test_the_channel_does_not_tell_which_process_judges(session: Session, option: int) -> None:
    ran = session.run_cell(f"{CHANNEL}end.getsockopt(socket.SOL_SOCKET, {option}, 256)", 60.0)
    assert "PermissionError" in ran.types


@needs_seccomp
def test_a_socket_still_says_what_it_is(session: Session) -> None:
    assert (
        output(
            session,
            f"{CHANNEL}print(end.getsockopt(socket.SOL_SOCKET, {SO_TYPE}) == socket.SOCK_STREAM)",
        )
        == "True"
    )
    assert (
        output(session, "a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1), b.type.name)")
        == "b'x' SOCK_STREAM"
    )


@pytest.mark.parametrize("machine", AUDIT)
def test_the_filter_knows_the_options_of_sockets(machine: str) -> None:
    number = ALLOWED["getsockopt"][list(AUDIT).index(machine)]
    assert number is not None
    assert [run(machine, number, 3, 1, option) for option in (3, 4, 7, 8, 30, 38, 39)] == [
        ALLOW
    ] * 7
    assert [run(machine, number, 3, *o) for o in ((1, 17), (1, 59), (1, 77), (0, 3), (6, 3))] == [
        errno.EPERM
    ] * 5


def test_what_could_not_be_looked_at_again_is_not_confirmed() -> None:
    work = parse(dump(cells(dict(RIGHT))))
    run_ = SubmissionJudge(zygote(), release(), Benches(), LIMITS, 1, work)
    steps = run_._plan.alone(f"{TOPIC}-bytes", with_own=True)
    usage, second = run_._whole.usage, run_._second
    assert not second._stays_right(f"{TOPIC}-bytes", steps, Allowance(usage, 0.0, 3)), (
        "an answer that sleeps until then only guessed"
    )
    assert second._stays_right(f"{TOPIC}-bytes", steps, Allowance(usage, 60.0, 3))
