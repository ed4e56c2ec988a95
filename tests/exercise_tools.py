"""What several tests need of the exercises: right answers from tests/answers, stubs, every public
function of the package."""

from __future__ import annotations

import dataclasses
import importlib
import random
from pathlib import Path
from typing import Any

from twophase.checks import registry
from twophase.checks.answer import LocalAnswer
from twophase.checks.exercise import Case, Exercise
from twophase.checks.judge import Bench

ANSWERS = Path(__file__).parent / "answers"
DRAWN = ("fresh", "log ", "unseen", "a model of real size")  # how the names of such cases begin
ALL_IDS = [i for t in registry.topics() for i in registry.ids(t)]


def right_answers(exercise_id: str) -> list[Path]:
    """The files with independently written right answers to this exercise."""
    topic, _, slug = exercise_id.partition("-")
    return sorted((ANSWERS / topic).glob(f"{slug}__*.py"))


def namespace_of(path: Path) -> dict[str, Any]:
    """The names that a file defines, run as a notebook cell would be: after the notebook's setup
    cell."""
    import numpy
    import torch

    names: dict[str, Any] = {
        "__name__": "__main__",
        "np": numpy,
        "torch": torch,
        "math": importlib.import_module("math"),
    }
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    return names


def refused_by_a_fixed_case(exercise_id: str, functions: dict[str, Any]) -> None:
    """An answer that is nearly right is wrong, and not only where a seed happens to say so."""
    verdict = Bench(registry.load(exercise_id)).judge(LocalAnswer(functions))
    assert verdict.status == "wrong"
    wrong = [outcome.case for outcome in verdict.outcomes if not outcome.right]
    assert any(not name.startswith(DRAWN) for name in wrong), wrong


def in_fixed_cases(exercise: Exercise) -> Exercise:
    """The exercise without the cases that a seed draws, or as it is if it has no others."""

    def cases(rng: random.Random) -> list[Case]:
        made = exercise.cases(rng)
        return [case for case in made if not case.name.startswith(DRAWN)] or made

    return dataclasses.replace(exercise, cases=cases)
