"""two_phases-sampler: temperature, top-k and top-p, checked by the exact law of what comes out."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import accumulate
from operator import sub
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import Tolerance
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.law import law
from twophase.checks.misconceptions import Misconceptions, replaced
from twophase.checks.two_phases._just_beyond import just_beyond
from twophase.protocol import AnswerError

wrong = Misconceptions()

Choose = Callable[[list[float]], int]


def softmax(logits: list[float], temperature: float) -> list[float]:
    top = max(logits)
    return normalized([math.exp((x - top) / temperature) for x in logits])


def normalized(probs: list[float]) -> list[float]:
    mass = sum(probs)
    return [p / mass for p in probs]


def by_size(probs: list[float]) -> list[int]:
    return sorted(range(len(probs)), key=lambda i: -probs[i])


def keep_top_k(probs: list[float], top_k: int | None) -> list[float]:
    kept = set(by_size(probs)[:top_k])
    return [p if i in kept else 0.0 for i, p in enumerate(probs)]


def keep_top_p(probs: list[float], top_p: float | None) -> list[float]:
    """Keep tokens from the largest down until their mass reaches top_p."""
    if top_p is None:
        return probs
    kept: set[int] = set()
    mass = 0.0
    for i in by_size(probs):
        if mass >= top_p:
            break
        kept.add(i)
        mass += probs[i]
    return [p if i in kept else 0.0 for i, p in enumerate(probs)]


def _greedy(logits: list[float]) -> int:
    return max(range(len(logits)), key=lambda i: logits[i])


def reference(
    logits: list[float], temperature: float, top_k: int | None, top_p: float | None, choose: Choose
) -> int:
    """The right answer."""
    if temperature == 0:
        return _greedy(logits)
    probs = softmax(logits, temperature)
    left = normalized(keep_top_k(probs, top_k))
    return choose(normalized(keep_top_p(left, top_p)))


@wrong(
    "samplers that differ in the order of their steps",
    "You chose the tokens before applying the temperature. Temperature comes first, then top-k.",
)
def filters_before_temperature(
    logits: list[float], temperature: float, top_k: int | None, top_p: float | None, choose: Choose
) -> int:
    if temperature == 0:
        return _greedy(logits)
    kept = keep_top_p(normalized(keep_top_k(softmax(logits, 1.0), top_k)), top_p)
    warm = softmax(logits, temperature)
    return choose(normalized([w if k > 0 else 0.0 for w, k in zip(warm, kept, strict=True)]))


def _smallest_k(probs: list[float], top_k: int | None) -> list[float]:
    kept = set(by_size(probs)[-top_k:] if top_k is not None else range(len(probs)))
    return [p if i in kept else 0.0 for i, p in enumerate(probs)]


def _possible(
    logits: list[float], temperature: float, top_k: int | None, top_p: float | None
) -> int:
    """How many tokens can come out."""
    if temperature == 0:
        return 1
    left = normalized(keep_top_k(softmax(logits, temperature), top_k))
    return sum(p > 0 for p in keep_top_p(left, top_p))


def observe(answer: Answer, case: Case) -> Any:
    """The probability of every token, by walking all branches of `choose`."""
    logits = case.args[0]
    draws = 0

    def run(choose: Choose) -> int | str:
        def counted(probs: list[float]) -> int:
            nonlocal draws
            draws += 1
            return choose(probs)

        token = answer.call("sample", *case.args, counted)
        whole = hasattr(token, "item") and getattr(token, "shape", None) == ()
        token = token.item() if whole else token
        return token if type(token) is int else f"{token!r:.80} ({type(token).__name__})"

    found = law(run)
    if not draws and _possible(*case.args) > 1:
        raise AnswerError(
            "raised", "sample never called choose: hand it the probabilities, and let it draw"
        )
    tokens: list[Any] = [found.pop(i, 0.0) for i in range(len(logits))]
    return {"returned and no token": sorted(map(str, found)), "probabilities": tokens}


def _fresh(
    rng: random.Random, name: str, top_k: int | None, top_p: float | None, public: bool
) -> Case:
    """No mass is near top_p, and top_k before top_p shows."""
    while True:
        logits = [round(rng.gauss(0, 1.6), 6) for _ in range(rng.randrange(5, 9))]
        temperature = rng.uniform(0.4, 2.0)
        probs = sorted(softmax(logits, temperature), reverse=True)
        left = normalized(probs[:top_k])
        clear = top_p is None or min(abs(mass - top_p) for mass in accumulate(left)) > 1e-3
        dropped = [keep_top_p(some, top_p).count(0) for some in (left, probs[:top_k])]
        shows = None in (top_k, top_p) or dropped[0] != dropped[1]
        if clear and shows and min(map(sub, probs, probs[1:])) > 1e-3:
            return Case(name, (logits, temperature, top_k, top_p), public=public)


def cases(rng: random.Random) -> list[Case]:
    """Each filter alone, then together; the largest token never first, so that an order shows."""
    many = [0.01 * (37 * i % 60) for i in range(60)]
    alike = [1e-5 * (37 * i % past(128)) for i in range(past(128))]
    assert _possible(alike, 1.0, 129, 0.0157) == 3 > _possible(alike, 1.0, 100, 0.0157)
    vocabulary = [i / 100 for i in range(past(2048))]
    level = [1e-6 * (37 * i % past(2048)) for i in range(past(2048))]
    assert _possible(level, 1.0, None, 9.76e-4) == 3 > _possible(level, 1.0, 2048, 9.76e-4)
    near = [0.25, 1.25, 1.25 + 1 / 2048]
    V4, V5, signed = [0.1, 1.3, -0.8, 0.7], [0.2, 1.3, -0.8, 1.1, 0.6], [0.1, 1.3, -2.8]
    assert max(signed, key=abs) < 0 < max(signed)
    filters = [(3, 0.83), (4, 0.61), (None, 0.71), (2, None)]
    return [
        Case("greedy: temperature 0", (V4, 0, None, None)),
        Case("greedy: the logit of largest size is negative", (signed, 0, None, None)),
        Case("greedy: logits far below zero", ([-1209.0, -1208.0, -1210.5], 0, None, None)),
        Case("temperature 2 alone", (V4, 2.0, None, None)),
        Case("top_k = 2 alone", (V4, 1.0, 2, None)),
        Case("top_p = 0.6 alone", (V4, 1.0, None, 0.6)),
        Case("top_p below the largest probability: one token is left", (V4, 1.0, None, 0.2)),
        Case("temperature 2, then top_p = 0.75", (V5, 2.0, None, 0.75)),
        Case("top_k = 3, then top_p = 0.7 of what is left", (V5, 2.0, 3, 0.7)),
        Case("top_k = 3 and top_p = 1, which takes nothing away", (V5, 1.0, 3, 1.0)),
        Case("top_k = 3, then top_p = 0.2 leaves one", (V5, 1.0, 3, 0.2)),
        Case("top_k = 1: one token is left", (V5, 2.0, 1, 0.7)),
        Case("top_k = 5, all there are", (V5, 1.0, 5, None)),
        Case("top_k = 5, all there are, then top_p = 0.7", (V5, 1.0, 5, 0.7)),
        Case("top_p = 0.8665, just above the largest at 0.3", (V4, 0.3, None, 0.8665)),
        Case("temperature 0 and two logits that almost tie", ([0.4, 1.3, 1.300001], 0, 2, 0.9)),
        Case("temperature 0.05: low is not zero", ([0.4, 1.3, 1.2], 0.05, None, None)),
        Case("temperature 1/1024, two that almost tie", (near, 1 / 1024, 3, 1.0)),
        Case("top_p = 0.9975 leaves three of four", ([-1.0, 4.0, 5.0, 0.0], 1.0, None, 0.9975)),
        Case("large logits", ([1999.0, 2000.0, 1997.5], 2.0, None, 0.8)),
        Case("logits far below zero", ([-209.0, -208.0, -210.5, -208.7], 1.0, 2, None)),
        Case("60 tokens, top_p = 0.03 leaves two", (many, 1.0, None, 0.03)),
        Case("60 tokens, top_k = 57", (many, 1.0, 57, None)),
        Case("131 tokens, top_k = 129, then top_p = 0.0157", (alike, 1.0, 129, 0.0157)),
        Case("temperature 3,000 alone", (V4, 3000.0, None, None)),
        Case("top_p = 1: improbable is not impossible", ([-13.0, 0.0, -9.0], 1.0, None, 1.0)),
        Case("logits 2,000 apart", ([-1000.0, 1000.0, 999.5], 1.0, None, None)),
        Case("one token in all", ([0.4], 1.5, 1, 0.5)),
        Case("2,053 tokens, the last ones are the largest", (vocabulary, 1.0, 2, 0.9)),
        Case("2,053 tokens, greedy", (vocabulary, 0, None, None)),
        Case("60 tokens, no filter", (many, 1.0, None, None)),
        Case("2,053 tokens, top_p = 0.000976 leaves three", (level, 1.0, None, 9.76e-4)),
        *just_beyond(),
        *(_fresh(rng, f"fresh {i + 1}", k, p, i < 2) for i, (k, p) in enumerate(filters)),
    ]


def exp_over_sum(logits: list[float], temperature: float) -> list[float]:
    return normalized([math.exp(x / temperature) for x in logits])  # overflows above 709


def others_at_100(logits: list[float], temperature: float, top_k: int | None) -> list[float]:
    kept = set(by_size(logits)[:top_k])
    scores = [x / temperature if i in kept else -100.0 for i, x in enumerate(logits)]
    return softmax(scores, 1.0)


without_crossing = replaced(
    keep_top_p, {"mass >= top_p": "mass >= top_p or (kept and mass + probs[i] >= top_p)"}
)
in_order = replaced(keep_top_p, {"by_size(probs)": "range(len(probs))"})

wrong.add(
    "overflow",
    replaced(reference, {"softmax(logits, temperature)": "exp_over_sum(logits, temperature)"}),
    "softmax written as exp over sum",
    "Large logits overflow: subtract the largest logit before the exponential; the law stays the"
    " same.",
)
wrong.add(
    "temperature_multiplied",
    replaced(reference, {"softmax(logits, temperature)": "softmax(logits, 1 / temperature)"}),
    "plausible",
    "You multiplied by the temperature. Logits are divided by it: a high temperature flattens.",
)
wrong.add(
    "crossing_token_dropped",
    replaced(reference, {"keep_top_p(left": "without_crossing(left"}),
    "samplers that cut where the running sum exceeds top_p",
    "Top-p keeps the smallest set whose mass reaches top_p: the token that crosses it stays in.",
)
wrong.add(
    "not_renormalized",
    replaced(reference, {"normalized(keep_top_p(left, top_p))": "keep_top_p(left, top_p)"}),
    "plausible",
    "After the filters the probabilities no longer sum to 1: divide by what is left before you"
    " draw.",
)
wrong.add(
    "top_p_of_everything",
    replaced(reference, {"normalized(keep_top_k(probs, top_k))": "keep_top_k(probs, top_k)"}),
    "samplers that filter twice and normalize once",
    "Top-p works on what top-k left, renormalized; you compared with the mass before top-k, or"
    " applied top-p first.",
)
wrong.add(
    "vocabulary_order",
    replaced(reference, {"keep_top_p(left": "in_order(left"}),
    "plausible",
    "You summed the probabilities in the vocabulary's order. Top-p sums from the largest down.",
)
wrong.add(
    "smallest_k",
    replaced(reference, {"keep_top_k(probs": "_smallest_k(probs"}),
    "plausible",
    "You kept the k smallest probabilities: check which way your sort goes.",
)
wrong.add(
    "top_k_50_by_default",
    replaced(reference, {"top_k(probs, top_k)": "top_k(probs, 50 if top_k is None else top_k)"}),
    "a library's default of 50, transformers #38549",
    "You kept the 50 most probable tokens where top_k is None. None switches the filter off.",
)
wrong.add(
    "dropped_score_100",
    replaced(reference, {"keep_top_k(probs, top_k)": "others_at_100(logits, temperature, top_k)"}),
    "masks of −100 for −inf",
    "You gave the tokens that top-k drops a score of −100: where all scores are lower, these come"
    " back as the most probable. Set their probability to 0.",
)


EXERCISE = Exercise(
    id="two_phases-sampler",
    title="A sampler",
    kind="kernel",
    points=4,
    minutes=25,
    entries=("sample",),
    cases=cases,
    reference=reference,
    observe=observe,
    compare=Tolerance(rtol=1e-5, atol=1e-7, why="probabilities may pass through float32"),
    misconceptions=tuple(wrong),
    hints=(
        (
            "Four steps, in this order: temperature, top-k, top-p, draw. Each turns a list of"
            " probabilities into another."
        ),
        (
            "For top-p sort from the largest down, add up, and keep a token as long as the ones"
            " before it have not reached top_p."
        ),
        (
            "Renormalize after top-k and after top-p. If temperature is 0, return the index of the"
            " largest logit and draw nothing."
        ),
    ),
    recall=(
        "Does top-p keep the token with which the running mass crosses p?",
        "Yes: it keeps the smallest set whose mass reaches p, so at least one token is left.",
    ),
    ranges={"top_p": (9.76e-4, 1.0), "temperature": (0, 3000), "top_k": (1, 129)},
)
