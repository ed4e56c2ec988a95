"""speculative_decoding-tree_mask: which tokens of a tree see which, and where they stand."""

from __future__ import annotations

import random

import torch

from twophase.checks.compare import EXACT
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Tensor = torch.Tensor


def reference(parents: list[int], n_cached: int) -> tuple[Tensor, list[int]]:
    """The right answer."""
    n = len(parents)
    mask = torch.zeros(n, n_cached + n, dtype=torch.bool)
    positions = []
    for i, parent in enumerate(parents):
        if parent < 0:
            mask[i, :n_cached] = True
            positions.append(n_cached)
        else:
            mask[i] = mask[parent]
            positions.append(positions[parent] + 1)
        mask[i, n_cached + i] = True
    return mask, positions


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "causal",
    {"        mask[i, n_cached + i] = True": "        mask[i, : n_cached + i + 1] = True"},
    "the causal mask, used for a tree",
    "Each token sees everything before it, its siblings too: it must see its own way up only.",
)
_add(
    "itself_hidden",
    {"        mask[i, n_cached + i] = True": "        mask[i, n_cached + i] = parent == -2"}
    | {"mask[i] = mask[parent]": "mask[i] = mask[parent]; mask[i, n_cached + parent] = True"},
    "plausible",
    "A token sees itself as well.",
)
_add(
    "parent_only",
    {"mask[i] = mask[parent]": "mask[i, :n_cached] = True; mask[i, n_cached + parent] = True"},
    "plausible",
    "A token sees its parent, but not its parent's parents: take all that the parent sees.",
)
_add(
    "text_hidden",
    {"mask[i, :n_cached] = True": "pass"},
    "plausible",
    "The cached text is hidden: every token of the tree sees all of it.",
)
_add(
    "positions_in_order",
    {"positions[parent] + 1": "n_cached + i"},
    "position ids counted through",
    "You number the tokens as they are listed. Siblings stand at the same position: one behind"
    " their parent.",
)
_add(
    "positions_from_zero",
    {"positions.append(n_cached)": "positions.append(0)"},
    "plausible",
    "Positions go on from the text: a token without a parent stands at n_cached.",
)
_add(
    "seen_from_above",
    {
        "    return mask, positions": (
            "    tree = mask[:, n_cached:].T.clone()\n    mask[:, n_cached:] ="
            " tree\n    return mask, positions"
        )
    },
    "rows and columns exchanged",
    "Parents see their children: row i says what token i sees.",
)


def _tree(rng: random.Random, n: int) -> list[int]:
    return [rng.randrange(-1, i) for i in range(n)]


def cases(rng: random.Random) -> list[Case]:
    """Chains, siblings, trees, several roots; no text; more tokens than any table."""
    fixed = random.Random(14)
    n = past(256)
    return [
        Case("a chain", ([-1, 0, 1], 2)),
        # of the same length: whoever keeps results by that is wrong here
        Case("three tokens that are no chain", ([-1, 0, 0], 2)),
        Case("two ways, one of two tokens", ([-1, 0, -1], 2)),
        # the same parents: whoever keeps results by these without their order is wrong here
        Case("the same tree, listed in another order", ([-1, -1, 0], 2)),
        Case("two that follow the text", ([-1, -1], 3)),
        Case("two ways", ([-1, -1, 0, 1], 2)),
        Case("siblings at the second level", ([-1, 0, 0, 1, 1], 4)),
        Case("a tree in depth first order", ([-1, 0, 1, 0, 3, -1, 5], 3)),
        Case("one token", ([-1], 1)),
        Case("no text", ([-1, -1, 0, 2], 0)),
        Case("nothing drafted", ([], 3)),
        Case("a late child of the first", ([-1, -1, -1, -1, 0], 1)),
        Case("257 tokens in a tree", (_tree(fixed, n), 2)),
        Case("257 tokens in a chain", ([*range(-1, n - 1)], 1)),
        Case("a text of 2,053 tokens", ([-1, 0, 0], past(2048))),
        Case("a text of 65,537 tokens", ([-1, 0], past(65536))),
        Case("fresh 1", (_tree(rng, 7), rng.randrange(1, 6))),
        Case("fresh 2", (_tree(rng, 12), rng.randrange(1, 6)), public=False),
    ]


EXERCISE = Exercise(
    id="speculative_decoding-tree_mask",
    title="A tree in one pass",
    kind="kernel",
    points=3,
    minutes=12,
    entries=("tree_mask",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Draw the tree of parents [−1, −1, 0, 1] behind a text of 2: four rows, six columns.",
        "A token sees what its parent sees, and itself; without a parent, the text and itself.",
        (
            "Parents come first in the list: copy the parent's row, set column n_cached + i; its"
            " position is the parent's plus 1."
        ),
    ),
    recall=(
        "Two drafted tokens have the same parent. At which positions do they stand?",
        "At the same one, right behind their parent: neither sees the other.",
    ),
    ranges={"n_cached": (0, 65_537)},
)
