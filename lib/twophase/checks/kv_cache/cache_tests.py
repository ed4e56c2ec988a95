"""kv_cache-cache_tests: write the test that finds every broken cache."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.kv_cache._broken_caches import MUTANTS, Buffer, Cache
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()


def failure(make: Callable[[int], Cache], script: dict[str, Any]) -> str:
    """What a script expects and the cache does not do, at the first such step; empty if the cache
    passes."""
    cache = make(script["S_max"])
    for i, step in enumerate(script["steps"]):
        if step == "reset":
            cache.reset()
            continue
        tokens, expected = step
        said = cache.append(list(tokens))
        if said == expected:
            continue
        if said == "refused":
            return "tokens in place of a refusal"
        if expected == "refused":
            return "a refusal of tokens that fit"
        return (
            "the new tokens only"
            if expected == tokens
            else f"{expected} at step {i}, in place of {said}"
        )
    return ""


def passes(make: Callable[[int], Cache], script: dict[str, Any]) -> bool:
    """Whether a cache answers every step of a script as the script expects."""
    return not failure(make, script)


def problem(scripts: Any) -> str:
    """What makes the scripts no scripts, in one sentence; empty if nothing does."""
    if not isinstance(scripts, list | tuple) or not 1 <= len(scripts) <= 20:
        return "cache_tests() must return a list of 1 to 20 scripts"
    for script in scripts:
        if not isinstance(script, dict) or set(script) != {"S_max", "steps"}:
            return 'a script is a dict with the keys "S_max" and "steps"'
        if type(script["S_max"]) is not int or not 1 <= script["S_max"] <= 50:
            return '"S_max" must be a whole number from 1 to 50'
        steps = script["steps"]
        if not isinstance(steps, list | tuple) or len(steps) > 50 or not all(map(_is_step, steps)):
            return (
                'a step is "reset", (tokens, expected) or (tokens, "refused"), with lists of up to'
                " 60 whole numbers"
            )
    return ""


def _is_step(step: Any) -> bool:
    if isinstance(step, str):
        return step == "reset"
    if not isinstance(step, list | tuple) or len(step) != 2:
        return False
    tokens, expected = step
    return (
        _is_tokens(tokens) and len(tokens) > 0 and (expected == "refused" or _is_tokens(expected))
    )


def _is_tokens(tokens: Any) -> bool:
    return (
        isinstance(tokens, list | tuple)
        and len(tokens) <= 60
        and all(type(t) is int for t in tokens)
    )


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """Whether the right caches pass, or whether the case's broken one is caught."""
    scripts = plain(answer.call("cache_tests"))
    found = problem(scripts)
    if case.args:
        return {"caught": not found and not all(passes(MUTANTS[case.args[0]], s) for s in scripts)}
    if found:
        return {"the scripts": found}
    failures = [failure(make, s) for make in (Cache, Buffer) for s in scripts]
    wrong = next((f"expect of a right cache {f}" for f in failures if f), "")
    return {"the scripts": wrong or "can be used, and right caches pass them"}


def cases(rng: random.Random) -> list[Case]:
    """The right caches first, then the broken ones in an order of the seed's choosing."""
    names = sorted(MUTANTS)
    rng.shuffle(names)
    return [Case("right caches"), *(Case(f"a cache that {name}", (name,)) for name in names)]


def _script(S_max: int, *steps: Any) -> dict[str, Any]:
    return {"S_max": S_max, "steps": list(steps)}


OVERFLOW = _script(
    5,
    ([1, 2, 3], [1, 2, 3]),
    ([4, 5, 6], "refused"),
    ([7], [1, 2, 3, 7]),
    ([8], [1, 2, 3, 7, 8]),
    ([9], "refused"),
)
RESET = _script(4, ([1, 2, 3], [1, 2, 3]), "reset", ([4, 5], [4, 5]))


def reference() -> list[dict[str, Any]]:
    """The right answer (one of many)."""
    return [OVERFLOW, RESET]


@wrong(
    "graded tests that looked at shapes (TinyTorch #1953)",
    "Your scripts never fill a cache and never reset one: most of what can break lies there.",
)
def happy_path() -> list[dict[str, Any]]:
    return [_script(9, ([1, 2, 3], [1, 2, 3]), ([4], [1, 2, 3, 4]), ([5], [1, 2, 3, 4, 5]))]


@wrong("plausible", "No script resets a cache and goes on: a pointer that survives is not noticed.")
def no_reset() -> list[dict[str, Any]]:
    return [OVERFLOW]


@wrong(
    "tests of the decode step only",
    "Every append has one token: a prompt is a block, and blocks have faults of their own. Refuse"
    " one and go on.",
)
def single_tokens() -> list[dict[str, Any]]:
    steps = [([1], [1]), ([2], [1, 2]), ([3], [1, 2, 3]), ([4], "refused"), "reset", ([5], [5])]
    return [_script(3, *steps)]


@wrong(
    "constant inputs that accept a wrong index (mojo-gpu-puzzles #31)",
    "All tokens are alike: a cache that mixes up their order passes. Use different numbers.",
)
def equal_tokens() -> list[dict[str, Any]]:
    steps = [
        ([7, 7], [7, 7]),
        ([7, 7], "refused"),
        ([7], [7, 7, 7]),
        ([7], "refused"),
        "reset",
        ([7, 7], [7, 7]),
    ]
    return [_script(3, *steps)]


@wrong(
    "plausible",
    "Your scripts end with the refusal: go on after it, and see whether the cache is as it was.",
)
def stops_at_the_refusal() -> list[dict[str, Any]]:
    return [_script(4, ([1, 2], [1, 2]), ([3, 4], [1, 2, 3, 4]), ([5], "refused")), RESET]


@wrong(
    "plausible",
    "Your scripts stay away from the edge: fill a cache exactly, then try one token more.",
)
def far_from_the_edge() -> list[dict[str, Any]]:
    steps = [([1, 2, 3], [1, 2, 3]), ([4, 5, 6, 7], "refused"), ([8], [1, 2, 3, 8])]
    return [_script(5, *steps), RESET]


@wrong(
    "plausible",
    "You expect an append to return the new tokens only: right caches return all they hold, and"
    " fail your test.",
)
def expects_only_the_new() -> list[dict[str, Any]]:
    return [_script(5, ([1, 2, 3], [1, 2, 3]), ([4, 5, 6], "refused"), ([7], [7])), RESET]


@wrong(
    "plausible",
    "You expect a block that does not fit to be cut: right caches refuse it whole, and fail your"
    " test.",
)
def expects_truncation() -> list[dict[str, Any]]:
    return [_script(4, ([1, 2, 3], [1, 2, 3]), ([4, 5], [1, 2, 3, 4])), RESET]


EXERCISE = Exercise(
    id="kv_cache-cache_tests",
    title="Find every broken cache",
    kind="test",
    points=4,
    minutes=15,
    entries=("cache_tests",),
    cases=cases,
    observe=observe,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        (
            "Think of the edges: the token that fills the cache, the one after it, a block that"
            " half fits, the time after a reset."
        ),
        (
            "After a refusal append something that fits: only then you see whether the refusal left"
            " a trace."
        ),
        (
            'One script can do most of it: S_max 5; append 3 (fine), 3 more ("refused"), 1, 1 (now'
            ' full), 1 ("refused"). Another one resets and goes on.'
        ),
    ),
    recall=(
        "A cache refuses a block that is too long. What must a test do next?",
        "Append something that fits and look at everything: a refusal must leave no trace.",
    ),
)
