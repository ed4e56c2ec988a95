"""quantization-awq: how much of the activations' sizes goes into the weights."""

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


def reference(w: Tensor, x: Tensor, alphas: list[float], bits: int) -> tuple[float, float]:
    """The right answer."""
    mean_size, found = x.abs().mean(0), []  # [I]
    for alpha in alphas:
        s = mean_size**alpha
        scaled = w * s  # [O, I]
        steps = scaled.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)  # [O, 1]
        rounded = (scaled / steps).round() * steps / s
        found.append((float(((rounded - w) @ x.T).square().sum()), alpha))
    error, best = min(found)
    return best, error


def _change(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_change(
    "error_of_the_weights",
    {"((rounded - w) @ x.T)": "(rounded - w)"},
    "weights compared with weights",
    "You compared weights. What counts is the layer's output on the calibration inputs: an input"
    " that is large makes its weights' errors large.",
)
_change(
    "error_of_the_scaled_weights",
    {"* steps / s": "* steps", "(rounded - w)": "(rounded - scaled)"},
    "plausible",
    "You compared scaled weights with scaled weights, on inputs that are not divided by the scale.",
)
_change(
    "scale_not_undone",
    {"* steps / s": "* steps"},
    "plausible",
    "The inputs are not divided by the scale, so the rounded weights must be.",
)
_change(
    "divided_instead",
    {"scaled = w * s": "scaled = w / s", "* steps / s": "* steps * s"},
    "SmoothQuant's direction",
    "You divided the weights by the scale. Weights of large inputs are made *larger*, so that the"
    " grid is finer for them; the inputs are divided.",
)
_change(
    "mean_without_size",
    {"x.abs().mean(0)": "x.mean(0).abs()"},
    "plausible",
    "You took the size of the mean: take the mean of the sizes.",
)
_change(
    "largest_for_mean",
    {"x.abs().mean(0)": "x.abs().amax(0)"},
    "SmoothQuant's statistic",
    "You took the largest size of each input: AWQ takes the mean size.",
)
_change(
    "size_of_the_weights",
    {"x.abs().mean(0)": "w.abs().mean(0)"},
    "“salient weights are the large ones”",
    "Your scales come from the weights. Which weights matter is seen from the activations.",
)
_change(
    "one_grid_for_all_rows",
    {"scaled.abs().amax(1, keepdim=True)": "scaled.abs().amax()"},
    "a scale per tensor",
    "All your rows share a grid: each row has its own.",
)
_change(
    "grid_of_the_unscaled",
    {"scaled.abs().amax(1, keepdim=True)": "w.abs().amax(1, keepdim=True)"},
    "plausible",
    "Your grid is that of the weights before they were scaled: what is rounded decides.",
)
_change(
    "no_search",
    {"error, best = min(found)": "error, best = found[len(found) // 2]"},
    "α = 0.5 for every layer",
    "You did not compare: try every alpha and keep the one with the least error.",
)
_change(
    "largest_error",
    {"min(found)": "max(found)"},
    "plausible",
    "You kept the alpha with the largest error.",
)
_change(
    "mean_error",
    {".square().sum()": ".square().mean()"},
    "plausible",
    "You averaged: the sum over outputs and inputs is asked for.",
)


def by_hand() -> list[Case]:
    """A case, and the same but for one argument: whoever keeps results by the others is wrong. And
    one whose errors are larger than any that a person might begin the search with."""
    w = torch.tensor([[0.71, -0.33, 0.12], [-0.52, 0.94, 0.27]]).double()
    x = torch.tensor([[5.0, 0.4, -0.7], [-3.1, 0.2, 1.3]]).double()
    others = (
        torch.tensor([[0.3, -0.8, 0.5], [0.9, 0.1, -0.4]]).double(),
        torch.tensor([[1.0, -0.5, 9.0], [-0.3, 0.8, 6.0]]).double(),
        [0.25, 0.75],
        4,
    )
    one = Case("by hand", (w, x, [0.0, 0.5], 3))
    says = "other weights", "other inputs", "other alphas", "4 bits"
    return [
        *edges.crossed(one, Case("", others), *says),
        Case("errors beyond float32", (1e12 * w, 1e12 * x, [0.0, 0.5], 3)),
    ]


def cases(rng: random.Random) -> list[Case]:
    """Even inputs and uneven ones; no alpha but 0; inputs with a mean; every width; sizes past any
    constant. The best alpha is clearly the best."""

    def case(
        name: str, O: int, I: int, T: int, bits: int, alphas: list[float], public: bool = True
    ) -> Case:
        for _ in range(200):
            w, x = (normal(rng, *shape, dtype="float64") for shape in ((O, I), (T, I)))
            sizes = torch.tensor([rng.choice((0.2, 0.5, 1.0, 6.0, 20.0)) for _ in range(I)])
            x = (x + 0.5) * sizes.double()
            errors = sorted(reference(w, x, [a], bits)[1] for a in alphas)
            if len(errors) == 1 or errors[0] < 0.97 * errors[1]:
                return Case(
                    f"{name}: [{O}, {I}], {T} inputs, {bits} bits",
                    (w, x, alphas, bits),
                    public=public,
                )
        raise AssertionError("no clear case")

    tiny = (
        1e-7 * torch.tensor([[1.0, -3.0, 2.2], [2.0, 1.1, -4.0]]).double(),
        1e4 * torch.tensor([[1.0, 0.4, -0.7], [0.2, -2.0, 1.5]]).double(),
    )
    # mean sizes of 0.001 and of 0.000001: no clamp is asked for
    quiet = (
        torch.tensor([[300.0, 1.0], [-100.0, 2.3]]).double(),
        torch.tensor([[0.001, 1.0], [0.002, -2.0], [0.001, 0.5]]).double(),
    )
    quieter = 3000 * quiet[0] * torch.tensor([1.0, 1 / 3000]), quiet[1] * torch.tensor([0.001, 1.0])
    few = [0.0, 0.25, 0.5, 0.75]
    more = [i / 10 for i in range(10)]
    return [
        *by_hand(),
        case("one alpha", 2, 4, 5, 3, [0.5]),
        case("rounding to nearest", 2, 4, 5, 3, [0.0]),
        # of the same sizes: whoever keeps results by shape and alphas is wrong here
        case("rounding to nearest, other numbers", 2, 4, 5, 3, [0.0]),
        *(case("every width", 3, 8, 6, bits, few) for bits in range(2, 9)),
        case("ten alphas", 4, 12, 8, 3, more),
        case("from large to small", 3, 9, 6, 4, few[::-1]),
        Case("tiny weights, large inputs: [2, 3], 2 inputs, 4 bits", (*tiny, [0.0], 4)),
        Case("an input of a thousandth: [2, 2], 3 inputs, 4 bits", (*quiet, [0.0, 0.5, 1.0], 4)),
        Case("an input of a millionth: [2, 2], 3 inputs, 4 bits", (*quieter, [0.0, 0.5, 1.0], 4)),
        case("one row", 1, 6, 4, 3, few),
        case("one input vector", 3, 6, 1, 3, few),
        case("many rows", edges.past(256), 3, 2, 3, [0.0, 0.5]),
        case("wide", 2, edges.past(256), 3, 3, [0.0, 0.5]),
        case("many inputs", 2, 3, edges.past(256), 3, [0.0, 0.5]),
        case("fresh", 3, rng.randrange(6, 12), 7, 3, few, public=False),
    ]


EXERCISE = Exercise(
    id="quantization-awq",
    title="AWQ: choose the scales",
    kind="kernel",
    points=5,
    minutes=20,
    entries=("choose_alpha",),
    cases=cases,
    reference=reference,
    compare=Tolerance(
        rtol=1e-6, atol=1e-12, why="float64 sums in another order; alphas are 3 % and more apart"
    ),
    misconceptions=tuple(wrong),
    hints=(
        "W x = (W·s)(x / s): only W·s is rounded. Which number tells how good an s is?",
        "For each alpha: s = mean size of each input to the power alpha; round W·s row by row with"
        " absmax; divide by s again.",
        "error = (((rounded − W) @ x.T)**2).sum(); keep the alpha with the least.",
    ),
    ranges={"bits": (2, 8)},
    recall=(
        "AWQ multiplies the weights of large inputs by s > 1. Why does that make their error"
        " smaller?",
        "The grid hardly changes while the weight grows: its rounding error, divided by s"
        " afterwards, is smaller.",
    ),
)
