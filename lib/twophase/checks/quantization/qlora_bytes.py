"""quantization-qlora_bytes: what a QLoRA run holds of its weights."""

from __future__ import annotations

import random

from twophase.checks import edges
from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(matrices: list[list[int]], rank: int) -> dict[str, int]:
    """The right answer."""
    base = adapters = 0
    for outputs, inputs in matrices:
        n = outputs * inputs
        blocks = -(-n // 64)
        base += -(-n // 2) + blocks + 4 * -(-blocks // 256) + 4
        adapters += 12 * rank * (outputs + inputs)
    return {"base": base, "adapters": adapters}


def _change(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_change(
    "codes_alone",
    {" + blocks + 4 * -(-blocks // 256) + 4": ""},
    "“4 bits a weight”",
    "You counted the codes alone: each block of 64 has a maximum, and those have theirs.",
)
_change(
    "maxima_in_fp32",
    {" + blocks + 4 * -(-blocks // 256) + 4": " + 4 * blocks"},
    "NF4 without double quantization",
    "Your maxima are fp32: with double quantization they have one byte each, and an fp32 number for"
    " every 256 of them.",
)
_change(
    "mean_left_out",
    {" // 256) + 4": " // 256)"},
    "plausible",
    "Each matrix has the fp32 mean of its maxima, too.",
)
_change(
    "outer_left_out",
    {" + 4 * -(-blocks // 256)": ""},
    "plausible",
    "You left out the outer maxima: fp32, one for every 256 blocks.",
)
_change(
    "outer_rounded_down",
    {"4 * -(-blocks // 256)": "4 * (blocks // 256)"},
    "plausible",
    "The last outer block may be shorter: round up.",
)
_change(
    "blocks_of_a_row",
    {"-(-n // 64)": "outputs * -(-inputs // 64)"},
    "groups that run along a row",
    "Your blocks end with the row: NF4's run on along the flattened matrix.",
)
_change(
    "a_full_update",
    {"rank * (outputs + inputs)": "outputs * inputs"},
    "full fine-tuning",
    "You train all weights: an adapter is two matrices, rank × inputs and outputs × rank.",
)
_change(
    "one_factor",
    {"rank * (outputs + inputs)": "rank * inputs"},
    "plausible",
    "An adapter has two factors: rank × inputs and outputs × rank.",
)
_change(
    "no_optimizer",
    {"12 * rank": "4 * rank"},
    "plausible",
    "You left Adam out: two fp32 numbers for each that is trained.",
)
_change(
    "no_gradient",
    {"12 * rank": "10 * rank"},
    "plausible",
    "You left the gradients out: 2 bytes for each number that is trained.",
)
_change(
    "weights_alone",
    {"12 * rank": "2 * rank"},
    "the adapter as it is saved",
    "That is the adapter's file. While it is trained, each number has a gradient and Adam's two as"
    " well.",
)
_change(
    "optimizer_of_the_base",
    {"+ blocks + 4": "+ 10 * n + blocks + 4"},
    "full fine-tuning",
    "The base is frozen: it has neither gradients nor Adam's numbers.",
)


def cases(rng: random.Random) -> list[Case]:
    """One number; just a block, one more; just 256 blocks, one more; odd numbers; several matrices;
    rank 1; sizes past any constant."""

    def case(name: str, matrices: list[list[int]], rank: int, public: bool = True) -> Case:
        return Case(f"{name}, rank {rank}", (matrices, rank), public=public)

    llama = [[4096, 4096], [1024, 4096], [14336, 4096], [4096, 14336]]
    layer_of_70B = [
        *([8192, 8192], [1024, 8192], [1024, 8192], [8192, 8192]),
        *([28672, 8192], [28672, 8192], [8192, 28672]),
    ]
    large = [[edges.past(2048), edges.past(4096)]]
    begun = [[2**31 + 1, 2**30 + 1]]  # a weight more than just full bytes, blocks, outer blocks
    return [
        case("[1, 1]", [[1, 1]], 1),
        case("[3, 5]", [[3, 5]], 2),
        case("[3, 5]", [[3, 5]], 3),
        case("a block", [[8, 8]], 2),
        case("a block and one more", [[5, 13]], 2),
        case("256 blocks", [[128, 128]], 4),
        case("256 blocks and one more", [[128, 128], [113, 145]], 4),
        case("512 blocks less one row", [[255, 128]], 4),
        case("a rank above the outputs", [[4, 100]], 8),
        case("a rank above the inputs", [[100, 4]], 8),
        case("rows of 65", [[10, 65]], 3),
        case("no matrices", [], 8),
        case("four of Llama 3 8B's", llama, 16),
        case("all of Llama 3 70B's", layer_of_70B * 80, 16),
        case("past any constant", large, edges.past(2048)),
        case("many matrices", [[2 + i % 3, 7] for i in range(edges.past(256))], 1),
        case("a thousand matrices", [[3 + i % 5, 5] for i in range(1000)], 2),
        case("numbers that no float holds", begun, 10**8 + 7),
        case("wide", [[2, edges.past(8192)]], 1),
        case(
            "fresh",
            [[rng.randrange(10, 300), rng.randrange(301, 900)] for _ in range(3)],
            rng.randrange(2, 20),
            public=False,
        ),
    ]


EXERCISE = Exercise(
    id="quantization-qlora_bytes",
    title="What QLoRA holds",
    kind="formula",
    points=3,
    minutes=10,
    entries=("qlora_bytes",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Base and adapters apart. Which numbers of the base are there beside its codes?",
        "A byte for each block of 64, four for each 256 blocks, four for the mean; all per matrix,"
        " rounded up.",
        "An adapter has rank·(outputs + inputs) numbers of 2 + 2 + 4 + 4 bytes.",
    ),
    recall=(
        "Why is a QLoRA run so much smaller than full fine-tuning, apart from the 4 bits?",
        "Gradients and Adam's numbers are there for the adapters only.",
    ),
)
