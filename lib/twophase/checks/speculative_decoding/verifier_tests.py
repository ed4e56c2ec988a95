"""speculative_decoding-verifier_tests: write the cases that find every broken verifier."""

from __future__ import annotations

from typing import Any

from twophase.checks.compare import EXACT
from twophase.checks.exercise import Exercise
from twophase.checks.misconceptions import Misconceptions
from twophase.checks.speculative_decoding import _broken_verifiers as broken
from twophase.checks.speculative_decoding import _rule
from twophase.checks.speculative_decoding._rule import Probs, Verify
from twophase.checks.written_cases import WrittenCases

wrong = Misconceptions()

Written = dict[str, Any]
KEYS = {"target", "draft", "drafted", "law"}
MOST_CASES, MOST_DRAFTED, MOST_TOKENS = 20, 3, 4


def problem(written: Any) -> str:
    """What makes the cases no cases, in one sentence; empty if nothing does."""
    if not isinstance(written, list | tuple) or not 1 <= len(written) <= MOST_CASES:
        return "verifier_tests() must return a list of 1 to 20 cases"
    return next(filter(None, map(_problem, written)), "")


def _problem(case: Any) -> str:
    if not isinstance(case, dict) or set(case) != KEYS:
        return 'a case is a dict with the keys "target", "draft", "drafted" and "law"'
    target, draft, drafted, law = (case[k] for k in ("target", "draft", "drafted", "law"))
    if not all(isinstance(x, list | tuple) for x in (target, draft, drafted, law)):
        return "target, draft, drafted and law are lists"
    n = len(drafted)
    if n > MOST_DRAFTED or len(draft) != n or len(target) != n + 1:
        return "0 to 3 tokens are drafted; draft has a row for each, target one more"
    if not isinstance(target[0], list | tuple) or not 2 <= len(target[0]) <= MOST_TOKENS:
        return "a row has 2 to 4 probabilities"
    V = len(target[0])
    if not all(_is_law(row, V) for row in (*target, *draft)):
        return "a row has as many probabilities as all others, and they sum to 1"
    if not all(type(x) is int and 0 <= x < V for x in drafted):
        return "drafted tokens are numbers from 0 to V − 1"
    if any(row[x] <= 0 for row, x in zip(draft, drafted, strict=True)):
        return "a drafted token has a probability above 0 in its row of draft"
    if not all(_is_outcome(one) for one in law):
        return '"law" is a list of pairs ([tokens], probability)'
    return ""


def _is_law(row: Any, V: int) -> bool:
    return (
        isinstance(row, list | tuple)
        and len(row) == V
        and all(_is_probability(p) for p in row)
        and abs(sum(row) - 1) < 1e-6
    )


def _is_probability(p: Any) -> bool:
    """A sum of probabilities may be rounded to a little more than 1."""
    return isinstance(p, int | float) and not isinstance(p, bool) and 0 <= p <= 1 + 1e-6


def _is_outcome(one: Any) -> bool:
    return (
        isinstance(one, list | tuple)
        and len(one) == 2
        and isinstance(one[0], list | tuple)
        and all(type(token) is int for token in one[0])
        and _is_probability(one[1])
    )


def _expected(case: Written) -> dict[str, float]:
    found: dict[str, float] = {}
    for tokens, p in case["law"]:
        found[_rule.written(tokens)] = found.get(_rule.written(tokens), 0.0) + p
    return found


def _expectation(case: Written) -> str:
    """What a case that the right verifier fails expects of it; empty if it passes."""
    expected = _expected(case)
    if not broken.caught(broken.right, case, expected):
        return ""
    for name, verify in broken.MUTANTS.items():
        if not broken.caught(verify, case, expected):
            return f"expect a verifier that {name}"
    if abs(sum(expected.values()) - 1) > 1e-6:
        return f"expect probabilities that sum to {sum(expected.values()):.6g}"
    return f"expect another law for drafted={case['drafted']}"


def _passes(verify: Verify, case: Written) -> bool:
    return not broken.caught(verify, case, _expected(case))


WRITTEN = WrittenCases(
    "verifier_tests",
    "a right verifier",
    "a verifier that",
    broken.MUTANTS,
    problem,
    _passes,
    _expectation,
)


def _case(target: list[Probs], draft: list[Probs], drafted: list[int]) -> Written:
    found = _rule.said_law(broken.right, target, draft, drafted)
    law = [[[int(x) for x in said.split()], p] for said, p in found.items()]
    return {"target": target, "draft": draft, "drafted": drafted, "law": law}


FIRST, SECOND, LAST = (
    [0.5, 0.25, 0.125, 0.125],
    [0.125, 0.25, 0.125, 0.5],
    [0.25, 0.5, 0.125, 0.125],
)
D_FIRST, D_SECOND = [0.25, 0.5, 0.0625, 0.1875], [0.5, 0.125, 0.0625, 0.3125]
TWO = _case([FIRST, SECOND, LAST], [D_FIRST, D_SECOND], [1, 0])
LIKED = _case([FIRST, LAST], [D_FIRST], [0])
UNLIKED = _case([FIRST, LAST], [D_FIRST], [1])
NEVER = _case([[0.0, 0.75, 0.25, 0.0], LAST], [[0.5, 0.25, 0.125, 0.125]], [0])


def reference() -> list[Written]:
    """The right answer (one of many)."""
    return [TWO, LIKED]


@wrong(
    "tests of what is accepted",
    "In all your cases the target likes every drafted token at least as much as the draft: nothing"
    " is ever refused.",
)
def never_refused() -> list[Written]:
    return [LIKED, _case([FIRST, SECOND, LAST], [D_FIRST, D_SECOND], [0, 3])]


@wrong(
    "tests with a single drafted token",
    "In all your cases one token is drafted. Faults in the second row, and in what happens behind a"
    " refusal, need two.",
)
def single_tokens() -> list[Written]:
    return [LIKED, UNLIKED]


@wrong(
    "greedy tests",
    "All your laws are certain, as at temperature 0. Whoever draws from the wrong law is only found"
    " where something is drawn.",
)
def certain_laws() -> list[Written]:
    yes, no = [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]
    return [_case([yes, no, yes], [yes, yes], [1, 1]), _case([yes, no], [yes], [1])]


@wrong(
    "plausible",
    "All your vocabularies have two tokens: after a refusal only one is left, and it does not show"
    " from which law it was drawn.",
)
def two_tokens() -> list[Written]:
    three = [[0.25, 0.75], [0.75, 0.25], [0.375, 0.625]]
    return [_case(three, [[0.5, 0.5], [0.5, 0.5]], [0, 1]), _case(three[:2], [[0.5, 0.5]], [1])]


@wrong(
    "plausible",
    "All rows of your target are the same, and so are those of your draft: then it does not show"
    " which row was read.",
)
def same_rows() -> list[Written]:
    return [_case([FIRST] * 3, [D_FIRST] * 2, [1, 1]), _case([FIRST] * 2, [D_FIRST], [0])]


@wrong(
    "“rejected proposals are corrected by sampling from Q”",
    "You expect a draw from the target's whole law after a refusal: it is one from what the target"
    " has and the draft had not.",
)
def expects_the_target() -> list[Written]:
    name = "draws from the target after a refusal"
    found = _rule.said_law(broken.MUTANTS[name], TWO["target"], TWO["draft"], TWO["drafted"])
    law = [[[int(x) for x in said.split()], p] for said, p in found.items()]
    return [{**TWO, "law": law}, LIKED]


@wrong(
    "a published speculative_decode, which returns what it accepted",
    "You expect nothing behind a draft that is kept whole: the target says one more token.",
)
def expects_no_bonus() -> list[Written]:
    found = _rule.said_law(
        broken.MUTANTS["drops the last token"], TWO["target"], TWO["draft"], [1, 0]
    )
    law = [[[int(x) for x in said.split()], p] for said, p in found.items()]
    return [{**TWO, "law": law}, LIKED]


EXERCISE = Exercise(
    id="speculative_decoding-verifier_tests",
    title="Find every broken verifier",
    kind="test",
    points=4,
    minutes=20,
    entries=("verifier_tests",),
    cases=WRITTEN.cases,
    observe=WRITTEN.observe,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        (
            "Draft two tokens, so that there is a second row and something behind a refusal; at"
            " least three tokens in the vocabulary, no two rows alike."
        ),
        (
            "Both tokens should be liked more by the draft than by the target, and what is left"
            " should have two tokens. A second case has a token that the target likes more."
        ),
        (
            "For each place i: reached with the product of the keeps before it; refused there with"
            " 1 − keep, and then each token x with max(0, target − draft)[x] over the sum of these."
        ),
    ),
    recall=(
        "Why do tests at temperature 0 not find a verifier that resamples from the wrong law?",
        "There every law is certain: after a refusal any of these laws gives the same token.",
    ),
)
