"""quantization-outlier_product: a product in int8 with the outliers kept apart."""

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


def reference(x: Tensor, codes: Tensor, scales: Tensor, threshold: float) -> Tensor:
    """The right answer."""
    outliers = (x.abs() >= threshold).any(0)  # [I]
    rest = x.masked_fill(outliers, 0.0)
    steps = rest.abs().amax(1, keepdim=True) / 127  # [T, 1]
    steps = steps.masked_fill(steps == 0, 1.0)
    whole = (rest / steps).round() @ codes.float().T  # [T, O]
    kept = x[:, outliers] @ codes[:, outliers].float().T  # [T, O]
    return (whole * steps + kept) * scales


def _change(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_change(
    "outliers_in_int8",
    {"(x.abs() >= threshold).any(0)": "torch.zeros(x.shape[1], dtype=torch.bool)"},
    "int8 products of small models",
    "No input is kept apart: one outlier stretches its token's scale, and the others lose their"
    " levels.",
)
_change(
    "outliers_dropped",
    {" + kept": " + 0 * kept"},
    "plausible",
    "You left the outliers out: their product, in floating point, belongs to the sum.",
)
_change(
    "outliers_twice",
    {"x.masked_fill(outliers, 0.0)": "x"},
    "plausible",
    "You kept the outliers apart, and multiplied them in int8 as well: take them out first.",
)
_change(
    "scale_of_the_whole_token",
    {"rest.abs().amax(1, keepdim=True)": "x.abs().amax(1, keepdim=True)"},
    "plausible",
    "Your scales are still those of the whole tokens: take the largest of what is left.",
)
_change(
    "one_scale_for_all_tokens",
    {"rest.abs().amax(1, keepdim=True)": "rest.abs().amax().expand(len(x), 1)"},
    "a scale per tensor",
    "All your tokens have one scale: each has its own.",
)
_change(
    "a_scale_for_each_input",
    {
        "rest.abs().amax(1, keepdim=True)": "rest.abs().amax(0, keepdim=True)",
        "@ codes.float().T  # [T, O]\n    kept": (
            "* steps @ codes.float().T  # [T, O]\n    steps = 1.0\n    kept"
        ),
    },
    "a scale for each channel of the activations",
    "You gave each input a scale: then the sums of whole numbers cannot be multiplied by one scale"
    " at the end. Activations have a scale for each token.",
)
_change(
    "each_token_its_own_outliers",
    {
        "(x.abs() >= threshold).any(0)": "x.abs() >= threshold",
        "x[:, outliers] @ codes[:, outliers].float().T": "(x * outliers) @ codes.float().T",
    },
    "plausible",
    "You looked for outliers token by token. An input is kept apart for all tokens as soon as one"
    " of them is large there, so that whole columns are taken out.",
)
_change(
    "threshold_from_above_only",
    {"x.abs() >= threshold": "x >= threshold"},
    "plausible",
    "You missed outliers below zero: it is the size that counts.",
)
_change(
    "more_than_the_threshold",
    {"x.abs() >= threshold": "x.abs() > threshold"},
    "plausible",
    "An input that is exactly at the threshold is an outlier.",
)
_change(
    "cut_off",
    {".round()": ".trunc()"},
    ".to(torch.int8) without round",
    "You cut off instead of rounding.",
)
_change(
    "over_128",
    {"/ 127": "/ 128"},
    "scales written as max / 128",
    "You divided by 128: the largest number belongs on level 127.",
)
_change(
    "nothing_rounded",
    {"(rest / steps).round()": "(rest / steps)"},
    "fake quantization, its rounding forgotten",
    "You rounded nothing: that is the product in floating point.",
)
_change(
    "weights_not_scaled",
    {"(whole * steps + kept) * scales": "whole * steps * scales + kept"},
    "plausible",
    "The kept inputs meet the codes, not the weights: multiply by the rows' scales, too.",
)


def clear(x: Tensor, threshold: float) -> bool:
    """Whether no number lies near the middle of two levels."""
    rest = x.double().masked_fill((x.abs() >= threshold).any(0), 0.0)
    steps = rest.abs().amax(1, keepdim=True) / 127
    steps = steps.masked_fill(steps == 0, 1.0)
    return bool(((rest / steps % 1 - 0.5).abs() > 1e-4).all())


def by_hand() -> list[Case]:
    """A case, and the same but for one argument: whoever keeps results by the others is wrong."""
    x = torch.tensor([[7.0, -2.6, 1.0], [0.9, -1.5, 0.3]])
    codes = torch.tensor([[3, -5, 127], [-127, 1, 2]], dtype=torch.int8)
    others = (
        torch.tensor([[0.4, 8.0, -1.3], [1.1, -0.7, 2.0]]),
        torch.tensor([[-8, 40, 5], [90, -127, 64]], dtype=torch.int8),
        torch.tensor([0.03, 0.005]),
        2.0,
    )
    one = Case("by hand", (x, codes, torch.tensor([0.01, 0.02]), 6.0))
    says = "other tokens", "other codes", "other scales", "a threshold of 2"
    return edges.crossed(one, Case("", others), *says)


def just_below(codes: Tensor, scales: Tensor) -> list[Case]:
    """Numbers that are hardly no outliers, one of them by less than a ten-millionth."""
    next_float = 6 - 2**-21  # from 4 to 8 those of float32 are 2^-21 apart
    found = {
        "a little less than the threshold": 5.9999,
        "the next float below the threshold": next_float,
    }
    return [
        Case(name, (torch.tensor([[v, -2.6, 1.0], [0.9, -1.5, 0.3]]), codes, scales, 6.0))
        for name, v in found.items()
    ]


def cases(rng: random.Random) -> list[Case]:
    """No outlier, one, one in one token only, a negative one, one just at the threshold, all;
    tokens of zeros; one of everything; sizes past any constant."""

    def case(
        name: str, T: int, I: int, O: int, large: dict[tuple[int, int], float], public: bool = True
    ) -> Case:
        x = normal(rng, T, I).clamp(-4, 4)
        while True:
            for at, value in large.items():
                x[at] = value
            if clear(x, 6.0):
                break
            x = normal(rng, T, I).clamp(-4, 4) if T * I < 40 else _moved(x)
        codes = torch.tensor([[rng.randrange(-127, 128) for _ in range(I)] for _ in range(O)])
        scales = torch.tensor([rng.uniform(0.001, 0.02) for _ in range(O)])
        return Case(
            f"{name}: T={T}, I={I}, O={O}", (x, codes.to(torch.int8), scales, 6.0), public=public
        )

    lower = case("a threshold of 2", 3, 6, 2, {(1, 2): 2.5})
    zeros = torch.tensor([[0.0, 0.0, 0.0], [1.0, -0.3, 0.2]])
    tiny = torch.tensor([[1e-6, -3e-7, 2e-7], [1.0, -0.3, 0.2]])
    tinier = torch.tensor([[1e-9, 3e-10, -2e-10]])
    loud = torch.tensor([[6000.0, 1500.0, -300.0], [200.0, 40.0, -10.0]])
    every = torch.tensor([[7.0, -8.0], [9.0, 6.5]])
    plain = torch.tensor([[3, -5, 127], [-127, 1, 2]], dtype=torch.int8)
    rows = torch.tensor([0.01, 0.02])
    return [
        *by_hand(),
        case("no outlier", 2, 4, 3, {}),
        case("one outlier", 2, 4, 3, {(0, 1): 40.0, (1, 1): 35.0}),
        case("in one token only", 3, 5, 2, {(1, 3): 60.0}),
        case("a negative one", 2, 5, 2, {(0, 0): -50.0}),
        case("just at the threshold", 2, 5, 2, {(0, 2): 6.0}),
        case("just below", 2, 5, 2, {(0, 2): 5.9375}),
        case("two outliers", 4, 6, 3, {(0, 0): 20.0, (3, 5): -30.0}),
        case("one token", 1, 5, 2, {(0, 4): 12.0}),
        case("one output", 3, 4, 1, {(2, 2): 12.0}),
        Case("a token of zeros", (zeros, plain, rows, 6.0)),
        Case("a token of tiny numbers", (tiny, plain, 1e5 * rows, 6.0)),
        Case("a token of numbers of 1e-9", (tinier, plain, 1e9 * rows, 6.0)),
        *just_below(plain, rows),
        Case("all inputs are outliers", (every, plain[:, :2], rows, 6.0)),
        Case("a threshold of 2", (lower.args[0].clamp(-2.5, 2.5), *lower.args[1:3], 2.0)),
        Case("a threshold of 5,000", (loud, plain, rows, 5000.0)),
        case("many tokens", edges.past(256), 3, 2, {(256, 1): 30.0}),
        case("many inputs", 2, edges.past(256), 2, {(1, 256): 30.0}),
        case("many outputs", 2, 3, edges.past(256), {(1, 2): 30.0}),
        case("fresh", 3, rng.randrange(7, 12), 4, {(2, 5): 25.0, (0, 6): -9.0}, public=False),
    ]


def _moved(x: Tensor) -> Tensor:
    """The same with every number that lies near a middle moved by a quarter of a step."""
    rest = x.masked_fill((x.abs() >= 6.0).any(0), 0.0)
    steps = rest.abs().amax(1, keepdim=True) / 127
    near = ((rest / steps.clamp(min=1e-9) % 1 - 0.5).abs() < 2e-4) & (rest != 0)
    return x - torch.sign(x) * 0.25 * steps * near


EXERCISE = Exercise(
    id="quantization-outlier_product",
    title="Outliers kept apart",
    kind="kernel",
    points=5,
    minutes=20,
    entries=("product",),
    cases=cases,
    reference=reference,
    compare=Tolerance(
        rtol=1e-4, atol=1e-4, dtype=True, why="sums in float32; a level more changes 0.001 and more"
    ),
    misconceptions=tuple(wrong),
    hints=(
        "Which inputs are large in any token? These columns leave the int8 product for all tokens.",
        "Of what is left each token has a scale: its largest size over 127 (1 for a token of"
        " zeros). Round, and multiply by the codes.",
        "(rounded @ codes.T · token's scale + x[:, outliers] @ codes[:, outliers].T) · row's"
        " scale.",
    ),
    recall=(
        "Why does LLM.int8() take out whole columns, not single numbers?",
        "A product of matrices is regular: the inputs that are left form a smaller matrix, and the"
        " kept ones another.",
    ),
)
