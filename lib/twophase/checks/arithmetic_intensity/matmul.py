"""arithmetic_intensity-matmul: FLOPs per byte of one matrix product, exactly."""

from __future__ import annotations

import math
import random

from twophase.checks import edges
from twophase.checks.compare import FORMULA
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()


def reference(B: int, D: int, F: int, bytes_per_param: float, bytes_per_activation: float) -> float:
    """The right answer: read x and W, write y."""
    moved = bytes_per_activation * B * D + bytes_per_param * D * F + bytes_per_activation * B * F
    return 2 * B * D * F / moved


@wrong("plausible", "The output is missing from the bytes: its B·F numbers are written to memory.")
def output_left_out(B: int, D: int, F: int, param: float, activation: float) -> float:
    return 2 * B * D * F / (activation * B * D + param * D * F)


@wrong("plausible", "The input is missing from the bytes: its B·D numbers are read.")
def input_left_out(B: int, D: int, F: int, param: float, activation: float) -> float:
    return 2 * B * D * F / (activation * B * F + param * D * F)


@wrong(
    "the usual approximation, 2·B / bytes per weight",
    "You left the activations out. That is the approximation for B much smaller than D and F; here"
    " the exact ratio is asked for.",
)
def weights_only(B: int, D: int, F: int, param: float, activation: float) -> float:
    return 2 * B / param


@wrong(
    "a public lecture's rule",
    "B is the limit for bf16 and for D and F without end: put the formats and the activations in.",
)
def simply_the_batch(B: int, D: int, F: int, param: float, activation: float) -> float:
    return float(B)


@wrong(
    "counting multiply-adds",
    "A multiply and an add are two FLOPs: 2·B·D·F. Peak rates on data sheets count them so.",
)
def one_flop_per_term(B: int, D: int, F: int, param: float, activation: float) -> float:
    return reference(B, D, F, param, activation) / 2


@wrong(
    "plausible",
    "You read the weights once for each row. All B rows share one reading: that is what a batch is"
    " for.",
)
def weights_per_row(B: int, D: int, F: int, param: float, activation: float) -> float:
    return 2 * B * D * F / (activation * B * D + param * B * D * F + activation * B * F)


@wrong(
    "formulas in one format",
    "Activations have their own width: input and output take bytes_per_activation.",
)
def one_width_for_all(B: int, D: int, F: int, param: float, activation: float) -> float:
    return reference(B, D, F, param, param)


@wrong(
    "formulas with the 2 of bf16 written in",
    "You took two bytes for everything, whatever the arguments say.",
)
def always_bf16(B: int, D: int, F: int, param: float, activation: float) -> float:
    return reference(B, D, F, 2, 2)


@wrong("plausible", "The two widths are swapped: the weights are the D × F matrix.")
def widths_swapped(B: int, D: int, F: int, param: float, activation: float) -> float:
    return reference(B, D, F, activation, param)


@wrong("plausible", "This is bytes per FLOP, upside down: intensity is FLOPs divided by bytes.")
def bytes_per_flop(B: int, D: int, F: int, param: float, activation: float) -> float:
    return 1 / reference(B, D, F, param, activation)


@wrong(
    "widths held in an int",
    "You made the widths whole bytes. Two int4 numbers share a byte, and a 12-bit one takes 1.5:"
    " multiply by the fraction as it is given.",
)
def whole_bytes(B: int, D: int, F: int, param: float, activation: float) -> float:
    return reference(B, D, F, math.ceil(param), math.ceil(activation))


def cases(rng: random.Random) -> list[Case]:
    """A product that can be counted by hand, each of its arguments changed alone; the chapter's,
    every width for weights and for activations, sizes at which nothing may be left out; then fresh
    ones."""
    named = {"B": 2, "D": 3, "F": 5, "bytes_per_param": 4, "bytes_per_activation": 4}
    changed = edges.one_changed(named, B=7, D=4, F=9, bytes_per_param=1, bytes_per_activation=2)
    fresh = []
    for i in range(6):
        sizes = (rng.randrange(2, 5000), rng.randrange(100, 9000), rng.randrange(100, 30_000))
        widths = (rng.choice((0.5, 1, 2, 4)), rng.choice((0.5, 1, 2, 4)))
        fresh.append(Case(f"fresh {i + 1}", (*sizes, *widths), public=i < 3))
    return [
        Case("[2, 3] @ [3, 5], 4 bytes each", tuple(named.values())),
        *(Case(f"the same {name}", tuple(sizes.values())) for name, sizes in changed),
        Case("[1, 3] @ [3, 5], weights of 1 byte, activations of 2", (1, 3, 5, 1, 2)),
        Case("[100, 4096] @ [4096, 16384] in bf16", (100, 4096, 16384, 2, 2)),
        Case("the same with int4 weights", (100, 4096, 16384, 0.5, 2)),
        Case("[1, 2] @ [2, 5], half a byte each", (1, 2, 5, 0.5, 0.5)),
        Case("[7, 3] @ [3, 5], weights of 12 bits, activations of 6", (7, 3, 5, 1.5, 0.75)),
        Case("[3, 64] @ [64, 32], weights of 6 bits, activations of 12", (3, 64, 32, 0.75, 1.5)),
        Case("[9, 5] @ [5, 4], weights of 2 bits, activations of 4 bytes", (9, 5, 4, 0.25, 4)),
        Case("[5, 6] @ [6, 7], weights of 8 bytes, activations of 1", (5, 6, 7, 8, 1)),
        Case("[1, 16384] @ [16384, 16384] in bf16: few rows", (1, 16384, 16384, 2, 2)),
        # more numbers in all three matrices than 32 bits count, then in the weights alone
        Case("[65536, 65536] @ [65536, 65536] in bf16", (65536, 65536, 65536, 2, 2)),
        Case("[4096, 65536] @ [65536, 65536] in bf16", (4096, 65536, 65536, 2, 2)),
        Case("[1000003, 2] @ [2, 3] in bf16: many rows", (1_000_003, 2, 3, 2, 2)),
        Case("[4, 4] @ [4, 4], weights of 1 byte, activations of 2", (4, 4, 4, 1, 2)),
        Case("[3, 8] @ [8, 2], 2 bytes each", (3, 8, 2, 2, 2)),
        Case("[1, 1] @ [1, 1], one byte each", (1, 1, 1, 1, 1)),
        Case("[1, 1] @ [1, 1], 8 bytes each: a twelfth, not rounded", (1, 1, 1, 8, 8)),
        *fresh,
    ]


EXERCISE = Exercise(
    id="arithmetic_intensity-matmul",
    title="FLOPs per byte of a matrix product",
    kind="formula",
    points=2,
    minutes=8,
    entries=("intensity",),
    cases=cases,
    reference=reference,
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        "Three matrices cross the border between chip and memory. Which, how many numbers has "
        "each, how wide is a number?",
        "Bytes: bytes_per_activation · B·D + bytes_per_param · D·F + bytes_per_activation · B·F.",
        "FLOPs: each of the B·F results is a sum of D products, 2·D FLOPs. Divide FLOPs by bytes.",
    ),
    ranges={"B": (1, 1_000_003), "D": (1, 65_536), "F": (1, 65_536), "bytes_per_param": (0.25, 8)},
    recall=(
        "In bf16 the intensity of [B, D] @ [D, F] is 1 / (1/B + 1/D + 1/F). What is it at least, "
        "what at most?",
        "Less than the smallest of B, D and F; at least a third of it.",
    ),
)
