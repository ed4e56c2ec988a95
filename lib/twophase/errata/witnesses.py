"""Facts that no formula gives: what a piece of code does when it runs, what a loop counts, when
something was posted."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from itertools import product
from math import log2
from typing import TYPE_CHECKING

from twophase.errata import rounding
from twophase.errata.batches import (
    longest_wait,
    ragged_error,
    seats_taken_twice,
    served_twice,
    steps_to_serve,
)
from twophase.errata.blocks import (
    beam_share,
    copies_at_parting,
    copies_for_a_prefix,
    count_after_parting,
    places_of_table,
    pool_share,
)
from twophase.errata.speculation import (
    error_of_drawing_again,
    error_of_the_residual,
    snippet_law_error,
    snippet_tokens,
)

# beside what is defined here
__all__ = [
    "beam_share",
    "copies_at_parting",
    "copies_for_a_prefix",
    "count_after_parting",
    "error_of_drawing_again",
    "error_of_the_residual",
    "longest_wait",
    "places_of_table",
    "pool_share",
    "ragged_error",
    "rounding",
    "seats_taken_twice",
    "served_twice",
    "snippet_law_error",
    "snippet_tokens",
    "steps_to_serve",
]

if TYPE_CHECKING:
    import torch


def matmul_flops_by_loop(B: int, D: int, F: int) -> int:
    """FLOPs of [B, D] @ [D, F], one by one: a multiply and an add for every term of every
    output."""
    return sum(2 for _ in product(range(B), range(F), range(D)))


def mlp_flops_by_loop(B: int, T: int, D: int, F: int, gated: bool = True) -> int:
    """FLOPs of the products of an MLP: up, gate if it has one, down."""
    tokens = B * T
    into = matmul_flops_by_loop(tokens, D, F) * (2 if gated else 1)
    return into + matmul_flops_by_loop(tokens, F, D)


def attention_flops_by_loop(B: int, T: int, S: int, N: int, H: int) -> int:
    """FLOPs of scores and weighted values: each query of each head meets each key and each
    value."""
    return sum(2 * H + 2 * H for _ in product(range(B), range(N), range(T), range(S)))


def pairs_by_loop(n_prompt: int, n_output: int) -> int:
    """Query-key pairs that a cached generation computes: each token meets itself and all before
    it."""
    return sum(position + 1 for position in range(n_prompt + n_output))


def growth(cost: Callable[[int], float], n: int) -> float:
    """The exponent with which `cost` grows at n: 1 is linear, 2 quadratic, 3 cubic."""
    return log2(cost(2 * n) / cost(n))


def posted_on(post_id: int) -> str:
    """The day a post on X (Twitter) was made: the upper bits of its id are milliseconds since
    2010-11-04."""
    milliseconds = (post_id >> 22) + 1288834974657
    return datetime.fromtimestamp(milliseconds / 1000, UTC).date().isoformat()


def days_between(day: str, other: str) -> int:
    """Days from one ISO date to another, whichever comes first."""
    return abs((date.fromisoformat(other) - date.fromisoformat(day)).days)


def bytes_of(dtype: str) -> float:
    """Bytes of one number of torch's dtype of that name."""
    import torch

    return float(getattr(torch, dtype).itemsize)


def seconds(clock: str) -> int:
    """ "1:22:52" or "22:52" in seconds."""
    total = 0
    for part in clock.split(":"):
        total = 60 * total + int(part)
    return total


class PreallocatedCache:
    """A cache as the deep dive's snippet has it, in our words: one length for all rows, float32, no
    check of the end."""

    def __init__(self, max_batch: int, max_length: int, heads: int, width: int) -> None:
        import torch

        self.keys = torch.zeros(max_batch, max_length, heads, width)  # [B, S, N, H]
        self.values = torch.zeros_like(self.keys)
        self.length = 0

    def append(
        self, keys: "torch.Tensor", values: "torch.Tensor"
    ) -> tuple["torch.Tensor", "torch.Tensor"]:
        """Write [B, T, N, H] behind what is there; everything so far is returned as views."""
        rows, new = keys.shape[:2]
        end = self.length + new
        self.keys[:rows, self.length : end] = keys
        self.values[:rows, self.length : end] = values
        self.length = end
        return self.keys[:rows, :end], self.values[:rows, :end]


def _tokens(B: int, T: int, first: float = 1.0) -> "torch.Tensor":
    """[B, T, 1, 4], the token at position t filled with first + t."""
    import torch

    return (
        (first + torch.arange(T, dtype=torch.float32)).view(1, T, 1, 1).expand(B, T, 1, 4).clone()
    )


def tokens_lost_past_the_end(max_length: int = 4, n_tokens: int = 6) -> int:
    """Append one token at a time, more than fit: how many are missing from what comes back. No
    error is raised."""
    cache = PreallocatedCache(1, max_length, 1, 4)
    for position in range(n_tokens):
        token = _tokens(1, 1, first=position + 1.0)
        kept, _ = cache.append(token, token)
    seen = {float(v) for v in kept[0, :, 0, 0]}
    return sum(position + 1.0 not in seen for position in range(n_tokens))


def a_block_past_the_end_raises() -> bool:
    """Whether a block of several tokens that only partly fits is refused."""
    cache = PreallocatedCache(1, 4, 1, 4)
    try:
        cache.append(_tokens(1, 6), _tokens(1, 6))
    except RuntimeError:
        return True
    return False


def positions_returned_for_a_short_row(short: int = 2, long: int = 4) -> int:
    """Two prompts of different lengths, padded to one block: positions the cache hands back for the
    short one."""
    cache = PreallocatedCache(2, 8, 1, 4)
    block = _tokens(2, long)
    block[0, short:] = 0
    kept, _ = cache.append(block, block)
    return int(kept[0].shape[0])


def attention_error_of_the_short_row(short: int = 2, long: int = 4) -> float:
    """How far the short row's attention output is off when it attends to its padding too."""
    import torch

    cache = PreallocatedCache(2, 8, 1, 4)
    block = _tokens(2, long)
    block[0, short:] = 0
    keys, values = cache.append(block, block)
    query = torch.full((4,), 0.1)

    def output(k: "torch.Tensor", v: "torch.Tensor") -> "torch.Tensor":
        return torch.softmax(k @ query, 0) @ v  # [S, H] @ [H], then [S] @ [S, H]

    padded = output(keys[0, :, 0], values[0, :, 0])
    alone = output(keys[0, :short, 0], values[0, :short, 0])
    return float((padded - alone).abs().max())


def length_after_one_token(n_layers: int) -> int:
    """One object used by every layer of a model: its length after a single token."""
    cache = PreallocatedCache(1, 64, 1, 4)
    for _ in range(n_layers):
        cache.append(_tokens(1, 1), _tokens(1, 1))
    return cache.length


def bytes_per_cached_value(default: str = "float32") -> int:
    """Bytes of one number in the cache as the snippet allocates it, under torch's default dtype
    `default`."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, default))
    try:
        return PreallocatedCache(1, 1, 1, 4).keys.element_size()
    finally:
        torch.set_default_dtype(before)


def first_key_of_the_second_sequence(the_first_leaves: bool) -> float:
    """Two sequences, the second's first key 101. Then one more token, for both or, row 0 now, for
    the second alone."""
    cache = PreallocatedCache(2, 8, 1, 4)
    both = _tokens(2, 1)
    both[1] += 100
    cache.append(both, both)
    more = both[1:] if the_first_leaves else both
    kept, _ = cache.append(more, more)
    return float(kept[-1, 0, 0, 0])


def keys_of_the_request_before(first: int, new_object: bool) -> int:
    """A request of `first` tokens, then one token of the next: keys of the first request that come
    back with it."""
    cache = PreallocatedCache(1, first + 8, 1, 4)
    old = _tokens(1, first, first=100.0)
    cache.append(old, old)
    if new_object:
        cache = PreallocatedCache(1, first + 8, 1, 4)
    token = _tokens(1, 1)
    kept, _ = cache.append(token, token)
    return int((kept[0, :, 0, 0] >= 100).sum())


def steps_kept_for_a_backward_pass(steps: int, without_gradients: bool) -> int:
    """Keys from a weight that requires gradients, appended step by step: writes that the cache's
    graph still holds."""
    import torch

    cache = PreallocatedCache(1, steps, 1, 4)
    weight = torch.eye(4, requires_grad=True)
    with torch.set_grad_enabled(not without_gradients):
        for _ in range(steps):
            key = _tokens(1, 1) @ weight  # [B, T, N, H] @ [H, H]
            cache.append(key, key)
    writes, node = 0, cache.keys.grad_fn
    while node is not None:
        writes += 1
        node = node.next_functions[0][0]
    return writes


def healed_bits(start: str, way: str, at: int = -1) -> float:
    """Bits per held-out byte of half a model, mean over seeds, from the table of the chapter on
    pruning: from its "cut" weights or "new" ones, taught by "text" or "logits", at a place of the
    curve."""
    import json

    from twophase.models.pruning.healing import RESULT

    runs = json.loads(RESULT.read_text(encoding="utf-8"))["runs"]
    found = [run["curve"][at][1] for run in runs if (run["start"], run["way"]) == (start, way)]
    return float(sum(found) / len(found))
