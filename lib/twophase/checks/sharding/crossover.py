"""sharding-crossover: from how many chips on cutting both ways beats cutting one way."""

from __future__ import annotations

import math
import random

from twophase.checks import edges
from twophase.checks.compare import FORMULA
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(D: int, F: int, n_axes: int, n_in: int) -> dict[str, float]:
    """The right answer: with times in units of B·bytes/W, one way takes 2 D / a, both ways
    2 D / (X (a - 1)) + (n_in + 1) F X / n."""
    outer, inner, one_way = 2 * D / (n_axes - 1), (n_in + 1) * F, 2 * D / n_axes
    n = 4 * outer * inner / one_way**2
    return {"chips": n, "X": math.sqrt(n * outer / inner)}


wrong.add(
    "bandwidth_of_one_axis",
    replaced(reference, {"2 * D / n_axes": "2 * D"}),
    "“1D model parallelism stops helping at 8 to 16 chips”",
    "You let the one-way layout use one axis and the other all of them: give both the same wires.",
)
wrong.add(
    "yz_on_one_axis",
    replaced(reference, {"2 * D / (n_axes - 1)": "2 * D"}),
    "plausible",
    "YZ runs over all axes but one, which share its load: divide by n_axes − 1.",
)
wrong.add(
    "x_on_all_axes",
    replaced(reference, {"(n_in + 1) * F,": "(n_in + 1) * F / n_axes,"}),
    "plausible",
    "X has one axis of its own; the sums over X use that one only.",
)
wrong.add(
    "gathers_left_out",
    replaced(reference, {"(n_in + 1) * F,": "n_in * F,"}),
    "reduce-scatters counted alone",
    "After the reduce-scatters over X the activations are gathered again: n_in + 1 collectives.",
)
wrong.add(
    "gate_left_out",
    replaced(reference, {"(n_in + 1) * F,": "2 * F,"}),
    "the paper's MLP, which has no gate",
    "Each of the n_in products is summed over X: a gated MLP has two of them.",
)
wrong.add(
    "all_reduces_over_x",
    replaced(reference, {"(n_in + 1) * F,": "2 * n_in * F,"}),
    "an all-reduce for each product",
    "The products are multiplied in pieces before they are gathered: n_in reduce-scatters, one"
    " gather.",
)
wrong.add(
    "input_alone",
    replaced(reference, {"outer, inner, one_way = 2 * D /": "outer, inner, one_way = D /"}),
    "plausible",
    "Over YZ there are two collectives of the same size: the input gathered, the result scattered.",
)
wrong.add(
    "all_reduce_once",
    replaced(reference, {"2 * D / n_axes": "D / n_axes"}),
    "an all-reduce taken for one collective",
    "One way, the result is all-reduced: that is a reduce-scatter and a gather, 2·B·D.",
)
wrong.add(
    "chips_not_squared",
    replaced(
        reference, {"4 * outer * inner / one_way**2": "2 * math.sqrt(outer * inner) / one_way"}
    ),
    "a root forgotten",
    "That is √n: the best time both ways falls as 1/√n.",
)
wrong.add(
    "x_without_root",
    replaced(reference, {'"X": math.sqrt(n * outer / inner)': '"X": n * outer / inner'}),
    "plausible",
    "That is X²: the derivative of outer/X + inner·X/n vanishes where X² = n·outer/inner.",
)
wrong.add(
    "yz_for_x",
    replaced(reference, {'"X": math.sqrt(n * outer / inner)': '"X": math.sqrt(n * inner / outer)'}),
    "X and YZ exchanged",
    "That is YZ = n / X.",
)


def _four_times(D: int, F: int, n_axes: int, n_in: int) -> dict[str, float]:
    return reference(D, 4 * D, n_axes, n_in)


wrong.add(
    "f_is_four_d",
    _four_times,
    "“assuming F = 4 D”",
    "You took F = 4·D. The task gives both: the crossing is proportional to F/D.",
)


def cases(rng: random.Random) -> list[Case]:
    """The worked model on two axes and three, gated or not; narrow and wide MLPs; fresh widths."""

    def case(D: int, F: int, n_axes: int, n_in: int, public: bool = True) -> Case:
        return Case(
            f"D={D}, F={F}, {n_axes} axes, n_in={n_in}", (D, F, n_axes, n_in), public=public
        )

    return [
        *(case(4096, 16384, axes, n_in) for axes in (2, 3) for n_in in (1, 2)),
        case(8192, 16384, 2, 1),
        case(4096, 8192, 2, 1),
        case(8192, 28672, 3, 2),
        case(7168, 2048, 2, 2),
        case(64, edges.past(4096), 2, 1),
        case(edges.past(16384), 4, 3, 1),
        *(
            case(
                rng.randrange(100, 9000), rng.randrange(100, 40000), rng.choice((2, 3)), n_in, i < 1
            )
            for i, n_in in enumerate((1, 2, 1))
        ),
    ]


EXERCISE = Exercise(
    id="sharding-crossover",
    title="From how many chips on to cut both ways",
    kind="formula",
    points=4,
    minutes=20,
    entries=("crossover",),
    cases=cases,
    reference=reference,
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        "Write both times with B·bytes/W taken out. The one-way time does not depend on n.",
        (
            "One way 2·D/a. Both ways outer/X + inner·X/n, outer = 2·D/(a − 1), inner = (n_in +"
            " 1)·F: least at X² = n·outer/inner."
        ),
        "At that X it is 2·√(outer·inner/n). Set it equal to 2·D/a and solve for n.",
    ),
    ranges={"n_axes": (2, 3), "n_in": (1, 2)},
    recall=(
        "How does the sending time fall with n if weights are cut one way, and both ways?",
        "One way it does not fall; both ways as 1/√n.",
    ),
)
