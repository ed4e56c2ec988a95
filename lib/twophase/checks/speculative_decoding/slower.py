"""speculative_decoding-slower: it got slower; a log of calls says why."""

from __future__ import annotations

import random

from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Calls = list[dict[str, float]]  # drafted, kept, draft_s, verify_s


def reference(calls: Calls, step_s: float) -> str:
    """The right answer."""
    if faster(calls, step_s):
        return "faster"
    if faster(calls[1:], step_s):
        return "warm-up"
    if faster([{**c, "draft_s": 0.0} for c in calls], step_s):
        return "draft"
    if faster([{**c, "verify_s": step_s} for c in calls], step_s):
        return "verification"
    return "acceptance"


def faster(calls: Calls, step_s: float) -> bool:
    """Whether the calls said their tokens in less time than plain steps would have."""
    tokens = sum(c["kept"] + 1 for c in calls)
    return sum(c["draft_s"] + c["verify_s"] for c in calls) < tokens * step_s


def faster_without_own(calls: Calls, step_s: float) -> bool:
    spent = sum(c["draft_s"] + c["verify_s"] for c in calls)
    return spent < sum(c["kept"] for c in calls) * step_s


def faster_as_drafted(calls: Calls, step_s: float) -> bool:
    spent = sum(c["draft_s"] + c["verify_s"] for c in calls)
    return spent < sum(c["drafted"] + 1 for c in calls) * step_s


def faster_by_calls(calls: Calls, step_s: float) -> bool:
    rates = [(c["kept"] + 1) / (c["draft_s"] + c["verify_s"]) for c in calls]
    return bool(rates) and sum(rates) / len(rates) > 1 / step_s


def faster_or_equal(calls: Calls, step_s: float) -> bool:
    tokens = sum(c["kept"] + 1 for c in calls)
    return bool(calls) and sum(c["draft_s"] + c["verify_s"] for c in calls) <= tokens * step_s


def _judged_by(slug: str, name: str, seen: str, says: str) -> None:
    source = {
        "if faster(calls, step_s)": f"if {name}(calls, step_s)",
        "if faster(calls[1:]": f"if {name}(calls[1:]",
        'if faster([{**c, "draft_s"': f'if {name}([{{**c, "draft_s"',
        'if faster([{**c, "verify_s"': f'if {name}([{{**c, "verify_s"',
    }
    wrong.add(slug, replaced(reference, source), seen, says)


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_judged_by(
    "own_token_left_out",
    "faster_without_own",
    "plausible",
    "A call says one token more than it keeps.",
)
_judged_by(
    "drafted_for_kept",
    "faster_as_drafted",
    "throughput of drafted tokens",
    "You count drafted tokens. The refused ones were never said: kept + 1.",
)
_judged_by(
    "mean_of_rates",
    "faster_by_calls",
    "dashboards that average rates",
    "You average the rates of the calls. A slow call takes more of the time than its share: tokens"
    " of all over seconds of all.",
)
_judged_by(
    "equal_is_faster",
    "faster_or_equal",
    "plausible",
    "As fast as plain decoding is not faster.",
)
_add(
    "no_warm_up",
    {"if faster(calls[1:], step_s)": "if False"},
    "plausible",
    "You never leave out the first call: it may be alone to blame, compiling or loading.",
)


@wrong(
    "plausible",
    "Where a free draft or a cheap verification would do, the task asks for the draft first.",
)
def verification_first(calls: Calls, step_s: float) -> str:
    said = reference(calls, step_s)
    cheap = faster([{**c, "verify_s": step_s} for c in calls], step_s)
    return "verification" if said == "draft" and cheap else said


_add(
    "dearer_part_blamed",
    {
        'faster([{**c, "draft_s": 0.0} for c in calls], step_s)': (
            'sum(c["draft_s"] for c in calls) > sum(c["verify_s"] for c in calls)'
        )
    },
    "plausible",
    "You blame the part that takes longer. The question is whether it would be faster without it.",
)
_add(
    "free_verification",
    {'"verify_s": step_s}': '"verify_s": 0.0}'},
    "plausible",
    "A verification cannot cost less than the step that it replaces: set it to step_s, not to 0.",
)
_add(
    "low_acceptance_first",
    {
        'if faster([{**c, "draft_s": 0.0} for c in calls], step_s)': (
            'if sum(c["kept"] for c in calls) < 0.5 * sum(c["drafted"] for c in calls):\n'
            '        return "acceptance"\n'
            '    if faster([{**c, "draft_s": 0.0} for c in calls], step_s)'
        )
    },
    "“acceptance below one half is too low”",
    "You judge acceptance by a threshold. Whether it is too low depends on what draft and"
    " verification cost.",
)


def _calls(
    kept: list[int], drafted: int, draft_s: float, verify_s: float, first_s: float = 0.0
) -> Calls:
    made = [{"drafted": drafted, "kept": n, "draft_s": draft_s, "verify_s": verify_s} for n in kept]
    made[0]["verify_s"] += first_s
    return made


GOOD, POOR = [4, 3, 4, 2, 4, 1], [0, 1, 0, 0, 1, 0]  # tokens kept of 4

EDGES: dict[str, tuple[Calls, float]] = {
    "a good draft": (_calls(GOOD, 4, 0.25, 1.125), 1.0),
    "the same, but plain steps are quicker": (_calls(GOOD, 4, 0.25, 1.125), 0.25),
    "a first call that takes long": (_calls(GOOD, 4, 0.25, 1.125, 40.0), 1.0),
    "a draft as dear as the target": (_calls(GOOD, 4, 3.5, 1.125), 1.0),
    "verification dear, as in a large batch": (_calls(GOOD, 4, 0.25, 4.5), 1.0),
    "little is kept": (_calls(POOR, 4, 0.5, 1.5), 1.0),
    "draft and verification both dear": (_calls(GOOD, 4, 3.5, 4.5), 1.0),
    "a free draft or a cheap verification would do": (_calls([3, 3], 4, 1.5, 3.0), 1.0),
    "exactly as fast": (_calls([1, 1], 4, 0.5, 1.5), 1.0),
    "exactly as fast without the first": (_calls([1, 1], 4, 0.5, 1.5, 4.0), 1.0),
    "exactly as fast with a free draft": (_calls([1, 1], 4, 0.5, 2.0), 1.0),
    "exactly as fast with cheap verification": (_calls([1, 1], 4, 1.0, 3.0), 1.0),
    "no draft's time, nothing kept": (_calls([0, 0], 4, 0.0, 1.0), 1.0),
    "nothing kept, lookup's verification cheap": (_calls([0, 0, 0], 2, 0.0, 1.25), 1.0),
    "one call, faster": (_calls([3], 4, 0.5, 1.5), 1.0),
    "one call, slow": (_calls([3], 4, 3.0, 1.5), 1.0),
    "one call that took long": (_calls([3], 4, 0.25, 1.0, 90.0), 1.0),
    "one slow call in the middle": (
        [*_calls(GOOD, 4, 0.25, 1.125), *_calls([0], 4, 0.25, 60.0), *_calls(GOOD, 4, 0.25, 1.125)],
        1.0,
    ),
    "many calls of no use, a few of much": (_calls([0] * 9 + [8] * 2, 8, 0.5, 1.25), 1.0),
    "few kept, and yet faster": (_calls([1, 1, 2], 8, 0.0625, 1.125), 1.0),
    "few kept of many, a dear draft": (_calls([1, 1, 2], 8, 1.5, 1.125), 1.0),
    "the draft dearer than verification, verification to blame": (_calls([4, 4], 4, 3.0, 2.5), 1.0),
    "without the first, not with a second in its place": (
        [*_calls([4], 4, 0.0, 9.0), *_calls([4], 4, 0.0, 1.0), *_calls([0, 0], 4, 0.0, 3.5)],
        1.0,
    ),
    "two calls, the first of them long": (_calls([3, 3], 4, 0.25, 1.0, 9.0), 1.0),
    "two calls, the second of them long": (_calls([3, 3], 4, 0.25, 1.0, 9.0)[::-1], 1.0),
    "a dear call without a draft": (
        [*_calls([3], 4, 0.5, 1.5), *_calls([0], 0, 0.0, 5.0)],
        1.0,
    ),
    "verification once cheaper than a step": (
        [*_calls([0] * 3, 4, 0.25, 0.25), *_calls([1], 4, 0.375, 4.75)],
        1.0,
    ),
    "a first draft that takes long": (
        [*_calls([4], 4, 40.0, 1.0), *_calls(GOOD, 4, 0.25, 1.125)],
        1.0,
    ),
    "faster by one in 200,000": (_calls([1, 1], 4, 0.5, 1.49999), 1.0),
    "slower by one in 200,000": (_calls([1, 1], 4, 0.5, 1.50001), 1.0),
    "microseconds": (_calls([1, 1], 4, 2.0**-22, 1.5 * 2.0**-20), 2.0**-20),
    "milliseconds": (_calls(GOOD, 4, 0.0025, 0.0045), 0.001),
    "a tenth of a microsecond, faster by one in 400,000": (
        _calls([1], 1, 0.0, 1.999995e-7),
        1e-7,
    ),
    "a tenth of a microsecond, slower by one in 400,000": (
        _calls([1], 1, 0.0, 2.000005e-7),
        1e-7,
    ),
    "a tenth of a millisecond, faster by one in 400,000": (
        _calls([1], 1, 0.0, 1.999995e-4),
        1e-4,
    ),
    "half milliseconds, slower by one in 5,000": (_calls([1] * 3, 1, 0.0, 0.0010004), 0.0005001),
    "ten tokens in seven calls, slower by one in 10,000": (
        _calls([0, 1, 0, 0, 1, 1, 0], 1, 0.0, 1.0001 * 10 / 7 * 0.01),
        0.01,
    ),
    "a slow machine": (_calls(GOOD, 4, 25.0, 112.5), 100.0),
    "drafts of different lengths": (
        [*_calls([2], 2, 0.25, 1.125), *_calls([7], 8, 1.0, 1.25), *_calls([0], 1, 0.125, 1.0)],
        1.0,
    ),
    "a thousand calls, the last ones slow": (
        [*_calls([4] * 400, 4, 0.25, 1.0), *_calls([0] * 600, 4, 4.0, 1.0)],
        1.0,
    ),
    "a thousand calls, the first ones slow": (
        [*_calls([0] * 600, 4, 0.25, 8.0), *_calls([4] * 400, 4, 0.25, 1.0)],
        1.0,
    ),
    "a thousand calls, faster by the last": (_calls([0] * 999 + [4], 4, 0.0, 1.0), 1.0),
    "a thousand calls, faster in the end": (
        [*_calls([0] * 400, 4, 0.25, 1.0), *_calls([4] * 600, 4, 0.25, 1.0)],
        1.0,
    ),
}


def _fresh(rng: random.Random) -> tuple[Calls, float]:
    """Sixteenths of a second, so that no sum rounds."""
    kept = [rng.randrange(5) for _ in range(rng.randrange(3, 12))]
    draft, verify = rng.randrange(1, 40) / 16, rng.randrange(16, 60) / 16
    return _calls(kept, 4, draft, verify, rng.choice((0.0, 0.0, 30.0))), 1.0


def cases(rng: random.Random) -> list[Case]:
    """Each cause alone and together with others, exactly as fast, one call and a thousand."""
    fresh = [Case(f"log {i + 1}", _fresh(rng), public=False) for i in range(8)]
    return [*(Case(name, args) for name, args in EDGES.items()), *fresh]


EXERCISE = Exercise(
    id="speculative_decoding-slower",
    title="It got slower: why?",
    kind="trace",
    points=4,
    minutes=18,
    entries=("diagnose",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Write one function: were these calls faster than plain steps for as many tokens?",
        "Tokens: kept + 1 of every call. Faster: seconds of all calls < tokens · step_s.",
        (
            "Ask it of the calls; of calls[1:]; of the calls with draft_s = 0; of the calls with"
            " verify_s = step_s. The first yes gives the label."
        ),
    ),
    recall=(
        "A draft is accepted at 80% and generation is slower than without. Name two reasons.",
        "The draft's own steps cost too much, or verification does, as in a large batch.",
    ),
)
