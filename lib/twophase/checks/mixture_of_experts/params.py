"""mixture_of_experts-params: what is stored, and what a token goes through."""

from __future__ import annotations

import random

from twophase.checks import edges
from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(
    L: int, D: int, F: int, N: int, K: int, H: int, V: int, E: int, k: int, n_shared: int
) -> dict[str, int]:
    """The right answer."""
    attention = 2 * D * N * H + 2 * D * K * H
    expert = 3 * D * F
    router = D * E
    total = V * D + L * (attention + router + (E + n_shared) * expert)
    return {"total": total, "active": total - L * (E - k) * expert}


def _change(slug: str, old: str, new: str, seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, {old: new}), seen, says)


_change(
    "router_left_out",
    "router = D * E",
    "router = 0",
    "plausible",
    "The routers are missing: each layer has one, D × E. They are small, but they are parameters.",
)
_change(
    "attention_per_expert",
    "(attention + router + (E + n_shared) * expert)",
    "(router + (E + n_shared) * (expert + attention))",
    "“8x7B has 56B parameters”",
    "You gave each expert an attention of its own. Only the MLP is there E times: that is why"
    " Mixtral 8x7B has 47 billion parameters and not 56.",
)
_change(
    "two_matrices",
    "3 * D * F",
    "2 * D * F",
    "MLPs without a gate",
    "A gated expert has three matrices: gate, up and down.",
)
_change(
    "shared_ones_not_stored",
    "(E + n_shared) * expert",
    "E * expert",
    "plausible",
    "The shared experts are missing: they stand beside the E routed ones, and every token goes"
    " through them.",
)
_change(
    "shared_ones_idle",
    "(E - k) * expert",
    "(E + n_shared - k) * expert",
    "plausible",
    "You counted the shared experts among those that rest: every token visits them besides its k.",
)
_change(
    "active_in_proportion",
    "total - L * (E - k) * expert",
    "total * k // E",
    "“k/E of the parameters are active”",
    "Only the experts rest. Attention, embedding, routers and shared experts are used by every"
    " token.",
)
_change(
    "embedding_twice",
    "V * D",
    "2 * V * D",
    "models with a head of its own",
    "The embedding is counted once here: it is the head as well.",
)
_change(
    "active_without_embedding",
    "total - L * (E - k) * expert",
    "total - V * D - L * (E - k) * expert",
    "plausible",
    "The embedding is missing from the active ones: as the head, a token is multiplied with all of"
    " it.",
)
_change(
    "active_router_in_part",
    "total - L * (E - k) * expert",
    "total - L * (E - k) * (expert + D)",
    "plausible",
    "The router rests for no expert: to know which k are best, a token needs all E of its scores.",
)

WORKED = {"L": 64, "D": 4096, "F": 16384, "N": 32, "K": 8, "H": 256, "V": 32128}
TINY = {"L": 2, "D": 3, "F": 5, "N": 4, "K": 2, "H": 7, "V": 11, "E": 6, "k": 2, "n_shared": 1}

PAST_FLOATS = {"L": 1001, "E": 1001, "k": 7, "n_shared": 1}  # with the rest, beyond 2**53


def cases(rng: random.Random) -> list[Case]:
    """The worked model; a tiny one, and with each size changed; all experts active; one expert;
    sizes like DeepSeek-V3's; counts past 2⁵³."""

    def case(name: str, sizes: dict[str, int], public: bool = True) -> Case:
        return Case(name, tuple(sizes.values()), public=public)

    others = {
        "L": 3,
        "D": 4,
        "F": 6,
        "N": 8,
        "K": 1,
        "H": 8,
        "V": 13,
        "E": 7,
        "k": 3,
        "n_shared": 2,
    }
    many = edges.past(2048)
    fresh = {
        "L": rng.randrange(2, 80),
        "D": 64 * rng.randrange(1, 90),
        "F": rng.randrange(100, 9000),
        "N": 8 * rng.randrange(1, 9),
        "K": 8,
        "H": rng.randrange(16, 300),
        "V": rng.randrange(1000, 200_000),
        "E": rng.randrange(8, 300),
        "k": rng.randrange(1, 8),
        "n_shared": rng.randrange(1, 4),
    }
    uneven = {**TINY, "L": 60, "D": 2048, "F": 1536, "V": 102_400, "E": 160, "k": 7, "n_shared": 2}
    uneven |= {"N": 128, "K": 128, "H": 128}  # 7/160 in floats is too little by the last bit
    return [
        case("the worked model, 2 of 16 experts", {**WORKED, "E": 16, "k": 2, "n_shared": 0}),
        case("a tiny one", TINY),
        *(case(f"the tiny one{name[3:]}", v) for name, v in edges.one_changed(TINY, **others)),
        case("no shared expert", {**TINY, "n_shared": 0}),
        case("all experts active", {**TINY, "k": 6}),
        case("one expert", {**TINY, "E": 1, "k": 1, "n_shared": 0}),
        case("all sizes 1", dict.fromkeys(TINY, 1)),
        case(f"{many:,} experts of width {many:,}", {**TINY, "E": many, "F": many, "k": many - 1}),
        case(f"all sizes near {many:,}", {n: many + 20 - i for i, n in enumerate(TINY)} | {"k": 5}),
        case("more than a float can count", dict.fromkeys(TINY, 100_003) | PAST_FLOATS),
        case(
            "256 experts, 8 active, 1 shared",
            {**WORKED, "F": 2048, "E": 256, "k": 8, "n_shared": 1},
        ),
        case("160 experts, 7 active, 2 shared", uneven),
        case("fresh", fresh, public=False),
    ]


EXERCISE = Exercise(
    id="mixture_of_experts-params",
    title="Total and active parameters",
    kind="formula",
    points=2,
    minutes=8,
    entries=("moe_params",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Only the MLP is there several times. Write down what a layer has once, and what E times.",
        "A layer: attention 2·D·N·H + 2·D·K·H, a router D·E, and E + n_shared experts of 3·D·F.",
        "Active: take the experts that rest, L·(E − k)·3·D·F, from the total.",
    ),
    recall=(
        "Why has a mixture of 8 experts of a 7B model fewer than 56 billion parameters?",
        "Only the MLPs are there eight times; attention and embedding are shared.",
    ),
)
