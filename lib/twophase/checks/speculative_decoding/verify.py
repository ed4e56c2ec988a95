"""speculative_decoding-verify: a whole draft, judged token by token; checked by the exact law."""

from __future__ import annotations

import random

from twophase.checks.answer import Answer
from twophase.checks.compare import Tolerance, plain
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced
from twophase.checks.speculative_decoding import _rule
from twophase.checks.speculative_decoding._rule import Choose, Probs, happens, residual
from twophase.protocol import AnswerError

wrong = Misconceptions()


def reference(
    target_probs: list[Probs], draft_probs: list[Probs], drafted: list[int], choose: Choose
) -> list[int]:
    """The right answer."""
    for i, token in enumerate(drafted):
        target, draft = target_probs[i], draft_probs[i]
        if not happens(min(1.0, target[token] / draft[token]), choose):
            return [*drafted[:i], choose(residual(target, draft))]
    return [*drafted, choose(target_probs[-1])]


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "bonus_dropped",
    {"[*drafted, choose(target_probs[-1])]": "list(drafted)"},
    "a published speculative_decode, which returns what it accepted",
    "If all are kept, the target's last row says one more token, for nothing: you leave it out.",
)
_add(
    "nothing_after_a_refusal",
    {"[*drafted[:i], choose(residual(target, draft))]": "list(drafted[:i])"},
    "plausible",
    "After a refusal you say nothing: a draft whose first token is refused would leave the text"
    " where it was, and the law is not the target's.",
)
_add(
    "target_after_a_refusal",
    {"choose(residual(target, draft))": "choose(target)"},
    "“rejected proposals are corrected by sampling from Q”",
    "After a refusal you draw from the target's whole law: draw from max(0, target − draft),"
    " normalized.",
)
_add(
    "bonus_after_a_refusal",
    {"choose(residual(target, draft))": "choose(target_probs[-1])"},
    "plausible",
    "After a refusal you draw from the target's last row: that one was computed behind tokens which"
    " no longer stand in the text.",
)
_add(
    "rows_one_late",
    {"target_probs[i],": "target_probs[i + 1],"},
    "logits read where the token stands, not where it was predicted",
    "You judge token i by the law after it. target_probs[i] is the law before drafted token i.",
)
_add(
    "refused_token_kept",
    {"[*drafted[:i], choose": "[*drafted[: i + 1], choose"},
    "plausible",
    "The refused token is still in what you return: its place is taken by the one drawn instead.",
)
_add(
    "bonus_from_the_draft",
    {"choose(target_probs[-1])": "choose((draft_probs or target_probs)[-1])"},
    "plausible",
    "You draw the last token from the draft's law. It is the target's to say: target_probs has one"
    " row more than draft_probs.",
)
_add(
    "all_or_nothing",
    {"return [*drafted[:i], choose": "return [choose"},
    "plausible",
    "You throw away tokens that were kept before the refusal.",
)


@wrong(
    "each token judged on its own",
    "You go on after a refusal. What was drafted behind a refused token was drafted for another"
    " text: stop there.",
)
def goes_on(
    target_probs: list[Probs], draft_probs: list[Probs], drafted: list[int], choose: Choose
) -> list[int]:
    said = []
    for target, draft, token in zip(target_probs, draft_probs, drafted, strict=False):
        kept = happens(min(1.0, target[token] / draft[token]), choose)
        said.append(token if kept else choose(residual(target, draft)))
    return [*said, choose(target_probs[-1])]


def observe(answer: Answer, case: Case) -> dict[str, float]:
    """The probability of each list of tokens, by walking all branches of `choose`."""

    def verify(
        target: list[Probs], draft: list[Probs], drafted: list[int], choose: Choose
    ) -> list[int]:
        said = plain(answer.call("verify", target, draft, drafted, choose))
        if isinstance(said, list | tuple) and all(type(token) is int for token in said):
            return list(said)
        raise AnswerError("unusable", "verify must return a list of tokens, ints")

    return _rule.said_law(verify, *case.args)


def _case(
    rng: random.Random, name: str, V: int, gamma: int, zeros: int = 0, public: bool = True
) -> Case:
    """Laws of 64ths, and tokens that the draft may draw, the first of them with a real chance to be
    refused and to be kept."""
    while True:
        target = [_rule.drawn(rng, V, zeros) for _ in range(gamma + 1)]
        draft = [_rule.drawn(rng, V, zeros) for _ in range(gamma)]
        drafted = [_rule.drafted_from(rng, law) for law in draft]
        open_ = [0 < t[x] < d[x] for t, d, x in zip(target, draft, drafted, strict=False)]
        if V == 1 or all(open_):
            return Case(name, (target, draft, drafted), public=public)


def cases(rng: random.Random) -> list[Case]:
    """From no drafted token to more than any table; certain laws; zeros as top-k leaves them."""
    fixed = random.Random(14)
    gamma = 300  # the most that the task names
    nearly, wide = _rule.NEARLY_ALIKE, _rule.wide(past(2048))
    long = [[0.5, 0.5]] * (gamma + 1), [[0.5, 0.5]] * gamma, [i % 2 for i in range(gamma)]
    late = [[*row] for row in long[0]]
    late[-2] = [0.75, 0.25]
    certain = [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    refused = [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    return [
        Case("no token drafted", ([[0.25, 0.5, 0.25]], [], [])),
        _case(fixed, "one token drafted", 3, 1),
        _case(fixed, "two tokens drafted", 3, 2),
        _case(fixed, "three tokens drafted, two in the vocabulary", 2, 3),
        Case("all certain, all kept", (certain, certain[:2], [1, 2])),
        Case("all certain, the second refused", (certain, refused, [1, 1])),
        Case(
            "the first never said by the target",
            ([[0.0, 1.0], [0.5, 0.5], [0.25, 0.75]], [[0.5, 0.5]] * 2, [0, 0]),
        ),
        Case(
            "the second never said by the target",
            (
                [[0.5, 0.25, 0.25], [0.0, 0.75, 0.25], [0.25, 0.25, 0.5]],
                [[0.25, 0.5, 0.25], [0.5, 0.5, 0.0]],
                [1, 0],
            ),
        ),
        Case(
            "the second is rare, and as little left over",
            ([certain[0], _rule.RARE[0], [0.5, 0.25, 0.25]], [certain[0], _rule.RARE[1]], [1, 2]),
        ),
        Case(
            "the second said once in a thousand million times",
            (
                [certain[0], _rule.RAREST[0], [0.5, 0.25, 0.25]],
                [certain[0], _rule.RAREST[1]],
                [1, 0],
            ),
        ),
        Case(
            "one token liked more by one in two million, the next one less",
            ([nearly[0], nearly[0], [0.25, 0.75]], [nearly[1]] * 2, [1, 0]),
        ),
        Case(
            "the target likes all of them more",
            ([[0.75, 0.25], [0.25, 0.75], [0.5, 0.5]], [[0.5, 0.5]] * 2, [0, 1]),
        ),
        _case(fixed, "zeros as top-k leaves them", 5, 2, zeros=2),
        _case(fixed, "five tokens drafted", 3, 5),
        _case(fixed, "a wide vocabulary", past(32), 1),
        Case(
            "2,053 tokens, the last ones in its place",
            ([wide[0], [1.0, *wide[0][1:-2], 0.0, 0.0]], [wide[1]], [0]),
        ),
        Case("300 tokens drafted, all kept", long),
        Case(
            "300 tokens drafted, the last one perhaps refused",
            (late, long[1], [0] * (gamma - 1) + [1]),
        ),
        _case(rng, "fresh 1", 4, 2),
        _case(rng, "fresh 2", 3, 3, public=False),
        _case(rng, "fresh 3", 4, 1, zeros=1, public=False),
    ]


EXERCISE = Exercise(
    id="speculative_decoding-verify",
    title="A whole draft",
    kind="kernel",
    points=5,
    minutes=25,
    entries=("verify",),
    cases=cases,
    reference=reference,
    observe=observe,
    compare=Tolerance(rtol=1e-5, atol=1e-7, why="probabilities may pass through float32"),
    misconceptions=tuple(wrong),
    hints=(
        "Go through the drafted tokens one by one; the first refusal ends everything.",
        (
            "At token i: kept with probability min(1, target_probs[i][token] /"
            " draft_probs[i][token]). If not, return"
            " those before it and one drawn"
            " from what is left"
            " of row i."
        ),
        (
            "If the loop comes to its end, all were"
            " kept: return them and one"
            " drawn from target_probs[-1]."
        ),
    ),
    recall=(
        (
            "Four tokens were drafted. How many can one"
            " call of the target yield,"
            " at least and at most?"
        ),
        "One to five: the kept ones, and one more that the target says itself.",
    ),
)
