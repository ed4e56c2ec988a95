"""quantization-snippet: the sources' quantize_group, exposed and repaired. The notebook prints
`printed`."""

from __future__ import annotations

import random
from typing import Any

import torch

from twophase.checks import edges
from twophase.checks.answer import Answer
from twophase.checks.compare import Tolerance, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced
from twophase.checks.quantization._group_snippet import (
    FAULTS,
    clear,
    drawn,
    printed,
    problem,
    tensor,
)

wrong = Misconceptions()

Tensor = torch.Tensor
Input = dict[str, Any]


def right(weight: Tensor, group_size: int = 128, bits: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """The right answer."""
    parts, width = torch.split(weight, group_size, 1), weight.shape[1]
    lows = torch.stack([p.amin(1) for p in parts], 1)  # [O, groups]
    highs = torch.stack([p.amax(1) for p in parts], 1)  # [O, groups]
    scales = (highs - lows) / (2**bits - 1)
    scales = scales.masked_fill(scales == 0, 1.0)
    low, scale = (x.repeat_interleave(group_size, 1)[:, :width] for x in (lows, scales))  # [O, I]
    return ((weight - low) / scale).round().to(torch.uint8), scales, lows


def expose() -> list[Input]:
    """The right answer (one of many)."""
    return [
        {"weight": [[-1.0, 1.0]], "group_size": 2, "bits": 8},
        {"weight": [[1.0, 1.3, 2.0], [3.0, 4.0, 5.0]], "group_size": 2, "bits": 4},
        {"weight": [[10.0, 10.4, 10.76, 11.0]], "group_size": 4, "bits": 4},
    ]


@wrong(
    "the snippet tried as it is called, with 4 bits",
    "None of your inputs makes a code that int8 does not hold: codes go from 0 to twice the last"
    " level of absmax. For which bits is that beyond 127?",
    entry="expose",
)
def exposed_four_bits() -> list[Input]:
    return expose()[1:]


@wrong(
    "weights of 4096 inputs in groups of 128",
    "In all your inputs the group divides the width: then no group holds numbers of two rows.",
    entry="expose",
)
def exposed_even_widths() -> list[Input]:
    return [expose()[0], expose()[2]]


@wrong(
    "plausible",
    "Your numbers lie on the printed code's levels, so that it makes no error. Take a group that"
    " lies on one side of 0: how many of the 16 levels does it use?",
    entry="expose",
)
def exposed_on_the_grid() -> list[Input]:
    return [*expose()[:2], {"weight": [[-7.0, 0.0, 3.0, 7.0]], "group_size": 4, "bits": 4}]


@wrong(
    "plausible",
    "An input is not valid: where the group does not divide all numbers, the printed code stops"
    " with an error. A wrong result that looks right is worse: show that.",
    entry="expose",
)
def exposed_by_a_crash() -> list[Input]:
    return [*expose(), {"weight": [[1.0, 2.0, 3.0]], "group_size": 2, "bits": 4}]


@wrong(
    "plausible",
    "An input is not valid: a group of zeros divides 0 by 0, and what becomes of it differs from"
    " machine to machine.",
    entry="expose",
)
def exposed_by_zeros() -> list[Input]:
    return [*expose(), {"weight": [[0.0, 0.0]], "group_size": 2, "bits": 4}]


def _repair(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, {"quantize_group": replaced(right, parts)}, seen, says)


wrong.add(
    "unrepaired",
    {"quantize_group": printed},
    "the sources' snippet",
    "The function is still the printed one.",
)
_repair(
    "absmax_scale_still",
    {"(highs - lows) / (2**bits - 1)": "torch.maximum(highs, -lows) / (2 ** (bits - 1) - 1)"},
    "the sources' snippet",
    "The scale is still that of absmax: with the least number taken off, the group goes from 0 to"
    " max − min, and has 2**bits − 1 steps.",
)
_repair(
    "int8_still",
    {".to(torch.uint8)": ".to(torch.int8)"},
    "the sources' snippet",
    "Your codes are still int8, which ends at 127: codes go from 0 to 2**bits − 1.",
)
_repair(
    "zeros_divide_still",
    {"scales = scales.masked_fill(scales == 0, 1.0)": ""},
    "the sources' snippet",
    "A group of equal numbers still divides by 0: its scale is 1.",
)
_repair(
    "levels_counted_as_steps",
    {"(2**bits - 1)": "2**bits"},
    "“2**b levels, so 2**b steps”",
    "Between 2**bits levels lie 2**bits − 1 steps.",
)
_repair(
    "zero_kept_in_range",
    {"p.amin(1) for": "p.amin(1).clamp(max=0) for", "p.amax(1) for": "p.amax(1).clamp(min=0) for"},
    "the affine grid of kernels.quantization.integers",
    "You stretched the range to hold 0. This contract does not ask for it: low is the group's least"
    " number.",
)
_repair(
    "symmetric_instead",
    {
        "p.amin(1) for": "p.abs().amax(1).neg() for",
        "p.amax(1) for": "p.abs().amax(1) for",
    },
    "plausible",
    "You repaired it to a symmetric grid, from −max|w| to max|w|: the contract says from min to"
    " max.",
)


def rows_still(
    weight: Tensor, group_size: int = 128, bits: int = 4
) -> tuple[Tensor, Tensor, Tensor]:
    codes, scales, lows = right(weight.reshape(1, -1), group_size, bits)
    return codes.view(weight.shape), scales, lows


wrong.add(
    "rows_mixed_still",
    {"quantize_group": rows_still},
    "the sources' snippet",
    "Your groups still run on from one row to the next: a row ends in a shorter group.",
)


def exchanged(
    weight: Tensor, bits: int = 128, group_size: int = 4
) -> tuple[Tensor, Tensor, Tensor]:
    return right(weight, bits, group_size)


wrong.add(
    "names_exchanged",
    {"quantize_group": exchanged},
    "plausible",
    "Your group_size and bits have each other's names: by place your function is right, and"
    " quantize_group(weight, group_size=3, bits=5) makes groups of 5.",
)


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """A case with a fault's name asks whether `expose` shows it; the others run the repaired
    function, one of them by the names of its parameters: the task gives them."""
    if not case.args or not isinstance(case.args[0], str):
        return {"codes, scales, lows": answer.call("quantize_group", *case.args, **case.kwargs)}
    inputs = plain(answer.call("expose"))
    if found := problem(inputs):
        return {"the inputs": found, "an input shows it": False}
    shows = FAULTS[case.args[0]]
    return {"the inputs": "valid", "an input shows it": any(shows(*tensor(x)) for x in inputs)}


def by_name() -> list[Case]:
    """Called by the names of its parameters, and with one of them changed: whoever keeps results by
    the others is wrong."""
    w = torch.tensor([[10.0, 10.4, 10.76, 11.0, 10.2], [-1.0, 0.7, 2.0, 3.3, 0.5]])
    one, other = (
        Case(
            "repaired: called by the names of its parameters",
            kwargs={"weight": weight, "group_size": group_size, "bits": bits},
        )
        for weight, group_size, bits in ((w[:1], 3, 5), (w[1:], 4, 4))
    )
    return edges.crossed(one, other, "another weight", "another group_size", "other bits")


def cases(rng: random.Random) -> list[Case]:
    """Widths that the group divides and does not; every number of bits; one side of zero; by name;
    equal numbers and zeros; one number; sizes past any constant; then the faults to expose."""

    def case(name: str, w: Tensor, group: int, bits: int, public: bool = True) -> Case:
        assert clear(w, group, bits), name
        return Case(f"repaired: {name}, {group}, {bits} bits", (w, group, bits), public=public)

    def fresh(O: int, I: int, group: int, bits: int, public: bool = True) -> Case:
        return case(f"[{O}, {I}]", drawn(rng, O, I, group, bits), group, bits, public)

    equal = torch.tensor([[0.0, 0.0, 1.0, 2.0], [-3.0, -3.0, 2.5, 2.5]])
    hand = torch.tensor([[10.0, 10.4, 10.76, 11.0]])
    narrow = torch.tensor([[100.0, 100.0001, 100.0002, 100.0004, 100.001]])
    all_but_equal = torch.tensor([[1000.0, 1000.005, 1000.002]])
    return [
        case("by hand", hand, 4, 4),
        # but for one argument the same: whoever keeps results by the others is wrong here
        case("by hand, other numbers", torch.tensor([[9.0, 10.3, 9.85, 11.0]]), 4, 4),
        case("by hand", hand, 2, 4),
        case("by hand", hand, 4, 3),
        *(fresh(2, 6, 3, bits) for bits in range(2, 9)),
        fresh(2, 7, 3, 4),
        fresh(2, 3, 2, 4),
        fresh(3, 5, 8, 4),
        fresh(1, 1, 1, 4),
        Case("repaired: [2, 300] as called without more", (drawn(rng, 2, 300, 128, 4),)),
        *by_name(),
        case("groups of equal numbers", equal, 2, 4),
        case("tiny numbers", torch.tensor([[1e-8, -2.1e-8, 4e-8, 3e-9]]), 4, 4),
        case("tinier numbers", torch.tensor([[0.0, 3e-9, 1e-9, 2e-9]]), 4, 4),
        case("all but equal numbers", all_but_equal, 4, 4),
        case("far from zero, a thousandth wide", narrow, 8, 8),
        fresh(edges.past(256), 2, 2, 2),
        fresh(2, edges.past(256), 128, 4),
        fresh(1, edges.past(2048) + 7, edges.past(2048), 2),
        fresh(3, rng.randrange(9, 20), 4, 8, public=False),
        *(Case(f"exposed: {fault}", (fault,)) for fault in FAULTS),
    ]


EXERCISE = Exercise(
    id="quantization-snippet",
    title="A quantizer from the web",
    kind="fault",
    points=5,
    minutes=20,
    entries=("expose", "quantize_group"),
    cases=cases,
    observe=observe,
    reference={"quantize_group": right, "expose": expose},
    compare=Tolerance(
        rtol=1e-5, atol=1e-7, dtype=True, why="scales in float32; codes lie far from middles"
    ),
    misconceptions=tuple(wrong),
    hints=(
        "Two grids are mixed: the scale of one, the offset of the other. From what to what do its"
        " codes go, for 4 bits and for 8?",
        "Codes reach 2·(2**(bits − 1) − 1): 254 for 8 bits, in int8. A group from 10 to 11 uses one"
        " level beside its first. And reshape(-1, group_size) knows no rows.",
        "scale = (max − min) / (2**bits − 1), 1 where that is 0; codes uint8;"
        " weight.split(group_size, dim=1) for the groups.",
    ),
    ranges={"quantize_group.bits": (2, 8)},
    recall=(
        "What goes wrong with the scale of absmax and the minimum as zero point?",
        "The codes need up to 2·(2**(b−1) − 1) levels (254 of 8 bits, beyond int8), and a group on"
        " one side of zero uses few of them.",
    ),
)
