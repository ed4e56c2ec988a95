"""speculative_decoding-choose: which draft, and how many tokens of it, for this target, batch and
machine."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced
from twophase.checks.speculative_decoding import _deployments as d
from twophase.checks.speculative_decoding._deployments import Choice, Draft, Sizes

wrong = Misconceptions()

NEAR = 0.95  # of the best rate


def reference(target: Sizes, machine: Sizes, drafts: list[Draft], B: int) -> Choice:
    """The right answer."""
    best, best_rate = (None, 0), d.rate(target, machine, d.NOTHING, B, 0)
    for draft, gamma in d.options(drafts):
        if draft and d.fits(target, machine, draft, B):
            rate = d.rate(target, machine, draft, B, gamma)
            if rate > best_rate:
                best, best_rate = (draft["name"], gamma), rate
    return best


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


Rate = Callable[[Sizes, Sizes, Draft, int, int], float]


def _by_rate(slug: str, seen: str, says: str) -> Callable[[Rate], Rate]:
    """The answer that judges by another rate."""

    def record(rate: Rate) -> Rate:
        globals()[f"_{slug}"] = rate
        name = f"_{slug}(target, machine, "
        old = {
            "d.rate(target, machine, d.N": name + "d.N",
            "d.rate(target, machine, dr": name + "dr",
        }
        wrong.add(slug, replaced(reference, old), seen, says)
        return rate

    return record


_add(
    "memory_left_out",
    {"draft and d.fits(target, machine, draft, B)": "draft"},
    "plausible",
    "You did not ask whether it fits: the draft's weights and caches lie beside the target's.",
)
_add(
    "draft_caches_left_out",
    {
        "d.fits(target, machine, draft, B)": (
            'd.fits(target, machine, {**draft, "cache_bytes": 0}, B)'
        )
    },
    "plausible",
    "A draft has a cache of its own for every sequence: it takes room, too.",
)
_add(
    "always_a_draft",
    {"d.rate(target, machine, d.NOTHING, B, 0)": "0.0"},
    "“speculative decoding makes it 2 to 4 times faster”",
    "You always draft. In a large batch, or with a poor draft, plain decoding is quicker.",
)
_add(
    "never_a_draft",
    {"rate > best_rate": "rate > best_rate and not drafts"},
    "plausible",
    "You never draft, as if each verified"
    " token cost a step: one pass"
    " reads the weights once, and in"
    " a small batch a draft may be worth a lot.",
)


@_by_rate(
    "tokens_only",
    "acceptance shown without the clock",
    "You take the most tokens a call: what counts is tokens a second.",
)
def tokens_only(target: Sizes, machine: Sizes, draft: Draft, B: int, gamma: int) -> float:
    return d.tokens_per_call(draft["acceptances"], gamma)


@_by_rate(
    "draft_is_free",
    "“the draft costs nothing”",
    "You leave the draft's own steps out: gamma of them come before every verification.",
)
def draft_is_free(target: Sizes, machine: Sizes, draft: Draft, B: int, gamma: int) -> float:
    return d.rate(target, machine, {**d.NOTHING, "acceptances": draft["acceptances"]}, B, gamma)


@_by_rate(
    "verification_is_free",
    "“verification is free”",
    "You let a verification cost a plain step. In a large batch its gamma + 1 tokens of each"
    " sequence take longer to compute than to read.",
)
def verification_is_free(target: Sizes, machine: Sizes, draft: Draft, B: int, gamma: int) -> float:
    spent = gamma * d.pass_s(draft, machine, B, 1) + d.pass_s(target, machine, B, 1)
    return d.tokens_per_call(draft["acceptances"], gamma) / spent


@_by_rate(
    "for_one_sequence",
    "a benchmark at batch 1, used for a server",
    "You decided for one sequence. With B of them computing counts B times.",
)
def for_one_sequence(target: Sizes, machine: Sizes, draft: Draft, B: int, gamma: int) -> float:
    return d.rate(target, machine, draft, 1, gamma)


@_by_rate(
    "first_acceptance_for_all",
    "the formula for one alpha",
    "You take the first place's acceptance for all places: each has its own.",
)
def first_acceptance_for_all(
    target: Sizes, machine: Sizes, draft: Draft, B: int, gamma: int
) -> float:
    even = [draft["acceptances"][0]] * gamma if gamma else []
    return d.rate(target, machine, {**draft, "acceptances": even}, B, gamma)


@_by_rate(
    "all_at_once",
    "Medusa's heads, which draft in one pass",
    "You let all tokens be drafted in one step. This draft says one after the other: gamma steps.",
)
def all_at_once(target: Sizes, machine: Sizes, draft: Draft, B: int, gamma: int) -> float:
    once = min(gamma, 1) * d.pass_s(draft, machine, B, 1)
    spent = once + d.pass_s(target, machine, B, gamma + 1)
    return d.tokens_per_call(draft["acceptances"], gamma) / spent


FACTS = ("the choice", "it fits", "within 5% of the best")


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """Whether the choice is one, fits, and is nearly as quick as the best by brute force."""
    target, machine, drafts, B = case.args
    found = plain(answer.call("choose", *case.args))
    known = {(draft and draft["name"], gamma): draft for draft, gamma in d.options(drafts)}
    choice = tuple(found) if isinstance(found, list | tuple) and len(found) == 2 else ()
    if len(choice) != 2 or type(choice[1]) is not int or choice not in known:
        said = (
            "no pair of a draft's name and 1 to as many tokens as it has acceptances, or (None, 0)"
        )
        return dict(zip(FACTS, (said, False, False), strict=True))
    draft = known[choice] or d.NOTHING
    name, gamma = reference(target, machine, drafts, B)
    best = d.rate(target, machine, known[name, gamma] or d.NOTHING, B, gamma)
    near = d.rate(target, machine, draft, B, choice[1]) >= NEAR * best
    return dict(zip(FACTS, ("valid", d.fits(target, machine, draft, B), near), strict=True))


def _by_hand() -> list[tuple[str, d.Situation]]:
    """A target of a power of two, and most often one draft."""
    return [
        ("a draft that does not quite pay", d.one(1, 0.613, [0.5])),
        ("the same draft, a target with a cache", d.one(1, 0.613, [0.5], (1.0, 0.0))),
        ("a draft that pays a little", d.one(1, 0.38, [0.5])),
        *d.pays_no_longer(d.one(1, 0.38, [0.5])),
        # of the same length: whoever keeps results by that is wrong here
        ("the same draft, hardly accepted", d.one(1, 0.38, [0.1])),
        ("a draft with long caches", d.one(16, 0.01, [0.6, 0.6], (0.001, 0.05))),
        ("a target with long caches", d.one(16, 0.2, [0.3, 0.3], (0.05, 0.0))),
        ("a draft that computes much", d.one(4, 0.02, [0.8] * 4, flops_per_byte=1500.0)),
        ("a draft that computes very much", d.one(32, 0.02, [0.8] * 4, flops_per_byte=300.0)),
        (
            "a slow disk, a draft that does not quite pay",
            d.one(1, 0.613, [0.5], bytes_per_s=2.0**33),
        ),
        (
            "a fast memory, a draft that does not quite pay",
            d.one(1, 0.613, [0.5], bytes_per_s=2.0**48),
        ),
        ("a tiny draft, forty places", d.one(1, 0.001, [0.97] * 40)),
        ("a tiny draft, a hundred places", d.one(1, 0.0005, [0.995] * 100)),
        *d.to_the_last_place(),
        *d.placeless(),
        ("a hundred drafts, the last one good", d.last_of_many(100)),
        ("a slow disk", d.one(1, 0.05, [0.8] * 5, bytes_per_s=2.0**33)),
        ("a very slow disk", d.one(1, 0.05, [0.8] * 5, bytes_per_s=2.0**12)),
    ]


def cases(rng: random.Random) -> list[Case]:
    """Batches of 1 to 512, drafts of half a per cent to most of the target, memory just full and a
    byte short, a chip with little arithmetic."""
    r = random.Random(14)
    made = [(f"batch {B}", d.made(r, B)) for B in (1, 1, 8, 64, 128, 256, 512)]
    made += [
        ("drafts nearly as large as the target", d.made(r, 1, sizes=(0.8, 0.9))),
        ("good drafts, batch 64", d.made(r, 64, eager=0.3)),
        ("good drafts, batch 200", d.made(r, 200, eager=0.3)),
        ("long texts, batch 32", d.made(r, 32, cache=1e9)),
        ("no draft at all", d.made(r, 4, sizes=())),
        ("one draft", d.made(r, 2, sizes=(0.05,))),
        ("just room enough", d.tight(r, 3, 0.0)),
        ("one byte short", d.tight(r, 3, 1.0)),
        ("a draft that is larger by one byte than what fits", d.odd(d.tight(r, 3, 0.0))),
        ("no room for the draft's weights", d.tight(r, 3, 3 * 2.0**25 + 1)),
        ("room for the draft's weights, not for its caches", d.tight(r, 16, 2.0**26)),
        ("little arithmetic, batch 1", d.slow_chip(d.made(r, 1), 8e12)),
        ("little arithmetic, batch 4", d.slow_chip(d.made(r, 4, eager=0.2), 2e13)),
        ("one small draft, much accepted", d.made(r, 1, sizes=(0.002,), eager=0.5)),
        *_by_hand(),
        ("a draft that lacks a byte of room before one that fits", d.turned(d.tight(r, 3, 1.0))),
        ("a hundred small drafts", d.made(r, 1, sizes=tuple(0.001 * i for i in range(1, 101)))),
    ]
    fresh = [(f"fresh {i + 1}", d.made(rng, rng.choice((1, 16, 96)))) for i in range(4)]
    return [
        *(Case(name, args) for name, args in made),
        *(Case(name, args, public=False) for name, args in fresh),
    ]


EXERCISE = Exercise(
    id="speculative_decoding-choose",
    title="Which draft, and how much of it",
    kind="judgement",
    points=5,
    minutes=25,
    entries=("choose",),
    cases=cases,
    observe=observe,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Try every draft at every length, and no draft. What fits? How many tokens a second?",
        (
            "A pass over T tokens of each sequence takes the longer of (weights + B·cache) /"
            " bytes_per_s and B·T·token_flops / flops_per_s: T = 1 for a draft's step, gamma + 1 to"
            " verify."
        ),
        (
            "Tokens of a call: 1 + a₁ + a₁a₂ + … up to gamma. Seconds: gamma draft steps and one"
            " verification. Take the largest quotient; (None, 0) has one token and one plain step."
        ),
    ),
    recall=(
        "Why may the best draft at batch 1 make a server at batch 256 slower?",
        "There a pass is bound by computing: each drafted token costs time, kept or not.",
    ),
)
