"""two_phases-top_p_cases: write test cases for a top-p filter, as data, that catch the wrong
ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT, few
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions
from twophase.protocol import AnswerError

wrong = Misconceptions()

Kept = Callable[[list[float], float], list[int]]
TestCase = tuple[list[float], float, list[int]]  # probabilities, top_p, the indices that are kept


def by_size(probs: list[float]) -> list[int]:
    return sorted(range(len(probs)), key=lambda i: -probs[i])


def _until(order: list[int], probs: list[float], top_p: float) -> list[int]:
    kept: list[int] = []
    mass = 0.0
    for i in order:
        if mass >= top_p - 1e-12:
            break
        kept.append(i)
        mass += probs[i]
    return sorted(kept)


def right_by_loop(probs: list[float], top_p: float) -> list[int]:
    """The smallest set of largest probabilities whose mass reaches top_p."""
    return _until(by_size(probs), probs, top_p)


def right_by_count(probs: list[float], top_p: float) -> list[int]:
    """The same, by trying sets of 1, 2, 3 ... largest."""
    ranked = by_size(probs)
    sizes = (
        n for n in range(1, len(probs) + 1) if sum(probs[i] for i in ranked[:n]) >= top_p - 1e-12
    )
    return sorted(ranked[: next(sizes, len(probs))])


def crossing_dropped(probs: list[float], top_p: float) -> list[int]:
    kept = right_by_loop(probs, top_p)
    smallest = min(kept, key=lambda i: probs[i])
    exact = abs(sum(probs[i] for i in kept) - top_p) < 1e-12
    return kept if exact or len(kept) == 1 else sorted(set(kept) - {smallest})


def may_be_empty(probs: list[float], top_p: float) -> list[int]:
    return [] if max(probs) > top_p else right_by_loop(probs, top_p)


def one_more_on_a_tie(probs: list[float], top_p: float) -> list[int]:
    mass = 0.0
    kept: list[int] = []
    for i in by_size(probs):
        if mass > top_p + 1e-12:
            break
        kept.append(i)
        mass += probs[i]
    return sorted(kept)


def vocabulary_order(probs: list[float], top_p: float) -> list[int]:
    return _until(list(range(len(probs))), probs, top_p)


def smallest_first(probs: list[float], top_p: float) -> list[int]:
    return _until(by_size(probs)[::-1], probs, top_p)


def threshold_per_token(probs: list[float], top_p: float) -> list[int]:
    return [i for i, p in enumerate(probs) if p >= 1 - top_p] or [by_size(probs)[0]]


def one_or_all(probs: list[float], top_p: float) -> list[int]:
    return [by_size(probs)[0]] if max(probs) >= top_p - 1e-12 else sorted(range(len(probs)))


TOP_P = "what top-p keeps"
MANY = 500  # numbers in one test case
RIGHT: tuple[Kept, ...] = (right_by_loop, right_by_count)
MUTANTS: dict[str, Kept] = {
    "drops the token that crosses top_p": crossing_dropped,
    "keeps nothing when the largest alone exceeds top_p": may_be_empty,
    "keeps one more when the mass is exactly top_p": one_more_on_a_tie,
    "adds up in the order of the vocabulary": vocabulary_order,
    "adds up from the smallest": smallest_first,
    "compares each probability with 1 - top_p": threshold_per_token,
    "compares each probability with top_p, and never adds up": one_or_all,
}


def _index(k: Any) -> int:
    """An index, also one that numpy or torch holds. Raises TypeError for a truth value or a
    fraction."""
    k = k.item() if hasattr(k, "item") else k
    if type(k) is not int:
        raise TypeError
    return k


def _plain(cases: Any) -> list[TestCase]:
    """The learner's cases, checked for their form. Raises AnswerError with one sentence if one is
    no test case."""
    if not isinstance(cases, list | tuple) or not cases:
        raise AnswerError(
            "raised",
            "cases() should return a list of (probs, top_p, kept), with at least one entry",
        )
    if len(cases) > 100:
        raise AnswerError("raised", f"cases() returned {len(cases)} cases; 100 are enough")
    plain = []
    for i, case in enumerate(cases):
        try:
            probs, top_p, kept = few(case, MANY)
            law = [float(p) for p in few(probs, MANY)]
            plain.append((law, float(top_p), sorted(_index(k) for k in few(kept, MANY))))
        except (TypeError, ValueError):
            raise AnswerError(
                "raised",
                f"case {i} is not (list of probabilities, top_p, list of indices, which are ints)",
            ) from None
        if len(set(plain[-1][2])) < len(plain[-1][2]):
            raise AnswerError("raised", f"case {i} names an index twice: {plain[-1][2][:20]}")
        if len(law) > MANY:
            raise AnswerError(
                "raised", f"case {i} has {len(law)} probabilities; a handful is enough"
            )
        if (
            not law
            or not min(law) >= 0
            or not abs(sum(law) - 1) <= 1e-6
            or not 0 < plain[-1][1] <= 1
        ):  # NaN is neither
            raise AnswerError(
                "raised", f"case {i}: the probabilities must sum to 1 and top_p must lie in (0, 1]"
            )
        if len(set(law)) < len(law):
            raise AnswerError(
                "raised",
                f"case {i} has equal probabilities, of which either may be kept: make them differ",
            )
    return plain


def observe(answer: Answer, case: Case) -> Any:
    """Whether the right filters pass the learner's cases, and which wrong ones do not."""
    tests = _plain(answer.call("cases"))
    passing = [
        n for n, f in MUTANTS.items() if all(sorted(f(p, t)) == kept for p, t, kept in tests)
    ]
    for i, (p, t, kept) in enumerate(tests):
        right = [f(p, t) for f in RIGHT]
        if any(r != kept for r in right):
            said = f"{kept} in case {i}, where top-p keeps {right[0]}"
            expects = "what this wrong filter keeps: it " + passing[0] if passing else said
            return {"your cases expect": expects, "wrong filters that pass all your cases": passing}
    return {"your cases expect": TOP_P, "wrong filters that pass all your cases": passing}


MIXED = [0.15, 0.5, 0.05, 0.3]
ALL: dict[str, TestCase] = {
    "crosses": (MIXED, 0.6, [1, 3]),
    "one is enough": (MIXED, 0.3, [1]),
    "exactly": ([0.25, 0.5, 0.125, 0.09375, 0.03125], 0.75, [0, 1]),
}


def _only(*names: str) -> Callable[[], list[TestCase]]:
    return lambda: [ALL[n] for n in names]


def cases(rng: random.Random) -> list[Case]:
    """One situation: the learner's cases meet all filters. The number tells one seed's case from
    another's."""
    return [Case(f"your cases against every filter (round {rng.randrange(10**6)})")]


wrong.add(
    "never_exact",
    _only("crosses", "one is enough"),
    "plausible",
    "No case of yours has a mass that is exactly top_p: there “reaches” and “exceeds” part ways.",
)
wrong.add(
    "never_one",
    _only("crosses", "exactly"),
    "plausible",
    "In none of your cases is the largest probability alone above top_p: a filter that keeps"
    " nothing would pass.",
)
wrong.add(
    "never_crosses",
    _only("one is enough", "exactly"),
    "plausible",
    "In none of your cases does a second or later token cross top_p: a filter that drops it would"
    " pass.",
)
wrong.add(
    "sorted_already",
    lambda: [
        ([0.5, 0.3, 0.15, 0.05], 0.6, [0, 1]),
        ([0.5, 0.3, 0.15, 0.05], 0.3, [0]),
        ([0.5, 0.25, 0.125, 0.09375, 0.03125], 0.75, [0, 1]),
    ],
    "tests with constant, sorted inputs",
    "All your probabilities are sorted from large to small, so a filter that never sorts would"
    " pass.",
)
wrong.add(
    "everything_kept",
    lambda: [(MIXED, 1.0, [0, 1, 2, 3])],
    "plausible",
    "With top_p = 1 everything is kept: almost any wrong filter passes that.",
)
wrong.add(
    "crossing_token_excluded",
    lambda: [(MIXED, 0.6, [1]), (MIXED, 0.3, [1])],
    "plausible",
    "Your cases expect the crossing token to be dropped; top-p keeps the smallest set whose mass"
    " reaches top_p.",
)


EXERCISE = Exercise(
    id="two_phases-top_p_cases",
    title="Test a top-p filter",
    kind="test",
    points=3,
    minutes=15,
    entries=("cases",),
    cases=cases,
    reference=_only("crosses", "one is enough", "exactly"),
    observe=observe,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        (
            "A good case is one that a wrong filter gets wrong. List the wrong filters you can"
            " think of; each wants a case."
        ),
        (
            "Three places where filters differ: a token that crosses, a first token that is enough,"
            " a mass that is exactly top_p."
        ),
        (
            "For an exact mass use halves and quarters, which floats hold exactly: 0.5 + 0.25 ="
            " 0.75. And never sort your inputs."
        ),
    ),
    recall=(
        "Why are probabilities like 0.5 and 0.25 good for testing a threshold exactly?",
        "They are powers of two: floats hold them, and their sums, without rounding.",
    ),
)
