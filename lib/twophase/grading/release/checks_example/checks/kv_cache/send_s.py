"""kv_cache-send_s: how long a prompt's cache takes over the link between two machines."""

from __future__ import annotations

import random

from twophase.checks.compare import FORMULA
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()


def reference(kv_bytes_per_token: int, n_tokens: int, link_bits_per_s: float) -> float:
    """The right answer."""
    return 8 * kv_bytes_per_token * n_tokens / link_bits_per_s


@wrong("plausible", "You took the link's bits per second for bytes per second: a byte has 8 bits.")
def bits_as_bytes(kv_bytes_per_token: int, n_tokens: int, link_bits_per_s: float) -> float:
    return kv_bytes_per_token * n_tokens / link_bits_per_s


@wrong("plausible", "This is the time for one token: the cache of the whole prompt has to move.")
def one_token(kv_bytes_per_token: int, n_tokens: int, link_bits_per_s: float) -> float:
    return 8 * kv_bytes_per_token / link_bits_per_s


@wrong(
    "plausible", "You divided by 8 where you should multiply: a byte is more to send than a bit."
)
def eight_the_wrong_way(kv_bytes_per_token: int, n_tokens: int, link_bits_per_s: float) -> float:
    return kv_bytes_per_token * n_tokens / (8 * link_bits_per_s)


def cases(rng: random.Random) -> list[Case]:
    """A cache of 100 bytes, one that could be real, then fresh ones."""
    fresh = []
    for i in range(5):
        sizes = (
            rng.randrange(1_000, 400_000),
            rng.randrange(2, 100_000),
            1e9 * rng.randrange(1, 400),
        )
        fresh.append(Case(f"fresh {i + 1}", sizes, public=i < 2))
    return [
        Case("10 tokens of 10 bytes over 100 bit/s", (10, 10, 100.0)),
        Case("8,000 tokens of 131,072 bytes over 100 Gbit/s", (131_072, 8_000, 100e9)),
        *fresh,
    ]


EXERCISE = Exercise(
    id="kv_cache-send_s",
    title="Send a cache to another machine",
    kind="formula",
    points=2,
    minutes=6,
    entries=("send_s",),
    cases=cases,
    reference=reference,
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        "How many bytes are there to send? In which unit does the link count?",
        "Seconds are bits to send, divided by bits per second.",
        "Bits to send: 8 × bytes per token × tokens.",
    ),
    recall=(
        "Network links are sold in bits or in bytes per second?",
        "Bits: divide by 8 before comparing with memory.",
    ),
)
