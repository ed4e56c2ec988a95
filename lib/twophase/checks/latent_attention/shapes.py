"""latent_attention-shapes: choose shapes for a test that finds every broken form."""

from __future__ import annotations

import random
from typing import Any

import torch

from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.latent_attention._broken_forms import (
    BROKEN,
    Attend,
    Inputs,
    absorbed,
    expanded,
)
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

Shape = dict[str, int]
NAMES = ("B", "T", "S", "N", "R", "nope_dim", "rope_dim", "v_dim")
MOST = {"B": 4, "S": 100, "T": 100}  # of the others 16


def problem(shapes: Any) -> str:
    """What makes the shapes no shapes, in one sentence; empty if nothing does."""
    if not isinstance(shapes, list | tuple) or not 1 <= len(shapes) <= 10:
        return "shapes() must return a list of 1 to 10 shapes"
    for shape in shapes:
        if not isinstance(shape, dict) or set(shape) != set(NAMES):
            return f"a shape is a dict with the keys {', '.join(NAMES)}"
        for name, size in shape.items():
            most = MOST.get(name, 16)
            if type(size) is not int or not 1 <= size <= most:
                return f"{name} must be a whole number from 1 to {most}"
        if shape["T"] > shape["S"]:
            return "T must be at most S: the queries are the last T of the S positions"
    return ""


def inputs(shape: Shape) -> Inputs:
    """Numbers of this shape, the same every time."""
    B, T, S, N, R, nope_dim, rope_dim, v_dim = (shape[name] for name in NAMES)
    generator = torch.Generator().manual_seed(6)
    sizes = [
        (B, T, N, nope_dim),
        (B, T, N, rope_dim),
        (B, S, R),
        (B, S, rope_dim),
        (N, nope_dim, R),
        (N, v_dim, R),
    ]
    return Inputs(*(torch.randn(size, generator=generator) for size in sizes))


def agrees(attend: Attend, shape: Shape) -> bool:
    """Whether an implementation gives what a right one gives."""
    given = inputs(shape)
    wanted = expanded(given)
    try:
        got = attend(given)
    except (RuntimeError, IndexError):  # what does not fit is found out as well
        return False
    return got.shape == wanted.shape and torch.allclose(got, wanted, rtol=1e-3, atol=1e-4)


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """Whether right forms pass, or whether the case's broken one is caught."""
    shapes = plain(answer.call("shapes"))
    found = problem(shapes)
    if case.args:
        return {"caught": not found and not all(agrees(BROKEN[case.args[0]], s) for s in shapes)}
    if not found:
        assert all(agrees(absorbed, s) for s in shapes)
    return {"the shapes": found or "can be used"}


def cases(rng: random.Random) -> list[Case]:
    """The right forms first, then the broken ones in an order of the seed's choosing."""
    names = sorted(BROKEN)
    rng.shuffle(names)
    return [Case("right forms"), *(Case(f"a form that {name}", (name,)) for name in names)]


def _shape(*sizes: int) -> Shape:
    return dict(zip(NAMES, sizes, strict=True))


BLOCK = _shape(2, 3, 5, 3, 7, 4, 2, 9)
PROMPT = _shape(1, 4, 4, 2, 6, 5, 4, 3)
LONG_STEP = _shape(2, 1, 90, 2, 5, 4, 2, 3)
ONE_HEAD = _shape(1, 2, 3, 1, 6, 4, 2, 16)


def reference() -> list[Shape]:
    """The right answer (one of many)."""
    return [BLOCK, PROMPT, LONG_STEP, ONE_HEAD]


@wrong(
    "tests of a decode step",
    "Every shape of yours has one query: masks, and mixed-up heads and queries, stay unseen.",
)
def one_query() -> list[Shape]:
    return [{**LONG_STEP, "v_dim": 9}, _shape(2, 1, 5, 1, 7, 4, 2, 9)]


@wrong(
    "tests of a prompt",
    "T is S in all your shapes: a mask at the wrong corner, and a long context, stay unseen.",
)
def prompts_only() -> list[Shape]:
    return [{**BLOCK, "S": 3}, {**BLOCK, "T": 1, "S": 1}, {**BLOCK, "N": 1, "S": 3}]


@wrong(
    "prefill and decode, nothing between",
    "Prompts and single queries: a block of queries behind a cache, 1 < T < S, is missing.",
)
def no_block() -> list[Shape]:
    return [{**BLOCK, "T": 5}, LONG_STEP, {**ONE_HEAD, "T": 3}]


@wrong(
    "constant sizes: R = nope_dim = v_dim",
    "All your widths are equal: a scale taken from the wrong one, and values of another width, stay"
    " unseen.",
)
def equal_widths() -> list[Shape]:
    even = {"R": 8, "nope_dim": 8, "rope_dim": 8, "v_dim": 8}
    return [{**shape, **even} for shape in reference()]


@wrong(
    "tests with batch 1",
    "Every shape of yours has one sequence: code that reads the first one's latents passes.",
)
def one_sequence() -> list[Shape]:
    return [{**shape, "B": 1} for shape in reference()]


@wrong(
    "plausible",
    "Every shape of yours has one head: what mixes heads up stays unseen.",
)
def one_head() -> list[Shape]:
    return [{**shape, "N": 1} for shape in reference()]


@wrong(
    "plausible",
    "Your contexts are short: a buffer that ends, here at 64 positions, is never filled.",
)
def short_contexts() -> list[Shape]:
    return [BLOCK, PROMPT, {**LONG_STEP, "S": 6}, ONE_HEAD]


@wrong(
    "DeepSeek's widths, scaled down",
    "v_dim is never above nope_dim + rope_dim: a kernel that pads values to the width of keys may"
    " cut wider ones.",
)
def narrow_values() -> list[Shape]:
    return [{**BLOCK, "v_dim": 5}, PROMPT, LONG_STEP, {**ONE_HEAD, "v_dim": 6}]


@wrong(
    "plausible",
    "No prompt is among your shapes, T = S with several queries: code that forgets its mask there"
    " passes.",
)
def no_prompt() -> list[Shape]:
    return [BLOCK, LONG_STEP, ONE_HEAD]


@wrong(
    "plausible",
    "No single query is among your shapes: what drops an axis of length 1 passes.",
)
def no_single_query() -> list[Shape]:
    return [BLOCK, PROMPT, {**LONG_STEP, "T": 2}, ONE_HEAD]


@wrong(
    "plausible",
    "One of your shapes has more queries than positions, which no causal attention has.",
)
def more_queries_than_positions() -> list[Shape]:
    return [*reference(), {**BLOCK, "T": 6}]


EXERCISE = Exercise(
    id="latent_attention-shapes",
    title="Find every broken form",
    kind="test",
    points=4,
    minutes=15,
    entries=("shapes",),
    cases=cases,
    observe=observe,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "For each size ask: which mistake cannot be seen when it is 1, or equal to another one?",
        (
            "T and S: one query, a prompt (T = S), a block behind a cache (1 < T < S), a long"
            " context. B and N: one and several."
        ),
        (
            "Widths: R unlike nope_dim, v_dim unlike both, and once v_dim above nope_dim +"
            " rope_dim. Four shapes can do it all."
        ),
    ),
    recall=(
        "Why do tests with R = nope_dim = v_dim miss mistakes in latent attention?",
        "A scale, or a slice, taken from the wrong width then comes out the same.",
    ),
)
