"""speculative_decoding-loop: draft, verify in one call, take back; the judge keeps the cache and
the log of its calls."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT, plain
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced
from twophase.protocol import AnswerError

wrong = Misconceptions()

Tokens = list[int]
Model = Callable[[Tokens], Tokens]
Rollback = Callable[[int], None]
Draft = Callable[[Tokens, int], Tokens]


def reference(
    model: Model, rollback: Rollback, draft: Draft, prompt: Tokens, n_new: int, gamma: int
) -> Tokens:
    """The right answer."""
    said = [model(prompt)[-1]]
    while len(said) < n_new:
        n = min(gamma, n_new - len(said) - 1)  # the target's own token is never drafted
        drafted = draft(prompt + said, n) if n else []
        best = model([said[-1], *drafted])
        kept = 0
        while kept < len(drafted) and drafted[kept] == best[kept]:
            kept += 1
        if kept < len(drafted):
            rollback(len(drafted) - kept)
        said += [*drafted[:kept], best[kept]]
    return said


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "never_rolled_back",
    {"rollback(len(drafted) - kept)": "pass"},
    "plausible",
    "The refused tokens are still in the cache: take them back before the next call.",
)
_add(
    "one_too_many_rolled_back",
    {"rollback(len(drafted) - kept)": "rollback(len(drafted) - kept + 1)"},
    "plausible",
    "You take back one token too many: the last kept token was read, and stays.",
)
_add(
    "kept_rolled_back",
    {"rollback(len(drafted) - kept)": "rollback(kept + 0)"},
    "plausible",
    "You take back as many tokens as were kept: take back the refused ones, drafted less kept.",
)
_add(
    "one_token_late",
    {"drafted[kept] == best[kept]": "drafted[kept] == best[kept + 1]"},
    "logits read where the token stands, not where it was predicted",
    "You compare a drafted token with what follows it. best[0] is the answer to the last token"
    " said: it judges the first drafted one.",
)
_add(
    "bonus_dropped",
    {
        "said += [*drafted[:kept], best[kept]]": (
            "said += [*drafted[:kept], best[kept]] if kept < len(drafted) or not kept"
            " else drafted[:kept]"
        ),
        "model([said[-1], *drafted])": "model([said[-1], *drafted])",
    },
    "a published speculative_decode, which returns what it accepted",
    "If all are kept, the call has said one more token already: you leave it out, and ask again.",
)
_add(
    "whole_text_again",
    {"model([said[-1], *drafted])": "model([*prompt, *said, *drafted])[-1 - len(drafted):]"},
    "generation loops without a cache",
    "You feed the whole text. The cache has it: the model wants the last token said, which it has"
    " not read, and the drafted ones.",
)
_add(
    "too_many_said",
    {"min(gamma, n_new - len(said) - 1)": "gamma", "return said": "return said[:n_new]"},
    "plausible",
    "At the end you draft more than can be used: of n tokens that are missing the target says one"
    " itself, so at most n − 1 are drafted.",
)
_add(
    "last_token_drafted",
    {"n_new - len(said) - 1)": "n_new - len(said))", "return said": "return said[:n_new]"},
    "plausible",
    "You draft the last token as well: the call says it anyway, behind what it keeps.",
)
_add(
    "agreement_anywhere",
    {
        "while kept < len(drafted) and drafted[kept] == best[kept]:\n            kept += 1": (
            "kept = sum(a == b for a, b in zip(drafted, best))"
        )
    },
    "plausible",
    "You count agreements anywhere. Behind the first refusal nothing counts: it was drafted for"
    " another text.",
)


class _Target:
    """A greedy model over a cache. What it says depends on everything in the cache."""

    def __init__(self, V: int) -> None:
        self.V = V
        self.cache: Tokens = []
        self.calls: list[Any] = []

    def next(self, text: Tokens) -> int:
        """The likeliest token after a text."""
        return (7 * text[-1] + 3 * len(text) + sum(text[-5:]) + len(text) ** 2 // 5) % self.V

    def __call__(self, tokens: Any) -> Tokens:
        tokens = plain(tokens)
        if not isinstance(tokens, list | tuple) or any(type(t) is not int for t in tokens):
            raise ValueError("model(tokens) wants a list of ints")
        if len(self.calls) > 3_000:
            raise ValueError("the model was called more than 3,000 times")
        held = {"tokens in the cache": len(self.cache), "the last of them": self.cache[-6:]}
        self.calls.append({**held, "fed": list(tokens)})
        said = []
        for token in tokens:
            self.cache.append(token)
            said.append(self.next(self.cache))
        return said

    def rollback(self, n: Any) -> None:
        n = plain(n)
        if type(n) is not int or not 1 <= n <= len(self.cache):
            raise ValueError(f"rollback(n) wants 1 to {len(self.cache)} tokens; got {n!r}")
        del self.cache[-n:]


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """The tokens, what the cache had and got in every call, what was drafted, what is left in the
    cache."""
    prompt, n_new, gamma, V, rounds = case.args
    target = _Target(V)
    asked: list[Any] = []

    def draft(text: Any, n: Any) -> Tokens:
        text, n = list(plain(text)), plain(n)
        if type(n) is not int or n < 1:
            raise ValueError(f"draft(text, n) wants n of 1 or more; got {n!r}")
        right, short = rounds[len(asked) % len(rounds)]
        asked.append({"text": list(text), "n": n})
        made: Tokens = []
        for i in range(max(0, n - short)):
            token = target.next(text + made)
            made.append(token if i != right else (token + 1) % V)
        return made

    said = plain(
        answer.call("speculate", target, target.rollback, draft, list(prompt), n_new, gamma)
    )
    if not isinstance(said, list | tuple):
        raise AnswerError("unusable", "speculate must return a list of tokens")
    return {
        "tokens": list(said),
        "calls": target.calls,
        "drafts": asked,
        "cache at the end": target.cache,
    }


def cases(rng: random.Random) -> list[Case]:
    """Each round of a draft: how many of its tokens are right before a wrong one, and how many it
    falls short of what was asked."""

    def case(
        name: str,
        n_prompt: int,
        n_new: int,
        gamma: int,
        rounds: list[tuple[int, int]],
        V: int = 11,
        public: bool = True,
    ) -> Case:
        prompt = [(5 * i + n_prompt) % V for i in range(n_prompt)]
        return Case(name, (prompt, n_new, gamma, V, rounds), public=public)

    every = (99, 0)  # all right, none missing
    drawn = [(rng.randrange(5), rng.randrange(3)) for _ in range(6)]
    return [
        case("all kept", 3, 7, 2, [every]),
        case("one kept of two", 3, 7, 2, [(1, 0)]),
        case("the first always refused", 3, 5, 3, [(0, 0)]),
        case("one token wanted: nothing is drafted", 4, 1, 4, [every]),
        case("two tokens wanted: nothing is drafted", 4, 2, 4, [every]),
        case("three tokens wanted: one is drafted", 4, 3, 4, [every]),
        case("gamma = 0: plain decoding", 2, 5, 0, [every]),
        case("gamma = 1", 2, 8, 1, [every, (0, 0)]),
        case("a wrong token, right ones behind it", 3, 12, 4, [(1, 0), (2, 0), (0, 0)]),
        case("a prompt of one token", 1, 9, 3, [(2, 0), every]),
        case("the draft has nothing to say", 3, 5, 2, [(99, 2)]),
        case("drafts of different lengths", 3, 16, 5, [(99, 3), (1, 1), every, (99, 5)]),
        case("kept to the last place", 3, 10, 4, [(3, 0)]),
        case("long drafts", 2, 200, past(64), [(40, 0), every, (65, 0)], past(256)),
        case("very long drafts", 2, 600, past(256), [every, (258, 0)], past(512)),
        case("a long prompt", past(512), 12, 3, [(1, 0), every]),
        case("a long prompt, a thousand tokens", past(512), 1000, 300, [(300, 0), (7, 0)]),
        case("fresh 1", rng.randrange(2, 6), rng.randrange(12, 20), 4, drawn),
        case("fresh 2", rng.randrange(2, 6), rng.randrange(12, 20), 5, drawn[::-1], public=False),
    ]


EXERCISE = Exercise(
    id="speculative_decoding-loop",
    title="Draft, verify, take back",
    kind="kernel",
    points=5,
    minutes=25,
    entries=("speculate",),
    cases=cases,
    reference=reference,
    observe=observe,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        (
            "The last token said has been said, but not read: every call begins with it. After"
            " model([last, *drafted]), best[i] is the target's word on drafted[i]."
        ),
        "Count how many drafted tokens agree from the first on. Say these, and best at that count.",
        (
            "The call put the last token and all drafted ones into the cache: take back drafted"
            " less kept. Draft at most n_new − len(said) − 1."
        ),
    ),
    recall=(
        "A call reads the last token and 4 drafted ones, of which 1 is kept. How many are taken"
        " back, and how many tokens has the call said?",
        "3 are taken back; the call has said 2: the kept one and the target's own.",
    ),
)
