"""Writing wrong answers down: slugs, records, one part replaced, edges."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest
from hostile.course import EXERCISES, TOPIC

from twophase.checks.edges import one_less_and_just_full, past, places, put
from twophase.checks.misconceptions import Misconceptions, replaced

OFFSET = 1


def right(width: int, n_tokens: int) -> int:
    """The right answer."""
    return max(0, (width - OFFSET) // n_tokens)


class Right:
    def __init__(self, room: int) -> None:
        self.room = room

    def fits(self, n: int) -> bool:
        return n <= self.room


def test_a_misconception_is_called_as_its_function_or_class_and_these_stay_what_they_are() -> None:
    wrong = Misconceptions()

    @wrong("plausible", "You rounded up.")
    def rounded_up() -> int:
        return 1

    @wrong("a blog", "One at a time.", entry="Cache")
    class OneTokenAtATime:
        pass

    wrong.add("left_out", {"n": 1}, "a lecture", "It is left out.")
    assert [(m.slug, m.seen, m.says) for m in wrong] == [
        ("rounded_up", "plausible", "You rounded up."),
        ("one_token_at_a_time", "a blog", "One at a time."),
        ("left_out", "a lecture", "It is left out."),
    ]
    assert rounded_up() == 1
    assert wrong[0].answer is rounded_up
    assert wrong[1].answer == {"Cache": OneTokenAtATime}


def test_what_a_wrong_answer_leaves_out_is_the_references() -> None:
    exercise = replace(
        EXERCISES[f"{TOPIC}-bytes"], entries=("a", "b"), reference={"a": max, "b": min}
    )
    assert exercise.namespace({"a": sum}) == {"a": sum, "b": min}
    assert exercise.namespace(exercise.reference) == {"a": max, "b": min}


def test_a_replaced_part_changes_the_copy_alone() -> None:
    upward = replaced(right, {"max(0, ": "max(1, ", "- OFFSET": "+ OFFSET"})
    assert (right(0, 1), right(9, 2)) == (0, 4)
    assert (upward(-5, 1), upward(9, 2)) == (1, 5)
    assert "max(1, " in inspect.getsource(upward)
    again = replaced(upward, {"max(1, ": "max(2, "})
    assert again(0, 1) == 2
    strict = replaced(Right, {"n <= self": "n < self"})
    assert (Right(2).fits(2), strict(2).fits(2)) == (True, False)


@pytest.mark.parametrize("old", ["min(", "width"])
def test_a_part_that_does_not_stand_exactly_once_is_refused(old: str) -> None:
    with pytest.raises(ValueError, match="times in right; quote a part"):
        replaced(right, {old: "x"})


def test_edges_are_what_their_names_say() -> None:
    assert one_less_and_just_full(40) == (39, 40, 41)
    assert past(64, 2048) == 2053
    assert (places(1), places(2), places(9)) == ((0,), (0, 1), (0, 4, 8))
    assert put([1, 2, 3], 2, 9) == [1, 2, 9]
