"""paging-attention: a new token of each sequence attends to keys and values that lie in blocks."""

from __future__ import annotations

import math
import random

import torch

from twophase.checks.compare import Tolerance
from twophase.checks.edges import crossed, past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.kv_cache._data import normal
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Tensor = torch.Tensor


def reference(
    q: Tensor, keys: Tensor, values: Tensor, tables: list[list[int]], lengths: list[int]
) -> Tensor:
    """The right answer."""
    N, H = q.shape[1:]
    size, K = keys.shape[1:3]
    head = torch.arange(N) // (N // K)  # [N]: the KV head that each query head reads
    out = torch.empty_like(q)
    for b, n in enumerate(lengths):
        blocks = torch.tensor(tables[b][: -(-n // size)])  # [blocks]
        k, v = (held[blocks].flatten(0, 1)[:n, head] for held in (keys, values))  # [n, N, H]
        scores = torch.einsum("nh,snh->ns", q[b], k) / math.sqrt(H)  # [N, n]
        weights = scores.softmax(-1)  # [N, n]
        out[b] = torch.einsum("ns,snh->nh", weights, v)  # [N, H]
    return out


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "places_behind_the_end",
    {"[:n, head]": "[:, head]"},
    "plausible",
    "You read the whole last block. Its places behind the end hold what somebody left there: take"
    " the first lengths[b] places.",
)
_add(
    "empty_places_weighed_with_zero",
    {
        "[:n, head]": "[:, head]",
        "        weights = scores": "        scores[:, n:] = -math.inf\n        weights = scores",
    },
    "a mask, where places are not cleared",
    "You mask the empty places. But 0 times NaN is NaN: what lies there may not be multiplied at"
    " all.",
)
_add(
    "in_one_piece",
    {"torch.tensor(tables[b][: -(-n // size)])": "tables[b][0] + torch.arange(-(-n // size))"},
    "a contiguous cache",
    "You read on behind the first block. The next one is named by the table.",
)
_add(
    "blocks_sorted",
    {"tables[b][: -(-n // size)]": "sorted(tables[b][: -(-n // size)])"},
    "plausible",
    "You read the blocks in the order of their numbers: the last block of the sequence, which is"
    " not full, may have the lowest.",
)
_add(
    "last_block_left_out",
    {"tables[b][: -(-n // size)]": "tables[b][: max(1, n // size)]"},
    "plausible",
    "A last block that is not full was left out: round the number of blocks up.",
)
_add(
    "one_table_for_all",
    {"tables[b]": "tables[0]"},
    "plausible",
    "All your sequences read the first one's blocks: each has a table of its own.",
)
_add(
    "one_length_for_all",
    {"[:n, head]": "[: min(lengths), head]"},
    "plausible",
    "You cut all sequences to the length of the shortest: each has its own.",
)
_add(
    "heads_in_turn",
    {"torch.arange(N) // (N // K)": "torch.arange(N) % K"},
    "h % K for h // G; torch.Tensor.repeat for repeat_interleave",
    "Query head n was given KV head n % K. Heads of one group are neighbors: it is n // (N // K).",
)
_add(
    "not_scaled",
    {" / math.sqrt(H)": ""},
    "plausible",
    "The scores are not divided by √H: softmax becomes too sharp.",
)
_add(
    "overflows",
    {"scores.softmax(-1)": "scores.exp() / scores.exp().sum(-1, keepdim=True)"},
    "softmax written as exp over sum",
    "Large scores overflow in the exponential: subtract each head's largest score first, as"
    " torch.softmax does.",
)
_add(
    "scores_in_float32",
    {"weights = scores.softmax(-1)": "weights = scores.float().softmax(-1).to(q.dtype)"},
    "a softmax “in fp32”, written for half precision",
    "You compute scores of float64 in float32: large ones that lie close together become the same."
    " Compute in the dtype of q.",
)
_add(
    "a_finite_mask",
    {
        "[:n, head]": "[:, head].nan_to_num(0)",
        "        weights = scores": "        scores[:, n:] = -1e4\n        weights = scores",
    },
    "a mask of −10,000 in place of −∞",
    "You mask with a large negative number. Scores may be lower than any number that you choose:"
    " leave the empty places out, or mask with -inf.",
)
_add(
    "in_float32",
    {"    return out": "    return out.float()"},
    "plausible",
    "The answer has another dtype than the queries.",
)

Sizes = tuple[int, int, int, int, int]  # N, K, H, block size, blocks of the pool


def made(
    rng: random.Random,
    sizes: Sizes,
    tables: list[list[int]],
    lengths: list[int],
    dtype: str = "float32",
    left: float = math.nan,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor, list[list[int]], list[int]]:
    """A pool in which places of no sequence hold `left`, and queries `scale` times as long."""
    N, K, H, size, n_blocks = sizes
    q = scale * normal(rng, len(lengths), N, H, dtype=dtype)
    keys, values = (normal(rng, n_blocks, size, K, H, dtype=dtype) for _ in range(2))
    held = torch.zeros(n_blocks * size, dtype=torch.bool)
    for table, n in zip(tables, lengths, strict=True):
        for p in range(n):
            held[table[p // size] * size + p % size] = True
    for pool in (keys, values):
        pool.view(n_blocks * size, K, H)[~held] = left
    return q, keys, values, tables, lengths


def low(
    r: random.Random, scale: float
) -> tuple[Tensor, Tensor, Tensor, list[list[int]], list[int]]:
    """Scores all far below zero: some −`scale`."""
    q, keys, *others = made(r, (2, 1, 4, 4, 8), [[6, 1], [4]], [7, 2], scale=scale)
    return q.abs(), -keys.abs(), *others  # type: ignore[return-value]


def close(r: random.Random) -> tuple[Tensor, Tensor, Tensor, list[list[int]], list[int]]:
    """Scores in float64 of some 10 million, ones apart: float32 cannot tell them."""
    q, keys, *others = made(r, (2, 1, 4, 4, 8), [[6, 1], [4]], [7, 2], dtype="float64")
    return q, keys + 1e8, *others  # type: ignore[return-value]


def alone() -> list[Case]:
    """Two sequences in blocks that hold numbers everywhere, and the same with one of the arguments
    changed, for each of them."""
    sizes, r = (2, 1, 4, 2, 4), random.Random(17)
    one, other = (
        Case(
            "two sequences, their blocks full of numbers", (*made(r, sizes, tables, [4, 4])[:4], n)
        )
        for tables, n in (([[3, 0], [1, 2]], [3, 4]), ([[1, 2], [3, 0]], [4, 3]))
    )
    parts = "queries", "keys", "values", "tables", "lengths"
    return crossed(one, other, *(f"other {part}" for part in parts))


def cases(rng: random.Random) -> list[Case]:
    """Lengths that are multiples of the block and their neighbors; blocks in no order, shared,
    reserved; equal heads, groups, one KV head; NaN, infinity and numbers where nothing
    lies; each argument changed; scores large, far below zero, close together; float64; a sequence,
    a batch and a block past every constant."""
    long, many, r = past(5000), past(256), random.Random(16)
    small = (2, 1, 4, 4, 8)
    fixed: dict[str, tuple[Sizes, list[list[int]], list[int], dict[str, object]]] = {
        "one sequence, one block": (small, [[3]], [4], {}),
        "a block that is not full": (small, [[3]], [3], {}),
        "one token": (small, [[5]], [1], {}),
        "two blocks, in no order": (small, [[6, 1]], [8], {}),
        "two blocks, the last with one token": (small, [[6, 1]], [5], {}),
        "zeros where nothing lies": (small, [[6, 1]], [5], {"left": 0.0}),
        "numbers where nothing lies": (small, [[6, 1], [0]], [6, 2], {"left": 9.0}),
        # whoever cleans NaN alone, or seeks the largest score in all places, is wrong here
        "infinity where nothing lies": (small, [[6, 1], [0]], [6, 2], {"left": math.inf}),
        "minus infinity where nothing lies": (small, [[6, 1], [0]], [6, 2], {"left": -math.inf}),
        "large numbers where nothing lies": (small, [[6, 1], [0]], [6, 2], {"left": 1e30}),
        "two sequences": (small, [[6, 1], [4]], [7, 2], {}),
        "the shorter first": (small, [[4], [6, 1, 0]], [2, 12], {}),
        "a shared block": (small, [[2, 5], [2, 7, 0]], [6, 9], {}),
        "the same table twice": (small, [[2, 5], [2, 5]], [7, 7], {}),
        "reserved blocks": (small, [[2, 5, 7], [1, 4]], [6, 3], {}),
        "more query heads than KV heads": ((6, 2, 3, 4, 6), [[5, 0], [3]], [7, 4], {}),
        "as many query heads as KV heads": ((3, 3, 2, 2, 6), [[5, 0, 2], [3]], [6, 1], {}),
        "three KV heads, groups of four": ((12, 3, 2, 2, 6), [[5, 0, 2], [3]], [5, 2], {}),
        "one head of width 1": ((1, 1, 1, 2, 6), [[5, 0, 2], [3]], [5, 2], {}),
        "blocks of one token": ((2, 1, 4, 1, 9), [[8, 0, 4], [3]], [3, 1], {}),
        "blocks of three": ((2, 1, 4, 3, 9), [[8, 0, 4], [3]], [8, 3], {}),
        "scores of some thousands": (small, [[6, 1, 0], [4]], [11, 2], {"scale": 3000.0}),
        "float64": (small, [[6, 1], [4]], [7, 2], {"dtype": "float64"}),
        "float64, more heads": ((6, 2, 3, 4, 6), [[5, 0], [3]], [7, 4], {"dtype": "float64"}),
        f"{long} tokens": ((1, 1, 2, 16, 314), [[*range(312, -1, -1)]], [long], {}),
        f"{many} sequences": (
            (1, 1, 2, 1, many),
            [[b] for b in range(many - 1, -1, -1)],
            [1] * many,
            {},
        ),
        f"blocks of {many}": ((1, 1, 2, many, 3), [[2, 0]], [many + 3], {}),
        f"{past(64)} heads": ((past(64), 1, 2, 2, 3), [[2, 0]], [3], {}),
        f"heads of width {past(256)}": ((2, 1, past(256), 2, 3), [[2, 0]], [3], {}),
    }
    fresh = []
    for _ in range(4):
        K, size = rng.randrange(1, 4), rng.randrange(1, 9)
        lengths = [rng.randrange(1, 30) for _ in range(3)]
        blocks = iter(rng.sample(range(100), 100))
        tables = [[next(blocks) for _ in range(-(-n // size))] for n in lengths]
        fresh.append(((K * rng.randrange(1, 4), K, 4, size, 100), tables, lengths))
    return [
        *(Case(name, made(r, *args, **how)) for name, (*args, how) in fixed.items()),  # type: ignore[arg-type]
        *alone(),
        Case("scores far below zero", low(r, 1e10)),
        Case("scores of less than any mask but -inf", low(r, 1e33)),
        Case("large scores close together, float64", close(r)),
        *(Case(f"fresh {i + 1}", made(rng, *args), public=i < 1) for i, args in enumerate(fresh)),
    ]


EXERCISE = Exercise(
    id="paging-attention",
    title="Attention over pages",
    kind="kernel",
    points=5,
    minutes=12,
    entries=("attend",),
    cases=cases,
    reference=reference,
    compare=Tolerance(
        rtol=1e-4, atol=1e-5, dtype=True, why="sums of products in float32, in another order"
    ),
    misconceptions=tuple(wrong),
    hints=(
        "Take one sequence. Which blocks hold its tokens, and how many places of the last one?",
        (
            "keys[blocks].flatten(0, 1)[:n] are its keys in order, [n, K, H], if blocks are the"
            " first ceil(n / block_size) of its table."
        ),
        (
            "Query head i reads KV head i // (N // K). Scores: q·k / √H; softmax over the n tokens;"
            " sum of weights times values."
        ),
    ),
    recall=(
        "Why is a mask of weights 0 not enough for the empty places of a last block?",
        "What lies there may be NaN or infinite, and 0 times that is NaN.",
    ),
)
