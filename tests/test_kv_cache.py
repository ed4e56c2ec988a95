"""What the checks of chapter 3 rest on, beyond the kill matrix."""

from __future__ import annotations

import ast
import inspect
import json
import random
import re
import textwrap
from pathlib import Path

import pytest
import torch

from twophase.checks.compare import difference
from twophase.checks.kv_cache import _snippet_caches as caches
from twophase.checks.kv_cache import _snippet_cases, _snippet_scripts, snippet
from twophase.checks.kv_cache._broken_caches import MUTANTS, Buffer, Cache
from twophase.checks.kv_cache.cache_tests import passes, problem

ROOT = Path(__file__).resolve().parents[1]


def printed_in_the_notebook() -> str:
    """The class that the task of kv_cache-snippet prints."""
    cells = json.loads((ROOT / "solutions" / "03_kv_cache.ipynb").read_text(encoding="utf-8"))[
        "cells"
    ]
    task = next("".join(c["source"]) for c in cells if c["id"] == "kv_cache-snippet-task")
    found = re.search(r"```python\n(.*?)```", task, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_class_printed_in_the_notebook_is_the_one_that_the_check_judges() -> None:
    in_the_check = textwrap.dedent(inspect.getsource(caches.Printed)).replace(
        "class Printed", "class Cache"
    )
    tree = ast.parse(in_the_check)
    body = tree.body[0]
    assert isinstance(body, ast.ClassDef)
    body.body = body.body[1:]  # without its docstring
    assert ast.dump(tree) == ast.dump(ast.parse(printed_in_the_notebook()))


def test_the_printed_class_loses_one_token_too_many_without_an_error() -> None:
    cache = caches.Printed(1, 2, 1, 1, "float32")  # type: ignore[no-untyped-call]
    for number in (1.0, 2.0, 3.0):
        cache.update([0], torch.full((1, 1, 1, 1), number), torch.full((1, 1, 1, 1), -number))  # type: ignore[no-untyped-call]
    assert cache.read(0)[0].flatten().tolist() == [1.0, 2.0]  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("fault", caches.FAULTS)
def test_each_fault_alone_breaks_the_contract_on_some_input_and_keeps_it_on_another(
    fault: str,
) -> None:
    one = caches.FAULTS[fault]
    harmless = {"n_sequences": 1, "S_max": 4, "dtype": "float32", "blocks": [[[0], 2], [[0], 2]]}
    assert (
        difference(
            _snippet_cases._play(one, harmless),
            _snippet_cases._play(caches.Right, harmless),
            _snippet_cases.COMPARE,
        )
        is None
    )
    differ = [
        difference(
            _snippet_cases._play(one, s),
            _snippet_cases._play(caches.Right, s),
            _snippet_cases.COMPARE,
        )
        for s in snippet.expose()
    ]
    assert sum(d is not None for d in differ) == 1  # the author's inputs show one fault each


@pytest.mark.parametrize(
    "scripts",
    [
        None,
        [],
        [{}],
        [{"n_sequences": 0, "S_max": 4, "dtype": "float32", "blocks": [[[0], 1]]}],
        [{"n_sequences": True, "S_max": 4, "dtype": "float32", "blocks": [[[0], 1]]}],
        [{"n_sequences": 2, "S_max": 4, "dtype": "int8", "blocks": [[[0], 1]]}],
        [{"n_sequences": 2, "S_max": 4, "dtype": "float32", "blocks": []}],
        [{"n_sequences": 2, "S_max": 4, "dtype": "float32", "blocks": [[[2], 1]]}],
        [{"n_sequences": 2, "S_max": 4, "dtype": "float32", "blocks": [[[0, 0], 1]]}],
        [{"n_sequences": 2, "S_max": 4, "dtype": "float32", "blocks": [[[], 1]]}],
        [{"n_sequences": 2, "S_max": 4, "dtype": "float32", "blocks": [[[0], 0]]}],
        [{"n_sequences": 2, "S_max": 4, "dtype": ["float32"], "blocks": [[[0], 1]]}],
    ],
)
def test_inputs_outside_the_contract_expose_nothing(scripts: object) -> None:
    assert _snippet_scripts.problem(scripts)


def test_random_use_of_the_two_right_caches_gives_the_same_answers() -> None:
    rng = random.Random(3)
    for _ in range(200):
        S_max = rng.randrange(1, 9)
        one, other = Cache(S_max), Buffer(S_max)
        for _ in range(12):
            if rng.random() < 0.2:
                one.reset()
                other.reset()
            else:
                new = [rng.randrange(100) for _ in range(rng.randrange(1, 5))]
                assert one.append(new) == other.append(new)


@pytest.mark.parametrize("name", MUTANTS)
def test_every_broken_cache_can_be_told_from_a_right_one(name: str) -> None:
    rng = random.Random(5)
    told = 0
    for _ in range(300):
        right, steps = Cache(5), []
        for _ in range(8):
            if rng.random() < 0.2:
                right.reset()
                steps.append("reset")
            else:
                new = [rng.randrange(100) for _ in range(rng.randrange(1, 5))]
                steps.append((new, right.append(new)))  # type: ignore[arg-type]
        told += not passes(MUTANTS[name], {"S_max": 5, "steps": steps})
    assert told > 0


@pytest.mark.parametrize(
    "scripts",
    [None, [], [{"S_max": 0, "steps": []}], [{"S_max": 3, "steps": [([], [])]}], [{"S_max": 3}]],
)
def test_scripts_that_are_none_are_said_to_be_none(scripts: object) -> None:
    assert problem(scripts)
