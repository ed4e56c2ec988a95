"""speculative_decoding-snippet: a published speculative_decode, exposed, hidden and repaired."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import Tolerance, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.law import law
from twophase.checks.misconceptions import Misconceptions, replaced
from twophase.checks.speculative_decoding import _printed, _rule
from twophase.checks.speculative_decoding._rule import Choose, Probs, happens, residual
from twophase.protocol import AnswerError

wrong = Misconceptions()

Input = dict[str, Any]
Model = Callable[[list[int]], list[Probs]]


def speculate_once(
    target: Model, draft: Model, prompt: list[int], k: int, choose: Choose
) -> list[int]:
    """The right answer."""
    drafted: list[int] = []
    for _ in range(k):
        drafted.append(choose(draft(prompt + drafted)[-1]))
    before = len(prompt) - 1  # the row of the law before the first drafted token
    target_probs = target(prompt + drafted)[before:]
    draft_probs = draft(prompt + drafted)[before:]
    for i, token in enumerate(drafted):
        if not happens(min(1, target_probs[i][token] / draft_probs[i][token]), choose):
            return [*drafted[:i], choose(residual(target_probs[i], draft_probs[i]))]
    return [*drafted, choose(target_probs[k])]


TARGET, DRAFT = [[0.75, 0.25], [0.25, 0.75]], [[0.5, 0.5], [0.75, 0.25]]


def expose() -> list[Input]:
    """The right answer (one of many)."""
    return [{"prompt": [0, 1], "target": TARGET, "draft": DRAFT}]


def harmless() -> Input:
    """The right answer (one of many): the prompt begins with the token that it ends with."""
    return {"prompt": [1, 0, 1], "target": TARGET, "draft": DRAFT}


@wrong(
    "code tried on prompts of one token",
    "The task wants prompts of 2 to 8 tokens: behind one token row 0 is the right one.",
    entry="expose",
)
def exposed_with_one_token() -> list[Input]:
    return [{"prompt": [1], "target": TARGET, "draft": DRAFT}]


@wrong(
    "a model drafting for itself",
    "Draft and target are one model: whatever is drafted is kept, and right.",
    entry="expose",
)
def exposed_without_a_difference() -> list[Input]:
    return [{"prompt": [0, 1], "target": TARGET, "draft": TARGET}]


@wrong(
    "plausible",
    "On none of your inputs is the printed law wrong by 0.1 or more. If a prompt begins with the"
    " token that it ends with, row 0 is as good as the right one.",
    entry="expose",
)
def exposed_by_a_circle() -> list[Input]:
    return [{"prompt": [1, 0, 1], "target": TARGET, "draft": DRAFT}]


@wrong(
    "plausible",
    "The task wants a harmless prompt of 2 to 8 tokens: behind one token nothing can go wrong.",
    entry="harmless",
)
def harmless_with_one_token() -> Input:
    return {"prompt": [1], "target": TARGET, "draft": DRAFT}


@wrong(
    "plausible",
    "Behind your harmless prompt draft and target differ by less than 0.1: show one where they"
    " differ by more.",
    entry="harmless",
)
def harmless_without_a_difference() -> Input:
    return {"prompt": [0, 1], "target": TARGET, "draft": TARGET}


@wrong(
    "plausible",
    "With your harmless input the printed code's law is wrong: it judges by the laws after the"
    " prompt's first token.",
    entry="harmless",
)
def harmless_that_is_not() -> Input:
    return {"prompt": [0, 1], "target": TARGET, "draft": DRAFT}


def _repair(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, {"speculate_once": replaced(speculate_once, parts)}, seen, says)


_repair(
    "unrepaired",
    {"len(prompt) - 1": "0", "[*drafted, choose(target_probs[k])]": "drafted"},
    "lecture code",
    "A model returns a row for each token of the prompt as well: the law before drafted token i is"
    " row len(prompt) − 1 + i.",
)
_repair(
    "rows_repaired_only",
    {"[*drafted, choose(target_probs[k])]": "drafted"},
    "lecture code",
    "The rows are right now. But if all are kept the target's last row is thrown away: it says one"
    " more token for nothing.",
)
_repair(
    "bonus_repaired_only",
    {"len(prompt) - 1": "0"},
    "plausible",
    "The last token is there now, but the rows are still those of the prompt: begin at"
    " len(prompt) − 1.",
)
_repair(
    "rows_one_late",
    {"len(prompt) - 1": "len(prompt)", "choose(target_probs[k])": "choose(target_probs[-1])"}
    | {
        ("target_probs[i][token] / draft_probs[i][token]"): (
            "(target_probs + [target_probs[-1]])[i][token] / (draft_probs +"
            " [draft_probs[-1]])[i][token]"
        )
    }
    | {
        ("residual(target_probs[i], draft_probs[i])"): (
            "residual(target_probs[i], draft_probs[i]) if target_probs[i] !="
            " draft_probs[i] else target_probs[i]"
        )
    },
    "plausible",
    "You are one row late: the row at a token's own place is the law of what follows it.",
)
_repair(
    "resampled_from_the_target",
    {"choose(residual(target_probs[i], draft_probs[i]))": "choose(target_probs[i])"},
    "plausible",
    "After a refusal you draw from the target's whole law: the residual of the printed code was"
    " right.",
)
_repair(
    "called_for_every_token",
    {
        "target(prompt + drafted)[before:]": (
            "[target(prompt + drafted[:i])[-1] for i in range(k + 1)]"
        )
    },
    "plausible",
    "You call the target for every token: that costs what plain decoding costs. One call gives all"
    " rows.",
)

FAR_APART = 0.1 - _printed.ROUNDING  # of [0.4, 0.6] and [0.5, 0.5] floats make a little less
EXPOSED = ("the inputs", "draft and target differ", "one shows it")
HIDDEN = ("the input", "draft and target differ", "the printed code is right")


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """Whether `expose` shows the fault, whether `harmless` hides it, or the repaired code's law and
    the calls of its target."""
    if case.args[0] == "expose":
        found = plain(answer.call("expose"))
        if not isinstance(found, list | tuple) or not 1 <= len(found) <= 10:
            return _invalid(EXPOSED, "expose() must return a list of 1 to 10 inputs")
        if said := next((p for p in map(_printed.problem, found) if p), ""):
            return _invalid(EXPOSED, said)
        differ = not all(map(_printed.alike, found))  # or there is nothing to be shown
        shown = any(_printed.miss(x) >= FAR_APART for x in found)
        return dict(zip(EXPOSED, ("valid", differ, shown), strict=True))
    if case.args[0] == "harmless":
        found = plain(answer.call("harmless"))
        if said := _printed.problem(found):
            return _invalid(HIDDEN, said)
        facts = "valid", _printed.difference(found) >= FAR_APART, _printed.miss(found) <= 1e-6
        return dict(zip(HIDDEN, facts, strict=True))
    return _repaired(answer, *case.args)


def _invalid(facts: tuple[str, ...], said: str) -> dict[str, Any]:
    return {facts[0]: said, **dict.fromkeys(facts[1:], False)}


def _model(table: list[Probs], log: list[Any]) -> Model:
    """A row for each token: the law after it depends on all tokens up to it."""

    def model(tokens: list[int]) -> list[Probs]:
        log.append(list(tokens))
        return [table[sum(tokens[: i + 1]) % len(table)] for i in range(len(tokens))]

    return model


def _repaired(
    answer: Answer, prompt: list[int], k: int, target: list[Probs], draft: list[Probs]
) -> dict[str, Any]:
    calls: list[int] = []

    def run(choose: Choose) -> str:
        log: list[Any] = []
        models = _model(target, log), _model(draft, [])
        said = plain(answer.call("speculate_once", *models, prompt, k, choose))
        calls.append(len(log))
        if not isinstance(said, list | tuple) or any(type(token) is not int for token in said):
            raise AnswerError("unusable", "speculate_once must return a list of tokens, ints")
        return _rule.written(said)

    found = {str(s): p for s, p in law(run).items() if p > _rule.LEAST}
    return {"the law": found, "most calls of the target": max(calls)}


def cases(rng: random.Random) -> list[Case]:
    """The two inputs, then the repaired function: prompts of one token and of several, from one to
    forty drafted."""

    def case(name: str, n: int, k: int, V: int, r: random.Random, public: bool = True) -> Case:
        tables = [[_rule.drawn(r, V) for _ in range(V + 2)] for _ in range(2)]
        prompt = [r.randrange(V) for _ in range(n)]
        return Case(name, (prompt, k, *tables), public=public)

    fixed, certain = random.Random(14), [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    rows = [[0.875, 0.125], [0.25, 0.75]], [[0.75, 0.25], [0.375, 0.625]]
    rare = [[2.0**-21, 0.5, 0.5 - 2.0**-21], [2.0**-21, 0.25, 0.75 - 2.0**-21]]
    return [
        Case("inputs that show the fault", ("expose",)),
        Case("an input that hides it", ("harmless",)),
        case("a prompt of one token, one drafted", 1, 1, 2, fixed),
        case("a prompt of three tokens, one drafted", 3, 1, 2, fixed),
        case("a prompt of three tokens, two drafted", 3, 2, 3, fixed),
        case("a prompt of two tokens, three drafted", 2, 3, 2, fixed),
        case("a prompt of 300 tokens, one drafted", 300, 1, 2, fixed),
        Case("a prompt of 300 tokens, of which the first counts", ([1] + [0] * 299, 1, *rows)),
        Case("40 drafted, all of them certain", ([0, 1], 40, certain, certain)),
        Case("seven drafted, all of them kept", ([1], 7, rows[0], rows[0])),
        # half as often would be wrong by more than the tolerance, though hardly ever
        Case("a token drafted once in two million times", ([0], 1, [rare[0]], [rare[1]])),
        case("fresh 1", rng.randrange(2, 6), 2, 3, rng),
        case("fresh 2", rng.randrange(2, 6), 3, 2, rng, public=False),
    ]


EXERCISE = Exercise(
    id="speculative_decoding-snippet",
    title="A published speculative_decode",
    kind="fault",
    points=5,
    minutes=20,
    entries=("expose", "harmless", "speculate_once"),
    cases=cases,
    observe=observe,
    reference={"expose": expose, "harmless": harmless, "speculate_once": speculate_once},
    compare=Tolerance(rtol=1e-5, atol=1e-7, why="probabilities may pass through float32"),
    misconceptions=tuple(wrong),
    hints=(
        "How many rows does target(prompt + drafted) have, and which of them is target_probs[0]?",
        (
            "It judges by the laws after the prompt's first token. Which prompts have the same law"
            " there and at their end?"
        ),
        (
            "Repair: drop the first len(prompt) − 1 rows of both. And if no token was refused, draw"
            " one more from the row that is left over."
        ),
    ),
    recall=(
        (
            "A target reads a prompt of 7 tokens and 3 drafted ones. Which row"
            " judges the first of these?"
        ),
        "Row 6, counted from 0: the law after the prompt's last token.",
    ),
)
