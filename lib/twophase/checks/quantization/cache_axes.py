"""quantization-cache_axes: keys per channel, values per token, in few bits."""

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


def reference(x: Tensor, bits: int, axis: str, group: int) -> Tensor:
    """The right answer."""
    along = 0 if axis == "channel" else 1  # numbers that share a step lie along this axis
    parts = []
    for part in torch.split(x, group, along):
        low = part.amin(along, keepdim=True).clamp(max=0)
        high = part.amax(along, keepdim=True).clamp(min=0)
        step = (high - low) / (2**bits - 1)
        step = step.masked_fill(step == 0, 1.0)
        full = axis == "token" or len(part) == group
        parts.append((part / step).round() * step if full else part)
    return torch.cat(parts, along)  # [S, H]


def _change(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_change(
    "axes_exchanged",
    {'0 if axis == "channel" else 1': '1 if axis == "channel" else 0'},
    "“per channel” read as “along channels”",
    "You exchanged the axes. Per channel: a channel has its own step, shared by a run of tokens.",
)
_change(
    "always_per_token",
    {'0 if axis == "channel" else 1': "1", 'axis == "token" or len(part) == group': "True"},
    "one cache format for keys and values",
    "You always round per token: per channel, a channel's numbers of a run of tokens share a step.",
)
_change(
    "open_run_rounded",
    {'axis == "token" or len(part) == group': "True"},
    "plausible",
    "You rounded the run that is not full. Tokens to come would change its range: it stays as it"
    " is.",
)
_change(
    "short_groups_of_a_token_left",
    {'full = axis == "token" or len(part) == group': "full = part.shape[along] == group"},
    "plausible",
    "A token's last group may be shorter, and is rounded all the same: no more numbers come.",
)
_change(
    "range_without_zero",
    {".clamp(max=0)": "", ".clamp(min=0)": ""},
    "min-max observers that do not hold 0",
    "Your range does not hold 0: where all numbers have one sign your step is too small for the"
    " codes there are.",
)
_change(
    "absmax",
    {"(high - low) / (2**bits - 1)": "torch.maximum(high, -low) / (2 ** (bits - 1) - 1)"},
    "the weights' grid",
    "That is the step of absmax: here it is the range, 0 in it, over 2**bits − 1.",
)
_change(
    "levels_for_steps",
    {"(2**bits - 1)": "2**bits"},
    "“2**b levels, so 2**b steps”",
    "Between 2**bits levels lie 2**bits − 1 steps.",
)
_change(
    "one_step_for_all",
    {
        "part.amin(along, keepdim=True)": "part.amin()",
        "part.amax(along, keepdim=True)": "part.amax()",
    },
    "a scale per tensor",
    "Channels (or tokens) of a run share one step in your answer: each has its own.",
)
_change(
    "groups_left_out",
    {
        "torch.split(x, group, along)": "torch.split(x, x.shape[along], along)",
        "len(part) == group": "len(x)",
    },
    "plausible",
    "You never cut into groups: a step is shared by `group` numbers, no more.",
)
_change(
    "cut_off",
    {".round()": ".trunc()"},
    "plausible",
    "You cut off instead of rounding.",
)
_change(
    "zeros_divide",
    {"step = step.masked_fill(step == 0, 1.0)": ""},
    "plausible",
    "Numbers that are all 0 have a step of 0, and you divide by it: they stay 0.",
)


def clear(x: Tensor, bits: int, axis: str, group: int) -> bool:
    """Whether no number lies near the middle of two levels."""
    along = 0 if axis == "channel" else 1
    for part in torch.split(x.double(), group, along):
        low = part.amin(along, keepdim=True).clamp(max=0)
        step = (part.amax(along, keepdim=True).clamp(min=0) - low) / (2**bits - 1)
        step = step.masked_fill(step == 0, 1.0)
        if bool(((part / step % 1 - 0.5).abs() < 1e-4).any()):
            return False
    return True


def by_hand() -> list[Case]:
    """A case, and the same but for one argument: whoever keeps results by the others is wrong."""
    x = torch.tensor([[1.1, -2.1, 4.0], [0.3, 1.2, -0.6], [-1.7, 0.5, 2.4], [0.8, 0.1, -3.0]])
    other = torch.tensor([[-1.2, 0.4, 5.0], [2.5, 0.7, -0.9], [1.1, -3.6, 0.2], [0.6, 1.9, -2.3]])
    one = Case("by hand", (x, 4, "channel", 2))
    says = "other numbers", "3 bits", "a step per token", "groups of 4"
    return edges.crossed(one, Case("", (other, 3, "token", 4)), *says)


def cases(rng: random.Random) -> list[Case]:
    """Both ways: full runs, a run that is not full, none that is; groups of one; every width; one
    sign; zeros; one token, one channel; a loud channel; sizes past any constant."""

    def case(
        S: int, H: int, bits: int, axis: str, group: int, shift: float = 0.0, public: bool = True
    ) -> Case:
        for _ in range(3000):
            x = normal(rng, S, H) + shift
            x[:, 0] *= 8  # a loud channel, as keys have them
            if clear(x, bits, axis, group):
                shape = f"[{S}, {H}]" + ", all positive" * (shift > 4)
                name = f"{shape}, {bits} bits, a step per {axis}, groups of {group}"
                return Case(name, (x, bits, axis, group), public=public)
        raise AssertionError("no such numbers")

    zeros = torch.zeros(4, 3)
    zeros[2:, 1] = torch.tensor([1.0, -0.6])
    tiny = torch.tensor([[1.0, -2.1, 4.0, 0.3]] * 4) * torch.tensor(
        [[1e-11], [-2e-11], [5e-11], [3e-12]]
    )
    tinier = torch.tensor([[1e-12, 3.3e-13, 0.0, 7.1e-13]])
    ways = ("channel", "token")
    return [
        *by_hand(),
        *(case(4, 4, 4, axis, 2) for axis in ways),
        *(case(7, 5, 3, axis, 3) for axis in ways),
        *(case(2, 2, 4, axis, 3) for axis in ways),
        *(case(3, 4, 2, axis, 1) for axis in ways),
        *(case(6, 6, 4, axis, 3, shift=5.0) for axis in ways),
        *(Case(f"zeros, a step per {axis}", (zeros, 4, axis, 2)) for axis in ways),
        *(Case(f"tiny numbers, a step per {axis}", (tiny, 4, axis, 4)) for axis in ways),
        Case("numbers of 1e-12, a step per token", (tinier, 2, "token", 4)),
        Case("numbers of 1e-12, a step per channel", (tinier.T.contiguous(), 2, "channel", 4)),
        *(case(4, 4, bits, axis, 4) for bits in range(2, 9) for axis in ways),
        *(case(1, 5, 4, axis, 1) for axis in ways),
        *(case(5, 1, 4, axis, 2) for axis in ways),
        *(case(edges.past(256), 2, 2, axis, 2) for axis in ways),
        *(case(2, edges.past(256), 2, axis, 2) for axis in ways),
        case(edges.past(2048) + 3, 1, 2, "channel", edges.past(2048)),
        case(1, edges.past(2048) + 3, 2, "token", edges.past(2048)),
        *(case(rng.randrange(9, 20), 6, 4, axis, 4, public=False) for axis in ways),
    ]


EXERCISE = Exercise(
    id="quantization-cache_axes",
    title="Keys per channel, values per token",
    kind="kernel",
    points=4,
    minutes=15,
    entries=("round_cached",),
    cases=cases,
    reference=reference,
    compare=Tolerance(rtol=1e-5, dtype=True, why="steps in float32; no number lies near a middle"),
    misconceptions=tuple(wrong),
    hints=(
        "Along which axis of [S, H] lie the numbers that share a step, per channel and per token?",
        "Per channel cut S into runs of `group`; per token cut H. x.split(group, dim) leaves the"
        " last part shorter.",
        "step = (max(0, largest) − min(0, least)) / (2**bits − 1); round(x / step)·step. A run of"
        " tokens that is not full stays.",
    ),
    ranges={"bits": (2, 8)},
    recall=(
        "Why are keys rounded per channel and values per token?",
        "Keys have channels that are large at every position; values have not, and a token's step"
        " lets each token be rounded as it comes.",
    ),
)
