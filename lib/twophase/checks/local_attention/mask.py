"""local_attention-mask: which keys a windowed query sees, for any T ≤ S."""

from __future__ import annotations

import random

import torch

from twophase.checks import edges
from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Tensor = torch.Tensor


def reference(T: int, S: int, window: int) -> Tensor:
    """The right answer."""
    key = torch.arange(S)  # [S]
    place = S - T + torch.arange(T)[:, None]  # [T, 1]: where each query stands in the text
    past = key <= place  # [T, S]
    near = key > place - window  # [T, S]
    return past & near


wrong.add(
    "one_key_too_many",
    replaced(reference, {"place - window": "place - window - 1"}),
    "s >= p − window; the off-by-one of sliding windows",
    "Each query sees one key too many: `window` counts its own key, so it reaches window − 1 back.",
)
wrong.add(
    "one_key_too_few",
    replaced(reference, {"place - window": "place - window + 1"}),
    "plausible",
    "Each query sees one key too few: with its own it should be `window` of them.",
)
wrong.add(
    "own_key_left_out",
    replaced(reference, {"key <= place": "key < place", "place - window": "place - window - 1"}),
    "the cached step that excluded the current token",
    "The window ends before the query's own key: it is the last of those that the query sees.",
)
wrong.add(
    "top_left",
    replaced(reference, {"S - T + torch": "torch"}),
    "masks made for T = S and cut to T rows",
    "You put query 0 at position 0. The T queries are the last of S: query t stands at S − T + t.",
)
wrong.add(
    "top_left_of_blocks",
    replaced(reference, {"S - T + torch": "(0 if T > 1 else S - T) + torch"}),
    "is_causal=T > 1",
    "Right for a prompt and for one token. A block behind cached tokens (1 < T < S) begins at"
    " position S − T.",
)
wrong.add(
    "no_window",
    replaced(reference, {"past & near": "past"}),
    "window ignored where a mask is made",
    "Nothing is hidden on the left: with a window a query sees its last keys only.",
)
wrong.add(
    "sees_ahead",
    replaced(reference, {"past & near": "near"}),
    "plausible",
    "The future is visible: a window hides what is too old, the causal mask what is too new.",
)
wrong.add(
    "both_sides",
    replaced(
        reference,
        {"key <= place": "key < place + window", "past & near": "past & near"},
    ),
    "|p − s| < window, as in encoders",
    "Your window reaches ahead as far as back: in a decoder it ends at the query's own key.",
)
wrong.add(
    "blocks",
    replaced(reference, {"key > place - window": "key // window == place // window"}),
    "chunked attention taken for a sliding window",
    "You cut the text into blocks of `window`, and each query sees its block only: a sliding window"
    " goes with the query.",
)
wrong.add(
    "hidden_for_seen",
    replaced(reference, {"past & near": "~(past & near)"}),
    "masked_fill masks and attn_mask masks mean the opposite",
    "True and False are swapped: here True says that the query sees the key.",
)
wrong.add(
    "numbers_for_truth",
    replaced(reference, {"past & near": "(past & near).float()"}),
    "masks that are multiplied with",
    "The mask has numbers in it: return a bool tensor.",
)
wrong.add(
    "window_of_the_block",
    replaced(reference, {"place - window": "S - T - window"}),
    "plausible",
    "The window's left end is the first query's for all of the block: it moves with each query.",
)


def _named(T: int, S: int, window: int, public: bool = True) -> Case:
    return Case(f"T={T}, S={S}, window={window}", (T, S, window), public=public)


MOST, LONGEST = 1_000, 5_000  # the ends that the task names for T and S
LONG, MANY = edges.past(2048), edges.past(4096)


def cases(rng: random.Random) -> list[Case]:
    """A prompt, a step, a block behind cached tokens; a window of one, just as long as the text,
    one less and longer; longer than any table; then fresh ones."""
    fresh = []
    for i in range(4):
        S = rng.randrange(8, 40)
        T = rng.randrange(2, S)
        fresh.append(_named(T, S, rng.randrange(2, S), public=i < 2))
    return [
        _named(1, 1, 1),
        _named(4, 4, 2),
        _named(1, 6, 3),
        _named(3, 8, 3),
        _named(5, 5, 1),
        _named(2, 6, 1),
        _named(5, 5, 4),
        _named(5, 5, 5),
        _named(5, 5, 6),
        _named(4, 7, 6),
        _named(4, 7, 7),
        _named(4, 7, 9),
        _named(7, 8, 4),
        _named(6, 17, 5),
        _named(6, 18, 5),
        _named(7, 17, 5),
        _named(6, 17, 4),
        _named(1, 17, 20),
        _named(13, 13, 3),
        _named(2, MANY, LONG, public=False),
        _named(1, LONGEST, LONGEST - 1, public=False),
        _named(MOST, MOST + 3, edges.past(64), public=False),
        *fresh,
    ]


EXERCISE = Exercise(
    id="local_attention-mask",
    title="The mask of a window",
    kind="kernel",
    points=3,
    minutes=12,
    entries=("window_mask",),
    cases=cases,
    reference=reference,
    compare=Tolerance(rtol=0.0, atol=0.0, dtype=True, why="a mask is true or false"),
    misconceptions=tuple(wrong),
    hints=(
        "Draw T = 3, S = 8, window = 3 on paper: three rows of eight places, three crosses each.",
        "Query t stands at position p = S − T + t. Its last key is p, its first p − window + 1.",
        (
            "torch.arange(S) as a row, the positions as a column [T, 1]: two comparisons, joined by"
            " &."
        ),
    ),
    ranges={"T": (1, MOST), "S": (1, LONGEST), "window": (1, LONGEST - 1)},
    recall=(
        "A window of 4: how far back does a query look, and how many keys does it see?",
        "Three tokens back; with its own that is four keys.",
    ),
)
