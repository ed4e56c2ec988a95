"""latent_attention-flops: predict what both forms of latent attention compute.

The reference is written down; tests hold it against theory and against the meter."""

from __future__ import annotations

import random

from twophase.checks import edges
from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

NAMES = ("B", "T", "S", "N", "R", "nope_dim", "rope_dim", "v_dim")


def reference(
    B: int, T: int, S: int, N: int, R: int, nope_dim: int, rope_dim: int, v_dim: int
) -> dict[str, int]:
    """The right answer."""
    unfold = S * R * (nope_dim + v_dim)
    own = T * S * (nope_dim + rope_dim + v_dim)
    absorb = T * R * (nope_dim + v_dim)
    shared = T * S * (R + rope_dim + R)
    return {"expanded": 2 * B * N * (unfold + own), "absorbed": 2 * B * N * (absorb + shared)}


wrong.add(
    "adds_left_out",
    replaced(
        reference,
        {'"expanded": 2 * B': '"expanded": B', '"absorbed": 2 * B': '"absorbed": B'},
    ),
    "multiply-adds called FLOPs",
    "You counted multiply-adds: a multiplication and an addition are two FLOPs.",
)
wrong.add(
    "unfolding_left_out",
    replaced(reference, {"(unfold + own)": "own"}),
    "attention formulas without projections",
    "Expanded: before a key can be used, all S latents of each sequence are unfolded, R·(nope_dim +"
    " v_dim) multiply-adds a head.",
)
wrong.add(
    "absorbing_left_out",
    replaced(reference, {"(absorb + shared)": "shared"}),
    "“absorbing is free, it is done once”",
    "Absorbed: each of the T queries goes through w_uk, and each of its sums through w_uv.",
)
wrong.add(
    "only_new_tokens_unfolded",
    replaced(reference, {"unfold = S *": "unfold = T *"}),
    "“keys of old tokens are cached”",
    "Only latents are cached: expanded, all S of them are unfolded again, not just the T new ones.",
)
wrong.add(
    "all_positions_absorbed",
    replaced(reference, {"absorb = T *": "absorb = S *"}),
    "plausible",
    "Absorbing acts on queries and outputs: T of each, whatever S is.",
)
wrong.add(
    "latent_used_once",
    replaced(reference, {"(R + rope_dim + R)": "(R + rope_dim)"}),
    "plausible",
    "A latent is used twice, as the key in the score and as the value in the sum: R each time.",
)
wrong.add(
    "latents_for_one_head",
    replaced(
        reference,
        {"shared = T * S * (R + rope_dim + R)": "shared = T * S * (2 * R + rope_dim) // N"},
    ),
    "“MLA is MQA”, taken too far",
    "The latent is shared, the scores are not: each of the N heads takes its own.",
)
wrong.add(
    "rotated_part_left_out",
    replaced(
        reference,
        {"(nope_dim + rope_dim + v_dim)": "(nope_dim + v_dim)", "(R + rope_dim + R)": "2 * R"},
    ),
    "MLA without its decoupled key (rasbt 05_mla)",
    "The rotated part is missing: rope_dim multiply-adds for each pair, in both forms.",
)
wrong.add(
    "rotated_values",
    replaced(
        reference,
        {
            "(nope_dim + rope_dim + v_dim)": "(nope_dim + 2 * rope_dim + v_dim)",
            "(R + rope_dim + R)": "2 * (R + rope_dim)",
        },
    ),
    "one concatenated cache used as key and as value",
    "The rotated key is a part of the scores only: it is no value, and is not summed.",
)
wrong.add(
    "one_up_projection",
    replaced(
        reference,
        {
            "S * R * (nope_dim + v_dim)": "S * R * nope_dim",
            "T * R * (nope_dim + v_dim)": "T * R * nope_dim",
        },
    ),
    "plausible",
    "There are two up-projections, w_uk for keys and w_uv for values; you counted the first.",
)
wrong.add(
    "mask_saves_work",
    replaced(
        reference,
        {
            "own = T * S": "own = (T * S - T * (T - 1) // 2)",
            "shared = T * S": "shared = (T * S - T * (T - 1) // 2)",
        },
    ),
    "plausible",
    "You counted only the pairs that the mask lets through: a fair count, but this one takes all"
    " T·S.",
)
wrong.add(
    "the_other_way_round",
    replaced(reference, {'{"expanded"': '{"absorbed"', ', "absorbed"': ', "expanded"'}),
    "plausible",
    "The two forms are exchanged: the one that unfolds S latents is the expanded one.",
)


def _large() -> tuple[int, ...]:
    """More of each than any model, and more FLOPs than a float holds, but not than 64 bits."""
    T, S = 2 * edges.past(1024), edges.past(2**20)
    sizes = (1, T, S, edges.past(8192), edges.past(4096), 257, 128, 130)
    for flops in reference(*sizes).values():
        assert int(float(flops)) != flops
        assert flops < 2**63
    return sizes


def _past_64_bits() -> tuple[int, ...]:
    """A long batch of long prompts: more FLOPs than a 64-bit integer holds."""
    sizes = (2048, 2**18, 2**18, 256, 512, 128, 64, 128)
    assert min(reference(*sizes).values()) > 2**64
    return sizes


def cases(rng: random.Random) -> list[Case]:
    """A decode step, a prompt, a block after a cache; one change at a time; DeepSeek-V2's widths;
    counts that no float holds; shapes that nobody has seen."""

    def case(*sizes: int, public: bool = True) -> Case:
        shown = ", ".join(f"{n}={v}" for n, v in zip(NAMES, sizes, strict=True))
        return Case(shown, sizes, public=public)

    plain = dict(zip(NAMES, (2, 3, 7, 4, 6, 3, 2, 5), strict=True))
    changed = edges.one_changed(plain, B=3, T=4, S=8, N=6, R=7, nope_dim=4, rope_dim=4, v_dim=3)
    unseen = [
        case(
            rng.randrange(2, 6),
            T,
            T + rng.randrange(2, 40),
            2 * rng.randrange(2, 9),
            rng.randrange(20, 90),
            rng.randrange(5, 20),
            2 * rng.randrange(2, 9),
            rng.randrange(21, 40),
            public=i < 2,
        )
        for i in range(4)
        for T in [rng.randrange(2, 12)]
    ]
    return [
        case(1, 1, 1, 1, 1, 1, 2, 1),
        case(1, 1, 5, 2, 4, 3, 2, 3),
        case(1, 4, 4, 2, 4, 3, 2, 2),
        case(*plain.values()),
        *(case(*sizes.values()) for _, sizes in changed),
        case(1, 1, 4096, 128, 512, 128, 64, 128),
        case(1, 4096, 4096, 128, 512, 128, 64, 128),
        case(edges.past(2048), 1, 2, 2, 3, 2, 2, 2),
        case(1, edges.past(2048), edges.past(4096), 2, 3, 2, 2, 2),
        case(1, 1, 3, 2, 3, edges.past(2048), edges.past(2048), edges.past(4096)),
        case(*_large()),
        case(*_past_64_bits()),
        *unseen,
    ]


EXERCISE = Exercise(
    id="latent_attention-flops",
    title="Predict what both forms compute",
    kind="predict",
    points=4,
    minutes=15,
    entries=("flops",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Each form has two parts: a product with the up-projections, and attention's pairs.",
        (
            "Up-projections: R·(nope_dim + v_dim) multiply-adds a head, for each of S latents"
            " (expanded) or each of T queries (absorbed)."
        ),
        (
            "A pair costs nope_dim + rope_dim + v_dim a head, expanded, and R + rope_dim + R,"
            " absorbed. Times 2, times B·N."
        ),
    ),
    ranges={"B": (1, 2053), "S": (1, 2**20)},
    recall=(
        "Absorbed attention does more work per pair. When is it still the cheaper form?",
        (
            "When few queries meet many positions: it spares unfolding every latent again. In"
            " decode always, in a prompt never while two heads are narrower than two latents."
        ),
    ),
)
