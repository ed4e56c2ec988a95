"""arithmetic_intensity-critical_batch: tokens per step at which computing takes as long as reading
the weights."""

from __future__ import annotations

import math
import random

from twophase.checks.compare import FORMULA
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

# (weights, activations): ternary, 2 bits, 4 with a scale for every 32, and so on up to fp32
WIDTHS = (
    (1, 1),
    (1.58, 16),
    (2, 16),
    (3, 8),
    (4, 4),
    (4.5, 32),
    (6, 8),
    (12, 16),
    (8, 4),
    (32, 32),
)


def reference(
    flops_per_s: float,
    bytes_per_s: float,
    bits_per_param: float,
    bits_per_activation: float,
    E: int,
    k: int,
) -> float:
    """The right answer: 2·B·k/E FLOPs per stored parameter against bits/8 bytes of it."""
    return flops_per_s / bytes_per_s * (bits_per_param / 16) * E / k


@wrong(
    "public notes: C/W × (bits per param) / (bits per activation)",
    "You divided by the bits of an activation. FLOPs have no width: the activations' format enters"
    " only through flops_per_s, so with int8 products this is twice too much.",
)
def bits_ratio(C: float, W: float, param: float, activation: float, E: int, k: int) -> float:
    return C / W * (param / activation) * E / k


@wrong(
    "the rule “compute bound above 295”",
    "C / W is the critical batch of 16-bit weights: narrower ones are read sooner.",
)
def format_left_out(C: float, W: float, param: float, activation: float, E: int, k: int) -> float:
    return C / W * E / k


@wrong(
    "plausible",
    "The width is upside down: narrower weights are read sooner, so a smaller batch keeps up.",
)
def format_upside_down(
    C: float, W: float, param: float, activation: float, E: int, k: int
) -> float:
    return C / W * (16 / param) * E / k


@wrong("plausible", "You used the width of the activations: what is read here are the weights.")
def activation_bits(C: float, W: float, param: float, activation: float, E: int, k: int) -> float:
    return C / W * (activation / 16) * E / k


@wrong(
    "dense formulas used for MoE",
    "The experts are missing: all E are read, and a token computes with k of them only.",
)
def experts_left_out(C: float, W: float, param: float, activation: float, E: int, k: int) -> float:
    return reference(C, W, param, activation, 1, 1)


@wrong(
    "plausible",
    "E and k are swapped: with more experts a token uses a smaller share of what is read, so it"
    " takes more tokens.",
)
def experts_upside_down(
    C: float, W: float, param: float, activation: float, E: int, k: int
) -> float:
    return reference(C, W, param, activation, k, E)


@wrong("plausible", "You multiplied by E alone: a token computes with k experts, so divide by k.")
def all_experts(C: float, W: float, param: float, activation: float, E: int, k: int) -> float:
    return reference(C, W, param, activation, E, 1)


@wrong(
    "plausible",
    "The rates are upside down: FLOP/s over B/s. A chip that computes faster needs more tokens.",
)
def rates_upside_down(C: float, W: float, param: float, activation: float, E: int, k: int) -> float:
    return reference(W, C, param, activation, E, k)


@wrong(
    "counting multiply-adds",
    "A token costs two FLOPs per parameter, a multiply and an add; you counted one.",
)
def one_flop_per_param(
    C: float, W: float, param: float, activation: float, E: int, k: int
) -> float:
    return 2 * reference(C, W, param, activation, E, k)


@wrong("plausible", "You used bits where bytes belong: bytes_per_s counts bytes of eight bits.")
def bits_for_bytes(C: float, W: float, param: float, activation: float, E: int, k: int) -> float:
    return 8 * reference(C, W, param, activation, E, k)


@wrong(
    "widths held in an int",
    "You made the width whole bytes: two int4 weights share a byte, and a 12-bit one takes 1.5."
    " Divide the bits by 8 and keep the fraction.",
)
def whole_bytes(C: float, W: float, param: float, activation: float, E: int, k: int) -> float:
    return reference(C, W, 8 * math.ceil(param / 8), activation, E, k)


def cases(rng: random.Random) -> list[Case]:
    """Round numbers, the table of the TPU v5e, an H100, every width, all experts active and many,
    less than one token; then chips that nobody sells."""
    fresh = []
    for i in range(6):
        k = rng.randrange(2, 9)
        E = k * rng.randrange(2, 20) + rng.randrange(1, 3)
        rates = (rng.uniform(1e13, 4e15), rng.uniform(2e11, 9e12))
        bits = (16, 8) if i == 0 else (rng.choice((16, 8, 4, 3)), rng.choice((16, 8)))
        fresh.append(Case(f"fresh {i + 1}", (*rates, *bits, E, k), public=i < 3))
    return [
        Case("100 FLOP/s, 10 B/s, bf16, dense", (100.0, 10.0, 16, 16, 1, 1)),
        Case("the same with int8 weights", (100.0, 10.0, 8, 16, 1, 1)),
        Case("the same with 6 experts, 2 active", (100.0, 10.0, 8, 16, 6, 2)),
        # another k, then other bytes_per_s: whoever keeps results by the rest is wrong here
        Case("the same with 6 experts, 3 active", (100.0, 10.0, 8, 16, 6, 3)),
        Case("the same with 6 experts, 3 active, 20 B/s", (100.0, 20.0, 8, 16, 6, 3)),
        Case("TPU v5e, bf16", (1.97e14, 8.1e11, 16, 16, 1, 1)),
        Case("TPU v5e, int8 weights, products in bf16", (1.97e14, 8.1e11, 8, 16, 1, 1)),
        Case(
            "TPU v5e, int8 weights and activations, products in int8", (3.94e14, 8.1e11, 8, 8, 1, 1)
        ),
        Case("TPU v5e, bf16, 16 experts, 2 active", (1.97e14, 8.1e11, 16, 16, 16, 2)),
        Case("H100, int4 weights, products in bf16", (9.89e14, 3.35e12, 4, 16, 1, 1)),
        *(
            Case(f"{param}-bit weights, {activation}-bit activations", (900.0, 7.0, *bits, 1, 1))
            for bits in WIDTHS
            for param, activation in [bits]
        ),
        Case("5 experts, all of them active", (100.0, 10.0, 16, 16, 5, 5)),
        Case("61 experts, 13 active", (100.0, 10.0, 16, 16, 61, 13)),
        Case("9,001 experts, 4,099 active", (100.0, 10.0, 16, 16, 9001, 4099)),
        Case("a chip that needs less than one token", (3.0, 10.0, 16, 16, 1, 1)),
        Case("8 experts, 1 active, fewer tokens than experts", (3.0, 10.0, 16, 16, 8, 1)),
        *fresh,
    ]


EXERCISE = Exercise(
    id="arithmetic_intensity-critical_batch",
    title="The critical batch of any format",
    kind="formula",
    points=3,
    minutes=10,
    entries=("critical_batch",),
    cases=cases,
    reference=reference,
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        (
            "Take one stored parameter. How long does reading it take? How many FLOPs do B tokens"
            " do with it?"
        ),
        (
            "Reading: bits_per_param / 8 bytes. Computing: a token meets k of E experts, so 2·B·k/E"
            " FLOPs on average."
        ),
        (
            "Set bits_per_param / 8 / bytes_per_s equal to 2·B·k/E / flops_per_s and solve for B."
            " One argument is not needed."
        ),
    ),
    ranges={"bits_per_param": (1, 32), "bits_per_activation": (1, 32), "k": (1, 4099)},
    recall=(
        (
            "Weights go from bf16 to int8, the products stay in bf16. What happens to the critical"
            " batch?"
        ),
        "It halves: half the bytes to read, the same FLOPs.",
    ),
)
