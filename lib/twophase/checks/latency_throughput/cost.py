"""latency_throughput-cost: chip-hours and price of a million tokens."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks import edges
from twophase.checks.answer import Answer
from twophase.checks.compare import FORMULA, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

MILLION = 1_000_000


def reference(
    tokens_per_s: float, n_chips: int, price_per_chip_hour: float, busy: float
) -> tuple[float, float]:
    """The right answer."""
    hours = MILLION / (tokens_per_s * busy) / 3600 * n_chips
    return hours, hours * price_per_chip_hour


@wrong(
    "plausible",
    "These are hours on the clock. All n_chips work, and are paid, during each of them.",
)
def wall_clock_hours(
    tokens_per_s: float, n_chips: int, price_per_chip_hour: float, busy: float
) -> tuple[float, float]:
    hours = MILLION / (tokens_per_s * busy) / 3600
    return hours, hours * price_per_chip_hour


@wrong(
    "plausible",
    "Your chip-hours are right, but the price is for one of the chips: multiply the chip-hours by"
    " the price.",
)
def price_of_one_chip(
    tokens_per_s: float, n_chips: int, price_per_chip_hour: float, busy: float
) -> tuple[float, float]:
    hours = MILLION / (tokens_per_s * busy) / 3600
    return hours * n_chips, hours * price_per_chip_hour


@wrong("plausible", "These are chip-seconds; an hour has 3,600 of them.")
def seconds_for_hours(
    tokens_per_s: float, n_chips: int, price_per_chip_hour: float, busy: float
) -> tuple[float, float]:
    seconds = MILLION / (tokens_per_s * busy) * n_chips
    return seconds, seconds * price_per_chip_hour


@wrong(
    "plausible",
    "This is how many million tokens an hour gives. A higher throughput must make a million tokens"
    " cheaper.",
)
def inverted(
    tokens_per_s: float, n_chips: int, price_per_chip_hour: float, busy: float
) -> tuple[float, float]:
    hours = tokens_per_s * busy * 3600 / MILLION * n_chips
    return hours, hours * price_per_chip_hour


@wrong(
    "price tables that divide by the peak throughput",
    "You charge for busy time only. Idle chips are paid, too: a million tokens take 1 / busy times"
    " as long.",
)
def idle_hours_free(
    tokens_per_s: float, n_chips: int, price_per_chip_hour: float, busy: float
) -> tuple[float, float]:
    return reference(tokens_per_s, n_chips, price_per_chip_hour, 1.0)


@wrong(
    "plausible",
    "You multiplied by the busy share, so that idle chips make tokens cheaper: divide by it.",
)
def idleness_makes_cheap(
    tokens_per_s: float, n_chips: int, price_per_chip_hour: float, busy: float
) -> tuple[float, float]:
    hours = MILLION / tokens_per_s / 3600 * n_chips * busy
    return hours, hours * price_per_chip_hour


@wrong("plausible", "This is for one token; the task asks for a million.")
def one_token(
    tokens_per_s: float, n_chips: int, price_per_chip_hour: float, busy: float
) -> tuple[float, float]:
    hours, price = reference(tokens_per_s, n_chips, price_per_chip_hour, busy)
    return hours / MILLION, price / MILLION


def observe(answer: Answer, case: Case) -> Any:
    """What cost returns; an array will do for a list."""
    return plain(answer.call("cost", *case.args))


def cases(rng: random.Random) -> list[Case]:
    """An hour for a million tokens; the chapter's batches; several chips, busy part of the time;
    many chips, hardly busy, slow, nearly free."""
    fresh = []
    for i in range(5):
        given = (
            rng.uniform(50, 40_000),
            rng.randrange(2, 33),
            rng.uniform(0.5, 9),
            rng.uniform(0.1, 0.95),
        )
        fresh.append(Case(f"fresh {i + 1}", given, public=i < 2))
    busy = {"tokens_per_s": 9000.0, "n_chips": 4, "price_per_chip_hour": 2.5, "busy": 0.5}
    changed = edges.one_changed(
        busy, tokens_per_s=8000.0, n_chips=5, price_per_chip_hour=3.5, busy=0.25
    )
    return [
        Case("a million tokens an hour on one chip at 2 per hour", (MILLION / 3600, 1, 2, 1)),
        Case("Llama-2-13B on one H100 at 3 per hour, B=1", (124.7, 1, 3, 1)),
        Case("B=64, busy a quarter of the time", (2689.5, 1, 3, 0.25)),
        Case("4 chips, 9,000 tokens/s together, busy half of the time", tuple(busy.values())),
        *(Case(f"the same, {name}", tuple(given.values())) for name, given in changed),
        Case("2,053 chips, a million tokens in less than a second", (3_000_000.0, 2053, 2.5, 0.5)),
        Case("busy a five-thousandth of the time", (9000.7, 4, 2.5, 0.0002)),
        Case("busy a millionth of the time", (1000.0, 8, 2.0, 1e-6)),
        Case("a token in three seconds", (1 / 3, 1, 2.5, 0.9)),
        Case("chips at a cent an hour, hardly idle", (9000.0, 8, 0.01, 0.97)),
        Case("chips that cost nothing", (9000.0, 8, 0, 0.75)),
        *fresh,
    ]


EXERCISE = Exercise(
    id="latency_throughput-cost",
    title="What a million tokens cost",
    kind="formula",
    points=2,
    minutes=8,
    entries=("cost",),
    cases=cases,
    observe=observe,
    reference=reference,
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        (
            "How many seconds until a million tokens are there? The rate is reached only a share"
            " `busy` of the time."
        ),
        "Seconds: 1,000,000 / (tokens_per_s × busy). Hours: that over 3,600.",
        (
            "Every hour on the clock is n_chips chip-hours; the price is chip-hours ×"
            " price_per_chip_hour."
        ),
    ),
    ranges={"busy": (1e-6, 1), "n_chips": (1, 2053)},
    recall=(
        "A server is busy a fifth of the time. What does that do to the price of a token?",
        "It makes it five times the price at full use: idle hours are paid.",
    ),
)
