"""quantization-checkpoint_bytes: the bytes of a quantized checkpoint, with all that lies beside the
codes."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks import edges
from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Model = dict[str, Any]


def reference(model: Model, bits: int, group: int, zero_bits: int) -> dict[str, int]:
    """The right answer."""
    L, D, F, V = (model[name] for name in ("L", "D", "F", "V"))
    q, kv = model["N"] * model["H"], model["K"] * model["H"]
    matrices = [(q, D), (kv, D), (kv, D), (D, q), (F, D), (F, D), (D, F)]

    def row_bytes(inputs: int) -> int:
        groups = -(-inputs // group)
        return -(-inputs * bits // 8) + 2 * groups + -(-groups * zero_bits // 8)

    tables = 1 if model["tied"] else 2
    return {
        "quantized": L * sum(outputs * row_bytes(inputs) for outputs, inputs in matrices),
        "plain": 2 * (tables * V * D + (2 * L + 1) * D),
    }


def _change(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_change(
    "codes_alone",
    {" + 2 * groups + -(-groups * zero_bits // 8)": ""},
    "“4 bits are an eighth of 32”",
    "You counted the codes alone: scales and zero points lie beside them.",
)
_change(
    "no_zero_points",
    {" + -(-groups * zero_bits // 8)": ""},
    "plausible",
    "You left the zero points out.",
)
_change(
    "zero_points_in_fp16",
    {"-(-groups * zero_bits // 8)": "2 * groups * (zero_bits > 0)"},
    "“scale and zero, 2 bytes each”",
    "You gave a zero point two bytes: it has `zero_bits` bits, packed row by row.",
)
_change(
    "zero_points_not_packed",
    {"-(-groups * zero_bits // 8)": "groups * -(-zero_bits // 8)"},
    "plausible",
    "You gave each zero point whole bytes: those of a row are packed as codes are.",
)
_change(
    "groups_rounded_down",
    {"-(-inputs // group)": "inputs // group"},
    "plausible",
    "Where the group does not divide the row, a shorter group ends it, with a scale of its own.",
)
_change(
    "scales_in_fp32",
    {"+ 2 * groups": "+ 4 * groups"},
    "plausible",
    "You gave a scale four bytes: it is fp16.",
)
_change(
    "everything_quantized",
    {"2 * (tables * V * D + (2 * L + 1) * D)": "tables * V * row_bytes(D) + 2 * (2 * L + 1) * D"},
    "bits times parameters",
    "You quantized the embedding and the head: they stay in bf16.",
)
_change(
    "always_tied",
    {'1 if model["tied"] else 2': "1"},
    "plausible",
    "A head that is not tied is a second table.",
)
_change(
    "never_tied",
    {'1 if model["tied"] else 2': "2"},
    "plausible",
    "A tied head is the embedding: there is one table.",
)
_change(
    "norms_left_out",
    {" + (2 * L + 1) * D": ""},
    "plausible",
    "You left the norms out: two in each layer and a last one, D numbers each.",
)
_change(
    "last_norm_left_out",
    {"(2 * L + 1) * D": "2 * L * D"},
    "plausible",
    "There is one more norm, behind the last layer.",
)
_change(
    "multi_head",
    {'model["K"] * model["H"]': 'model["N"] * model["H"]'},
    "plausible",
    "Keys and values have K heads, not N.",
)
_change(
    "no_gate",
    {"(F, D), (F, D), (D, F)": "(F, D), (D, F)"},
    "MLPs without a gate",
    "A gated MLP has three matrices: gate, up and down.",
)
_change(
    "rows_not_filled_up",
    {"-(-inputs * bits // 8)": "inputs * bits / 8"},
    "bits times parameters over 8",
    "A row whose codes do not fill its last byte rounds up: every row begins with a byte of its"
    " own.",
)
_change(
    "groups_down_the_columns",
    {"outputs * row_bytes(inputs) for": "inputs * row_bytes(outputs) for"},
    "plausible",
    "Your groups run along the outputs: a row is a run of inputs.",
)

TINY = {"L": 2, "D": 6, "F": 10, "N": 4, "K": 2, "H": 3, "V": 11, "tied": True}
OTHERS = {"L": 3, "D": 7, "F": 13, "N": 6, "K": 1, "H": 5, "V": 17, "tied": False}
# both counts lie beyond 2**53, and between two floats
PAST_FLOATS = {
    "L": 1001, "D": 1_000_003, "F": 10_000_019, "N": 6, "K": 2, "H": 5, "V": 10**10 + 19,
    "tied": False,
}  # fmt: skip
LLAMA = {
    "L": 32, "D": 4096, "F": 14336, "N": 32, "K": 8, "H": 128, "V": 128256, "tied": False,
}  # fmt: skip


def cases(rng: random.Random) -> list[Case]:
    """A published model in four formats; a tiny one, with each size changed; every width; groups
    that divide and do not, of one, of more than a row; sizes past any constant."""

    def case(
        name: str, model: Model, bits: int, group: int, zero_bits: int, public: bool = True
    ) -> Case:
        says = f"{name}: {bits} bits, groups of {group}, zero points of {zero_bits} bits"
        return Case(says, (model, bits, group, zero_bits), public=public)

    large = {name: edges.past(2048) + 2 * i for i, name in enumerate(TINY) if name != "tied"}
    large["N"] = 2 * large["K"]
    drawn = {name: rng.randrange(3, 60) for name in TINY if name != "tied"}
    return [
        *(
            case("tiny", dict(TINY), b, g, z)
            for b, g, z in ((4, 4, 0), (4, 4, 4), (4, 4, 3), (3, 4, 3), (3, 2, 3), (8, 16, 0))
        ),
        *(case(f"tiny, {bits}", dict(TINY), bits, 3, bits) for bits in range(2, 9)),
        *(
            case(f"tiny{name[3:]}", values, 3, 4, 3)
            for name, values in edges.one_changed(TINY, **OTHERS)
        ),
        case("groups of one", dict(TINY), 4, 1, 4),
        case("rows one bit over a byte", {**TINY, "D": 3, "F": 11}, 3, 1, 3),
        *(case("Llama 3 8B", dict(LLAMA), b, g, z) for b, g, z in ((4, 128, 4), (8, 14336, 0))),
        case("groups past any constant", dict(LLAMA), 3, edges.past(2048), 3),
        case("sizes past any constant", {**large, "tied": True}, 5, 64, 8),
        case("more than a float can count", dict(PAST_FLOATS), 8, 128, 4),
        case(
            "fresh",
            {**drawn, "N": 3 * drawn["K"], "tied": False},
            rng.randrange(3, 8),
            rng.randrange(5, 20),
            4,
            public=False,
        ),
    ]


EXERCISE = Exercise(
    id="quantization-checkpoint_bytes",
    title="The bytes of a checkpoint",
    kind="formula",
    points=4,
    minutes=12,
    entries=("checkpoint_bytes",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Seven matrices a layer: which are their outputs and inputs?",
        "A row of I inputs: ceil(I·bits/8) bytes of codes, 2·ceil(I/group) of scales, and its zero"
        " points, packed.",
        "Plain: the embedding, the head if it is not tied, and 2·L + 1 norms of D, 2 bytes a"
        " number.",
    ),
    ranges={"bits": (2, 8), "zero_bits": (0, 8)},
    recall=(
        "How many bits a weight are 4-bit codes in groups of 128 with fp16 scales and 4-bit zero"
        " points?",
        "4 + (16 + 4)/128 = 4.16; and embedding and head still have 16.",
    ),
)
