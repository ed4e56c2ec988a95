"""continuous_batching-ragged: attention over one row of tokens of several requests."""

from __future__ import annotations

import math
import random

import torch

from twophase.checks.compare import Tolerance
from twophase.checks.edges import crossed, past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Tensor = torch.Tensor
Caches = list[tuple[Tensor, Tensor]]


def reference(q: Tensor, k: Tensor, v: Tensor, caches: Caches, n_new: list[int]) -> Tensor:
    """The right answer."""
    out = torch.empty_like(q)  # [n, N, H]
    G, first = q.shape[1] // k.shape[1], 0
    for (held_k, held_v), n in zip(caches, n_new, strict=True):
        row = slice(first, first + n)
        first += n
        keys, values = torch.cat([held_k, k[row]]), torch.cat([held_v, v[row]])  # [S, K, H]
        keys, values = keys.repeat_interleave(G, 1), values.repeat_interleave(G, 1)  # [S, N, H]
        scores = torch.einsum("tnh,snh->nts", q[row], keys) / math.sqrt(q.shape[2])
        last = len(held_k) + torch.arange(n)[:, None]  # [n, 1]: the last key that token t sees
        hidden = torch.arange(len(keys)) > last  # [n, S]
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1)  # [N, n, S]
        out[row] = torch.einsum("nts,snh->tnh", weights, values)
    return out


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "no_mask",
    {"hidden = torch.arange(len(keys)) > last": "hidden = torch.zeros(n, len(keys)).bool()"},
    "decode code used for a chunk",
    "The tokens of a chunk see each other's future: new token t sees what the cache holds and the"
    " new ones up to itself.",
)
_add(
    "mask_top_left",
    {"last = len(held_k) + torch.arange(n)": "last = torch.arange(n)"},
    "F.scaled_dot_product_attention(is_causal=True) over a cache",
    "Your mask forgets that the cache stands before the new tokens: all of it is seen.",
)
_add(
    "itself_hidden",
    {"last = len(held_k) + torch.arange(n)": "last = len(held_k) - 1 + torch.arange(n)"},
    "plausible",
    "A token sees itself as well; without a cache the first one would have nothing to look at.",
)
_add(
    "one_request_for_all",
    {
        "keys, values = torch.cat([held_k, k[row]]), torch.cat([held_v, v[row]])": (
            "held_k = torch.cat([held_k, k[: row.start]])\n"
            "        held_v = torch.cat([held_v, v[: row.start]])\n"
            "        keys, values = torch.cat([held_k, k[row]]), torch.cat([held_v, v[row]])"
        )
    },
    "one causal mask over the whole row",
    "A request sees tokens of those before it in the row. The row is one for products; attention"
    " goes request by request.",
)
_add(
    "caches_in_another_order",
    {"zip(caches, n_new, strict=True)": "zip(caches[::-1], n_new, strict=True)"},
    "plausible",
    "You gave a request another one's cache: request i has caches[i].",
)
_add(
    "rows_of_one_length",
    {
        "zip(caches, n_new, strict=True):": (
            "zip(caches, n_new, strict=True):\n        first = min(first, max(0, len(q) - n))"
        ),
        "first += n": "first += max(n_new)",
        "torch.empty_like(q)": "torch.zeros_like(q)",
    },
    "padded batches",
    "You step through the row by the longest chunk: nothing is padded here, request i's tokens"
    " follow right behind those of the one before.",
)
_add(
    "heads_in_turn",
    {
        "keys.repeat_interleave(G, 1), values.repeat_interleave(G, 1)": (
            "keys.repeat(1, G, 1), values.repeat(1, G, 1)"
        )
    },
    "torch.Tensor.repeat for repeat_interleave",
    "Query head h was given KV head h % K. Heads of one group are neighbors: it is h // G.",
)
_add(
    "not_scaled",
    {" / math.sqrt(q.shape[2])": ""},
    "plausible",
    "The scores are not divided by √H: softmax becomes too sharp.",
)
_add(
    "new_tokens_not_seen",
    {
        "last = len(held_k) + torch.arange(n)[:, None]": (
            "last = torch.full((n, 1), len(held_k) - 1 if len(held_k) else n)"
        )
    },
    "plausible",
    "The new tokens see the cache only: they see each other as well, up to themselves.",
)
_add(
    "values_not_kept",
    {"torch.cat([held_v, v[row]])": "torch.cat([held_v, k[row]])"},
    "plausible",
    "You put the new keys behind the values of the cache.",
)


_add(
    "masked_at_minus_100",
    {"masked_fill(hidden, -math.inf)": "masked_fill(hidden, -100.0)"},
    "masks of −100 for −inf",
    "You hide a key with a score of −100. Where all scores that are seen lie below that, the hidden"
    " keys get the weight: use −inf.",
)


def _normal(rng: random.Random, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    return torch.randn(*shape, generator=generator)


def _case(
    rng: random.Random,
    name: str,
    starts: list[int],
    n_new: list[int],
    N: int = 4,
    K: int = 2,
    H: int = 3,
    by: float = 1.0,
    public: bool = True,
) -> Case:
    n = sum(n_new)
    caches = [(_normal(rng, S, K, H), _normal(rng, S, K, H)) for S in starts]
    row = by * _normal(rng, n, N, H), _normal(rng, n, K, H), _normal(rng, n, K, H)
    return Case(name, (*row, caches, n_new), public=public)


def _large() -> Case:
    """Scores of some hundreds. In every row the largest stands so clear of the next that it makes
    no difference how they are rounded."""
    case = _case(random.Random(23), "large scores", [4, 2], [3, 2], by=300.0)
    q, *others = case.args
    assert torch.allclose(reference(q, *others), reference(0.99 * q, *others), atol=1e-6)
    return case


def _hidden() -> tuple[Tensor, Tensor, Tensor, list[tuple[Tensor, Tensor]], list[int]]:
    """A prompt of two tokens: the first one's query finds 0 in its own key and 2 million in the
    second's, which it must not see. A mask of -100 or -10,000 is none; exact in float32."""
    q = torch.tensor([[[2000.0, 0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0, 0.0]]])  # [2, N=1, H=4]
    k = torch.tensor([[[0.0, 1.0, 0.0, 0.0]], [[2000.0, 0.0, 0.0, 0.0]]])  # [2, K=1, H=4]
    v = torch.tensor([[[1.0, 2.0, 3.0, 4.0]], [[5.0, 6.0, 7.0, 8.0]]])  # [2, K=1, H=4]
    return q, k, v, [(torch.zeros(0, 1, 4), torch.zeros(0, 1, 4))], [2]


def _far_below(
    score: float,
) -> tuple[Tensor, Tensor, Tensor, list[tuple[Tensor, Tensor]], list[int]]:
    """The same prompt, whose first query finds that score in its own key: a hidden key whose score
    is set to -100, or to any finite number that is larger, gets all of the weight."""
    q, k, v, caches, n_new = _hidden()
    k = torch.tensor([[[score / 1000.0, 0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0, 0.0]]])  # [2, K=1, H=4]
    return q, k, v, caches, n_new


def _alone() -> list[Case]:
    """A pass, and the same with one of its arguments changed, for each of them."""
    r = random.Random(15)
    one = _case(r, "one decodes, one reads two tokens", [2, 1], [1, 2])
    other = _case(r, "one reads two tokens, one decodes", [2, 1], [2, 1])
    parts = "queries", "keys", "values", "caches", "shares of the row"
    *row, caches, n_new = one.args
    return [
        *crossed(one, other, *(f"other {part}" for part in parts)),
        Case(f"{one.name}, the caches change places", (*row, caches[::-1], n_new)),
    ]


def cases(rng: random.Random) -> list[Case]:
    """One token, one request, decoding, prompts, both mixed; each argument changed; nothing new for
    some and for all; one KV head and as many as query heads; large scores; more of each size than
    any constant."""
    many = [i % 3 for i in range(past(256))]
    return [
        _case(rng, "one request, one token", [0], [1], N=1, K=1, H=2),
        _case(rng, "one request decodes", [3], [1], N=2, K=1),
        # of the same sizes: whoever keeps results by shape is wrong here
        _case(rng, "one request decodes, other numbers", [3], [1], N=2, K=1),
        _case(rng, "two requests decode", [3, 1], [1, 1]),
        *_alone(),
        _case(rng, "one prompt", [0], [4]),
        _case(rng, "two prompts", [0, 0], [2, 4]),
        _case(rng, "one decodes, one prompt, one chunk", [5, 0, 3], [1, 3, 2]),
        _case(rng, "a chunk first, then two decode", [2, 4, 1], [3, 1, 1]),
        _case(
            rng,
            "nothing new for the first, a middle one and the last",
            [2, 3, 1, 0, 2],
            [0, 2, 0, 1, 0],
        ),
        _case(rng, "nothing new for anybody", [2, 1], [0, 0]),
        _case(rng, "nothing new and nothing held", [0, 2], [0, 1]),
        _case(rng, "as many KV heads as query heads", [2, 0], [1, 2], N=3, K=3),
        _case(rng, "six query heads, three KV heads", [2, 1], [2, 1], N=6, K=3),
        _case(rng, "one KV head for eight", [2, 1], [2, 1], N=8, K=1, H=5),
        _large(),
        Case("what is hidden would win by 2 million", _hidden()),
        Case("what is seen has scores of −20,000", _far_below(-2e4)),
        Case("what is seen has scores of −10 billion", _far_below(-1e10)),
        Case("what is seen has scores of −1e32", _far_below(-1e32)),
        _case(random.Random(1), "heads of one number", [0, 2], [2, 1], N=2, K=1, H=1),
        _case(rng, "a long cache, and a short one", [past(2048), 1], [1, 2], N=2, K=1, H=2),
        _case(rng, "a chunk of 331 tokens", [2], [331], N=2, K=1, H=2),
        _case(rng, "257 requests", many, [*many[1:], 2], N=2, K=1, H=2),
        _case(rng, "wide heads", [1, 2], [1, 1], N=2, K=1, H=past(256)),
        _case(rng, "many heads", [1, 2], [1, 2], N=past(256), K=1, H=2),
        _case(rng, "fresh 1", [rng.randrange(6) for _ in range(4)], [1, 3, rng.randrange(1, 5), 1]),
        _case(
            rng,
            "fresh 2",
            [rng.randrange(6) for _ in range(4)],
            [rng.randrange(4) for _ in range(3)] + [2],
            N=6,
            K=2,
            H=4,
            public=False,
        ),
    ]


EXERCISE = Exercise(
    id="continuous_batching-ragged",
    title="One row of tokens, each its own past",
    kind="kernel",
    points=4,
    minutes=18,
    entries=("ragged_attention",),
    cases=cases,
    reference=reference,
    compare=Tolerance(
        rtol=1e-4,
        atol=1e-5,
        dtype=True,
        why="fp32 sums in another order differ by 1e-6; wrong answers by 1e-3 and more",
    ),
    misconceptions=tuple(wrong),
    hints=(
        "Which rows of q belong to request i? Keep a counter that moves by n_new[i].",
        (
            "Its keys: torch.cat([cache, new ones]). New token t sees len(cache) + t + 1 of them."
            " Query head h reads KV head h // (N // K)."
        ),
        (
            'scores = einsum("tnh,snh->nts", q[row], keys) / √H; hide keys s > len(cache) + t;'
            " softmax over s; times the values, back into out[row]."
        ),
    ),
    recall=(
        "In a pass over 3 requests with 1, 500 and 1 new tokens: how many rows has the MLP's"
        " product, and how many would a padded batch have?",
        "502, and 1,500.",
    ),
)
