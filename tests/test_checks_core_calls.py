"""What a failing public case asked is shown as Python that gives the same again; of a case that is
not shown, nothing is told."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hostile.course import EXERCISES, TOPIC, Forgetful, half, release, sample_unnormalized
from hypothesis import given
from hypothesis import strategies as st

from twophase.checks import calls
from twophase.checks.answer import LocalAnswer
from twophase.checks.calls import Calls, source
from twophase.checks.compare import EXACT, difference
from twophase.checks.judge import Bench, Verdict
from twophase.grading.reports import feedback
from twophase.grading.results.records import blank
from twophase.protocol import NotYet


def judged(slug: str, names: dict[str, Any]) -> Verdict:
    return Bench(EXERCISES[f"{TOPIC}-{slug}"], seed=1).judge(LocalAnswer(names))


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda x: (
        st.lists(x, max_size=4)
        | st.dictionaries(st.text(max_size=4), x, max_size=4)
        | st.tuples(x, x)
        | st.tuples(x)
    ),
    max_leaves=12,
)


@given(plain)
def test_a_small_value_is_written_as_python_that_makes_it_again(value: Any) -> None:
    again = eval(source(value))
    assert type(again) is type(value)
    assert repr(again) == repr(value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 2), (4, 8)])
def test_a_small_array_is_written_with_its_dtype(dtype: torch.dtype, shape: tuple[int]) -> None:
    tensor = (torch.arange(math.prod(shape)).reshape(shape) / 3).to(dtype)
    again = eval(source(tensor))
    assert again.dtype == dtype
    assert torch.equal(again, tensor)
    if dtype != torch.bfloat16:
        assert np.array_equal(eval(source(tensor.numpy())), tensor.numpy())


def test_what_is_large_is_named_by_shape_and_dtype() -> None:
    assert source(torch.zeros(64, 64)) == "<a torch tensor of shape [64, 64], float32>"
    assert source(list(range(5_000))) == "<a list of 5,000: 0, 1, 2, 3, ...>"
    assert len(source("x" * 10**6)) < 100
    assert source(lambda: 1) == "<a function>"


def test_the_calls_of_an_object_are_shown_in_order_and_give_what_was_wrong() -> None:
    seen = judged("counter", {"Counter": Forgetful})
    (failed,) = [o for o in seen.outcomes if not o.right]
    lines = failed.inputs.splitlines()
    assert lines[0].startswith("counter = Counter(")
    assert lines[1:] == ["counter.add(1)", "counter.add(2)", "counter.add(-1)"]
    names: dict[str, Any] = {"Counter": Forgetful}
    exec("\n".join(lines[:-1]), names)  # the last one is refused
    assert names["counter"].total == 3


def test_a_callback_is_named_and_one_call_that_is_repeated_stands_once() -> None:
    seen = judged("sampler", {"sample": sample_unnormalized})
    for failed in (o for o in seen.outcomes if not o.right):
        assert failed.inputs.count("sample(<a function>, [") == 1


def test_what_the_check_changes_afterwards_is_shown_as_it_was() -> None:
    noted = Calls(LocalAnswer({"f": lambda x: 0}))
    growing = [1]
    noted.call("f", growing)
    growing.append(2)
    noted.call("f", x=growing)
    assert noted.text() == "f([1])\nf(x=[1, 2])"
    for n in range(calls.MOST_CALLS):
        noted.call("f", n)
    assert noted.text().endswith("# and 2 more calls")


def test_an_object_of_the_answer_goes_back_to_it_as_itself() -> None:
    class One:
        def same(self, others: Any) -> bool:
            return others[0] is self

    noted = Calls(LocalAnswer({"One": One}))
    one = noted.new("One")
    assert one.call("same", [one])
    assert noted.text() == "one = One()\none.same([one])"


def test_only_failing_public_cases_have_inputs() -> None:
    seen = judged("bytes", {"bytes_of": half})
    assert {o.public for o in seen.outcomes} == {True, False}
    for o in seen.outcomes:
        assert bool(o.inputs) == (o.public and not o.right)
    bench = Bench(EXERCISES[f"{TOPIC}-bytes"], seed=1)
    for o, case, expected in zip(seen.outcomes, bench.cases, bench.expected, strict=True):
        if o.inputs:
            assert eval(o.inputs, {"bytes_of": half}) * 2 == expected
            assert difference(eval(o.inputs, {"bytes_of": lambda *a: a}), case.args, EXACT) is None


def right_but(raises: Any) -> Any:
    """Right on the public cases of `bytes`; on the others it raises what tells their inputs."""
    cases = Bench(EXERCISES[f"{TOPIC}-bytes"], seed=1).cases
    public = [c.args for c in cases if c.public]

    def bytes_of(*args: int) -> int:
        if args not in public:
            raise raises(f"SECRET {args}")
        return 2 * args[0] * args[1]

    return bytes_of


@pytest.mark.parametrize("raises", [NotYet, ValueError, KeyError])
def test_an_answer_cannot_tell_what_a_case_asks_that_is_not_shown(raises: Any) -> None:
    seen = judged("bytes", {"bytes_of": right_but(raises)})
    assert not seen.right
    assert "SECRET" not in seen.message
    assert "not shown" in seen.message


def test_a_right_answer_is_right_through_the_notes_as_well() -> None:
    for exercise in release().exercises.values():
        for case in exercise.make_cases(1):
            answer = LocalAnswer(exercise.namespace(exercise.reference))
            noted = Calls(answer)
            seen = exercise.look(noted, case)
            assert difference(seen, exercise.look(answer, case), exercise.compare) is None
            assert noted.text()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_float_is_written_with_the_digits_that_its_dtype_has(dtype: torch.dtype) -> None:
    values = torch.linspace(-3, 3, 29, dtype=torch.float64).exp().to(dtype)
    assert torch.equal(eval(source(values)), values)
    assert len(source(values)) < 16 * len(values)


def _page(question: dict[str, object]) -> str:
    """The part of a submission's page that is about its only question."""
    judged = {"status": "ok", "topic": "x", "points": 0, "out_of": 2, "questions": [question]}
    return feedback.page(blank("a.ipynb", 1) | judged).partition("</style>")[2]


def test_the_page_shows_the_calls_escaped_and_none_of_a_case_that_is_not_shown() -> None:
    cases = [
        {"case": "one", "public": True, "right": False, "message": "no", "inputs": "f('<b>')"},
        {"case": "SECRET", "public": False, "right": False, "message": "SECRET", "inputs": ""},
    ]
    question = {"id": "x-y", "title": "T", "points": 0, "out_of": 2, "message": "no"}
    question |= {"misconception": None, "hint": "", "cell": {"error": "", "output": ""}}
    for status in ("wrong", "failed"):
        page = _page(question | {"status": status, "cases": cases})
        assert "f(&#39;&lt;b&gt;&#39;)" in page
        assert "<b>" not in page
        assert "SECRET" not in page
        assert "1 more case is not shown." in page


def test_the_page_opens_with_the_first_wrong_cases_and_folds_all_others() -> None:
    rights = [True, False, False, True, False, False]
    cases = [{"case": f"case {n}", "public": True, "right": right, "message": "no",
              "inputs": f"f({n})"} for n, right in enumerate(rights)]  # fmt: skip
    question = {"id": "x-y", "title": "T", "points": 0, "out_of": 2, "message": "no"}
    question |= {"misconception": None, "hint": "", "cell": {"error": "", "output": ""}}
    page = _page(question | {"status": "wrong", "cases": cases})
    shown, folded = page.split("<details>")
    assert [f"f({n})" in shown for n in range(6)] == [False, True, True, False, True, False]
    assert [f"f({n})" in folded for n in range(6)] == [True, False, False, True, False, True]
    assert "<summary>3 other cases: 2 right, 1 not</summary>" in folded
    few = _page(question | {"status": "wrong", "cases": cases[1:3]})
    assert "<details>" not in few
