"""The judge ends when an answer does not: what it returns, calls back with, or never says costs
that exercise and no other."""

from __future__ import annotations

import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from hostile.course import RIGHT, STUBS, TOPIC, answer_cell, cell, cells, dump, exercise, release
from hostile.worker import LIMITS, grade, zygote

from twophase.checks import law as laws
from twophase.checks import registry
from twophase.checks.answer import Answer, LocalAnswer
from twophase.checks.exercise import Case, Exercise
from twophase.checks.judge import Bench, Verdict
from twophase.checks.law import law
from twophase.grading.errors import GraderFault
from twophase.grading.files.notebook import parse
from twophase.grading.judge import remote_answer
from twophase.grading.judge.benches import Benches
from twophase.grading.judge.check_limit import Alarm, Overdue
from twophase.grading.judge.one_submission import SubmissionJudge
from twophase.grading.judge.remote_answer import RemoteAnswer
from twophase.grading.release.release import Release
from twophase.grading.results.grade import Grade
from twophase.grading.sandbox.limits import Limits
from twophase.grading.sandbox.session import CellRun, Session
from twophase.protocol import AnswerError, ProtocolError
from twophase.protocol import wire as w

LIMIT_S = 0.5


@pytest.fixture
def session() -> Iterator[Session]:
    with zygote().fork(LIMITS) as one:
        yield one


def quick(
    slug: str, observe: Any, reference: Any = lambda *a: 1, limit_s: float = LIMIT_S
) -> Exercise:
    """An exercise of three cases with this check."""
    made = exercise(
        slug,
        "f",
        reference,
        lambda *a: 2,
        lambda rng: [Case(f"case {i}", (i,)) for i in range(3)],
        observe=observe,
    )
    return replace(made, time_limit_s=limit_s)


def judged(session: Session, source: str, observe: Any, **kwargs: Any) -> Verdict:
    assert not session.run_cell(source, 20.0).error
    return Bench(quick("quick", observe, **kwargs), 1).judge(RemoteAnswer(session))


# the check's own work


def _for_ever(answer: Answer, case: Case) -> Any:
    if answer.call("f") == 0:
        while True:
            pass
    return 1


def _swallows(answer: Answer, case: Case) -> Any:
    while answer.call("f") == 0:
        try:
            while True:
                pass
        except Exception:
            pass
    return 1


def _asks_for_ever(answer: Answer, case: Case) -> Any:
    while answer.call("f") == 0:
        pass
    return 1


def _quadratic(answer: Answer, case: Case) -> Any:
    values = answer.call("f")
    return 1 if values == 1 else sum(values.count(v) for v in values)


def _counts_up(answer: Answer, case: Case) -> Any:
    return answer.call("f", lambda n: sum(1 for _ in range(n)))


CHECKS = {
    "a loop on what was returned": ("def f(): return 0", _for_ever),
    "a loop that catches exceptions": ("def f(): return 0", _swallows),
    "asking again for ever": ("def f(): return 0", _asks_for_ever),
    "a long list walked again and again": ("def f(): return list(range(400_000))", _quadratic),
    "a callback given a huge number": ("def f(count): return count(10**18)", _counts_up),
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_that_an_answer_makes_endless_is_a_time_out(session: Session, name: str) -> None:
    source, observe = CHECKS[name]
    seen = judged(session, source, observe, reference=lambda *a: 1)
    assert (seen.status, seen.outcomes[-1].error, len(seen.outcomes)) == ("failed", "timeout", 1)
    assert session.broken is not None
    assert not signal.getitimer(signal.ITIMER_PROF)[0]


def test_after_the_limit_the_zygote_serves_the_next_submission() -> None:
    for _ in range(2):
        with zygote().fork(LIMITS) as session:
            judged(session, "def f(count): return count(10**18)", _counts_up)
    with zygote().fork(LIMITS) as session:
        assert judged(session, "def f(): return 1", _for_ever, limit_s=30.0).right


def test_waiting_for_the_worker_is_not_the_checks_work(session: Session) -> None:
    seen = judged(
        session, "import time\ndef f():\n    time.sleep(0.4)\n    return 1", _for_ever, limit_s=5.0
    )
    assert seen.right


def test_a_slow_reference_and_slow_wrong_answers_are_not_the_submissions_time() -> None:
    def slow(*args: Any) -> int:
        began = time.process_time()
        while time.process_time() - began < 0.05:
            pass
        return 1

    made = replace(
        quick("slow", None, reference=slow), misconceptions=quick("slow", None).misconceptions
    )
    made = replace(
        made,
        misconceptions=tuple(replace(m, answer=lambda *a: slow() + 1) for m in made.misconceptions),
    )
    with zygote().fork(LIMITS) as session:
        assert not session.run_cell("def f(x): return 2", 20.0).error
        seen = Bench(replace(made, time_limit_s=0.1), 1).judge(RemoteAnswer(session))
    assert seen.misconception == made.misconceptions[0].slug


def test_in_this_process_a_check_has_no_limit() -> None:
    def observe(answer: Answer, case: Case) -> Any:
        began = time.process_time()
        while time.process_time() - began < 0.1:
            pass
        return answer.call("f")

    assert Bench(quick("here", observe, limit_s=0.01), 1).judge(LocalAnswer({"f": lambda: 1})).right


# the alarm


def test_the_alarm_gives_back_the_clock_and_the_handler_that_it_found() -> None:
    rang: list[int] = []
    before = signal.signal(signal.SIGPROF, lambda number, frame: rang.append(number))
    signal.setitimer(signal.ITIMER_PROF, 100.0)
    try:
        with Alarm().limit(50.0):
            assert signal.getitimer(signal.ITIMER_PROF)[0] < 51.0
        assert (
            50.0 < signal.getitimer(signal.ITIMER_PROF)[0] < 101.0
        )  # clocks tick a few times in a hundredth of a second
        signal.raise_signal(signal.SIGPROF)
        assert rang
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def test_the_alarm_waits_for_our_own_code_to_end() -> None:
    alarm, told = Alarm(), []

    def ours() -> None:
        with alarm.held():
            signal.raise_signal(signal.SIGPROF)
            told.append("sent whole")

    def both() -> None:
        with alarm.limit(50.0):
            ours()
            told.append("went on")

    with pytest.raises(Overdue):
        both()
    assert told == ["sent whole"]


def test_the_alarm_rings_in_a_callback_and_not_after_the_block() -> None:
    alarm = Alarm()
    with pytest.raises(Overdue), alarm.limit(50.0), alarm.held(), alarm.released():
        signal.raise_signal(signal.SIGPROF)
    with alarm.limit(50.0):
        pass
    alarm._ring(signal.SIGPROF, None)


def test_outside_the_main_thread_there_is_no_alarm_and_no_error() -> None:
    done: list[bool] = []

    def work() -> None:
        with Alarm().limit(0.01), Alarm().held():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done


# callbacks


def test_more_callbacks_than_any_answer_needs_end_it(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_answer, "MAX_CALLBACKS", 50)
    seen = judged(
        session,
        "def f(g):\n    while True: g()",
        lambda a, c: a.call("f", lambda: None) and 1,
        limit_s=30.0,
        reference=lambda g: 1,
    )
    assert (seen.outcomes[0].error, len(seen.outcomes)) == ("timeout", 1)
    assert "more than 50 times" in seen.message


def test_more_data_than_any_answer_sends_ends_it(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_answer, "MAX_CASE_BYTES", 10**6)
    logged: list[Any] = []
    seen = judged(
        session,
        "def f(g):\n    while True: g(bytes(100_000))",
        lambda a, c: a.call("f", logged.append) or 1,
        limit_s=30.0,
        reference=lambda g: 1,
    )
    assert (seen.outcomes[0].error, len(logged)) == ("timeout", 9)
    assert "MiB in one case" in seen.message


def test_callbacks_nested_without_end_end_it(session: Session) -> None:
    def observe(answer: Answer, case: Case) -> Any:
        return answer.call("f", lambda: observe(answer, case))

    seen = judged(session, "def f(g): return g()", observe, limit_s=30.0, reference=lambda g: 1)
    assert seen.outcomes[0].error == "timeout"
    assert session.broken is not None


@pytest.mark.parametrize(
    "given", ["10**1000", "'x' * 10**6", "float('nan')", "[[]] * 1000", "None"]
)
def test_a_callback_may_raise_or_return_what_cannot_cross_and_nobody_is_harmed(
    session: Session, given: str
) -> None:
    def callback(n: Any) -> Any:
        return n**40 if isinstance(n, int) else {}[n]

    source = f"def f(g):\n    try: g({given})\n    except Exception: return 1"
    assert judged(session, source, lambda a, c: a.call("f", callback), limit_s=30.0).right


def test_a_check_that_runs_out_of_memory_on_an_answer_finds_it_unusable(session: Session) -> None:
    def observe(answer: Answer, case: Case) -> Any:
        if answer.call("f") != 1:
            raise MemoryError
        return 1

    seen = judged(session, "def f(): return 0", observe, limit_s=30.0)
    assert (seen.status, seen.outcomes[0].error) == ("wrong", "unusable")


def test_a_message_that_the_judge_has_no_memory_for_ends_the_process(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.run_cell("def f(): return 1", 20.0)

    def full(deadline: float | None = None) -> Any:
        raise MemoryError

    monkeypatch.setattr(session._channel, "receive", full)
    with pytest.raises(AnswerError) as caught:
        RemoteAnswer(session).call("f")
    assert (caught.value.kind, session.broken) == ("unusable", caught.value)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, GraderFault])
def test_what_is_no_fault_of_the_answer_passes_and_ends_the_conversation(
    session: Session, stop: type[BaseException]
) -> None:
    session.run_cell("def f(g): return g()", 20.0)

    def callback() -> None:
        raise stop("now")

    with pytest.raises(stop):
        RemoteAnswer(session).call("f", callback)
    assert session.broken is not None


def test_an_error_of_any_kind_keeps_its_message_short(session: Session) -> None:
    seen = judged(
        session,
        "class Long(Exception):\n    pass\nLong.__name__ = 'L' * 10**5\ndef f(): raise Long('x' *"
        " 10**5)",
        None,
    )
    assert all(len(o.message) <= 800 for o in seen.outcomes)


def test_choosing_without_end_is_refused_before_it_fills_the_memory() -> None:
    most = 0

    def run(choose: Any) -> int:
        nonlocal most
        for n in range(10**6):
            try:
                choose([1.0, 1.0])
            except ValueError:
                most = max(most, n)
                raise
        return 0

    with pytest.raises(ValueError, match="different ways"):
        law(run)
    assert most <= laws.MAX_DRAWS


def test_as_many_ways_as_allowed_are_walked_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws, "MAX_PATHS", 64)
    assert law(lambda choose: sum(choose([0.5, 0.5]) << i for i in range(6))) == dict.fromkeys(
        range(64), 1 / 64
    )
    with pytest.raises(ValueError, match="different ways"):
        law(lambda choose: choose([1.0] * 65))


def test_a_long_tensor_is_refused_before_a_loop_makes_a_tensor_of_each_number() -> None:
    with pytest.raises(AnswerError, match="far more numbers"):
        law(lambda choose: choose(torch.zeros(200_000)))
    bench = Bench(registry.load("two_phases-top_p_cases"), 1)
    for case in ((torch.ones(1000), 0.5, [0]), ([1.0], 0.5, torch.ones(1000)), torch.ones(3, 1000)):
        seen = bench.judge(LocalAnswer({"cases": lambda case=case: [case]}))
        assert "far more numbers" in seen.outcomes[0].message


# the wire


@contextmanager
def talking(script: Any) -> Iterator[w.Channel]:
    """A channel whose other end is run by `script(socket)` in a thread, until the block ends."""
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=script, args=(theirs,), daemon=True)
    thread.start()
    try:
        yield w.Channel(ours)
    finally:
        ours.close()
        thread.join(10)
        theirs.close()
        assert not thread.is_alive()


def _drip(end: socket.socket) -> None:
    """A long message, one byte now and then, for as long as somebody listens."""
    try:
        end.sendall(struct.pack(">IcQ", 10**6, b"V", 1))
        while True:
            end.sendall(b"\0")
            time.sleep(0.02)
    except OSError:
        pass


def _head_only(end: socket.socket) -> None:
    end.sendall(struct.pack(">IcQ", w.MAX_BODY, b"V", 1) + bytes(1000))


def _half_a_head(end: socket.socket) -> None:
    end.sendall(b"\0\0")
    end.shutdown(socket.SHUT_WR)


def _too_large(end: socket.socket) -> None:
    end.sendall(struct.pack(">IcQ", w.MAX_BODY + 1, b"V", 1))


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (_drip, TimeoutError),
        (_head_only, TimeoutError),
        (_half_a_head, w.Closed),
        (_too_large, ProtocolError),
    ],
)
def test_a_deadline_holds_for_the_whole_message_and_not_for_each_byte(
    script: Any, error: type[Exception]
) -> None:
    with talking(script) as channel, pytest.raises(error):
        channel.receive(time.monotonic() + 0.3)


def test_sending_to_somebody_who_does_not_read_meets_the_deadline() -> None:
    with talking(lambda end: None) as channel, pytest.raises(TimeoutError):
        channel.send(w.CALL, 1, bytes(2**24), time.monotonic() + 0.3)


def test_sending_to_somebody_who_reads_a_little_now_and_then_meets_the_deadline() -> None:
    def sip(end: socket.socket) -> None:
        for _ in range(50):
            end.recv(1000)
            time.sleep(0.02)

    with talking(sip) as channel, pytest.raises(TimeoutError):
        channel.send(w.CALL, 1, bytes(2**24), time.monotonic() + 0.3)


def test_a_worker_that_never_reads_its_question_is_a_time_out(session: Session) -> None:
    assert not session.run_cell("def f(g, x):\n    g()\n    while True: pass", 20.0).error
    answer = RemoteAnswer(session)
    answer.start_case(1.0)
    with pytest.raises(AnswerError) as caught:
        answer.call("f", lambda: bytes(2**25), 0)
    assert caught.value.kind == "timeout"


def test_a_cell_too_long_to_be_sent_stops_by_itself(session: Session) -> None:
    ran = session.run_cell("x = '" + "é" * 2_000_000 + "'", 20.0)
    assert "too long" in ran.error
    assert session.run_cell("x = 1", 20.0) == CellRun()


# what is left for the others


SMALL = Limits(cell_s=0.5, submission_s=4.0, memory_bytes=10**9)
SLOW = "import time; time.sleep(0.4)"


def assigned(n: int, limit_s: float) -> Release:
    """An assignment of `n` exercises, each with one function: `f0`, `f1`, ..."""

    def one(i: int) -> Exercise:
        made = exercise(
            f"q{i}",
            f"f{i}",
            lambda x: x + 1,
            lambda x: x,
            lambda rng: [Case(f"case {x}", (x,)) for x in range(3)],
        )
        return replace(made, time_limit_s=limit_s)

    base = release()
    setup = {f"{TOPIC}-setup": base.locked[f"{TOPIC}-setup"]}
    return Release(TOPIC, {e.id: e for e in map(one, range(n))}, setup, tuple(setup), "a test")


def hang(i: int) -> str:
    return f"def f{i}(x):\n    while True: pass"


def graded(
    n: int,
    answers: dict[int, str],
    own: list[str] | None = None,
    limits: Limits = SMALL,
    limit_s: float = 0.25,
) -> Grade:
    """The grade of a notebook with these cells of its own, then `n` answers, right but for those
    given."""
    made = cells({})[:1] + [cell(source) for source in own or []]
    made += [answer_cell(f"q{i}", answers.get(i, f"def f{i}(x): return x + 1")) for i in range(n)]
    asked, work = assigned(n, limit_s), parse(dump(made))
    return SubmissionJudge(zygote(), asked, Benches(), limits, 1, work).grade()


def lost(grade: Grade) -> set[int]:
    return {int(q.verdict.exercise_id[-1]) for q in grade.questions if not q.verdict.right}


def test_an_answer_that_hangs_in_every_case_costs_itself_only() -> None:
    assert lost(graded(8, {0: hang(0)})) == {0}


def test_answers_that_all_hang_but_the_last_cost_themselves_only() -> None:
    assert lost(
        graded(4, {i: hang(i) for i in range(3)}, limits=replace(SMALL, submission_s=10.0))
    ) == {0, 1, 2}


def test_slow_cells_of_the_submissions_own_cost_no_exercise_and_are_not_called_guilty() -> None:
    """Each is within its limit, all of them are beyond what the submission has."""
    grade = graded(3, {}, [SLOW] * 8)
    assert lost(grade) == set()
    assert not [f for f in grade.flags if f.name == "cell_broke"]


def test_slow_cells_and_answers_that_hang_leave_the_others_their_points() -> None:
    """Each new process must run the slow cells again."""
    assert lost(graded(4, {0: hang(0), 3: hang(3)}, [SLOW] * 2)) == {0, 3}


def test_cells_that_all_kill_the_process_leave_the_answers_their_points() -> None:
    grade = graded(
        8, {}, ["import os; os._exit(1)"] * 9, replace(SMALL, forks=6, submission_s=60.0)
    )
    assert lost(grade) == set()
    assert "died" in grade.trouble


def test_a_wrong_answer_costs_processes_only_beside_a_cell_that_may_have_harmed_it() -> None:
    wrong = {1: "def f1(x): return 0"}
    assert graded(3, {}, []).forks == 1
    assert graded(3, wrong, []).forks == 1
    assert graded(3, wrong, ["one = 1"]).forks == 1
    assert graded(3, wrong, ["ones = [1]\nones.append(1)"]).forks == 3


ELSEWHERE = """total = 0
def f1(before, x):
    global total
    total = x if x == 0 else total + x
    return total"""
DIES = """import os
made = {0}
def f1(before, x):
    if before not in made: os._exit(1)
    made.add(before + x)
    return before + x"""


@pytest.mark.parametrize(
    ("answers", "loses", "forks"), [({}, set(), 3), ({1: ELSEWHERE}, {1}, 3), ({1: DIES}, {1}, 8)]
)
def test_answers_asked_in_two_processes_have_one_pair_until_it_breaks(
    answers: dict[int, str], loses: set[int], forks: int
) -> None:
    """The last one meets a new pair, and the one that died a second look."""

    def walk(answer: Answer, case: Case) -> Any:
        total, slug = 0, case.name
        for x in range(8):
            total = answer.call(slug, total, x)
        return total

    def one(i: int) -> Exercise:
        made = exercise(
            f"q{i}", f"f{i}", lambda a, x: a + x, lambda a, x: x, lambda rng: [Case(f"f{i}")]
        )
        return replace(made, observe=walk, relayed=True)

    asked = replace(assigned(3, 1.0), exercises={e.id: e for e in map(one, range(3))})
    right = {i: f"def f{i}(before, x): return before + x" for i in range(3)}
    made = cells({})[:1] + [answer_cell(f"q{i}", s) for i, s in (right | answers).items()]
    grade = SubmissionJudge(zygote(), asked, Benches(), LIMITS, 1, parse(dump(made))).grade()
    assert (lost(grade), grade.forks) == (loses, forks)


def test_an_answer_that_needs_a_helper_cell_is_judged_with_it_though_the_time_of_all_is_over() -> (
    None
):
    """Two answers eat what all have together; the third, with its own helper, still has its
    share."""
    answers = {0: hang(0), 1: hang(1), 2: "def f2(x): return helper(x)"}
    grade = graded(3, answers, ["def helper(x): return x + 1"], limit_s=1.5)
    assert lost(grade) == {0, 1}
    assert grade.questions[2].alone


def test_cells_of_answers_that_never_end_all_lose_and_nothing_else_happens() -> None:
    endless = {i: f"while True: pass\ndef f{i}(x): return x + 1" for i in range(6)}
    grade = graded(6, endless, limits=replace(SMALL, submission_s=2.0))
    assert {q.verdict.status for q in grade.questions} == {"failed"}


def test_a_bench_that_was_interrupted_is_made_again() -> None:
    endless = quick("endless", _for_ever, reference=lambda *a: 1)
    base = release()
    only = Release(TOPIC, {endless.id: endless}, base.locked, base.first, "a test")
    benches = Benches()
    before = benches.of(endless, 1)
    work = parse(dump([*cells({})[:1], answer_cell("endless", "def f(): return 0")]))
    grade = SubmissionJudge(zygote(), only, benches, SMALL, 1, work).grade()
    assert grade.questions[0].verdict.outcomes[0].error == "timeout"
    assert benches.of(endless, 1) is not before


# benches


def test_benches_keep_as_many_as_they_should_and_drop_the_one_longest_unused() -> None:
    one = quick("one", None, reference=lambda x: x)
    benches = Benches(keep=2)
    first = benches.of(one, "a")
    benches.of(one, "b")
    assert benches.of(one, "a") is first
    benches.of(one, "c")
    assert len(benches) == 2
    assert benches.of(one, "a") is first
    for seed in range(500):
        benches.of(one, seed)
    assert len(benches) == 2


def test_a_bench_is_made_for_the_exercise_and_not_for_its_name() -> None:
    benches = Benches()
    one, other = (
        quick("one", None, reference=lambda x: x),
        quick("one", None, reference=lambda x: x + 5),
    )
    assert benches.of(one, 1).expected == [0, 1, 2]
    assert benches.of(other, 1).expected == [5, 6, 7]


def test_a_bench_of_public_cases_has_no_other_and_is_never_empty() -> None:
    mixed = replace(
        quick("mixed", None, reference=lambda x: x),
        cases=lambda rng: [Case("a", (1,)), Case("b", (2,), public=False)],
    )
    assert [c.name for c in Bench(mixed, 1, public_only=True).cases] == ["a"]
    assert [c.name for c in Benches(public_only=True).of(mixed, 1).cases] == ["a"]
    hidden = replace(mixed, cases=lambda rng: [Case("b", (2,), public=False)])
    with pytest.raises(ValueError, match="no public case"):
        Bench(hidden, 1, public_only=True)
    with pytest.raises(ValueError, match="has no case"):
        Bench(replace(mixed, cases=lambda rng: []), 1)
    with pytest.raises(GraderFault, match="no public case"):
        Benches(public_only=True).of(hidden, 1)


def test_a_cell_that_breaks_the_process_leaves_other_exercises_their_ordinary_verdicts() -> None:
    """Wrong stays wrong and unwritten unwritten: what another cell killed is not called broken, and
    keeps its cases for partial credit."""
    made = cells(
        RIGHT
        | {
            "bytes": "def bytes_of(n_tokens, width):\n    return n_tokens * width",
            "softmax": STUBS["softmax"],
        }
    )
    made.insert(1, cell("import builtins\nbuiltins.max = lambda *a, **k: 0"))
    seen = {
        q.verdict.exercise_id.split("-")[1]: q.verdict.status for q in grade(dump(made)).questions
    }
    assert seen == {"bytes": "wrong", "counter": "right", "sampler": "right", "softmax": "not_yet"}
