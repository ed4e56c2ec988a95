"""A course of its own for the grader's tests: a formula, a class, a sampler with a callback, an array."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np

from twophase.checks.answer import Answer, refuses
from twophase.checks.compare import EXACT, Tolerance
from twophase.checks.exercise import Case, Exercise, Misconception
from twophase.grading.files.notebook import Notebook, parse
from twophase.grading.release import release as releases

TOPIC = "kv_cache"  # a topic that the registry knows; the exercises are ours


def bytes_of(n_tokens: int, width: int) -> int:
    return 2 * n_tokens * width


class Counter:
    """Counts what it is given, refuses a negative."""

    def __init__(self, start: int = 0) -> None:
        self.total = start

    def add(self, n: int) -> int:
        if n < 0:
            raise ValueError("n must not be negative")
        self.total += n
        return self.total


class Forgetful(Counter):
    def __init__(self, start: int = 0) -> None:
        super().__init__(0)


def sample(choose: Any, probs: list[float]) -> int:
    return int(choose([p / sum(probs) for p in probs]))


def sample_unnormalized(choose: Any, probs: list[float]) -> int:
    return int(choose(list(probs)))


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def see_counter(answer: Answer, case: Case) -> Any:
    counter = answer.new("Counter", case.args[0])
    seen = [counter.call("add", n) for n in case.args[1]]
    return {
        "seen": seen,
        "refuses": refuses(lambda: counter.call("add", -1)),
        "total": counter.get("total"),
    }


def see_sample(answer: Answer, case: Case) -> Any:
    given: list[Any] = []

    def choose(probs: Any) -> int:
        given.append(probs)
        return case.args[0]  # type: ignore[no-any-return]

    return {"token": answer.call("sample", choose, case.args[1]), "given": given}


def exercise(
    slug: str, entry: str, reference: Any, wrong: Any, cases: Any, **more: Any
) -> Exercise:
    return Exercise(
        id=f"{TOPIC}-{slug}",
        title=slug.title(),
        kind="formula",
        points=2,
        minutes=5,
        entries=(entry,),
        cases=cases,
        reference=reference,
        misconceptions=(
            Misconception(wrong.__name__, wrong, "plausible", f"This is {wrong.__name__}."),
        ),
        hints=(f"First hint of {slug}.", "Second.", "Third."),
        recall=("?", "!"),
        **{"time_limit_s": 1.0, **more},
    )


def half(n_tokens: int, width: int) -> int:
    return n_tokens * width


def _formula_cases(rng: random.Random) -> list[Case]:
    fresh = [
        Case(f"fresh {i}", (rng.randrange(1, 99), rng.randrange(1, 99)), public=i < 2)
        for i in range(4)
    ]
    return [Case("one", (1, 1)), *fresh]


EXERCISES = {
    e.id: e
    for e in (
        exercise("bytes", "bytes_of", bytes_of, half, _formula_cases, compare=EXACT),
        exercise(
            "counter",
            "Counter",
            Counter,
            Forgetful,
            lambda rng: [Case("two", (rng.randrange(1, 9), [1, 2]))],
            observe=see_counter,
            compare=EXACT,
        ),
        exercise(
            "sampler",
            "sample",
            sample,
            sample_unnormalized,
            lambda rng: [Case(f"token {t}", (t, [1.0, 2.0, 5.0])) for t in range(3)],
            observe=see_sample,
        ),
        exercise(
            "softmax",
            "softmax",
            softmax,
            np.exp,
            lambda rng: [
                Case("rows", (np.random.default_rng(rng.randrange(999)).normal(size=(2, 3)),))
            ],
            compare=Tolerance(rtol=1e-6),
        ),
    )
}

SETUP = "from twophase.lab import NotYet, check, hint, solution, progress\nimport numpy as np\n"

RIGHT = {
    "bytes": "def bytes_of(n_tokens, width):\n    return 2 * n_tokens * width",
    "counter": (
        "class Counter:\n"
        "    def __init__(self, start=0):\n        self.total = start\n"
        "    def add(self, n):\n"
        "        if n < 0:\n            raise ValueError('no')\n"
        "        self.total += n\n        return self.total"
    ),
    "sampler": "def sample(choose, probs):\n    return choose([p / sum(probs) for p in probs])",
    "softmax": "def softmax(x):\n    e = np.exp(x)\n    return e / e.sum(-1, keepdims=True)",
}
STUBS = {
    slug: f"{RIGHT[slug].splitlines()[0]}\n    raise NotYet('{TOPIC}-{slug}')" for slug in RIGHT
}
STUBS["counter"] = (
    f"class Counter:\n    def __init__(self, start=0):\n        raise NotYet('{TOPIC}-counter')"
)


def cell(source: str, grade_id: str = "", kind: str = "code", **marks: Any) -> dict[str, Any]:
    metadata = (
        {"nbgrader": {"grade_id": grade_id, "schema_version": 3, **marks}} if grade_id else {}
    )
    extra = {"outputs": [], "execution_count": None} if kind == "code" else {}
    return {
        "cell_type": kind,
        "id": grade_id or "free",
        "metadata": metadata,
        "source": source,
        **extra,
    }


def setup_cell(source: str = SETUP) -> dict[str, Any]:
    return cell(source, f"{TOPIC}-setup", grade=False, locked=True, solution=False)


def answer_cell(slug: str, source: str) -> dict[str, Any]:
    return cell(source, f"{TOPIC}-{slug}", grade=False, locked=False, solution=True)


def check_cell(slug: str) -> dict[str, Any]:
    return cell(
        f'check("{TOPIC}-{slug}")',
        f"{TOPIC}-{slug}-check",
        grade=True,
        locked=True,
        solution=False,
        points=2,
    )


def cells(answers: dict[str, str]) -> list[dict[str, Any]]:
    """A notebook's cells with these answers, in the order of the course."""
    out = [setup_cell()]
    for slug in RIGHT:
        out += [
            cell(f"## {slug}", kind="markdown"),
            answer_cell(slug, answers.get(slug, STUBS[slug])),
            check_cell(slug),
        ]
    return out


def dump(all_cells: list[dict[str, Any]]) -> bytes:
    return json.dumps(
        {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": all_cells}
    ).encode()


def release() -> releases.Release:
    notebook: Notebook = parse(dump(cells({})))
    return releases.from_cells(TOPIC, notebook.cells, EXERCISES, "a test")
