"""latent_attention-choose: which form for which pass, on which chip, and how long it takes."""

from __future__ import annotations

import random
from functools import cache
from itertools import combinations

from twophase.checks.compare import Tolerance
from twophase.checks.edges import one_changed, past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.latent_attention import _form_times as t
from twophase.checks.latent_attention._close_calls import close_calls
from twophase.checks.latent_attention._form_times import (
    ABSORBED,
    EXPANDED,
    Chip,
    Choose,
    Layer,
    Pass,
    Plan,
    best,
    times_s,
)
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()


def _add(choose: Choose, slug: str, seen: str, says: str) -> None:
    wrong.add(slug, choose, seen, says)


_add(
    t.always_absorbed,
    "always_absorbed",
    "“MLA runs absorbed”",
    "Absorbed throughout: each pair then costs 2·R + rope_dim a head, and a long prompt has many"
    " pairs.",
)
_add(
    t.always_expanded,
    "always_expanded",
    "the attention of DeepSeek-V2's first code on Hugging Face",
    "Expanded throughout: a pass of few queries unfolds the whole cache for them.",
)
_add(
    t.unless_one_query,
    "unless_one_query",
    "“absorb in decode, expand in prefill”",
    "You absorb for a single query only. A few drafted tokens over a long cache are cheaper"
    " absorbed, too.",
)
_add(
    t.whole_prompts,
    "whole_prompts_only",
    "“absorb whenever there is a cache”",
    "You expand prompts without a cache only. A long chunk behind a cache has as many pairs as a"
    " prompt.",
)
_add(
    t.fewer_flops,
    "fewer_flops",
    "a rule by FLOPs",
    "You compared FLOPs alone: where moving takes longer than computing, the bytes decide.",
)
_add(
    t.fewer_bytes,
    "fewer_bytes",
    "a rule by bytes",
    "You compared bytes alone: where computing takes longer than moving, the FLOPs decide.",
)
_add(
    t.limit_of_long_contexts,
    "limit_of_long_contexts",
    "“up to 170 queries”",
    "You took the limit for long contexts and infinitely fast memory: for a short context, and on a"
    " chip with little bandwidth, the crossing lies elsewhere.",
)
_add(
    t.in_turn,
    "computing_and_moving_in_turn",
    "step times as a sum",
    "You added computing and moving. Here they overlap: a pass takes the longer of the two.",
)
_add(
    t.room_left_out,
    "room_left_out",
    "plausible",
    "You did not look at scratch_bytes: unfolded keys and values must have room.",
)
_add(
    t.room_of_one_sequence,
    "for_one_sequence",
    "plausible",
    "You chose as for one sequence: unfolded, each of the B sequences takes room and time of its"
    " own.",
)
_add(
    t.room_of_one_head,
    "room_of_one_head",
    "plausible",
    "You counted the room of one head: keys and values are unfolded for all N.",
)
_add(
    t.first_for_all,
    "first_for_all",
    "plausible",
    "You chose once, for the first pass: each pass has its own best form.",
)

DEEPSEEK = {"N": 128, "R": 512, "nope_dim": 128, "rope_dim": 64, "v_dim": 128}
H100 = {"flops_per_s": 9.89e14, "bytes_per_s": 3.35e12, "scratch_bytes": 1e10}
SLOW_MEMORY = {"flops_per_s": 9e14, "bytes_per_s": 2e11, "scratch_bytes": 1e12}
WIDE = {"N": 4, "R": 64, "nope_dim": 96, "rope_dim": 16, "v_dim": 96}  # nope + v > 2·R


def _draw(rng: random.Random) -> tuple[Layer, list[Pass], Chip]:
    layer = {
        "N": 8 * rng.randrange(1, 20),
        "R": 64 * rng.randrange(1, 10),
        "nope_dim": 16 * rng.randrange(2, 10),
        "rope_dim": 16 * rng.randrange(1, 5),
        "v_dim": 16 * rng.randrange(2, 10),
    }
    passes: list[Pass] = []
    for _ in range(rng.randrange(1, 4)):
        S = rng.choice((60, 300, 2000, 9000, 40000))
        T = min(S, rng.choice((1, 2, 8, 40, 100, 170, 300, 800, S)))
        passes.append([rng.choice((1, 2, 7, 24)), T, S])
    chip = {
        "flops_per_s": round(rng.uniform(1, 10), 2) * 1e14,
        "bytes_per_s": rng.choice((1e11, 5e11, 2e12, 5e12)),
        "scratch_bytes": rng.choice((1e8, 1e9, 2e10, 1e12)),
    }
    return layer, passes, chip


def _fair(layer: Layer, passes: list[Pass], chip: Chip) -> bool:
    """No choice hangs on the last digits of a time, or of a size."""
    for work in passes:
        times = times_s(layer, work, chip)
        if abs(times[EXPANDED] / times[ABSORBED] - 1) < 1e-3:
            return False
        if abs(t.scratch_bytes(layer, work) / chip["scratch_bytes"] - 1) < 1e-5:
            return False
    return True


def _forms(plan: Plan) -> list[str]:
    return [form for form, _ in plan]


@cache
def _traps() -> tuple[Case, ...]:
    """For every two wrong choices a layer and passes on which one fails and the other does not:
    drawn once and for all."""
    made: list[Case] = []
    rng = random.Random("latent_attention-choose")
    missing = set(combinations(sorted(m.slug for m in wrong), 2))
    for _ in range(5000):
        if not missing:
            return tuple(made)
        given = _draw(rng)
        if not _fair(*given):
            continue
        right = _forms(best(*given))
        failed = {m.slug for m in wrong if _forms(m.answer(*given)) != right}
        told = {pair for pair in missing if len(failed & set(pair)) == 1}
        if told:
            missing -= told
            made.append(Case(f"layer and passes {len(made) + 1}", given))
    raise AssertionError(f"no pass tells these apart: {sorted(missing)[:5]}")


def _unfolded_all_the_same() -> list[tuple[str, tuple[Layer, list[Pass], Chip]]]:
    """Where rules of thumb would absorb: one query, few queries behind a cache, fewer FLOPs."""
    layer = {"N": 2, "R": 8, "nope_dim": 4, "rope_dim": 2, "v_dim": 4}
    roomy = {"flops_per_s": 1e3, "bytes_per_s": 1e6, "scratch_bytes": 1e9}
    made: list[tuple[str, tuple[Layer, list[Pass], Chip]]] = [
        ("256 prompts of one token", (DEEPSEEK, [[256, 1, 1]], H100)),
        ("20 queries behind 30 positions", (layer, [[3, 20, 50]], roomy)),
        ("a short context with little bandwidth", (DEEPSEEK, [[64, 70, 200]], SLOW_MEMORY)),
    ]
    for _, given in made:
        assert _forms(best(*given)) == [EXPANDED]
        assert _fair(*given)
    fewest = t.flops(DEEPSEEK, made[-1][1][1][0])
    assert fewest[ABSORBED] < fewest[EXPANDED]  # it is the bytes that decide
    return made


def _many(layer: Layer, fast: Chip) -> tuple[Layer, list[Pass], Chip]:
    """One query and 41 in turn, more passes than one might hold in a table; an odd number of
    heads."""
    odd = {**layer, "N": 3}
    passes: list[Pass] = [[1, 1 + 40 * (i % 2), 50 + i] for i in range(past(128))]
    assert _forms(best(odd, passes, fast)) == [
        (ABSORBED, EXPANDED)[i % 2] for i in range(len(passes))
    ]
    assert _fair(odd, passes, fast)
    return odd, passes, fast


def _one_other() -> list[tuple[str, tuple[Layer, list[Pass], Chip]]]:
    """A prompt that is computed and a step that is moved, then the same but for one number: whoever
    keeps results by the others is wrong there."""
    layer = {"N": 2, "R": 8, "nope_dim": 4, "rope_dim": 2, "v_dim": 4}
    chip = {"flops_per_s": 4e6, "bytes_per_s": 1e6, "scratch_bytes": 1e5}
    passes: list[Pass] = [[3, 50, 50], [1, 1, 50]]
    layers = one_changed(layer, N=3, R=9, nope_dim=6, rope_dim=4, v_dim=6)
    chips = one_changed(chip, flops_per_s=3e6, bytes_per_s=2e6)
    return [
        ("a prompt and a step", (layer, passes, chip)),
        *((f"the same {but}", (other, passes, chip)) for but, other in layers),
        *((f"the same {but}", (layer, passes, other)) for but, other in chips),
    ]


def cases(rng: random.Random) -> list[Case]:
    """A decode step, a prompt, drafted tokens, a chunk behind a cache; little bandwidth; room to
    the last byte, and a byte less; many passes; forms that are nearly as quick; what tells every
    two wrong choices apart; fresh ones."""
    layer = {"N": 2, "R": 8, "nope_dim": 4, "rope_dim": 2, "v_dim": 4}
    prompt = [3, 50, 50]
    room = t.scratch_bytes(layer, prompt)
    fast = {"flops_per_s": 1e3, "bytes_per_s": 1e6}
    assert _forms(best(layer, [prompt], {**fast, "scratch_bytes": room})) == [EXPANDED]
    fixed = [
        ("a decode step of DeepSeek-V2", (DEEPSEEK, [[1, 1, 4096]], H100)),
        ("a prompt of DeepSeek-V2", (DEEPSEEK, [[1, 4096, 4096]], H100)),
        (
            "100 queries, then 400, over 30,000",
            (DEEPSEEK, [[1, 100, 30000], [1, 400, 30000]], H100),
        ),
        (
            "the same with little bandwidth",
            (DEEPSEEK, [[1, 100, 30000], [1, 400, 30000]], SLOW_MEMORY),
        ),
        ("two heads wider than two latents", (WIDE, [[2, 500, 500], [2, 1, 500]], H100)),
        ("the same passes of DeepSeek-V2", (DEEPSEEK, [[2, 500, 500], [2, 1, 500]], H100)),
        ("room to the last byte", (layer, [prompt], {**fast, "scratch_bytes": room})),
        ("a byte too little room", (layer, [prompt], {**fast, "scratch_bytes": room - 1})),
        (
            "one prompt twice, each time room to the last byte",
            (layer, [prompt, [1, 1, 50], prompt], {**fast, "scratch_bytes": room}),
        ),
        ("131 passes, three heads", _many(layer, {**fast, "scratch_bytes": 1e9})),
        *_unfolded_all_the_same(),
        *_one_other(),
        *close_calls(),
    ]
    fresh: list[Case] = []
    while len(fresh) < 3:
        given = _draw(rng)
        if _fair(*given):
            fresh.append(Case(f"fresh {len(fresh) + 1}", given, public=False))
    return [*(Case(name, given) for name, given in fixed), *_traps(), *fresh]


EXERCISE = Exercise(
    id="latent_attention-choose",
    title="Which form for which pass",
    kind="judgement",
    points=4,
    minutes=20,
    entries=("choose",),
    cases=cases,
    reference=best,
    compare=Tolerance(rtol=1e-5, why="times may be computed in float32; forms are exact"),
    misconceptions=tuple(wrong),
    hints=(
        "Write time_s(form, B, T, S) first. Each pass is chosen by itself.",
        (
            "The time of a form is max(FLOPs / flops_per_s, bytes / bytes_per_s). Take the form"
            " with the smaller one."
        ),
        (
            "Expanded is not allowed where 2·B·S·N·(nope_dim + v_dim) is more than"
            " scratch_bytes; absorbed always is."
        ),
    ),
    recall=(
        "Which two things, besides T, decide whether a pass should be absorbed?",
        (
            "How much longer the cache is than the queries are many, and whether the chip waits for"
            " its memory or for its arithmetic."
        ),
    ),
)
