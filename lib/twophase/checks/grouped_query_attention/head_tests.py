"""grouped_query_attention-head_tests: write the cases that find every wrong mapping of heads."""

from __future__ import annotations

from typing import Any

from twophase.checks.compare import EXACT
from twophase.checks.exercise import Exercise
from twophase.checks.grouped_query_attention._mappings import MUTANTS, RIGHT, Mapping
from twophase.checks.misconceptions import Misconceptions
from twophase.checks.written_cases import WrittenCases

wrong = Misconceptions()

MOST_CASES, MOST_HEADS = 20, 64
Trial = tuple[int, int, list[int]]  # N, K, the KV head of each query head


def gives(mapping: Mapping, N: int, K: int) -> list[int]:
    """The KV heads that a mapping gives N query heads."""
    return [mapping(n, N, K) for n in range(N)]


def passes(mapping: Mapping, trial: Trial) -> bool:
    """Whether a mapping gives what the case expects."""
    N, K, heads = trial
    return gives(mapping, N, K) == list(heads)


def problem(trials: Any) -> str:
    """What makes the cases no cases, in one sentence; empty if nothing does."""
    if not isinstance(trials, list | tuple) or not 1 <= len(trials) <= MOST_CASES:
        return f"head_tests() must return a list of 1 to {MOST_CASES} cases"
    for trial in trials:
        if not isinstance(trial, list | tuple) or len(trial) != 3:
            return "a case is a triple (N, K, heads)"
        N, K, heads = trial
        if type(N) is not int or type(K) is not int or not 1 <= K <= N <= MOST_HEADS or N % K:
            return f"N and K must be whole numbers, N at most {MOST_HEADS}, and K must divide N"
        if not isinstance(heads, list | tuple) or any(type(h) is not int for h in heads):
            return "heads must be a list of whole numbers"
    return ""


def _expectation(trial: Trial) -> str:
    """What a case that a right mapping fails is; empty if it passes."""
    if all(passes(mapping, trial) for mapping in RIGHT):
        return ""
    return f"a right mapping fails (N = {trial[0]}, K = {trial[1]})"


WRITTEN = WrittenCases(
    "head_tests", "each right mapping", "a mapping that", MUTANTS, problem, passes, _expectation
)


THREES = (12, 4, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3])
FIVES = (15, 3, [0] * 5 + [1] * 5 + [2] * 5)
MHA = (3, 3, [0, 1, 2])
MQA = (4, 1, [0, 0, 0, 0])


def reference() -> list[Trial]:
    """The right answer (one of many)."""
    return [THREES, FIVES, MHA, MQA]


@wrong(
    "tests of one shape, the square one",
    "With as many heads in a group as there are groups, n // K and n // G are the same number. Take"
    " other shapes as well.",
)
def square() -> list[Trial]:
    return [(4, 2, [0, 0, 1, 1]), MHA, MQA]


@wrong(
    "shapes of published models, all of them powers of two",
    "All your groups are powers of two (or one head): a shift passes for a division. Models with 5"
    " or 7 heads in a group exist.",
)
def powers_of_two() -> list[Trial]:
    return [(32, 4, [n // 8 for n in range(32)]), (4, 4, [0, 1, 2, 3]), MQA]


@wrong(
    "plausible",
    "No case has K = N. Multi-head attention is a mapping, too, and the easiest to lose.",
)
def no_multi_head() -> list[Trial]:
    return [THREES, FIVES, MQA]


@wrong(
    "plausible",
    "No case has K = 1, one KV head for all: a mapping may be right everywhere else.",
)
def no_multi_query() -> list[Trial]:
    return [THREES, FIVES, MHA]


@wrong(
    "plausible",
    "All your groups are small: a mapping that knows groups of up to four heads passes.",
)
def small_groups() -> list[Trial]:
    return [THREES, MHA, (3, 1, [0, 0, 0])]


@wrong(
    "h % K for h // G; torch.Tensor.repeat for repeat_interleave",
    "You expect KV heads to be dealt out in turn: right mappings fail. Heads of one group are"
    " neighbors, n // G.",
)
def expects_in_turn() -> list[Trial]:
    return [(12, 4, [n % 4 for n in range(12)]), (15, 3, [n % 3 for n in range(15)]), MHA, MQA]


@wrong(
    "tests with two KV heads",
    "No case has more than two KV heads that are shared: cutting all heads into two halves passes.",
)
def two_kv_heads() -> list[Trial]:
    return [(10, 2, [0] * 5 + [1] * 5), MHA, MQA]


EXERCISE = Exercise(
    id="grouped_query_attention-head_tests",
    title="Find every wrong mapping of heads",
    kind="test",
    points=4,
    minutes=12,
    entries=("head_tests",),
    cases=WRITTEN.cases,
    observe=WRITTEN.observe,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        (
            "Write down n // G and n % K for N = 4, K = 2, then for N = 6, K = 2. Where do they"
            " differ? And n // K?"
        ),
        (
            "Both ends of the range are mappings as well: K = N and K = 1. Between them choose"
            " groups whose size is no power of two, and more than two KV heads."
        ),
        "Four cases do it: (12, 4), (15, 3), (3, 3) and (4, 1), each with n // (N // K).",
    ),
    recall=(
        "For which N and K can a test not tell n // K from n // G?",
        "Where G = K, so N = K · K: 4 and 2, 16 and 4, 64 and 8.",
    ),
)
