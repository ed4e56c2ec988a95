"""The judge: verdicts, names of misconceptions, callbacks and handles, whatever the answer does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hostile.course import (
    EXERCISES,
    TOPIC,
    Counter,
    Forgetful,
    bytes_of,
    exercise,
    half,
    sample,
    sample_unnormalized,
    softmax,
)

from twophase.checks import prove
from twophase.checks.answer import LocalAnswer, outcome, refuses
from twophase.checks.exercise import Case, Misconception
from twophase.checks.judge import Bench, Verdict
from twophase.protocol import AnswerError, NotYet
from twophase.protocol.errors import JudgeFault


def verdict(slug: str, **names: Any) -> Verdict:
    return Bench(EXERCISES[f"{TOPIC}-{slug}"], seed=1).judge(LocalAnswer(names))


@pytest.mark.parametrize(
    ("slug", "names"),
    [
        ("bytes", {"bytes_of": bytes_of}),
        ("counter", {"Counter": Counter}),
        ("sampler", {"sample": sample}),
        ("softmax", {"softmax": softmax}),
    ],
)
def test_a_right_answer_gets_all_points(slug: str, names: dict[str, Any]) -> None:
    seen = verdict(slug, **names)
    assert (seen.status, seen.points, seen.out_of) == ("right", 2, 2)
    assert all(o.right for o in seen.outcomes)


@pytest.mark.parametrize(
    ("slug", "names", "called"),
    [
        ("bytes", {"bytes_of": half}, "half"),
        ("counter", {"Counter": Forgetful}, "Forgetful"),
        ("sampler", {"sample": sample_unnormalized}, "sample_unnormalized"),
        ("softmax", {"softmax": np.exp}, "exp"),
    ],
)
def test_a_misconception_gets_its_name_and_no_points(
    slug: str, names: dict[str, Any], called: str
) -> None:
    seen = verdict(slug, **names)
    assert (seen.status, seen.points, seen.misconception) == ("wrong", 0, called)
    assert seen.message == f"This is {called}."


def raising(kind: type[Exception]) -> Any:
    def bytes_of(n_tokens: int, width: int) -> int:
        if n_tokens * width == 1:
            return 2
        raise kind("odd")

    return bytes_of


@pytest.mark.parametrize(
    ("kind", "named"),
    [(ValueError, "raises"), (KeyError, None), (NameError, None), (UnboundLocalError, None)],
)
def test_an_error_names_a_misconception_that_raises_it_too_unless_it_is_a_slip(
    kind: type[Exception], named: str | None
) -> None:
    """A name that is not defined says nothing of what somebody thought, whatever raises it."""
    wrong = NameError if issubclass(kind, NameError) else ValueError
    raises = Misconception("raises", raising(wrong), "plausible", "This is raises.")
    bench = Bench(replace(EXERCISES[f"{TOPIC}-bytes"], misconceptions=(raises,)), seed=1)
    seen = bench.judge(LocalAnswer({"bytes_of": raising(kind)}))
    assert (seen.status, seen.misconception) == ("wrong", named)


def test_what_raises_on_every_case_is_named_by_nothing() -> None:
    def raises(n_tokens: int, width: int) -> int:
        raise RuntimeError

    also = Misconception("raises", raises, "plausible", "This is raises.")
    bench = Bench(replace(EXERCISES[f"{TOPIC}-bytes"], misconceptions=(also,)), seed=1)
    assert bench.judge(LocalAnswer({"bytes_of": raises})).misconception is None
    assert "without its name" in prove.misconceptions(bench)  # so no check can have such a one


def test_a_wrong_answer_that_agrees_with_no_misconception_is_shown_its_smallest_failing_case() -> (
    None
):
    seen = verdict(
        "bytes",
        bytes_of=lambda n_tokens, width: 2 * n_tokens * width if n_tokens == width == 1 else 0,
    )
    assert (seen.status, seen.misconception) == ("wrong", None)
    assert seen.message.startswith("Case “fresh 0”: the answer is 0, expected")


def _raise(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [
        (lambda *a: _raise(NotYet("x")), "not_yet", "x is not written yet"),
        (lambda *a: _raise(ValueError("odd")), "wrong", "ValueError: odd"),
        (lambda *a: _raise(SystemExit(0)), "wrong", "SystemExit"),
        (lambda *a: object(), "wrong", "not plain data"),
        (lambda *a: None, "wrong", "should be a number"),
        (lambda: 1, "wrong", "TypeError"),
        (7, "missing", "is of type int, not something to call"),
        (None, "missing", "is not defined"),
    ],
)
def test_what_gives_no_value_is_judged_all_the_same(answer: Any, status: str, says: str) -> None:
    seen = verdict("bytes", bytes_of=answer)
    assert (seen.status, seen.points) == (status, 0)
    assert says in seen.message


def test_ctrl_c_is_the_readers_own_and_passes() -> None:
    with pytest.raises(KeyboardInterrupt):
        verdict("bytes", bytes_of=lambda *a: _raise(KeyboardInterrupt()))


def test_an_answer_cannot_change_the_case_that_it_is_given() -> None:
    def spoils(x: Any) -> Any:
        right = softmax(x)
        x[:] = 0
        return right

    bench = Bench(EXERCISES[f"{TOPIC}-softmax"], seed=1)
    before = bench.cases[0].args[0].copy()
    seen = bench.judge(LocalAnswer({"softmax": spoils}))
    assert seen.message.endswith(
        "softmax changed its argument x: what it is given belongs to the caller; work on a copy"
    )
    assert (bench.cases[0].args[0] == before).all()


def test_an_answer_may_change_what_it_returned_itself() -> None:
    def see(answer: Any, case: Case) -> Any:
        state = answer.call("start", 0)
        for _ in range(3):
            state = answer.call("step", state)
        return state

    def grow(state: dict[str, int]) -> dict[str, int]:
        state["n"] += 1
        return state

    names = {"start": lambda n: {"n": n}, "step": grow}
    counts = exercise("counts", "start", names, half, lambda rng: [Case("three")], observe=see)
    assert Bench(counts).judge(LocalAnswer(names)).right


def test_whether_an_answer_is_right_is_known_at_its_first_wrong_case() -> None:
    three = exercise(
        "one-more",
        "f",
        lambda x: x + 1,
        lambda x: x,
        lambda rng: [Case(f"{x}", (x,)) for x in range(3)],
    )
    called: list[int] = []

    def wrong_from_one(x: int) -> int:
        called.append(x)
        return 1

    bench = Bench(three, 1)
    assert not bench.judge(LocalAnswer({"f": wrong_from_one}), whole=False).right
    assert called == [0, 1]
    right = LocalAnswer({"f": lambda x: x + 1})
    assert bench.judge(right, whole=False) == bench.judge(right)
    assert bench.judge(right).right


def test_data_that_the_check_trips_over_is_the_answers_fault_and_not_a_crash() -> None:
    tripping = exercise(
        "trip",
        "f",
        lambda: {"a": 1},
        lambda: {"a": 2},
        lambda rng: [Case("one")],
        observe=lambda a, c: a.call("f")["a"],
    )
    seen = Bench(tripping, 1).judge(LocalAnswer({"f": lambda: None}))
    assert (seen.status, seen.outcomes[0].error) == ("wrong", "unusable")


def test_a_message_stays_short_whatever_the_answer_returned() -> None:
    keyed = exercise("keyed", "f", lambda: {"a": 1}, lambda: {"a": 2}, lambda rng: [Case("one")])
    seen = Bench(keyed, 1).judge(LocalAnswer({"f": lambda: {"k" * 10**6: 1, "a": 1}}))
    assert seen.message.startswith("Case “one”: the answer has the unexpected key")
    assert len(seen.message) < 1000


def test_the_judges_own_fault_is_not_taken_for_the_answers() -> None:
    def observe(answer: Any, case: Case) -> Any:
        if answer.call("f") == 0:
            raise JudgeFault("the disk is full")
        return 1

    faulty = exercise(
        "fault", "f", lambda: 1, lambda: 2, lambda rng: [Case("one")], observe=observe
    )
    with pytest.raises(JudgeFault):
        Bench(faulty, 1).judge(LocalAnswer({"f": lambda: 0}))


def test_arguments_may_hold_functions_in_lists_and_dicts() -> None:
    answer = LocalAnswer({"f": lambda fs, named: [g(2) for g in fs] + [named["h"](3)]})
    assert answer.call("f", [lambda x: x + 1, lambda x: x * 5], {"h": lambda x: -x}) == [3, 10, -3]


def test_a_handle_given_as_an_argument_is_its_object() -> None:
    answer = LocalAnswer({"Counter": Counter, "f": lambda c: c.add(5)})
    counter = answer.new("Counter", 1)
    assert answer.call("f", counter) == 6
    assert counter.get("total") == 6


def test_raising_is_seen_by_its_class_and_a_stub_is_not_a_refusal() -> None:
    answer = LocalAnswer(
        {"f": lambda: _raise(UnicodeError("no")), "g": lambda: 1, "h": lambda: _raise(NotYet("x"))}
    )
    assert outcome(lambda: answer.call("f")) == {"raised": ["UnicodeError", "ValueError"]}
    assert refuses(lambda: answer.call("f"))
    assert not refuses(lambda: answer.call("f"), "KeyError")
    assert not refuses(lambda: answer.call("g"))
    with pytest.raises(AnswerError, match="not written yet"):
        refuses(lambda: answer.call("h"))


def test_a_value_far_larger_than_asked_for_is_judged_and_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("twophase.checks.modest.LARGEST_KEPT", 100)
    large = [[1]] * 200
    for wrong in (
        large,
        {i: i for i in range(200)},
        np.zeros(10_000),
        "x" * 10_000,
        [b"x" * 10_000],
    ):
        made = exercise(
            "large", "f", lambda: 1, lambda wrong=wrong: wrong, lambda rng: [Case("one")]
        )
        seen = Bench(made, 1).judge(LocalAnswer({"f": lambda wrong=wrong: wrong}))
        assert (seen.status, seen.misconception, seen.outcomes[0].right) == ("wrong", None, False)
    right = exercise("large", "f", lambda: large, lambda: 2, lambda rng: [Case("one")])
    assert Bench(right, 1).judge(LocalAnswer({"f": lambda: large})).right


def test_a_comparison_that_fails_on_an_answers_data_is_the_answers_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*args: Any) -> Any:
        raise MemoryError

    made = exercise("full", "f", lambda: 1, lambda: 2, lambda rng: [Case("one")])
    bench = Bench(made, 1)
    monkeypatch.setattr("twophase.checks.judge.difference", full)
    seen = bench.judge(LocalAnswer({"f": lambda: 3}))
    assert (seen.status, seen.misconception, seen.outcomes[0].error) == ("wrong", None, "unusable")


def test_an_exception_that_cannot_be_printed_stops_nothing() -> None:
    def observe(answer: Any, case: Case) -> Any:
        return {}[answer.call("f") ** 40]

    made = exercise(
        "huge", "f", lambda: 1, lambda: 2, lambda rng: [Case("one")], observe=lambda a, c: 1
    )
    bench = Bench(made, 1)
    object.__setattr__(made, "observe", observe)
    seen = bench.judge(LocalAnswer({"f": lambda: 10**1000}))
    assert (seen.status, seen.outcomes[0].error) == ("wrong", "unusable")
