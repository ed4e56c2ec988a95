"""continuous_batching-p99: the slowest gaps have doubled; a log of passes says why."""

from __future__ import annotations

import random

from twophase.checks.compare import EXACT
from twophase.checks.continuous_batching._logs import EDGES, LIMIT, SLOW, Passes, fresh
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


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


def cases(rng: random.Random) -> list[Case]:
    """Each cause alone, together, and innocent; at the limit and at the hundredth; nobody
    decodes."""
    drawn = [Case(f"log {i + 1}", (fresh(rng), LIMIT), public=False) for i in range(8)]
    slow = [{**e, "s": 65536 * e["s"]} for e in EDGES["a long prompt now and then"]]
    return [
        *(Case(name, (made, LIMIT), public=len(made) < 200) for name, made in EDGES.items()),
        Case("a slow machine, its limit 4,096 s", (slow, 65536 * LIMIT)),
        Case("a limit nobody exceeds", (EDGES["all slow"], 4 * SLOW)),
        *drawn,
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
