"""quantization-step_time: predict the time of a step by format and batch."""

from __future__ import annotations

import random

from twophase.checks import edges
from twophase.checks.compare import FORMULA
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(
    B: int, n_params: int, bits: int, group: int, bytes_per_s: float, flops_per_s: float
) -> float:
    """The right answer."""
    n_bytes = n_params * (bits + 16 / group) / 8
    return max(n_bytes / bytes_per_s, 2 * B * n_params / flops_per_s)


def _change(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_change(
    "scales_left_out",
    {"(bits + 16 / group)": "bits"},
    "“4 bits a weight”",
    "You left the scales out: each group of weights brings 16 bits of its own.",
)
_change(
    "scale_of_a_byte_for_two",
    {"16 / group": "2 / group"},
    "bits and bytes confused",
    "You gave a scale 2 bits: it has 2 bytes.",
)
_change(
    "reading_alone",
    {"max(n_bytes / bytes_per_s, 2 * B * n_params / flops_per_s)": "n_bytes / bytes_per_s"},
    "“decoding is memory bound”",
    "You never compute. With enough tokens computing takes longer than reading.",
)
_change(
    "computing_alone",
    {"max(n_bytes / bytes_per_s, 2 * B": "(2 * B"},
    "plausible",
    "You never read: a few tokens wait for the weights.",
)
_change(
    "added",
    {"max(n_bytes / bytes_per_s, 2 * B": "(n_bytes / bytes_per_s + 2 * B"},
    "plausible",
    "You added the two: here reading and computing go on at the same time, and the longer counts.",
)
_change(
    "read_for_each_token",
    {"max(n_bytes / bytes_per_s": "max(B * n_bytes / bytes_per_s"},
    "plausible",
    "You read the weights once for each token: a step reads them once for all.",
)
_change(
    "fewer_bits_fewer_flops",
    {"2 * B * n_params / flops": "2 * B * n_params * bits / 16 / flops"},
    "“also requires fewer FLOPs”",
    "Weights in fewer bits are widened before they are multiplied: the arithmetic is the same.",
)
_change(
    "one_flop",
    {"2 * B * n_params": "B * n_params"},
    "plausible",
    "A product with a weight is a multiplication and an addition: 2 FLOPs.",
)
_change(
    "bytes_for_bits",
    {" / 8": ""},
    "plausible",
    "You read as many bytes as there are bits.",
)


def cases(rng: random.Random) -> list[Case]:
    """One token and many; the batch at which both take equally long, one less, one more; each
    argument changed; sizes past any constant. A begun group counts for nothing: the task leaves
    open whether it has a whole scale."""
    given = {
        "B": 1, "n_params": 7 * 10**9, "bits": 4, "group": 128,
        "bytes_per_s": 3.35e12, "flops_per_s": 9.89e14,
    }  # fmt: skip
    others = {
        "B": 300, "n_params": 10**9, "bits": 8, "group": 32,
        "bytes_per_s": 1e11, "flops_per_s": 3e12,
    }  # fmt: skip
    even = {**given, "bits": 7, "group": 16, "bytes_per_s": 1e12, "flops_per_s": 2e14, "B": 100}
    return [
        Case("the worked step", tuple(given.values())),
        *(
            Case(f"the worked step {name}", tuple(values.values()))
            for name, values in edges.one_changed(given, **others)
        ),
        *(
            Case(f"{B} tokens where 100 are even", tuple({**even, "B": B}.values()))
            for B in (99, 100, 101)
        ),
        Case("no weights shared", (1, 10**6, 4, 1, 1e9, 1e12)),
        Case("one bit a weight", (1, 10**9, 1, 128, 1e12, 1e15)),
        Case("32 bits in groups of 16", (1, 10**9, 32, 16, 1e12, 1e15)),
        Case("three weights", (1, 3, 3, 3, 1e9, 1e12)),
        Case("groups past any constant", (1, 10**6, 2, edges.past(4096), 1e9, 1e12)),
        Case("a batch past any constant", (edges.past(2048), 10**6, 3, 64, 1e12, 1e12)),
        Case(
            "fresh",
            (
                rng.randrange(2, 9),
                64 * rng.randrange(10**4, 10**7),
                3,
                64,
                rng.uniform(1, 9) * 1e10,
                1e13,
            ),
            public=False,
        ),
        Case(
            "fresh, a large batch",
            (rng.randrange(900, 2000), 64 * rng.randrange(10**4, 10**7), 3, 64, 2e11, 1e13),
            public=False,
        ),
    ]


EXERCISE = Exercise(
    id="quantization-step_time",
    title="Predict the time of a step",
    kind="predict",
    points=3,
    minutes=10,
    entries=("step_s",),
    cases=cases,
    reference=reference,
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        "How many bits does a weight take with its share of the group's scale?",
        "Bytes: n_params · (bits + 16/group) / 8, once a step. FLOPs: 2 for each weight and token.",
        "The longer of bytes / bytes_per_s and FLOPs / flops_per_s.",
    ),
    recall=(
        "What does int4 gain over bf16 for one token, at most, and for a prefill of thousands?",
        "Nearly four times for one token; nothing for thousands, where computing takes longer.",
    ),
)
