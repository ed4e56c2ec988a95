"""What several tests need of the exercises: right answers from tests/answers, stubs, every public
function of the package."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from twophase.checks import registry
from twophase.checks.answer import LocalAnswer
from twophase.checks.judge import Bench
from twophase.checks.prove.limits import cpu_limit
from twophase.grading.sandbox.rlimits import address_space_bytes

# not called at random by a test: these train, calibrate, or change what later code of the process
# does
NOT_CALLED = (
    "twophase.models.train.",
    "twophase.models.objective.",
    "twophase.models.corpus.",
    "twophase.models.balance.",
    "twophase.measure.machine.",
    "twophase.measure.reports.",
    "twophase.measure.formulas.register",
)

ANSWERS = Path(__file__).parent / "answers"
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


@cache
def public_functions() -> dict[str, Any]:
    """Every public function and class of the package outside the checks, by dotted name."""
    found: dict[str, Any] = {}
    for room in ("theory", "kernels", "measure", "models", "serving"):
        package = importlib.import_module(f"twophase.{room}")
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if info.name.endswith("__main__"):
                continue
            module = importlib.import_module(info.name)
            for name, member in inspect.getmembers(module, callable):
                full_name = f"{getattr(member, '__module__', '')}.{name}"
                if (
                    full_name.startswith("twophase.")
                    and not name.startswith("_")
                    and not full_name.startswith(NOT_CALLED)
                ):
                    found[full_name] = member
    return found


def refused_by_a_fixed_case(exercise_id: str, functions: dict[str, Any]) -> None:
    """An answer that is nearly right is wrong, and not only where a seed happens to say so."""
    verdict = Bench(registry.load(exercise_id)).judge(LocalAnswer(functions))
    assert verdict.status == "wrong"
    wrong = [outcome.case for outcome in verdict.outcomes if not outcome.right]
    assert any(not name.startswith(("fresh", "log ")) for name in wrong), wrong


MEMORY_BYTES = 2**28


@contextmanager
def limits(cpu_s: float) -> Iterator[None]:
    """Stop the block with TooLong after this much processor time (the clock that pytest's own limit
    does not use), and give it MEMORY_BYTES more memory: what asks for a matrix of any size must
    fail on every machine, and at once."""

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if mapped := address_space_bytes():
        resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY_BYTES, hard))
    try:
        with cpu_limit(cpu_s):
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
