"""quantization-groups: absmax codes and fp16 scales of groups that need not divide the row."""

from __future__ import annotations

import random

import torch

from twophase.checks import edges
from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case, Exercise
from twophase.checks.kv_cache._data import normal
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Tensor = torch.Tensor


def reference(w: Tensor, group: int, bits: int) -> tuple[Tensor, Tensor]:
    """The right answer."""
    last = 2 ** (bits - 1) - 1
    found = [part.abs().amax(1) for part in torch.split(w, group, 1)]  # [O] each
    scales = (torch.stack(found, 1) / last).half()  # [O, groups]
    scales = scales.masked_fill(scales == 0, 1.0)
    wide = scales.float().repeat_interleave(group, 1)[:, : w.shape[1]]  # [O, I]
    return (w / wide).round().clamp(-last, last).to(torch.int8), scales


def _change(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_change(
    "one_scale_a_row",
    {"torch.split(w, group, 1)": "[w] * -(-w.shape[1] // group)"},
    "a scale for each channel",
    "All groups of your rows have one scale, that of the whole row: each has its own.",
)
_change(
    "one_scale_a_group_of_columns",
    {"part.abs().amax(1)": "part.abs().amax().expand(len(w))"},
    "plausible",
    "Your rows share their scales: a group lies in one row.",
)
_change(
    "rounded_with_the_exact_scale",
    {"wide = scales.float()": "wide = (torch.stack(found, 1) / last).clamp(min=1e-30)"},
    "codes made before the scale is stored",
    "You rounded with the scale as it was before it became fp16. Whoever decodes has the stored"
    " one: choose the nearest codes for that.",
)
_change(
    "scales_in_bf16",
    {".half()": ".bfloat16().half()"},
    "plausible",
    "Your scales have the eight bits of bf16: fp16 has eleven.",
)
_change(
    "largest_without_its_size",
    {"part.abs().amax(1)": "part.amax(1).clamp(min=0)"},
    "max() for abs().max()",
    "You took the largest number of a group, not the largest size.",
)
_change(
    "level_minus_two_to_the_b_1",
    {"last = 2 ** (bits - 1) - 1": "last = 2 ** (bits - 1)"},
    "scales written as max / 8",
    "Your largest level is 2**(b − 1): with b bits the positive side ends at 2**(b − 1) − 1.",
)
_change(
    "groups_of_zeros_have_scale_0",
    {"scales = scales.masked_fill(scales == 0, 1.0)": ""},
    "quantizers that never met a pruned row",
    "A group whose scale is 0 divides by 0: its scale is 1, and its codes are 0.",
)
_change(
    "cut_off",
    {".round()": ".trunc()"},
    ".to(torch.int8) without round",
    "You cut off instead of rounding.",
)
_change(
    "groups_along_columns",
    {
        "torch.split(w, group, 1)": "torch.split(w.T, group, 1)",
        "torch.stack(found, 1)": (
            "torch.stack(found, 1).repeat(len(w), len(w))[: len(w), : -(-w.shape[1] // group)]"
        ),
    },
    "plausible",
    "Your groups run down a column: they run along a row, over inputs.",
)
_change(
    "last_level_unused",
    {"part.abs().amax(1)": "part.abs().amax(1) * 1.01"},
    "a little room, to be safe",
    "Your scales are a little too large: the largest number of a group belongs on the last level.",
)


def flat_groups(w: Tensor, group: int, bits: int) -> tuple[Tensor, Tensor]:
    O, I = w.shape
    n = -(-I // group)
    row = torch.nn.functional.pad(w.flatten(), (0, O * n * group - w.numel())).view(O * n, group)
    codes, scales = reference(row, group, bits)
    return codes.flatten()[: w.numel()].view(O, I), scales.view(O, n)


wrong.add(
    "groups_across_rows",
    flat_groups,
    "weight.reshape(-1, group_size)",
    "Your groups run on from one row to the next where the width does not divide: a row ends in a"
    " shorter group.",
)


def clear(w: Tensor, group: int, bits: int) -> bool:
    """Whether no quotient lies near the middle of two levels, and no scale near that of two
    numbers of fp16, so that one may divide in float32 or float64."""
    exact = torch.stack([p.abs().amax(1) for p in torch.split(w.double(), group, 1)], 1)
    exact = exact / (2 ** (bits - 1) - 1)
    same = (exact * (1 + 1e-6)).half().equal((exact * (1 - 1e-6)).half())
    scales = reference(w, group, bits)[1]
    wide = scales.double().repeat_interleave(group, 1)[:, : w.shape[1]]
    return same and bool(((w.double() / wide % 1 - 0.5).abs() > 1e-4).all())


def draw(rng: random.Random, O: int, I: int, group: int, bits: int, size: float = 1.0) -> Tensor:
    """Normal numbers [O, I], every rounding clear."""
    for _ in range(1000):
        w = normal(rng, O, I) * size
        if clear(w, group, bits):
            return w
    raise AssertionError("no such weights")


def stored_matters(rng: random.Random) -> Tensor:
    """[1, 4], eight bits: with the exact scale another code would come out."""
    for _ in range(20000):
        w = draw(rng, 1, 4, 4, 8)
        exact = (w / (w.abs().amax() / 127)).round().to(torch.int8)
        if not exact.equal(reference(w, 4, 8)[0]):
            return w
    raise AssertionError("no such weights")


def cases(rng: random.Random) -> list[Case]:
    """Groups that divide, that leave one over, of one, of the row, wider than it; zeros, a dead
    row; scales below what fp16 holds; the stored scale; every width; sizes past any constant."""

    def case(name: str, w: Tensor, group: int, bits: int, public: bool = True) -> Case:
        assert clear(w, group, bits), name
        return Case(f"{name}, groups of {group}, {bits} bits", (w, group, bits), public=public)

    def fresh(O: int, I: int, group: int, bits: int, public: bool = True) -> Case:
        return case(f"[{O}, {I}]", draw(rng, O, I, group, bits), group, bits, public)

    hand = torch.tensor([[0.1, -0.7, 0.35, 2.0, -1.0, 0.2, 0.0]])
    dead = draw(rng, 3, 6, 3, 4)
    dead[1], dead[2, 3:] = 0.0, 0.0
    tiny = torch.tensor(
        [[2.0**-40, -(2.0**-41), 1.0, 0.25], [6e-7, -2e-7, 3e-3, 1e-3], [-6e-7, 2e-7, -3e-3, 1e-3]]
    )
    return [
        case("by hand", hand, 3, 4),
        # but for one argument the same: whoever keeps results by the others is wrong here
        case("by hand, other numbers", hand.flip(1), 3, 4),
        case("by hand", hand, 4, 4),
        case("by hand", hand, 3, 5),
        *(fresh(2, 6, 3, bits) for bits in range(2, 9)),
        # of the same sizes: whoever keeps results by shape is wrong here
        case("[2, 6], other numbers", draw(rng, 2, 6, 3, 4), 3, 4),
        fresh(3, 7, 3, 4),
        fresh(4, 6, 4, 4),
        fresh(2, 5, 1, 3),
        fresh(2, 5, 5, 4),
        fresh(2, 5, 8, 4),
        fresh(1, 1, 1, 2),
        fresh(2, 9, 4, 5),
        case("rows and groups of zeros", dead, 3, 4),
        case("scales that fp16 hardly holds", tiny, 2, 4),
        case("the same in 8 bits", 2.0**-24 * torch.tensor([[178.2, -3.1], [-178.2, 9.8]]), 2, 8),
        case("large numbers", torch.tensor([[1e5, 8e4, -7.5e4, 2e4]]), 4, 4),
        case("the stored scale decides", stored_matters(rng), 4, 8),
        fresh(edges.past(256), 3, 2, 3),
        fresh(2, edges.past(256), 64, 4),
        fresh(1, edges.past(2048) + 7, edges.past(2048), 2),
        fresh(3, rng.randrange(10, 20), 4, 4, public=False),
    ]


EXERCISE = Exercise(
    id="quantization-groups",
    title="A scale for each group",
    kind="kernel",
    points=4,
    minutes=15,
    entries=("quantize",),
    cases=cases,
    reference=reference,
    compare=Tolerance(
        rtol=0.0, atol=0.0, dtype=True, why="cases keep away from the middle of two levels"
    ),
    misconceptions=tuple(wrong),
    hints=(
        "How many groups has a row of I inputs? The last may be shorter.",
        "w.split(group, dim=1) cuts a width that the group does not divide. Largest size over"
        " 2**(b − 1) − 1, then .half().",
        "Spread the *stored* scales over their inputs: repeat_interleave(group, 1)[:, :I]; divide,"
        " round, clamp.",
    ),
    ranges={"bits": (2, 8)},
    recall=(
        "Why are codes rounded with the scale as it is stored?",
        "The decoder multiplies by the stored one; with the exact one the chosen level need not be"
        " the nearest.",
    ),
)
