"""pruning-cut_heads: query heads go, with their rows and columns, and the KV heads that nobody
reads any more."""

from __future__ import annotations

import random
from dataclasses import replace

import torch

from twophase.checks.compare import Tolerance
from twophase.checks.edges import crossed, past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Tensor = torch.Tensor
Four = tuple[Tensor, Tensor, Tensor, Tensor]


def reference(q: Tensor, k: Tensor, v: Tensor, o: Tensor, H: int, kept: list[int]) -> Four:
    """The right answer."""
    N, K = len(q) // H, len(k) // H
    read = sorted({n // (N // K) for n in kept})
    rows = torch.tensor([n * H + h for n in kept for h in range(H)])
    kv_rows = torch.tensor([n * H + h for n in read for h in range(H)])
    return q[rows], k[kv_rows], v[kv_rows], o[:, rows]


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "output_left_whole",
    {"o[:, rows]": "o"},
    "plausible",
    "The output projection still has columns for heads that are gone: cut its columns like the"
    " query's rows.",
)
_add(
    "output_rows_cut",
    {"o[:, rows]": "o[rows[rows < len(o)]]"},
    "plausible",
    "You cut rows of the output projection: these are the stream's numbers. Heads are its columns.",
)
_add(
    "kv_left_whole",
    {"sorted({n // (N // K) for n in kept})": "list(range(K))"},
    "plausible",
    "KV heads that no kept query head reads go as well, with their rows in both matrices.",
)
_add(
    "keys_cut_values_not",
    {"k[kv_rows], v[kv_rows]": "k[kv_rows], v"},
    "plausible",
    "You cut the keys only: values have the same heads.",
)
_add(
    "heads_in_turn",
    {"n // (N // K) for n": "n % K for n"},
    "h % K for h // G",
    "Query head n reads KV head n // G with G = N // K, not n % K.",
)
_add(
    "rows_in_turn",
    {"n * H + h for n in kept for h in range(H)": "n + N * h for n in kept for h in range(H)"}
    | {"n * H + h for n in read for h in range(H)": "n + K * h for n in read for h in range(H)"},
    "view(H, N) for view(N, H)",
    "Head n has the rows n·H to (n + 1)·H, one behind the other.",
)
_add(
    "the_others_kept",
    {
        "N, K = len(q) // H, len(k) // H": (
            "N, K = len(q) // H, len(k) // H\n    kept = [n for n in range(N) if n"
            " not in kept] or kept"
        )
    },
    "plausible",
    "You cut the heads that should stay.",
)
_add(
    "head_counts_as_a_row",
    {"n * H + h for n in kept for h in range(H)": "n for n in kept"},
    "plausible",
    "A head has H rows, not one.",
)


def _case(
    rng: random.Random,
    N: int,
    K: int,
    H: int,
    D: int,
    kept: list[int],
    dtype: torch.dtype = torch.float32,
    says: str = "",
    public: bool = True,
) -> Case:
    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def matrix(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator, dtype=torch.float64).to(dtype)

    weights = matrix(N * H, D), matrix(K * H, D), matrix(K * H, D), matrix(D, N * H)
    name = f"N={N}, K={K}, H={H}, D={D}, {len(kept)} kept: {kept[:8]}, {dtype}{says}"
    return Case(name.replace("torch.", ""), (*weights, H, kept), public=public)


def _one_other() -> list[Case]:
    """The same but for one argument: the matrices hold four heads of width 2 as well as two of
    width 4."""
    rng = random.Random(4)
    one, other = _case(rng, 4, 2, 2, 3, [1]), _case(rng, 2, 1, 4, 3, [0])
    one = replace(one, name="one of four heads")
    what = (
        "other queries",
        "other keys",
        "other values",
        "another output",
        "twice as wide",
        "another head",
    )
    return crossed(one, other, *what)


def cases(rng: random.Random) -> list[Case]:
    """Heads of every kind: one KV head for each, for a group, for all; whole groups and parts of
    them gone; nothing gone; one head left; each width like no other."""
    fixed = random.Random(13)
    wide = past(256)
    fresh = sorted(rng.sample(range(4), 2))
    return [
        _case(fixed, 4, 4, 2, 3, [0, 2]),
        # of the same sizes: whoever keeps results by shape is wrong here
        _case(fixed, 4, 4, 2, 3, [0, 2], says=", other numbers"),
        *_one_other(),
        _case(fixed, 4, 2, 2, 5, [0, 1]),
        _case(fixed, 4, 2, 3, 5, [2, 3]),
        _case(fixed, 6, 2, 2, 7, [1, 2, 3, 5]),
        _case(fixed, 6, 3, 2, 16, [0, 1, 4, 5]),
        _case(fixed, 8, 4, 2, 3, [1, 7]),
        _case(fixed, 4, 1, 2, 9, [3]),
        _case(fixed, 6, 3, 1, 5, [0, 3, 4]),
        _case(fixed, 4, 2, 2, 8, [0, 1, 2, 3]),
        _case(fixed, 1, 1, 4, 3, [0]),
        _case(fixed, 6, 2, 5, 4, [0, 1, 2], torch.float16),
        _case(fixed, 6, 2, 5, 4, [0, 5], torch.bfloat16),
        _case(fixed, 6, 2, 5, 4, [4], torch.float64),
        _case(fixed, 4, 2, wide, 2, [1, 3]),
        _case(fixed, 2 * wide, wide, 1, 2, [2, 3, 2 * wide - 1]),
        _case(fixed, 4, 2, 2, wide, [1, 2]),
        _case(fixed, 2 * wide, wide, 1, 2, [*range(3, 2 * wide)]),
        _case(rng, 8, 2, 3, 5, [*fresh, *(n + 4 for n in fresh)]),
        _case(rng, 8, 2, 3, 5, fresh, public=False),
    ]


EXERCISE = Exercise(
    id="pruning-cut_heads",
    title="Heads, rows and columns",
    kind="kernel",
    points=4,
    minutes=20,
    entries=("cut_heads",),
    cases=cases,
    reference=reference,
    compare=Tolerance(rtol=0.0, atol=0.0, dtype=True, why="weights are taken, not computed"),
    misconceptions=tuple(wrong),
    hints=(
        "Which rows of the query's matrix are head n's? And which part of the output's?",
        (
            "Rows n·H to (n + 1)·H of q; the same columns of o. KV head j has the rows j·H to"
            " (j + 1)·H of k and of v."
        ),
        "The KV heads that stay: sorted({n // G for n in kept}), with G = N // K.",
    ),
    recall=(
        "A query head is cut. Which matrices lose what?",
        "The query's H rows, the output's H columns; keys and values H rows only if no other head"
        " reads them.",
    ),
)
