"""What no answer may do, in this process and in a worker alike: keep something from one call to the
next, change what it is given, hand out what it goes on using."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from hostile.course import exercise, half

from twophase.checks import registry
from twophase.checks.answer import Asked, LocalAnswer, Twins, each
from twophase.checks.exercise import Case
from twophase.checks.judge import Bench, Verdict
from twophase.checks.key_order import in_other_order
from twophase.protocol import AnswerError
from twophase.protocol.arguments import LATELY, ArgumentGuard, lent
from twophase.protocol.invoke import guarded


def doubled(values: list[int]) -> list[int]:
    return [2 * v for v in values]


ONE = exercise("one", "f", doubled, half, lambda rng: [Case("one", ([1, 2],))])
TWO = exercise(
    "two",
    "f",
    doubled,
    half,
    lambda rng: [Case("one", ([1, 2],)), Case("two", ([3],))],
)


def judged(f: Callable[..., Any], exercise: Any = ONE) -> Verdict:
    return Bench(exercise).judge(LocalAnswer({"f": f}))


def counting(right: Callable[[int], bool]) -> Callable[..., Any]:
    """An answer that is right at the calls that `right` says, counted from 0."""
    calls: list[int] = []

    def f(values: list[int]) -> list[int]:
        calls.append(1)
        return doubled(values) if right(len(calls) - 1) else []

    return f


@pytest.mark.parametrize(("wrong_at", "cases"), [(0, ONE), (1, ONE), (0, TWO), (1, TWO), (2, TWO)])
def test_an_answer_that_is_wrong_at_one_of_its_first_calls_is_wrong(
    wrong_at: int, cases: Any
) -> None:
    assert not judged(counting(lambda n: n != wrong_at), cases).right
    assert judged(counting(lambda n: True), cases).right


def test_a_case_that_goes_wrong_when_it_comes_again_says_so() -> None:
    said = judged(counting(lambda n: n < 1)).message
    assert said.startswith("Case “one”: right at first, and wrong when asked once more: ")


def test_an_answer_that_goes_on_using_what_it_returned_is_told() -> None:
    shared: list[int] = []

    def f(values: list[int]) -> list[int]:
        shared[:] = doubled(values)
        return shared

    assert judged(f, ONE).right  # asked for the same twice, it cannot be told
    said = judged(f, TWO).message
    assert "f returned the same object as the time before" in said


def test_another_function_is_not_told_of_what_this_one_goes_on_using() -> None:
    """In the official worker all exercises' functions have one guard."""
    shared: list[int] = []

    def f(n: int) -> list[int]:
        shared.append(n)
        return shared

    calls = ArgumentGuard()
    calls.function("f", f, ((1,), {}))
    calls.function("uses_f", lambda n: len(f(n)), ((2,), {}))
    for n in (3, 4):
        with suppress(AnswerError):
            calls.function("f", f, ((n,), {}))
        calls.function("g", lambda n: [n], ((n,), {}))


def test_equal_arguments_are_the_same_objects_the_next_time() -> None:
    met: list[int] = []
    calls = ArgumentGuard()
    for values in ([1, 2], [1, 2], [3]):
        calls.function("f", lambda v: met.append(id(v)), ((values,), {}))
    assert met[0] == met[1] != met[2]


def test_calls_of_one_function_leave_room_for_those_of_another() -> None:
    """The official worker has one guard for all exercises of a notebook."""
    met: list[int] = []
    calls = ArgumentGuard()
    for n in range(100):
        calls.function("first", len, (([n],), {}))
    for values in ([1, 2], [1, 2]):
        calls.function("second", lambda v: met.append(id(v)), ((values,), {}))
    assert met[0] == met[1]


def test_an_argument_that_changes_is_named() -> None:
    def f(first: list[int], second: dict[str, int]) -> None:
        second["new"] = 1

    with pytest.raises(AnswerError, match="f changed its argument second: "):
        ArgumentGuard().function("f", f, (([1], {}), {}))


CHANGED_LATER = "had returned, your code went on to change what it had been given"


def test_an_argument_that_is_kept_and_changed_in_a_later_call_is_told() -> None:
    kept: list[list[int]] = []

    def f(values: list[int]) -> int:
        if kept:
            kept[0].append(0)  # the first caller's list
        kept.append(values)
        return len(values)

    answer = LocalAnswer({"f": f})
    assert answer.call("f", [1, 2]) == 2
    with pytest.raises(AnswerError, match=f"after f {CHANGED_LATER}"):
        answer.call("f", [3])


def test_an_argument_that_changes_long_after_is_told_when_it_is_handed_over_again() -> None:
    kept: list[list[int]] = []

    def f(values: list[int]) -> int:
        kept.append(values)
        if len(kept) == 2 * LATELY:
            kept[0].append(0)
        return len(values)

    answer = LocalAnswer({"f": f})
    assert {answer.call("f", [i]) for i in range(2 * LATELY)} == {1}
    with pytest.raises(AnswerError, match=f"after f {CHANGED_LATER}"):
        answer.call("f", [0])


class Adopts:
    """The first list becomes its own; a later call, of whatever kind, writes into it."""

    def __init__(self) -> None:
        self.held: list[int] | None = None

    def append(self, values: list[int]) -> list[int]:
        if self.held is None:
            self.held = values
        else:
            self.held += values
        return self.held

    def reset(self) -> None:
        if self.held:
            self.held.clear()

    def pad(self, n: int) -> None:
        if self.held:
            self.held += [0] * n


@pytest.mark.parametrize("later", [("append", [3]), ("reset",), ("pad", 2)])
def test_an_object_that_adopts_what_it_was_given_is_told_though_it_returned_it(later: Any) -> None:
    adopts = LocalAnswer({"Adopts": Adopts}).new("Adopts")
    assert adopts.call("append", [1, 2]) == [1, 2]
    with pytest.raises(AnswerError, match=f"after append {CHANGED_LATER}"):
        adopts.call(*later)
    assert adopts.call("append", []) is not None  # it is told once


def test_a_state_that_comes_back_may_be_changed_though_it_was_an_argument_once() -> None:
    def grow(state: list[int], token: int | None) -> list[int]:
        if token is not None:
            state.append(token)
        return state

    answer = LocalAnswer({"grow": grow})
    state = answer.call("grow", [7], None)
    for token in (None, 1, 2, 3):
        state = answer.call("grow", state, token)
    assert state == [7, 1, 2, 3]


def test_a_state_that_it_returned_may_be_kept_and_changed_in_a_later_call() -> None:
    """A fresh copy of it is handed over then, not the changed one."""
    kept: list[list[int]] = []

    def grow(state: list[int]) -> list[int]:
        for old in kept:
            old.append(0)
        kept[:] = [state]
        return [*state, 1]

    answer = LocalAnswer({"start": lambda: [7], "grow": grow})
    first = answer.call("start")
    assert answer.call("grow", first) == [7, 1]
    assert answer.call("grow", [7, 1]) == [7, 1, 1]
    assert answer.call("grow", first) == [7, 1]


def test_an_argument_that_doubles_at_every_depth_is_a_change_that_is_told_at_once() -> None:
    """Written out, such a list is larger than any memory."""

    def f(values: list[Any]) -> None:
        for _ in range(31):
            values[:] = [list(values)] * 2

    with pytest.raises(AnswerError, match="f changed its argument values: "):
        ArgumentGuard().function("f", f, (([1],), {}))


class Pair(NamedTuple):
    first: list[int]
    second: int


def test_a_named_tuple_is_guarded_as_the_tuple_that_it_arrives_as() -> None:
    def swaps(values: list[Any]) -> None:
        values[0] = Pair(*values[0])

    with pytest.raises(AnswerError, match="swaps changed its argument values: "):
        LocalAnswer({"swaps": swaps}).call("swaps", [([1], 2)])
    kept = Pair([1], 2)

    def keeps(n: int) -> Pair:
        kept.first.append(n)
        return kept

    answer = LocalAnswer({"keeps": keeps})
    assert answer.call("keeps", 7) == ([1, 7], 2)
    with pytest.raises(AnswerError, match="keeps returned the same object as the time before"):
        answer.call("keeps", 8)

    def adds(state: Any) -> Any:  # what it returned itself it may change
        state[0].append(3)
        return Pair(*state)

    state = LocalAnswer({"starts": lambda: Pair([1], 2), "adds": adds})
    assert state.call("adds", state.call("adds", state.call("starts"))) == ([1, 3, 3], 2)


def test_what_a_function_only_lent_must_be_left_as_it_was() -> None:
    def f(read: Callable[[], list[int]]) -> int:
        return read().pop()

    def see(read: Callable[[], list[int]]) -> int:
        return LocalAnswer({"f": f}).call("f", read)  # type: ignore[no-any-return]

    assert see(lambda: [1, 2]) == 2
    with pytest.raises(AnswerError, match="f changed what read returned: "):
        see(lent(lambda: [1, 2]))


class Own:
    def __init__(self) -> None:
        self.held: list[int] = []

    def append(self, v: int) -> list[int]:
        self.held.append(v)
        return self.held


class Shared(Own):
    everything: list[int] = []  # noqa: RUF012  the mistake

    def __init__(self) -> None:
        self.held = self.everything
        self.held.clear()


def test_two_objects_that_share_their_state_are_wrong() -> None:
    def see(answer: Any, case: Case) -> Any:
        made = answer.new("Held")
        return [made.call("append", v) for v in case.args[0]]

    def cases(rng: Any) -> list[Case]:
        return [Case("two", ([1, 2],))]

    held = exercise("held", "Held", Own, half, cases, observe=see)
    assert Bench(held).judge(LocalAnswer({"Held": Own})).right
    assert "asked once more" in Bench(held).judge(LocalAnswer({"Held": Shared})).message


def test_the_second_time_one_thing_is_asked_after_the_other_though_many_could_be_at_once() -> None:
    """So an answer that is right only where it is asked for several things at once is wrong."""
    asked: list[Any] = []

    class Many:
        """An answer's object in another process."""

        def call(self, method: str, *args: Any) -> str:
            asked.append(method)
            return method

        def get(self, attribute: str) -> str:
            asked.append(attribute)
            return attribute

        def each(self, *together: Asked) -> list[Any]:
            asked.append(together)
            return ["table", "length"]

    class Makes:
        def new(self, name: str) -> Many:
            return Many()

    things = ("table", 0), "length"
    assert each(Makes().new("One"), *things) == ["table", "length"]
    assert asked == [things]
    asked.clear()
    answer: Any = Makes()
    assert each(Twins(answer).new("One"), *things) == ["table", "length"]
    assert asked == ["table", "table", "length"]


def test_what_needs_no_arguments_is_asked_once_for_all_cases_and_once_more() -> None:
    def cases(rng: Any) -> list[Case]:
        return [Case("first"), Case("second"), Case("third")]

    calls: list[int] = []

    def f() -> int:
        calls.append(1)
        return 7

    def counts() -> int:
        calls.append(1)
        return len(calls)

    given = exercise("given", "f", lambda: 7, half, cases)
    assert judged(f, given).right
    assert len(calls) == 3  # for three cases, for the last once more, for the first once more
    assert not judged(counts, given).right


@pytest.mark.more
@pytest.mark.parametrize("topic", registry.topics())
def test_no_known_mistake_passes_where_nobody_looks_at_arguments(
    topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submission can take that look out of its own process: its values are judged all the
    same."""
    monkeypatch.setattr(ArgumentGuard, "made", lambda self, called, f, given: guarded(f, *given))
    for exercise_id in registry.ids(topic):
        bench = Bench(registry.load(exercise_id), 1)
        for wrong in bench.exercise.misconceptions:
            answer = LocalAnswer(bench.exercise.namespace(wrong.answer))
            assert not bench.judge(answer, whole=False).right, (exercise_id, wrong.slug)


def product(model: dict[str, int], times: list[dict[str, int]]) -> int:
    return model["L"] * 10 + model["D"] + sum(one["a"] - one["b"] for one in times)


def by_position(model: dict[str, int], times: list[dict[str, int]]) -> int:
    layers, width = model.values()
    return layers * 10 + width + sum(one["a"] - one["b"] for one in times)


def deep_by_position(model: dict[str, int], times: list[dict[str, int]]) -> int:
    return model["L"] * 10 + model["D"] + sum(a - b for a, b in (one.values() for one in times))


NAMED = exercise(
    "named",
    "f",
    product,
    half,
    lambda rng: [
        Case("one", ({"L": 1, "D": 2}, [])),
        Case("two", ({"L": 3, "D": 4},), {"times": [{"a": 1, "b": 5}]}),
    ],
)


def test_an_answer_that_counts_on_the_order_of_a_dicts_keys_is_wrong_and_told_so() -> None:
    assert judged(product, NAMED).right
    for wrong in (by_position, deep_by_position):
        verdict = judged(wrong, NAMED)
        assert not verdict.right
        assert "right at first, and wrong when asked with the keys of a dict in another order" in (
            verdict.message
        )


def test_what_an_answer_keeps_is_not_taken_for_a_matter_of_keys() -> None:
    calls: list[int] = []

    def f(model: dict[str, int], times: list[dict[str, int]]) -> int:
        calls.append(1)
        return product(model, times) if len(calls) <= 2 else 0

    assert "wrong when asked once more" in judged(f, NAMED).message


def test_only_dicts_of_named_fields_are_turned_and_nothing_else_is_made_anew() -> None:
    table, numbers = {3: "a", 1: "b"}, [1, 2]
    case = Case("one", (table, numbers), {"x": {"only": 1}})
    assert in_other_order(case) is case
    case = Case("two", (numbers, [{"b": numbers, "a": {1: {"d": 1, "c": 2}}}]))
    other = in_other_order(case)
    assert other.args == case.args
    assert other.args[0] is numbers
    assert list(other.args[1][0]) == ["a", "b"]
    assert list(other.args[1][0]["a"][1]) == ["c", "d"]
