"""speculative_decoding-accept: one drafted token, kept or replaced; checked by the exact law."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import Tolerance, plain
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.law import law
from twophase.checks.misconceptions import Misconceptions, replaced
from twophase.checks.speculative_decoding import _rule
from twophase.checks.speculative_decoding._rule import LEAST, Choose, Probs, normalized
from twophase.protocol import AnswerError

wrong = Misconceptions()


def reference(
    target_probs: Probs, draft_probs: Probs, token: int, choose: Choose
) -> tuple[bool, int]:
    """The right answer."""
    keep = min(1.0, target_probs[token] / draft_probs[token])
    if choose([1 - keep, keep]) == 1:
        return True, token
    left = [max(0.0, t - d) for t, d in zip(target_probs, draft_probs, strict=True)]
    return False, choose(normalized(left))


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "from_the_target",
    {"choose(normalized(left))": "choose(target_probs)"},
    "“rejected proposals are corrected by sampling from Q”",
    "After a refusal you draw from the target's whole law. The accepted tokens have used up a part"
    " of it: draw from what is left, max(0, target − draft), normalized.",
)
_add(
    "not_normalized",
    {"choose(normalized(left))": "choose(left)"},
    "relu(target_probs − draft_probs) handed to a sampler",
    "What is left does not sum to 1: divide by its sum before you draw.",
)
_add(
    "ratio_swapped",
    {"target_probs[token] / draft_probs[token]": "draft_probs[token] / target_probs[token]"},
    "papers in which p and q change places",
    "You divided the draft by the target. A token is kept with probability target / draft, at most"
    " 1.",
)
_add(
    "residual_swapped",
    {"t - d)": "d - t)"},
    "papers in which p and q change places",
    "You draw from what the draft has too much of. In place of a refused token comes what the"
    " target has and the draft has not: target − draft.",
)
_add(
    "absolute_difference",
    {"max(0.0, t - d)": "abs(t - d)"},
    "plausible",
    "Where the draft has more than the target nothing is left: take max(0, target − draft), not the"
    " distance.",
)
_add(
    "only_the_token_left_out",
    {"max(0.0, t - d) for t, d in": "t * (i != token) for i, (t, d) in enumerate("}
    | {"draft_probs, strict=True)]": "draft_probs, strict=True))]"},
    "plausible",
    "You only struck out the refused token. The other tokens that the draft likes were accepted too"
    " often as well: draw from max(0, target − draft).",
)
_add(
    "likeliest_of_the_rest",
    {"choose(normalized(left))": "left.index(max(left))"},
    "plausible",
    "You take the likeliest of what is left: it has to be drawn.",
)
_add(
    "never_by_chance",
    {"choose([1 - keep, keep]) == 1": "keep == 1"},
    "plausible",
    "You keep a token only if the target finds it at least as likely as the draft. A less likely"
    " one is kept, too, with probability target / draft.",
)
_add(
    "kept_by_the_target_alone",
    {"target_probs[token] / draft_probs[token]": "target_probs[token]"},
    "plausible",
    "You keep a token with the target's probability. It was drawn with the draft's already: divide"
    " by it.",
)


def _pair(answer: Answer, case: Case, choose: Any) -> str:
    found = plain(answer.call("judge_token", *case.args, choose))
    if isinstance(found, list | tuple) and [type(x) for x in found] == [bool, int]:
        return f"{'kept' if found[0] else 'replaced by'} {found[1]}"
    raise AnswerError("unusable", "judge_token must return a pair such as (True, 3): bool and int")


def observe(answer: Answer, case: Case) -> dict[str, float]:
    """The probability of each pair, by walking all branches of `choose`."""
    found = law(lambda choose: _pair(answer, case, choose))
    return {str(pair): p for pair, p in found.items() if p > LEAST}


def cases(rng: random.Random) -> list[Case]:
    """Refused for certain, kept for certain, by chance; first and last token; zeros as top-k leaves
    them; a vocabulary past any table."""
    three, other = [0.5, 0.25, 0.25], [0.25, 0.125, 0.625]
    V = past(512)
    wide, skewed = ([0.0] * V for _ in range(2))
    wide[0], wide[1], wide[V // 2], wide[-1] = 0.25, 0.125, 0.5, 0.125
    skewed[1], skewed[-2], skewed[-1] = 0.375, 0.25, 0.375
    larger = _rule.wide(past(2048))
    fresh = []
    for i in range(6):
        V = rng.randrange(3, 7)
        target, draft = (_rule.drawn(rng, V, rng.randrange(2)) for _ in range(2))
        token = _rule.drafted_from(rng, draft)
        fresh.append(Case(f"fresh {i + 1}", (target, draft, token), public=i < 2))
    return [
        Case("the draft likes it too much", (three, other, 2)),
        Case("the target likes it more: kept for certain", (three, other, 0)),
        Case("the target likes another token that the draft likes less", (three, other, 1)),
        Case("two tokens", ([0.75, 0.25], [0.5, 0.5], 1)),
        Case("the same law twice: kept for certain", (three, list(three), 1)),
        Case("the same chance in two laws: kept", ([0.5, 0.25, 0.25], [0.25, 0.25, 0.5], 1)),
        Case("the target never says it", ([0.5, 0.0, 0.5], [0.25, 0.5, 0.25], 1)),
        Case("the first token, never said by the target", ([0.0, 0.75, 0.25], [0.5, 0.5, 0.0], 0)),
        Case("the draft is certain, as at temperature 0", ([0.25, 0.5, 0.25], [0.0, 1.0, 0.0], 1)),
        Case("both are certain of one token", ([0.0, 0.0, 1.0], [0.0, 0.0, 1.0], 2)),
        Case("certain of two different ones", ([1.0, 0.0, 0.0], [0.0, 0.0, 1.0], 2)),
        Case(
            "the target has a token that the draft cut off",
            ([0.5, 0.25, 0.25], [0.625, 0.375, 0.0], 0),
        ),
        Case(
            "two tokens left that the draft cut off",
            ([0.25, 0.5, 0.125, 0.125], [0.375, 0.625, 0.0, 0.0], 1),
        ),
        Case("a small chance", ([0.5, 2.0**-14, 0.5 - 2.0**-14], [0.25, 0.5, 0.25], 1)),
        Case("nearly certain", ([0.5 - 2.0**-12, 0.5 + 2.0**-12], [0.5, 0.5], 0)),
        Case("a rare token, and as little left over", (*_rule.RARE, 2)),
        Case("a token said once in a thousand million times", (*_rule.RAREST, 0)),
        Case("liked less by one in two million", (*_rule.NEARLY_ALIKE, 0)),
        Case("liked more by one in two million: kept for certain", (*_rule.NEARLY_ALIKE, 1)),
        Case("one token in all", ([1.0], [1.0], 0)),
        Case("521 tokens, the last one drafted", (wide, skewed, len(wide) - 1)),
        Case("521 tokens, the second one drafted", (wide, skewed, 1)),
        Case("521 tokens, the last ones in its place", (skewed, wide, 0)),
        Case("2,053 tokens, the last ones in its place", (*larger, 0)),
        Case("2,053 tokens, the last one drafted", (*larger[::-1], len(larger[0]) - 1)),
        *fresh,
    ]


EXERCISE = Exercise(
    id="speculative_decoding-accept",
    title="Kept or replaced",
    kind="kernel",
    points=3,
    minutes=15,
    entries=("judge_token",),
    cases=cases,
    reference=reference,
    observe=observe,
    compare=Tolerance(rtol=1e-5, atol=1e-7, why="probabilities may pass through float32"),
    misconceptions=tuple(wrong),
    hints=(
        "Two draws: is the token kept, and if not, what comes in its place?",
        "Kept with probability min(1, target / draft), each at this token: choose([1 − a, a]).",
        (
            "After a refusal: max(0, target − draft) for every token of the vocabulary, divided by"
            " the sum of these, to choose."
        ),
    ),
    recall=(
        "A drafted token is refused. From which law does the next one come?",
        "From max(0, target − draft), divided by its sum: not from the target's own.",
    ),
)
