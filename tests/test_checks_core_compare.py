"""The comparison: right is right, wrong is one sentence, and no plain value makes it raise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from twophase.checks.compare import EXACT, Tolerance, difference
from twophase.checks.compare import plain as as_plain
from twophase.protocol import roundtrip

LOOSE = Tolerance(rtol=1e-6)

parts = (
    st.none()
    | st.booleans()
    | st.integers(-(2**2000), 2**2000)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | hnp.arrays(
        st.sampled_from([np.dtype(t) for t in ("bool", "int64", "float32")]),
        hnp.array_shapes(min_dims=0, min_side=0),
    )
    | st.builds(torch.tensor, st.lists(st.floats(width=32), max_size=3))
    | st.sets(st.integers(-9, 9), max_size=3)
)
plain = st.recursive(
    parts,
    lambda x: st.lists(x, max_size=3) | st.tuples(x, x) | st.dictionaries(st.text(max_size=3), x),
    max_leaves=8,
)


@given(plain, plain)
def test_any_two_plain_values_can_be_compared(observed: Any, expected: Any) -> None:
    said = difference(observed, expected, LOOSE)
    assert said is None or (isinstance(said, str) and said)


@given(plain)
def test_every_value_equals_its_own_copy(value: Any) -> None:
    assert difference(roundtrip(value), value, EXACT) is None


@pytest.mark.parametrize(
    ("observed", "expected", "tolerance"),
    [
        (7, 7, EXACT),
        (7.0, 7, LOOSE),
        (7, 7.0, EXACT),
        (np.int64(7), 7, EXACT),
        (np.float32(0.5), 0.5, EXACT),
        (torch.tensor(7), 7, EXACT),
        (np.array(3.0), 3.0, EXACT),
        (7, np.array(7), EXACT),
        (7, torch.tensor(7), EXACT),
        (math.nan, math.nan, EXACT),
        (-math.inf, -math.inf, EXACT),
        ([1, 2], (1, 2), EXACT),
        (1.0 + 1e-9, 1.0, LOOSE),
        (np.ones(3, np.float32), np.ones(3), LOOSE),
        (np.array([math.nan, math.inf]), np.array([math.nan, math.inf]), EXACT),
        (True, True, EXACT),
        (np.bool_(True), True, EXACT),
        (torch.zeros(0), torch.zeros(0), EXACT),
        pytest.param(2**3000, 2**3000, LOOSE, id="a number that no float holds"),
    ],
)
def test_right_answers_are_right(observed: Any, expected: Any, tolerance: Tolerance) -> None:
    assert difference(observed, expected, tolerance) is None


@pytest.mark.parametrize(
    ("observed", "expected", "tolerance", "says"),
    [
        (True, 1, EXACT, "should be a number"),
        (7.0, 7, EXACT, "should be a whole number, an int, and is the float 7.0"),
        (
            {"s": 1.0, "n": 7.0},
            {"s": 1.0, "n": 7},
            Tolerance(whole=True),
            "'n' should be a whole number, an int",
        ),
        (np.float64(7), 7, EXACT, "the float 7.0"),
        (torch.tensor(7.0), 7, EXACT, "the float 7.0"),
        (np.array([1.0, -0.0]), np.array([1.0, 0.0]), EXACT, "it has -0, expected 0"),
        (torch.tensor([0.0]), torch.tensor([-0.0]), EXACT, "it has 0, expected -0"),
        (1, True, EXACT, "expected True"),
        ("7", 7, EXACT, "should be a number"),
        (math.nan, 1.0, LOOSE, "nan"),
        (1.0, math.nan, LOOSE, "nan"),
        (math.inf, 1e308, Tolerance(rtol=1e9), "inf"),
        (1e308, math.inf, Tolerance(rtol=1e9), "inf"),
        pytest.param(2**3000, 1.5, LOOSE, "expected 1.5", id="a number that no float holds"),
        (1.1, 1.0, LOOSE, "is 1.1, expected 1"),
        (0.4838709, 0.4838710, EXACT, "is 0.4838709, expected 0.483871"),
        ([1, 2, 3], [1, 2], EXACT, "2 entries, and has 3"),
        ({"a": 1}, {"a": 1, "b": 2}, EXACT, "lacks the key 'b'"),
        ({"a": 1, "c": 1}, {"a": 1}, EXACT, "unexpected key 'c'"),
        ({"a": {"b": [1, 5]}}, {"a": {"b": [1, 2]}}, EXACT, "'a'"),
        (np.ones((2, 3)), np.ones((3, 2)), EXACT, "shape [3, 2], and has [2, 3]"),
        (np.ones(2), torch.ones(2), EXACT, "should be a torch tensor"),
        ([1.0, 1.0], np.ones(2), EXACT, "should be a numpy array"),
        (np.ones(2, int), np.ones(2), EXACT, "floating-point"),
        (np.ones(2, np.float32), np.ones(2), Tolerance(dtype=True), "dtype float64"),
        (
            np.array([1.0, 2.0]),
            np.array([1.0, 3.0]),
            LOOSE,
            "1 of 2 places: at [1] it has 2, expected 3",
        ),
        (np.array([math.inf]), np.array([1e308]), Tolerance(rtol=1e9), "1 of 1 places"),
        (np.array([math.nan]), np.array([0.0]), LOOSE, "it has nan"),
        (
            np.array([2**53 + 1, 0]),
            np.array([2**53, 0]),
            EXACT,
            "it has 9007199254740993, expected 9007199254740992",
        ),
        (None, "a", EXACT, "is None"),
        ("a", None, EXACT, "expected None"),
    ],
)
def test_wrong_answers_are_wrong_in_one_sentence(
    observed: Any, expected: Any, tolerance: Tolerance, says: str
) -> None:
    said = difference(observed, expected, tolerance)
    assert said is not None
    assert says in said
    assert "\n" not in said


@given(st.floats(-1e6, 1e6), st.floats(1e-12, 1e-3), st.floats(0, 1e-3), st.floats(-3, 3))
def test_a_number_passes_exactly_within_atol_plus_rtol_times_expected(
    e: float, r: float, a: float, k: float
) -> None:
    observed = e + k * (a + r * abs(e))
    near = abs(observed - e) <= a + r * abs(e)
    assert (difference(observed, e, Tolerance(r, a)) is None) == near
    assert (difference(np.array([observed]), np.array([e]), Tolerance(r, a)) is None) == near


def test_plain_leaves_python_s_own_numbers_and_lists() -> None:
    given = {
        "a": np.int64(3),
        "b": [torch.zeros(2), (np.float32(0.5), None)],
        "c": "text",
        "d": np.eye(2, dtype=int),
    }
    assert (
        repr(as_plain(given))
        == "{'a': 3, 'b': [[0.0, 0.0], [0.5, None]], 'c': 'text', 'd': [[1, 0], [0, 1]]}"
    )


def test_where_whole_numbers_are_exact_a_float_beyond_2_53_is_not_near_enough() -> None:
    assert difference(float(2**53 + 1), 2**53 + 1, EXACT)
    assert difference(2**53 + 1, float(2**53), EXACT)
    assert difference(2**53, float(2**53), EXACT) is None
