"""kv_cache-step_bytes: predict what one decode step of attention moves.

The reference is written down; a test holds it against the meter, on every case that a meter can
run."""

from __future__ import annotations

import random

from twophase.checks import edges
from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()


def _predicted(
    B: int, kv_values: int, query_values: int, new_values: int, bytes_per_value: int
) -> int:
    """Keys and values read, q read and output written, new keys and values read and written."""
    return B * bytes_per_value * (kv_values + 2 * query_values + 2 * new_values)


def reference(B: int, S: int, S_max: int, N: int, K: int, H: int, bytes_per_value: int) -> int:
    """The right answer."""
    return _predicted(B, 2 * (S + 1) * K * H, N * H, 2 * K * H, bytes_per_value)


@wrong(
    "KV calculators (modular handbook #131, LMCache #688)",
    "You counted N heads for the cache: it holds K key and value heads, each read once for its"
    " whole group.",
)
def query_heads(B: int, S: int, S_max: int, N: int, K: int, H: int, bytes_per_value: int) -> int:
    return _predicted(B, 2 * (S + 1) * N * H, N * H, 2 * N * H, bytes_per_value)


@wrong(
    "the cached step that excluded the current token",
    "You are short by one token: attention reads S + 1 keys and values, and the append both reads"
    " and writes one.",
)
def one_token_short(
    B: int, S: int, S_max: int, N: int, K: int, H: int, bytes_per_value: int
) -> int:
    return _predicted(B, 2 * S * K * H, N * H, 2 * K * H, bytes_per_value)


@wrong(
    "static caches without views",
    "You let attention read all S_max places: it reads the filled part, a view.",
)
def whole_buffer(B: int, S: int, S_max: int, N: int, K: int, H: int, bytes_per_value: int) -> int:
    return _predicted(B, 2 * S_max * K * H, N * H, 2 * K * H, bytes_per_value)


@wrong("plausible", "Keys are half of it: values are stored and read as well.")
def keys_only(B: int, S: int, S_max: int, N: int, K: int, H: int, bytes_per_value: int) -> int:
    return _predicted(B, (S + 1) * K * H, N * H, K * H, bytes_per_value)


@wrong(
    "the usual estimate, 2·B·S·K·H values",
    "This is the cache being read, nearly all of it. Exactly, q is read, the output written, and"
    " the new token stored.",
)
def cache_alone(B: int, S: int, S_max: int, N: int, K: int, H: int, bytes_per_value: int) -> int:
    return _predicted(B, 2 * (S + 1) * K * H, 0, 0, bytes_per_value)


@wrong("plausible", "The append is missing: the new key and value are read once and written once.")
def append_left_out(
    B: int, S: int, S_max: int, N: int, K: int, H: int, bytes_per_value: int
) -> int:
    return _predicted(B, 2 * (S + 1) * K * H, N * H, 0, bytes_per_value)


@wrong(
    "caches grown by torch.cat",
    "You let the append copy the whole cache, as torch.cat would: here it writes one token in"
    " place.",
)
def cache_rewritten(
    B: int, S: int, S_max: int, N: int, K: int, H: int, bytes_per_value: int
) -> int:
    return _predicted(B, 2 * (S + 1) * K * H, N * H, 2 * (S + 1) * K * H, bytes_per_value)


@wrong("plausible", "The batch does not share the cache: each of the B sequences reads its own.")
def cache_shared(B: int, S: int, S_max: int, N: int, K: int, H: int, bytes_per_value: int) -> int:
    return 2 * (S + 1) * K * H * bytes_per_value + _predicted(
        B, 0, N * H, 2 * K * H, bytes_per_value
    )


@wrong(
    "attention without a fused kernel",
    "You counted the scores: in a fused kernel they never leave the chip.",
)
def scores_stored(B: int, S: int, S_max: int, N: int, K: int, H: int, bytes_per_value: int) -> int:
    return _predicted(B, 2 * (S + 1) * K * H + 2 * N * (S + 1), N * H, 2 * K * H, bytes_per_value)


@wrong(
    "plausible",
    "With one query head you count its query or its output: the one is read and the other written,"
    " however many heads there are.",
)
def one_head_once(B: int, S: int, S_max: int, N: int, K: int, H: int, bytes_per_value: int) -> int:
    right = reference(B, S, S_max, N, K, H, bytes_per_value)
    return right - B * N * H * bytes_per_value if N == 1 else right


def _large() -> tuple[int, int, int, int, int, int]:
    """More places than any table has, and more bytes than a float holds, but not than 64 bits."""
    S = edges.past(2**17)
    K, H = edges.past(2**12), edges.past(2**14)
    sizes = edges.past(2048), S, 2 * S, 3 * K, K, H
    moved = reference(*sizes, bytes_per_value=2)
    assert int(float(moved)) != moved < 2**63
    return sizes


def cases(rng: random.Random) -> list[Case]:
    """Tiny shapes; an empty cache, one that this step fills, every width of number, one KV head, as
    many as queries, one of each; one longer than any table; then shapes that nobody has seen."""

    def case(B: int, S: int, S_max: int, N: int, K: int, H: int, b: int, seen: bool = True) -> Case:
        name = f"B={B}, S={S}, S_max={S_max}, N={N}, K={K}, H={H}, {b} bytes"
        return Case(name, (B, S, S_max, N, K, H, b), public=seen)

    unseen = []
    for i in range(4):
        K, S = rng.randrange(2, 5), rng.randrange(10, 200)
        sizes = (
            rng.randrange(2, 6),
            S,
            S + rng.randrange(5, 60),
            K * rng.randrange(2, 6),
            K,
            2 * rng.randrange(3, 20),
        )
        unseen.append(case(*sizes, rng.choice((2, 4, 8)), seen=i < 2))
    return [
        case(1, 3, 8, 2, 1, 4, 4),
        case(1, 9, 32, 4, 2, 8, 2),
        case(3, 9, 32, 6, 2, 8, 2),
        case(2, 0, 8, 4, 2, 6, 4),
        case(2, 7, 8, 4, 2, 6, 8),
        case(2, 7, 9, 4, 2, 6, 4),
        case(2, 7, 9, 4, 2, 10, 4),
        case(3, 7, 9, 4, 2, 6, 4),
        case(2, 6, 9, 4, 2, 6, 4),
        case(2, 7, 9, 6, 2, 6, 4),
        case(2, 7, 9, 4, 1, 6, 4),
        case(2, 7, 9, 4, 2, 6, 2),
        case(3, 5, 20, 6, 6, 4, 4),
        case(3, 5, 20, 6, 1, 4, 4),
        case(3, 5, 20, 1, 1, 4, 4),
        case(*_large(), 2),
        *unseen,
    ]


EXERCISE = Exercise(
    id="kv_cache-step_bytes",
    title="Predict what a decode step moves",
    kind="predict",
    points=4,
    minutes=15,
    entries=("step_bytes",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        (
            "Go through the step: append (read the new k and v, write them into the cache), then"
            " attention (q, keys, values → output)."
        ),
        "Attention reads 2·B·(S + 1)·K·H numbers of the cache and B·N·H of q, and writes B·N·H.",
        (
            "The append reads 2·B·K·H numbers and writes as many. Add up and multiply by"
            " bytes_per_value."
        ),
    ),
    ranges={"bytes_per_value": (2, 8), "S": (0, 2**17)},
    recall=(
        "Which part of what a decode step moves grows with the context?",
        "Only reading the cache; what is written per step is one token, whatever the context.",
    ),
)
