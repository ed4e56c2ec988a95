"""Logs of passes for continuous_batching-p99: each cause alone, together with others, innocent."""

from __future__ import annotations

import random

from twophase.checks.edges import past

Passes = list[dict[str, float]]  # s, decoding, prompt_tokens, preempted


def passes(n: int, s: float, decoding: int = 10, prompt: int = 0, preempted: int = 0) -> Passes:
    one = {"s": s, "decoding": decoding, "prompt_tokens": prompt, "preempted": preempted}
    return [dict(one) for _ in range(n)]


FAST, SLOW, LIMIT = 0.03125, 0.125, 0.0625
OVER = LIMIT * (1 + 1e-8)  # what float32 takes for the limit itself
QUICK = passes(95, FAST)
EDGES: dict[str, Passes] = {
    "all quick": QUICK,
    "a long prompt now and then": [*QUICK, *passes(5, SLOW, prompt=900)],
    "somebody gives way now and then": [*QUICK, *passes(5, SLOW, preempted=1)],
    "prompts and preemptions, each too often": [
        *QUICK,
        *passes(3, SLOW, prompt=900),
        *passes(3, SLOW, preempted=2),
    ],
    "prompts and preemptions in the same passes": [*QUICK, *passes(5, SLOW, 10, 900, 1)],
    "slow passes of no kind": [*QUICK, *passes(5, SLOW)],
    "slow passes of no kind, prompts in quick ones": [
        *QUICK,
        *passes(5, SLOW),
        *passes(9, FAST, prompt=200),
    ],
    "slow passes of no kind, preemptions in quick ones": [
        *QUICK,
        *passes(5, SLOW),
        *passes(9, FAST, preempted=1),
    ],
    "prompts slow, preemptions quick": [
        *QUICK,
        *passes(5, SLOW, prompt=900),
        *passes(9, FAST, preempted=1),
    ],
    "slow prompts, slow preemptions, slow passes of no kind": [
        *QUICK,
        *passes(3, SLOW, prompt=900),
        *passes(3, SLOW, preempted=1),
        *passes(3, SLOW),
    ],
    "one gap in a hundred is too long": [*passes(99, FAST), *passes(1, SLOW, prompt=900)],
    "a little more than one in a hundred": [*passes(98, FAST), *passes(1, SLOW, prompt=900)],
    "three in a hundred": [*passes(97, FAST), *passes(3, SLOW, prompt=900)],
    "three in a hundred, preempted": [*passes(97, FAST), *passes(3, SLOW, preempted=1)],
    "one slow pass, in which many decode": [*QUICK, *passes(1, SLOW, 60, prompt=900)],
    "many slow passes, in which nobody decodes": [*QUICK, *passes(40, SLOW, 0, prompt=900)],
    "many slow passes of no kind, in which nobody decodes": [*QUICK, *passes(40, SLOW, 0)],
    "slow passes in which one decodes": [*QUICK, *passes(9, SLOW, 1, prompt=900)],
    "exactly at the limit": [*QUICK, *passes(40, LIMIT, prompt=900)],
    "one gap of 99": [*passes(98, FAST, 1), *passes(1, SLOW, 1, preempted=1)],
    "exactly at the limit without preemptions": [
        *passes(95, LIMIT),
        *passes(5, SLOW, preempted=1),
    ],
    "exactly at the limit without prompts": [*passes(95, LIMIT), *passes(5, SLOW, prompt=9)],
    "exactly at the limit without either": [
        *passes(95, LIMIT),
        *passes(5, SLOW, prompt=9),
        *passes(5, SLOW, preempted=1),
    ],
    "over the limit by a hundred-millionth": [*QUICK, *passes(5, OVER, prompt=900)],
    "over it by a hundred-millionth without preemptions": [
        *QUICK,
        *passes(5, OVER, prompt=900),
        *passes(5, SLOW, preempted=1),
    ],
    "over it by a hundred-millionth without prompts": [
        *QUICK,
        *passes(5, SLOW, prompt=900),
        *passes(5, OVER, preempted=1),
    ],
    "over it by a hundred-millionth without either": [
        *QUICK,
        *passes(5, OVER),
        *passes(5, SLOW, prompt=900),
        *passes(5, SLOW, preempted=1),
    ],
    "very slow, but rare": [*passes(400, FAST), *passes(3, 100.0, preempted=1)],
    "all slow": passes(20, SLOW),
    "all slow, all prompts": passes(20, SLOW, prompt=100),
    "all slow, all preempted": passes(20, SLOW, preempted=1),
    "all slow, prompts or preempted": [
        *passes(5, SLOW, prompt=100),
        *passes(5, SLOW, preempted=1),
    ],
    "nobody decodes": passes(4, SLOW, 0, prompt=500),
    "no pass": [],
    "one pass": passes(1, SLOW),
    "one pass, quick": passes(1, FAST),
    "one gap, of a prompt": passes(1, SLOW, 1, prompt=1),
    "left out, too little is left to hide what is slow": [
        *passes(100, FAST, prompt=8),
        *passes(1, SLOW),
        *passes(10, SLOW, prompt=900),
        *passes(20, FAST),
    ],
    "left out, quick ones go as well": [
        *passes(150, FAST, preempted=1),
        *passes(2, SLOW, preempted=1),
        *passes(50, FAST),
        *passes(1, SLOW, prompt=50),
    ],
    "a prompt of one token": [*QUICK, *passes(5, SLOW, prompt=1)],
    "mean too long as well": [*passes(10, FAST), *passes(60, SLOW, prompt=900)],
    "a pass with both, and one of each kind": [
        *passes(130, FAST),
        *passes(2, SLOW, 10, 900, 1),
        *passes(2, SLOW, prompt=900),
        *passes(2, SLOW, preempted=1),
    ],
    "1,000 decode in a pass": [*passes(150, FAST, 1000), *passes(2, SLOW, past(2048), 99)],
    "400 decode in one pass": [*passes(1, FAST, 400), *passes(1, SLOW, 4)],
    "1,000 passes, the last of them slow": [*passes(999, FAST), *passes(1, SLOW, 200, prompt=9)],
    "600 passes, slow at the end": [*passes(570, FAST), *passes(30, SLOW, prompt=past(2048))],
    "600 passes, slow at first": [*passes(30, SLOW, preempted=300), *passes(570, FAST)],
}


def fresh(rng: random.Random) -> Passes:
    """A hundred or more passes, some of each kind slow."""
    made = passes(rng.randrange(90, 120), FAST, rng.randrange(5, 20))
    for kind in ({"prompt": 700}, {"preempted": 1}, {}):
        n = rng.choice((0, 0, rng.randrange(3, 9)))
        made += passes(n, rng.choice((SLOW, FAST)), rng.randrange(5, 20), **kind)
    rng.shuffle(made)
    return made
