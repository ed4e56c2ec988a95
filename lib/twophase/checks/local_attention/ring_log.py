"""local_attention-ring_log: what a layer's log says that its ring keeps, and what it loses."""

from __future__ import annotations

import random
from collections.abc import Iterator

from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.local_attention._ring_logs import SINKS, Passes, fixed, fresh, window_of
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(window: int, passes: Passes) -> str:
    """The right answer."""
    queries = [(p, set(seen)) for p, seen in enumerate(s for block in passes for s in block)]
    missing = {p: set(window_of(p, window)) - seen for p, seen in queries}
    older = {s for p, seen in queries for s in seen if s <= p - window}
    full = [p for p, _ in queries if p >= window - 1]
    if any(s > p for p, seen in queries for s in seen):
        return "future"
    if any(missing.values()):
        oldest = {p: {p - window + 1} if p in full else set() for p, _ in queries}
        return "short" if missing == oldest else "lost"
    if older:
        return "sinks" if max(older) < SINKS else "long"
    return "healthy"


wrong.add(
    "future_not_asked",
    replaced(reference, {"any(s > p for p, seen in queries for s in seen)": "False"}),
    "a mask in decode only",
    "You never ask whether a query sees a later token: in a block it may, if nothing hides it.",
)
wrong.add(
    "short_by_one_query",
    replaced(
        reference,
        {"missing == oldest": "all(m <= oldest[p] for p, m in missing.items())"},
    ),
    "one log line taken for a rule",
    "You say “short” as soon as nothing but oldest keys is missing. A ring of one slot too few"
    " misses it in every full window; a block that is stored first may miss it once.",
)
wrong.add(
    "any_loss_is_short",
    replaced(reference, {'"short" if missing == oldest else "lost"': '"short"'}),
    "plausible",
    "Every missing key is “short” to you. It is only where each full window misses its oldest key,"
    " and nothing else is missing.",
)
wrong.add(
    "never_short",
    replaced(reference, {'"short" if missing == oldest else "lost"': '"lost"'}),
    "plausible",
    "Keys are missing, but look which: in every full window the oldest, and no other. That is one"
    " slot too few.",
)
wrong.add(
    "full_windows_demanded",
    replaced(
        reference,
        {"set(window_of(p, window)) - seen": ("set(range(p - window + 1, p + 1)) - seen")},
    ),
    "tests that begin at position `window`",
    "The first tokens have no full window: there is nothing before the text that they could miss.",
)
wrong.add(
    "window_without_the_own_key",
    replaced(
        reference,
        {
            "set(window_of(p, window)) - seen": "set(window_of(p, window + 1)) - seen",
            "s <= p - window}": "s < p - window}",
        },
    ),
    "“the last w tokens and itself”",
    "You expect window + 1 keys. A window counts the query's own key: w − 1 before it.",
)
wrong.add(
    "positions_by_block",
    replaced(
        reference,
        {
            "enumerate(s for block in passes for s in block)": (
                "[(t, s) for block in passes for t, s in enumerate(block)]"
            )
        },
    ),
    "positions that restart in every call",
    "You count positions from 0 in every pass. They go on: the first token of a pass follows the"
    " last one of the pass before.",
)
wrong.add(
    "any_early_key_is_a_sink",
    replaced(reference, {"max(older) < SINKS": "min(older) < SINKS"}),
    "plausible",
    "One of the older keys is among the first four, but not all of them: then it is “long”.",
)
wrong.add(
    "no_sinks",
    replaced(reference, {'"sinks" if max(older) < SINKS else "long"': '"long"'}),
    "plausible",
    "All the older keys that are seen are among the first four of the text: these were kept on"
    " purpose, as sinks.",
)
wrong.add(
    "first_token_alone",
    replaced(reference, {"max(older) < SINKS": "max(older) < 1"}),
    "sinks taken for the first token alone",
    "You let only position 0 be a sink: it is the first four.",
)


@wrong(
    "a test of lengths (`len(seen) == min(p + 1, window)`)",
    "You counted the keys. As many as there should be may still be the wrong ones: one lost, an"
    " older one in its place.",
)
def counted(window: int, passes: Passes) -> str:
    queries = [(p, seen) for p, seen in enumerate(s for block in passes for s in block)]
    if all(len(seen) == len(window_of(p, window)) and max(seen) <= p for p, seen in queries):
        return "healthy"
    return reference(window, passes)


def _ends(passes: Passes) -> Iterator[tuple[int, list[int]]]:
    p = -1
    for block in passes:
        p += len(block)
        yield p, block[-1]


@wrong(
    "logits compared at the end of a prompt only",
    "You look at the last query of each pass. Stored first, it is the earlier ones that miss keys.",
)
def last_queries_only(window: int, passes: Passes) -> str:
    kept = dict(_ends(passes))
    n = sum(map(len, passes))
    return reference(window, [[kept.get(p, window_of(p, window))] for p in range(n)])


def cases(rng: random.Random) -> list[Case]:
    """All that a ring may do, each alone and at its edges; faults in the last of many passes; then
    drawn chunks."""
    shown = [Case(name, (window, passes)) for name, window, passes in fixed()]
    return [*shown, *(fresh(rng) for _ in range(6))]


EXERCISE = Exercise(
    id="local_attention-ring_log",
    title="What a log says that was lost",
    kind="trace",
    points=4,
    minutes=15,
    entries=("diagnose",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Walk through all queries with a position p that goes on from pass to pass. What should"
        " the query at p see, as a set?",
        (
            "Three sets tell everything: later keys (s > p), missing ones (of max(0, p − window +"
            " 1) to p), older ones (s ≤ p − window). Ask for them in the order of the task."
        ),
        (
            "“short”: for every query at p ≥ window − 1 the missing set is {p − window + 1}, for"
            " every earlier one it is empty. “sinks”: all older keys are below 4."
        ),
    ),
    recall=(
        "The last query of every pass sees its whole window. Is the ring right?",
        (
            "Not yet: if a block is stored before its queries look, it is the early ones that miss"
            " keys, and the last one sees all."
        ),
    ),
    ranges={"window": (1, 200)},
)
