"""Which of torch's kernels attention takes on a card."""

from functools import cache

import torch
from torch.nn import functional

ROWS = 64  # queries of a KV head that flash attention's kernel takes at once


def fuses_groups(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether torch has a kernel that shares the keys k, v [B, K, S, H] among the query heads of q
    [B, N, T, H], and stores no scores: on cards, in 16 bits."""
    if q.device.type != "cuda":
        return False
    params = torch.backends.cuda.SDPAParams(q, k, v, None, 0.0, True, True)
    return bool(torch.backends.cuda.can_use_flash_attention(params))


def in_one_call(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float | None
) -> torch.Tensor:
    """q [B, T, N, H], keys and values [B, K, S, H] → [B, T, N, H], T = S. A card that took a call
    for each member of the group would have K heads to share out among its processors, not N."""
    out = functional.scaled_dot_product_attention(
        q.transpose(1, 2), keys, values, is_causal=True, scale=scale, enable_gqa=True
    )  # [B, N, T, H]
    return out.transpose(1, 2)  # [B, T, N, H]


def wants_split(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether `with_keys_split` shall attend for queries q [B, K, G·T, H] without a mask, to k, v
    [B, K, S, H]: a card has more processors than there are heads, the queries are few, and torch
    may take flash attention (`torch.nn.attention.sdpa_kernel` can forbid it).

    cuDNN's kernel, torch's own first choice, seems to keep a head to one processor: 8 heads of
    32,000 keys took an H100 378 µs in place of 68; with 512 heads it was the quicker one
    (`measure.card_runs`, part "attention").
    """
    B, K, rows, H = q.shape
    if not few_heads(B * K, rows, q.device) or H % 8:
        return False
    params = torch.backends.cuda.SDPAParams(q, k, v, None, 0.0, False, False)
    return bool(torch.backends.cuda.can_use_flash_attention(params))


def few_heads(heads: int, rows: int, device: torch.device) -> bool:
    """Whether a card has processors left over for so many heads of so many queries each."""
    return device.type == "cuda" and rows <= ROWS and heads < _processors(device)


def with_keys_split(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None
) -> torch.Tensor:
    """q [B, K, G·T, H], k and v [B, K, S, H] → [B, K, G·T, H]: flash attention, which shares out
    the keys of a head among processors, called by its name.

    No setting of torch's is touched for that: they hold for all threads, and torch does not find
    back to its own order of kernels behind one that was set.
    """
    found = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, scale=scale)
    out: torch.Tensor = found[0]
    return out


@cache
def _processors(device: torch.device) -> int:
    """Multiprocessors of a card."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
