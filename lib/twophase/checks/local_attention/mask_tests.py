"""local_attention-mask_tests: write the cases that find every broken window."""

from __future__ import annotations

from typing import Any

from twophase.checks.compare import EXACT
from twophase.checks.exercise import Exercise
from twophase.checks.local_attention._broken_masks import MUTANTS, Mask, right
from twophase.checks.misconceptions import Misconceptions
from twophase.checks.written_cases import WrittenCases

wrong = Misconceptions()

Written = dict[str, Any]
KEYS = {"T", "S", "window", "sees"}
MOST_KEYS, MOST_WINDOW, MOST_CASES = 40, 60, 20


def passes(mask: Mask, case: Written) -> bool:
    """Whether a mask shows what the case expects."""
    expected = [list(row) for row in case["sees"]]
    return mask(case["T"], case["S"], case["window"]) == expected


def problem(written: Any) -> str:
    """What makes the cases no cases, in one sentence; empty if nothing does."""
    if not isinstance(written, list | tuple) or not 1 <= len(written) <= MOST_CASES:
        return "mask_tests() must return a list of 1 to 20 cases"
    for case in written:
        if not isinstance(case, dict) or set(case) != KEYS:
            return 'a case is a dict with the keys "T", "S", "window" and "sees"'
        T, S, window = (case[name] for name in ("T", "S", "window"))
        if not all(type(n) is int for n in (T, S, window)):
            return '"T", "S" and "window" are whole numbers'
        if not 1 <= T <= S <= MOST_KEYS or not 1 <= window <= MOST_WINDOW:
            return "1 ≤ T ≤ S ≤ 40 and 1 ≤ window ≤ 60 must hold"
        if not _is_sees(case["sees"], T):
            return '"sees" is a list of T lists of whole numbers, the keys that each query sees'
    return ""


def _is_sees(sees: Any, T: int) -> bool:
    return (
        isinstance(sees, list | tuple)
        and len(sees) == T
        and all(isinstance(row, list | tuple) and len(row) <= MOST_KEYS for row in sees)
        and all(type(key) is int for row in sees for key in row)
    )


def _expectation(case: Written) -> str:
    """What a case that a right mask fails expects of it; empty if it passes."""
    if passes(right, case):
        return ""
    for name, mask in MUTANTS.items():
        if passes(mask, case):
            return f"expect a mask that {name}"
    return f"expect {case['sees']} for T={case['T']}, S={case['S']}, window={case['window']}"


WRITTEN = WrittenCases(
    "mask_tests", "a right mask", "a mask that", MUTANTS, problem, passes, _expectation
)


def _case(T: int, S: int, window: int) -> Written:
    return {"T": T, "S": S, "window": window, "sees": right(T, S, window)}


PROMPT, STEP, BLOCK, SHORT = _case(5, 5, 2), _case(1, 7, 3), _case(3, 8, 3), _case(2, 3, 5)


def reference() -> list[Written]:
    """The right answer (one of many)."""
    return [PROMPT, STEP, BLOCK, SHORT]


@wrong(
    "tests of prompts only, a sliding-window prefill untested for half a year (rasbt #925)",
    "Every case has T = S: that is a prompt without a cache. Decode steps and blocks behind cached"
    " tokens have faults of their own.",
)
def prompts_only() -> list[Written]:
    return [PROMPT, _case(3, 3, 5)]


@wrong(
    "tests of the decode step only",
    "Every case has T = 1: a lone query has no later keys to hide, and prompts come many tokens at"
    " once.",
)
def steps_only() -> list[Written]:
    return [STEP, _case(1, 2, 5)]


@wrong(
    "texts shorter than the window",
    "In all your cases the window is as long as the text or longer: then it hides nothing.",
)
def short_texts() -> list[Written]:
    return [_case(5, 5, 5), _case(1, 7, 7), _case(3, 8, 9)]


@wrong(
    "plausible",
    "In none of your cases the window begins before the text: add a text that is shorter than its"
    " window.",
)
def windows_that_fit() -> list[Written]:
    return [_case(1, 5, 2), STEP, BLOCK, _case(2, 9, 3)]


@wrong(
    "the off-by-one of sliding windows",
    "You expect window + 1 keys: a window of w holds w keys, the query's own among them.",
)
def expects_one_more() -> list[Written]:
    return [
        {**case, "sees": right(case["T"], case["S"], case["window"] + 1)} for case in reference()
    ]


@wrong(
    "plausible",
    "You count the block's queries from position 0: the T queries are the last of S, so query t"
    " stands at S − T + t.",
)
def expects_top_left() -> list[Written]:
    return [{**case, "sees": right(case["T"], case["T"], case["window"])} for case in reference()]


@wrong(
    "plausible",
    "You have no block behind cached tokens (1 < T < S): chunked prefill brings them, and there"
    " masks go wrong.",
)
def no_block() -> list[Written]:
    return [PROMPT, STEP, _case(3, 3, 5)]


@wrong(
    "plausible",
    "No case is a prompt that is longer than its window (T = S): there the window must hide keys"
    " in the first pass.",
)
def no_long_prompt() -> list[Written]:
    return [STEP, BLOCK, SHORT]


EXERCISE = Exercise(
    id="local_attention-mask_tests",
    title="Find every broken window",
    kind="test",
    points=4,
    minutes=15,
    entries=("mask_tests",),
    cases=WRITTEN.cases,
    observe=WRITTEN.observe,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        (
            "Three kinds of passes: a prompt (T = S), a decode step (T = 1), a block behind cached"
            " tokens (1 < T < S)."
        ),
        (
            "In each the text should be longer than the window, so that something is hidden. And"
            " one text should be shorter than its window."
        ),
        (
            "Four cases do it: T=5, S=5, window=2; T=1, S=7, window=3; T=3, S=8, window=3; T=2,"
            " S=3, window=5. Write down by hand what each query sees."
        ),
    ),
    recall=(
        "Which three kinds of passes must a test of a windowed mask have?",
        "A prompt, a decode step, and a block behind cached tokens: each longer than the window.",
    ),
)
