"""local_attention-ratio: how many global layers, and which window, for a budget."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks import edges
from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.local_attention import _stacks as s
from twophase.checks.local_attention._stacks import chooser, fits, in_time, reaches
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

SLACK = 1 + 1e-9  # a quotient, or a product, formed another way; less than any case asks
FIXED = 60  # workloads that no seed changes

best = chooser(fits, in_time, reaches)


def observe(answer: Answer, case: Case) -> dict[str, str]:
    """Whether the choice is an option, fits, is in time, reaches, and loses as little as any that
    does."""
    (w,) = case.args
    chosen = plain(answer.call("choose", w))
    n = len(w["options"])
    if type(chosen) is not int or not 0 <= chosen < n:
        said = f"must be a whole number, an int from 0 to {n - 1}, and is {chosen!r}"[:120]
        return {"the choice": said, "memory": "", "step": "", "reach": "", "loss": ""}
    o = w["options"][chosen]
    need, room, took = s.memory_bytes(w, o), w["memory_bytes"], s.step_s(w, o)
    more = o["bits_per_byte"] - w["options"][best(w)]["bits_per_byte"]
    return {
        "the choice": "an option",
        "memory": "fits" if need <= room else f"needs {need:,} bytes of {room:,}",
        "step": (
            "in time"
            if took <= w["step_limit_s"] * SLACK
            else f"takes {took * 1e3:.3f} ms of {w['step_limit_s'] * 1e3:.3f} ms"
        ),
        "reach": (
            "far enough"
            if reaches(w, o)
            else f"reaches {s.field(w, o):,} tokens of {w['must_reach']:,}"
        ),
        "loss": (
            "the lowest that is allowed" if more <= 0 else f"{more:.4f} bits above the lowest"
        ),
    }


def cases(rng: random.Random) -> list[Case]:
    """A stack by hand, then workloads that no seed changes (each with a memory that one option
    fills to the last byte), then fresh ones."""
    by_hand: dict[str, Any] = {
        "L": 6,
        "K": 2,
        "H": 8,
        "bytes_per_value": 2,
        "B": 4,
        "S": 1000,
        "weight_bytes": 1_000_000,
        "memory_bytes": 1_500_000,
        "bytes_per_s": 1e9,
        "step_limit_s": 1.4e-3,
        "must_reach": 800,
        "options": [
            {"n_global": 6, "window": 1, "bits_per_byte": 1.60},
            {"n_global": 1, "window": 100, "bits_per_byte": 1.62},
            {"n_global": 2, "window": 10, "bits_per_byte": 1.64},
            {"n_global": 0, "window": 100, "bits_per_byte": 1.61},
        ],
    }
    reached = by_hand["L"] * (by_hand["options"][3]["window"] - 1) + 1  # by windows of 100 alone
    need = s.memory_bytes(by_hand, by_hand["options"][0])
    in_time = {
        **by_hand,
        "memory_bytes": need,
        "bytes_per_s": 2.0**20,  # a power of two: the quotient is exact, however it is formed
        "step_limit_s": need / 2**20,
    }
    hardly_late = {**in_time, "step_limit_s": need / 2**20 * (1 - 1e-8)}
    wide = {"bytes_per_value": 4, "memory_bytes": 2_000_000, "step_limit_s": 2e-3}
    more = [
        *by_hand["options"],
        {"n_global": 1, "window": 2, "bits_per_byte": 1.70},
        {"n_global": 2, "window": 100, "bits_per_byte": 1.615},
    ]
    six = {**by_hand, "options": more}
    lower = {**more[-1], "bits_per_byte": more[1]["bits_per_byte"] * (1 - 1e-8)}
    roomy = {"memory_bytes": 2_000_000, "step_limit_s": 2e-3}
    nearly_equal = {**by_hand, **roomy, "options": [*more[:-1], lower]}
    assert best(nearly_equal) == len(more) - 1
    changed = edges.one_changed(
        six,
        L=7,
        K=3,
        H=9,
        bytes_per_value=1,
        B=5,
        S=1100,
        weight_bytes=1_100_000,
        bytes_per_s=0.95e9,
        step_limit_s=1.3e-3,
    )
    fixed = [s.with_an_answer(random.Random(n)) for n in range(FIXED)]
    fresh = [s.with_an_answer(rng) for _ in range(4)]
    return [
        Case("six layers, 1,000 tokens", (by_hand,)),
        Case(
            "the same, its options the other way round",
            ({**by_hand, "options": by_hand["options"][::-1]},),
        ),
        # whoever keeps results by some of the numbers is wrong here
        Case("six layers, six options", (six,)),
        *(Case(f"the same {but}", (w,)) for but, w in changed),
        Case("six layers, a loss lower by a hundred-millionth", (nearly_equal,)),
        *(
            Case(f"six layers that must reach {n} tokens", ({**by_hand, "must_reach": n},))
            for n in edges.one_less_and_just_full(reached)
        ),
        Case(
            "six layers whose windows reach just the whole text",
            ({**by_hand, "S": reached, "must_reach": reached},),
        ),
        Case("six layers, one byte a number", ({**by_hand, "bytes_per_value": 1},)),
        Case("six layers, four bytes a number", (by_hand | wide,)),
        Case("six layers, a step exactly at its limit", (in_time,)),
        Case("six layers, a step late by a hundred-millionth", (hardly_late,)),
        *(
            Case(f"{s.DEEP} layers, {room:,} bytes", (s.deep(room),))
            for room in edges.one_less_and_just_full(s.deep_needs())
        ),
        *(Case(f"workload {n + 1}", (w,)) for n, w in enumerate(fixed)),
        *(Case(f"fresh workload {n + 1}", (w,), public=n < 2) for n, w in enumerate(fresh)),
    ]


wrong.add(
    "lowest_loss",
    chooser(),
    "plausible",
    "You took the option of the lowest loss and asked nothing else of it: it must fit, be in time"
    " and reach.",
)
wrong.add(
    "smallest_cache",
    s.smallest_cache,
    "plausible",
    "You took the smallest cache. Memory that is there costs nothing: among what is allowed take"
    " the lowest loss.",
)
wrong.add(
    "memory_left_out",
    chooser(in_time, reaches),
    "plausible",
    "You never look at the memory: weights and all caches must fit.",
)
wrong.add(
    "step_left_out",
    chooser(fits, reaches),
    "plausible",
    "You never look at the clock: a step reads the weights and all caches, within step_limit_s.",
)
wrong.add(
    "reach_left_out",
    chooser(fits, in_time),
    "plausible",
    "You never look at how far the stack reaches: with windows alone it may not be far enough.",
)
wrong.add(
    "weights_not_stored",
    chooser(s.weights_not_stored, in_time, reaches),
    "plausible",
    "Weights and caches must fit into memory_bytes together.",
)
wrong.add(
    "weights_not_read",
    chooser(fits, s.weights_not_read, reaches),
    "step times from the caches alone",
    "A step reads the weights, too.",
)
wrong.add(
    "one_sequence_fits",
    chooser(s.one_sequence_fits, in_time, reaches),
    "plausible",
    "You counted the cache of one sequence: all B must fit.",
)
wrong.add(
    "one_sequence_in_time",
    chooser(fits, s.one_sequence_in_time, reaches),
    "plausible",
    "A step reads the caches of all B sequences, not of one.",
)
wrong.add(
    "full_is_refused",
    chooser(s.full_is_refused, in_time, reaches),
    "plausible",
    "What fills the memory to the last byte fits.",
)
wrong.add(
    "rings_counted_whole",
    chooser(s.rings_fit_whole, reaches),
    "lecture notes: “KV cache: independent of sequence length”",
    "You counted a window whole where the text is shorter: a local layer keeps min(S, window).",
)
wrong.add(
    "all_layers_local",
    chooser(s.all_layers_local, reaches),
    "plausible",
    "n_global of the L layers are global: L − n_global are left to be local.",
)
wrong.add(
    "windows_must_reach",
    chooser(fits, in_time, s.windows_reach),
    "plausible",
    "One global layer reaches every token: with it the windows need not.",
)
wrong.add(
    "windows_added",
    chooser(fits, in_time, s.windows_added),
    "Mistral 7B paper: a span of W·L tokens",
    "You took L · window for the reach. Each layer reaches window − 1 further, and the token itself"
    " counts.",
)
wrong.add(
    "one_window_reaches",
    chooser(fits, in_time, s.one_window_reaches),
    "plausible",
    "You asked one window to reach: L layers of it reach L · (window − 1) + 1 tokens.",
)


EXERCISE = Exercise(
    id="local_attention-ratio",
    title="Which ratio for this budget",
    kind="judgement",
    points=5,
    minutes=20,
    entries=("choose",),
    cases=cases,
    observe=observe,
    reference=best,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Three tests: does an option fit, is it in time, does it reach? Then the lowest loss.",
        (
            "Cache of a sequence: n_global layers of S positions, L − n_global of min(S, window)."
            " Memory and step have the same bytes: weights plus B caches."
        ),
        (
            "The reach is S with a global layer, else min(S, L · (window − 1) + 1). min over the"
            " allowed options by bits_per_byte gives the index."
        ),
    ),
    ranges={"w['bytes_per_value']": (1, 4)},
    recall=(
        "A hybrid and a stack of windows alone take the same memory. What else must be asked?",
        "How far each reaches, and what each loses: one global layer reaches every token.",
    ),
)
