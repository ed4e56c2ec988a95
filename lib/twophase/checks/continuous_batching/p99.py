"""continuous_batching-p99: the slowest gaps have doubled; a log of passes says why."""

from __future__ import annotations

import random

from twophase.checks.compare import EXACT
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Pass = dict[str, float]  # s, decoding, prompt_tokens, preempted
Passes = list[Pass]


def reference(passes: Passes, limit_s: float) -> str:
    """The right answer."""
    smooth = [e for e in passes if not e["preempted"]]
    plain = [e for e in passes if not e["prompt_tokens"]]
    if kept(passes, limit_s):
        return "fine"
    if kept(smooth, limit_s):
        return "preemption"
    if kept(plain, limit_s):
        return "prompts"
    if kept([e for e in smooth if e in plain], limit_s):
        return "both"
    return "machine"


def kept(passes: Passes, limit_s: float) -> bool:
    """Whether p99 of all gaps is within the limit: a pass is a gap of everybody who decodes."""
    gaps = sum(e["decoding"] for e in passes)
    late = sum(e["decoding"] for e in passes if e["s"] > limit_s)
    return 100 * late <= gaps


def kept_by_passes(passes: Passes, limit_s: float) -> bool:
    return 100 * sum(e["s"] > limit_s for e in passes) <= len(passes)


def kept_by_all(passes: Passes, limit_s: float) -> bool:
    return all(e["s"] <= limit_s for e in passes if e["decoding"])


def kept_on_average(passes: Passes, limit_s: float) -> bool:
    gaps = sum(e["decoding"] for e in passes)
    return sum(e["s"] * e["decoding"] for e in passes) <= limit_s * gaps


def kept_below(passes: Passes, limit_s: float) -> bool:
    gaps = sum(e["decoding"] for e in passes)
    return 100 * sum(e["decoding"] for e in passes if e["s"] >= limit_s) <= gaps


def kept_by_fewer(passes: Passes, limit_s: float) -> bool:
    gaps = sum(e["decoding"] for e in passes)
    return not gaps or 100 * sum(e["decoding"] for e in passes if e["s"] > limit_s) < gaps


def kept_by_95(passes: Passes, limit_s: float) -> bool:
    gaps = sum(e["decoding"] for e in passes)
    return 20 * sum(e["decoding"] for e in passes if e["s"] > limit_s) <= gaps


CALLS = {
    "kept(passes, limit_s)": "{}(passes, limit_s)",
    "kept(smooth, limit_s)": "{}(smooth, limit_s)",
    "kept(plain, limit_s)": "{}(plain, limit_s)",
    "kept([e for": "{}([e for",
}


def _judged_by(slug: str, name: str, seen: str, says: str) -> None:
    parts = {old: new.format(name) for old, new in CALLS.items()}
    wrong.add(slug, replaced(reference, parts), seen, says)


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_judged_by(
    "passes_counted",
    "kept_by_passes",
    "dashboards of step times",
    "You take the percentile of passes. A pass in which 60 decode is a gap of 60 people; one in"
    " which nobody decodes is nobody's.",
)
_judged_by(
    "the_slowest",
    "kept_by_all",
    "plausible",
    "You look at the slowest gap. p99 lets one gap in a hundred be longer.",
)
_judged_by(
    "the_mean",
    "kept_on_average",
    "dashboards that average",
    "You compare the mean gap with the limit: the mean does not see the slow ones.",
)
_judged_by(
    "below_the_limit",
    "kept_below",
    "plausible",
    "A gap of exactly the limit keeps it.",
)
_judged_by(
    "fewer_than_one_in_a_hundred",
    "kept_by_fewer",
    "plausible",
    "If exactly one gap in a hundred is longer, the other 99 per cent are not: p99 keeps the"
    " limit.",
)
_judged_by("p95", "kept_by_95", "plausible", "This is p95: five gaps in a hundred may be longer.")
_add(
    "prompts_first",
    {
        'if kept(smooth, limit_s):\n        return "preemption"\n    if kept(plain, limit_s):\n'
        '        return "prompts"': (
            'if kept(plain, limit_s):\n        return "prompts"\n    if kept(smooth, limit_s):\n'
            '        return "preemption"'
        )
    },
    "plausible",
    "Where leaving out either is enough, the task wants “preemption”: it comes first.",
)
_add(
    "seen_is_guilty",
    {
        "if kept(smooth, limit_s)": "if len(smooth) < len(passes)",
        "if kept(plain, limit_s)": "if len(plain) < len(passes)",
    },
    "plausible",
    "That something occurs in the log does not make it the cause: would the limit be kept without"
    " these passes?",
)
_add(
    "either_alone",
    {'return "both"': 'return "machine"'},
    "plausible",
    "Neither alone is the cause, and together they are: leave out the passes of both.",
)


def _passes(n: int, s: float, decoding: int = 10, prompt: int = 0, preempted: int = 0) -> Passes:
    one = {"s": s, "decoding": decoding, "prompt_tokens": prompt, "preempted": preempted}
    return [dict(one) for _ in range(n)]


FAST, SLOW, LIMIT = 0.03125, 0.125, 0.0625
QUICK = _passes(95, FAST)
EDGES: dict[str, Passes] = {
    "all quick": QUICK,
    "a long prompt now and then": [*QUICK, *_passes(5, SLOW, prompt=900)],
    "somebody gives way now and then": [*QUICK, *_passes(5, SLOW, preempted=1)],
    "prompts and preemptions, each too often": [
        *QUICK,
        *_passes(3, SLOW, prompt=900),
        *_passes(3, SLOW, preempted=2),
    ],
    "prompts and preemptions in the same passes": [*QUICK, *_passes(5, SLOW, 10, 900, 1)],
    "slow passes of no kind": [*QUICK, *_passes(5, SLOW)],
    "slow passes of no kind, prompts in quick ones": [
        *QUICK,
        *_passes(5, SLOW),
        *_passes(9, FAST, prompt=200),
    ],
    "slow passes of no kind, preemptions in quick ones": [
        *QUICK,
        *_passes(5, SLOW),
        *_passes(9, FAST, preempted=1),
    ],
    "prompts slow, preemptions quick": [
        *QUICK,
        *_passes(5, SLOW, prompt=900),
        *_passes(9, FAST, preempted=1),
    ],
    "slow prompts, slow preemptions, slow passes of no kind": [
        *QUICK,
        *_passes(3, SLOW, prompt=900),
        *_passes(3, SLOW, preempted=1),
        *_passes(3, SLOW),
    ],
    "one gap in a hundred is too long": [*_passes(99, FAST), *_passes(1, SLOW, prompt=900)],
    "a little more than one in a hundred": [*_passes(98, FAST), *_passes(1, SLOW, prompt=900)],
    "three in a hundred": [*_passes(97, FAST), *_passes(3, SLOW, prompt=900)],
    "three in a hundred, preempted": [*_passes(97, FAST), *_passes(3, SLOW, preempted=1)],
    "one slow pass, in which many decode": [*QUICK, *_passes(1, SLOW, 60, prompt=900)],
    "many slow passes, in which nobody decodes": [*QUICK, *_passes(40, SLOW, 0, prompt=900)],
    "many slow passes of no kind, in which nobody decodes": [*QUICK, *_passes(40, SLOW, 0)],
    "slow passes in which one decodes": [*QUICK, *_passes(9, SLOW, 1, prompt=900)],
    "exactly at the limit": [*QUICK, *_passes(40, LIMIT, prompt=900)],
    "one gap of 99": [*_passes(98, FAST, 1), *_passes(1, SLOW, 1, preempted=1)],
    "exactly at the limit without preemptions": [
        *_passes(95, LIMIT),
        *_passes(5, SLOW, preempted=1),
    ],
    "exactly at the limit without prompts": [*_passes(95, LIMIT), *_passes(5, SLOW, prompt=9)],
    "exactly at the limit without either": [
        *_passes(95, LIMIT),
        *_passes(5, SLOW, prompt=9),
        *_passes(5, SLOW, preempted=1),
    ],
    "very slow, but rare": [*_passes(400, FAST), *_passes(3, 100.0, preempted=1)],
    "all slow": _passes(20, SLOW),
    "all slow, all prompts": _passes(20, SLOW, prompt=100),
    "all slow, all preempted": _passes(20, SLOW, preempted=1),
    "all slow, prompts or preempted": [
        *_passes(5, SLOW, prompt=100),
        *_passes(5, SLOW, preempted=1),
    ],
    "nobody decodes": _passes(4, SLOW, 0, prompt=500),
    "no pass": [],
    "one pass": _passes(1, SLOW),
    "one pass, quick": _passes(1, FAST),
    "one gap, of a prompt": _passes(1, SLOW, 1, prompt=1),
    "left out, too little is left to hide what is slow": [
        *_passes(100, FAST, prompt=8),
        *_passes(1, SLOW),
        *_passes(10, SLOW, prompt=900),
        *_passes(20, FAST),
    ],
    "left out, quick ones go as well": [
        *_passes(150, FAST, preempted=1),
        *_passes(2, SLOW, preempted=1),
        *_passes(50, FAST),
        *_passes(1, SLOW, prompt=50),
    ],
    "a prompt of one token": [*QUICK, *_passes(5, SLOW, prompt=1)],
    "mean too long as well": [*_passes(10, FAST), *_passes(60, SLOW, prompt=900)],
    "a pass with both, and one of each kind": [
        *_passes(130, FAST),
        *_passes(2, SLOW, 10, 900, 1),
        *_passes(2, SLOW, prompt=900),
        *_passes(2, SLOW, preempted=1),
    ],
    "1,000 decode in a pass": [*_passes(150, FAST, 1000), *_passes(2, SLOW, past(2048), 99)],
    "400 decode in one pass": [*_passes(1, FAST, 400), *_passes(1, SLOW, 4)],
    "1,000 passes, the last of them slow": [*_passes(999, FAST), *_passes(1, SLOW, 200, prompt=9)],
    "600 passes, slow at the end": [*_passes(570, FAST), *_passes(30, SLOW, prompt=past(2048))],
    "600 passes, slow at first": [*_passes(30, SLOW, preempted=300), *_passes(570, FAST)],
}


def _fresh(rng: random.Random) -> Passes:
    """A hundred or more passes, some of each kind slow."""
    made = _passes(rng.randrange(90, 120), FAST, rng.randrange(5, 20))
    for kind in ({"prompt": 700}, {"preempted": 1}, {}):
        n = rng.choice((0, 0, rng.randrange(3, 9)))
        made += _passes(n, rng.choice((SLOW, FAST)), rng.randrange(5, 20), **kind)
    rng.shuffle(made)
    return made


def cases(rng: random.Random) -> list[Case]:
    """Each cause alone, together, and innocent; at the limit and at the hundredth; nobody
    decodes."""
    fresh = [Case(f"log {i + 1}", (_fresh(rng), LIMIT), public=False) for i in range(8)]
    slow = [{**e, "s": 65536 * e["s"]} for e in EDGES["a long prompt now and then"]]
    return [
        *(Case(name, (made, LIMIT), public=len(made) < 200) for name, made in EDGES.items()),
        Case("a slow machine, its limit 4,096 s", (slow, 65536 * LIMIT)),
        Case("a limit nobody exceeds", (EDGES["all slow"], 4 * SLOW)),
        *fresh,
    ]


EXERCISE = Exercise(
    id="continuous_batching-p99",
    title="p99 has doubled: find the cause",
    kind="trace",
    points=4,
    minutes=12,
    entries=("diagnose_gaps",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Write one function: do these passes keep the limit at p99? How many gaps is a pass?",
        (
            "A pass is a gap of s seconds for each of those that decode. Kept: at most one gap in a"
            " hundred is longer than limit_s; 100 · late ≤ all."
        ),
        (
            "Ask it of all passes; of those without preemption; of those without prompt tokens; of"
            " those with neither. The first yes gives the label."
        ),
    ),
    recall=(
        "A prompt of 8,000 tokens is read in one pass beside 40 that decode. Whose gaps does it"
        " lengthen?",
        "Those of all 40: each waits for the whole pass, once.",
    ),
)
