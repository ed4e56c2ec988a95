"""mixture_of_experts-expert_bytes: predict what a step reads of its experts."""

from __future__ import annotations

import random

from twophase.checks import edges
from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(B: int, E: int, k: int, D: int, F: int, bytes_per_param: float) -> float:
    """The right answer."""
    touched = E * (1 - (1 - k / E) ** B)
    return touched * 3 * D * F * bytes_per_param


def _touched(slug: str, new: str, seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, {"E * (1 - (1 - k / E) ** B)": new}), seen, says)


_touched(
    "all_read",
    "E",
    "“all experts are read”",
    "You read all experts, which a large batch does. A few tokens leave some of them alone.",
)
_touched(
    "only_k",
    "k",
    "“only the active parameters are read”",
    "That is what one token reads. Other tokens pick other experts, and the step reads the union.",
)
_touched(
    "no_sharing",
    "B * k",
    "plausible",
    "You read an expert once for each visit: two tokens at one expert share its reading.",
)
_touched(
    "as_many_as_there_are_at_most",
    "min(B * k, E)",
    "“min(B·k, E)”",
    "min(B·k, E) is the most there can be. By chance some tokens pick the same expert.",
)
_touched(
    "one_expert_drawn_at_a_time",
    "E * (1 - (1 - 1 / E) ** (B * k))",
    "the coupon collector's formula",
    "You drew B·k experts one by one: the k of one token are all different, so that she misses a"
    " given expert with chance 1 − k/E.",
)
_touched(
    "rounded",
    "round(E * (1 - (1 - k / E) ** B))",
    "plausible",
    "An average need not be a whole number: leave it as it is.",
)
_touched(
    "at_least_one_visit_of_all",
    "E * (1 - (k / E) ** B)",
    "plausible",
    "(k/E)^B is the chance that all B tokens visit an expert: the chance that none does is"
    " (1 − k/E)^B.",
)
wrong.add(
    "two_matrices",
    replaced(reference, {"3 * D": "2 * D"}),
    "MLPs without a gate",
    "A gated expert has three matrices: gate, up and down.",
)
wrong.add(
    "in_bf16",
    replaced(reference, {"* bytes_per_param": "* 2"}),
    "plausible",
    "You took 2 bytes for every number, whatever bytes_per_param says.",
)


def cases(rng: random.Random) -> list[Case]:
    """The worked layer over the batch; a tiny one, and with each size changed; no batch; all
    experts; DeepSeek-V3's; large batches."""

    def case(name: str, *args: float, public: bool = True) -> Case:
        return Case(name, args, public=public)

    tiny = {"B": 3, "E": 5, "k": 2, "D": 4, "F": 7, "bytes_per_param": 2}
    others = {"B": 4, "E": 6, "k": 3, "D": 5, "F": 8, "bytes_per_param": 1}
    return [
        *(case(f"the worked layer, B = {B}", B, 16, 2, 4096, 16384, 2) for B in (1, 2, 8, 64)),
        case("a tiny one", *tiny.values()),
        *(
            case(f"the tiny one{name[3:]}", *v.values())
            for name, v in edges.one_changed(tiny, **others)
        ),
        case("half a byte", *{**tiny, "bytes_per_param": 0.5}.values()),
        case("all experts active", 3, 6, 6, 2, 2, 4),
        case("one expert", 1, 1, 1, 1, 1, 1),
        case("DeepSeek-V3, 32 tokens", 32, 256, 8, 7168, 2048, 1),
        case("Grok-1 in fp32: an expert of 2.4 GB", 32, 8, 2, 6144, 32768, 4),
        case("one token, 2,053 experts", 1, edges.past(2048), 1, 3, 5, 2),
        case("2,053 tokens, 2,063 experts", edges.past(2048), edges.past(2053), 1, 3, 5, 2),
        case("2,053 of 2,063 experts", 1, edges.past(2053), edges.past(2048), 3, 5, 2),
        case("a batch of a million", 10**6, 16, 2, 64, 64, 2),
        case("2,053 by 2,063", 2, 4, 1, edges.past(2048), edges.past(2053), 2),
        case(
            "fresh",
            rng.randrange(2, 40),
            rng.randrange(12, 200),
            rng.randrange(2, 9),
            rng.randrange(100, 5000),
            rng.randrange(100, 5000),
            2,
            public=False,
        ),
    ]


EXERCISE = Exercise(
    id="mixture_of_experts-expert_bytes",
    title="Predict what a step reads of its experts",
    kind="predict",
    points=3,
    minutes=12,
    entries=("expert_bytes",),
    cases=cases,
    reference=reference,
    compare=Tolerance(rtol=1e-4, why="in float32 the chance to be left alone is lost beside 1"),
    misconceptions=tuple(wrong),
    hints=(
        "With what chance does one token leave a given expert alone?",
        "1 − k/E, and all B of them with (1 − k/E)^B. An expert is read unless all leave it alone.",
        "On average E·(1 − (1 − k/E)^B) experts, of 3·D·F numbers each.",
    ),
    recall=(
        "How many of E experts do B tokens touch on average, if each picks k evenly?",
        "E (1 − (1 − k/E)^B).",
    ),
)
