"""speculative_decoding-lookup: the text itself drafts (prompt lookup)."""

from __future__ import annotations

import random

from twophase.checks.compare import EXACT
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(text: list[int], n: int, longest: int) -> list[int]:
    """The right answer."""
    for size in range(min(longest, len(text) - 1), 0, -1):
        end = text[-size:]
        for start in range(len(text) - size - 1, -1, -1):
            if text[start : start + size] == end:
                return text[start + size : start + size + n]
    return []


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "shortest_match",
    {"range(min(longest, len(text) - 1), 0, -1)": "range(1, min(longest, len(text) - 1) + 1)"},
    "plausible",
    "You begin with the shortest match. A longer one says more about what follows: begin with it.",
)
_add(
    "first_occurrence",
    {"range(len(text) - size - 1, -1, -1)": "range(len(text) - size)"},
    "prompt lookup code that stops at the first match it finds",
    "You take the first occurrence. The task wants the last one before the end.",
)
_add(
    "itself",
    {"range(len(text) - size - 1, -1, -1)": "range(len(text) - size, -1, -1)"},
    "plausible",
    "The end of the text matches itself, and nothing follows it: look for it before its own place.",
)
_add(
    "match_returned",
    {"text[start + size : start + size + n]": "text[start : start + n]"},
    "plausible",
    "You return the match. What is drafted is what followed it.",
)
_add(
    "no_overlap",
    {"range(len(text) - size - 1, -1, -1)": "range(len(text) - 2 * size, -1, -1)"},
    "plausible",
    "An occurrence may overlap with the end of the text, as in a run of equal tokens.",
)
_add(
    "full_drafts_only",
    {
        "text[start : start + size] == end": (
            "text[start : start + size] == end and start + size + n <= len(text)"
        )
    },
    "plausible",
    "You pass over occurrences that fewer than n tokens follow: take them, and draft fewer.",
)
_add(
    "longest_only",
    {"range(min(longest, len(text) - 1), 0, -1)": "[min(longest, len(text) - 1)]"},
    "plausible",
    "You look for a match of the greatest length only. If there is none, try one token less.",
)
_add(
    "longest_left_out",
    {"min(longest, len(text) - 1)": "len(text) - 1"},
    "plausible",
    "A match has at most `longest` tokens: you look for longer ones as well.",
)


def cases(rng: random.Random) -> list[Case]:
    """No match; one and several; overlapping ones; the beginning of the text; fewer than n tokens
    behind; the longest match one longer and one shorter than allowed."""
    run = [4] * 6
    far = [7, 8, 9, 1, *range(10, past(512)), 7, 8, 9]
    cut = [1, 2, 3, 4, 5, 9, 2, 3, 4, 6, 1, 2, 3, 4]
    six = [0, 1, 2, 3, 4, 5, 7, 9, 1, 2, 3, 4, 5, 8, 0, 1, 2, 3, 4, 5]
    twice = [*range(300), 7, *range(1, 300), 8, *range(300)]
    fresh = [[rng.randrange(4) for _ in range(rng.randrange(12, 30))] for _ in range(4)]
    return [
        Case("one match", ([1, 2, 3, 9, 1, 2], 2, 3)),
        Case("no match, but in the text before", ([5, 6, 7, 8, 0, 4, 9, 1], 2, 3)),
        Case("no match", ([1, 2, 3, 4], 3, 3)),
        Case("a match of one token", ([5, 1, 5, 2, 7, 5], 2, 4)),
        Case("two matches, the last counts", ([1, 2, 8, 1, 2, 9, 1, 2], 2, 2)),
        Case("a longer match further back", ([6, 1, 2, 8, 3, 2, 9, 6, 1, 2], 2, 3)),
        Case("a longer match than allowed", (cut, 2, 3)),
        Case("the longest match that is allowed", (cut, 2, 4)),
        Case("longest = 1", (cut, 3, 1)),
        Case("a run of equal tokens", (run, 3, 3)),
        Case("a run, longer matches than tokens", (run, 3, 10)),
        Case("fewer than n tokens follow", ([1, 2, 3, 1, 2], 6, 2)),
        Case("a match near the end beats a full one", ([3, 1, 2, 3, 4, 3, 3], 4, 2)),
        Case("at the beginning of the text", ([7, 8, 1, 2, 7, 8], 3, 4)),
        Case("the whole text but one token", ([5, 5], 1, 4)),
        Case("one token: nothing before it", ([5], 2, 4)),
        Case("n = 1", ([1, 2, 3, 9, 1, 2], 1, 3)),
        Case("n = 0", ([1, 2, 3, 9, 1, 2], 0, 3)),
        Case("a match 500 tokens back", (far, 5, 8)),
        Case("much drafted", (far, past(512), 8)),
        Case("a match of 300 tokens", ([*range(300), 7, *range(300)], 2, past(256))),
        Case("digits that are alike in a row", ([11, 2, 5, 1, 12], 2, 2)),
        Case("a match of six tokens, and a later one of five", (six, 2, 8)),
        Case("a match 2,000 tokens back", ([1, 2, 9, *[3] * past(2048), 1, 2], 1, 4)),
        Case("token 0", ([0, 4, 0, 0, 4], 2, 2)),
        Case("token 0 alone", ([0, 7, 0], 2, 1)),
        Case("a token 65,536 above another", ([1, 8, 65_537, 9, 1], 1, 1)),
        Case("a match of 300 tokens, and a later one of 299", (twice, 1, 300)),
        *(Case(f"fresh {i + 1}", (t, 3, 4), public=i < 2) for i, t in enumerate(fresh)),
    ]


EXERCISE = Exercise(
    id="speculative_decoding-lookup",
    title="The text drafts itself",
    kind="kernel",
    points=3,
    minutes=15,
    entries=("lookup",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Two loops: over the length of the match, from the longest down; over where it begins.",
        (
            "The end itself begins at len(text) − size: earlier ones begin at"
            " len(text) − size − 1 or before."
        ),
        (
            "Go through the beginnings from the last to the first; at the first hit return text["
            "start + size : start + size + n]."
        ),
    ),
    recall=(
        "For which texts does prompt lookup draft well?",
        "For those that repeat what was said: summaries, edits of code, answers that quote.",
    ),
    ranges={"n": (0, 521), "longest": (1, 300)},
)
