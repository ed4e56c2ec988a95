"""local_attention-prefill: a ring that loses keys in a prefill, exposed and repaired. The notebook
prints `Printed`."""

from __future__ import annotations

from typing import Any

from twophase.checks.compare import EXACT
from twophase.checks.exercise import Exercise
from twophase.checks.local_attention import _prefill_rings as rings
from twophase.checks.local_attention._prefill_cases import LONGEST, WIDEST, Input, cases, observe
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

SEEN = "Lightning-AI/litgpt #2182, in other words"


def _input(window: int, *blocks: Any) -> Input:
    return {"window": window, "blocks": list(blocks)}


def expose() -> list[Input]:
    """The right answer (one of many)."""
    return [_input(2, 3), _input(3, 2, 2)]


@wrong(
    "tests with prompts shorter than the window",
    "None of your blocks goes round: token by token the ring is right, and before it is full"
    " nothing is overwritten.",
    entry="expose",
)
def exposed_by_short_prompts() -> list[Input]:
    return [_input(8, 5), _input(8, 3, 2), _input(4, 4, 1, 1)]


@wrong(
    "plausible",
    "Only blocks longer than the window lose keys in your inputs: add one that comes behind others"
    " and is no longer than the window.",
    entry="expose",
)
def exposed_by_a_long_prompt() -> list[Input]:
    return [_input(3, 7, 1, 1)]


@wrong(
    "plausible",
    "None of your blocks is longer than the window: add one that is.",
    entry="expose",
)
def exposed_by_chunks() -> list[Input]:
    return [_input(4, 3, 3, 3)]


@wrong(
    "plausible",
    "Your input breaks the contract (a block without a token): a failure on invalid input shows"
    " nothing.",
    entry="expose",
)
def exposed_by_an_empty_block() -> list[Input]:
    return [*expose(), _input(3, 0, 2)]


wrong.add(
    "unrepaired",
    {"Ring": rings.Printed},
    SEEN,
    "The ring is still the printed one: it stores a block before its tokens have looked, and takes"
    " the first slots for the oldest tokens.",
)
wrong.add(
    "long_prompt_still_overwrites",
    {"Ring": rings.LongPromptStillOverwrites},
    SEEN,
    "A prompt longer than the window still overwrites what its first tokens need: they look before"
    " anything is stored.",
)
wrong.add(
    "later_block_still_overwrites",
    {"Ring": rings.LaterBlockStillOverwrites},
    SEEN,
    "A block behind others still overwrites what its first tokens need, also when it fits into the"
    " ring.",
)
wrong.add(
    "future_still_seen",
    {"Ring": rings.FutureStillSeen},
    SEEN,
    "Nothing is lost any more, but tokens see later ones of their block: a slot does not say how"
    " old its token is.",
)
wrong.add(
    "one_too_many",
    {"Ring": rings.OneTooMany},
    "the off-by-one of sliding windows",
    "Each token sees one too many: `window` counts the token itself.",
)
wrong.add(
    "whole_text_of_the_block",
    {"Ring": rings.WholeTextOfTheBlock},
    "full attention in the prefill, a window in decode",
    "Within a block nothing is hidden on the left: the window goes with each token of a prompt,"
    " too.",
)
wrong.add(
    "cut_to_the_window",
    {"Ring": rings.CutToTheWindow},
    "prompts cut to their last `window` tokens",
    "The first tokens of a long prompt see nothing. Their outputs are read by the next layer: each"
    " needs its own window.",
)
wrong.add(
    "forgets_what_was_before",
    {"Ring": rings.ForgetsWhatWasBefore},
    "plausible",
    "A block sees only itself: its first tokens also see what the ring holds from before.",
)
wrong.add(
    "own_token_left_out",
    {"Ring": rings.OwnTokenLeftOut},
    "the cached step that excluded the current token",
    "No token sees itself: it is the last of its window.",
)
wrong.add(
    "stored_from_slot_zero",
    {"Ring": rings.StoredFromSlotZero},
    "positions that restart in every call",
    "Every block is stored from slot 0 on, over the youngest tokens: slots go on from the length.",
)


EXERCISE = Exercise(
    id="local_attention-prefill",
    title="A prefill that loses keys",
    kind="fault",
    points=6,
    minutes=20,
    entries=("expose", "Ring"),
    cases=cases,
    observe=observe,
    reference={"Ring": rings.Right, "expose": expose},
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Play it by hand: window 2, one block of 3 tokens. What do the slots hold for token 0?",
        (
            "Two inputs: a block longer than the window, and a block behind others that is not."
            " Token by token the printed code is right."
        ),
        (
            "Repair: before anything is stored, put the last window − 1 tokens (slots p % window,"
            " in the order of the text) before the block, and cut each token's window out of that."
        ),
    ),
    ranges={"Ring.window": (1, WIDEST), "len(feed.tokens)": (1, LONGEST)},
    recall=(
        "A ring is right in every decode step. When does it lose keys all the same?",
        (
            "When a block is stored before its first tokens have looked: a prompt longer than the"
            " window, or a chunk that goes round."
        ),
    ),
)
