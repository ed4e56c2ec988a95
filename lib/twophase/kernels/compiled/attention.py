"""Decode attention at the speed of memory: each sequence has one query token and reads its cache
once.

What it computes is `kernels.attention` and `kernels.latent_attention`; this is arranged for the
machine. Blocks are read in the order of the store, all heads of a token together, and asked for
while the arithmetic of those before them runs (`block`, `prefetch`); they are shared out among
threads (`tables`, `parts`). Here tensors come in, and no gradient goes back. Who calls it for many
layers makes the table once and calls `attend_rows`, or, in a step, `parts.turn_append_attend`.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from twophase.kernels.attention_inputs import check_options
from twophase.kernels.compiled import parts
from twophase.kernels.compiled.compiling import saying_so
from twophase.kernels.compiled.loops import STORED, as_numpy
from twophase.kernels.compiled.tables import (
    Table,
    even_block_tokens,
    paged_table,
    share_out,
    slot_table,
)
from twophase.kernels.compiled.threads import workers
from twophase.kernels.rope import INTEGERS


class Work(NamedTuple):
    """The blocks of all sequences, and how they are shared out (`tables`)."""

    table: np.ndarray
    tasks: np.ndarray
    first_task: np.ndarray


def compiled_attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    lengths: torch.Tensor,
    *,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """What the last token of each sequence finds in a store whose token p lies in slot p.

    q: [B, 1, N, H]; keys [B, slots, K, H] and values [B, slots, K, Hv], fp32 or bf16, contiguous;
    lengths: int [B], tokens of each sequence, the query's own included; returns [B, 1, N, Hv] in
    q's dtype. With a window of at most `slots`, a sequence may be longer: token p then lies in slot
    p mod slots (a ring). Options as in `causal_attention`; a sequence of length 0 gets zeros. Over
    a store in bf16, where the processor multiplies pairs of bf16, queries and weights are rounded
    to bf16 (`block_pairs`): the larger the scores, the more that is.
    Raises ValueError for tensors that do not fit, or elsewhere than in the memory of the CPU.
    """
    _check(q, keys, values, lengths)
    check_options(window, softcap, scale)
    B, slots = keys.shape[:2]
    if len(q) != B:
        raise ValueError(f"q has {len(q)} sequences, the store {B}.")
    if int(lengths.max()) > slots and (window is None or window > slots):
        raise ValueError(
            f"a sequence of {int(lengths.max())} tokens does not lie in {slots} slots, unless it"
            " sees a window of at most so many."
        )
    table, starts = _even_table(lengths, slots, window or 0, keys[0, 0].nbytes)
    work = Work(table, *share_out(starts, workers()))
    return attend_rows(q, rows_of(keys), rows_of(values), work, softcap, scale)


def compiled_paged_attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    *,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """The same in a paged store: token p of sequence b lies in block `block_table[b, p //
    block_size]`.

    keys [blocks, block_size, K, H], values [blocks, block_size, K, Hv]; block_table: int [B,
    most], of which entries behind the end of a sequence are not looked at. Raises ValueError also
    for a block that does not exist.
    """
    _check(q, keys, values, lengths)
    check_options(window, softcap, scale)
    blocks, size = keys.shape[:2]
    work = paged_work(block_table, lengths, blocks, size, window)
    return attend_rows(q, rows_of(keys), rows_of(values), work, softcap, scale)


def paged_work(
    block_table: torch.Tensor, lengths: torch.Tensor, blocks: int, size: int, window: int | None
) -> Work:
    """What a pass over a pool of `blocks` blocks of `size` tokens has to read, which is the same in
    all layers of one window. Arguments and errors as in `compiled_paged_attention`, lengths also
    the number of queries."""
    fits = block_table.ndim == 2 and len(block_table) == len(lengths)
    if not fits or block_table.dtype not in INTEGERS:
        raise ValueError(
            f"a block table is an int tensor [{len(lengths)}, most]; got {block_table.dtype}"
            f" {list(block_table.shape)}."
        )
    if block_table.device.type != "cpu":
        raise ValueError(
            f"compiled loops run on the CPU; the block table is on {block_table.device}."
        )
    if int(lengths.max()) > block_table.shape[1] * size:
        raise ValueError(
            f"a sequence of {int(lengths.max())} tokens does not fit into"
            f" {block_table.shape[1]} blocks of {size}."
        )
    numbers = np.ascontiguousarray(block_table.numpy(), np.int64)
    # what is no block becomes -1: a large number times `size` could come round to one that is
    numbers = np.where((numbers >= 0) & (numbers < blocks), numbers, -1)
    table = paged_table(numbers, _counts(lengths), window or 0, size)
    if (table[0][:, 0] < 0).any():
        raise ValueError(f"the block table names a block that is not among the {blocks}.")
    return Work(table[0], *share_out(table[1], workers()))


def attend_rows(
    q: torch.Tensor,
    keys: np.ndarray,
    values: np.ndarray,
    work: Work,
    softcap: float | None,
    scale: float | None,
) -> torch.Tensor:
    """What queries [B, 1, N, H] find in the blocks that are theirs, of stores as loops see them
    (`rows_of`): [B, 1, N, Hv]. Nothing is checked here: that is the business of whoever made the
    work."""
    run = parts.attend.on(workers())
    B, _, N, H = q.shape
    factor = np.float32(1 / math.sqrt(H) if scale is None else scale)
    out = np.empty((B, N, values.shape[2]), np.float32)
    with saying_so(run, keys.dtype):
        run(rows_of(q.float().contiguous()), keys, values, *work, factor, softcap or 0.0, out)
    return torch.from_numpy(out)[:, None].to(q.dtype)  # [B, 1, N, Hv]


def attend_latent_blocks(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    latents: torch.Tensor,
    rope_keys: torch.Tensor,
    work: Work,
    scale: float,
) -> torch.Tensor:
    """The same in the absorbed form: queries [B, 1, N, R] and [B, 1, N, rope_dim] over stores of
    latents [..., R] and turned keys [..., rope_dim]: [B, 1, N, R]."""
    run = parts.attend_latents.on(workers())
    queries = (rows_of(q.float().contiguous()) for q in (q_latent, q_rope))
    stores = (rows_of(store[:, :, None]) for store in (latents, rope_keys))  # [tokens, 1, R]
    shape = len(q_latent), *q_latent.shape[2:]  # [B, N, R]
    out = torch.empty(shape, dtype=torch.float32, device="cpu")
    with saying_so(run, latents.dtype):
        run(*queries, *stores, *work, np.float32(scale), 0.0, out.numpy())
    return out[:, None].to(q_latent.dtype)  # [B, 1, N, R]


def _even_table(lengths: torch.Tensor, slots: int, window: int, token_bytes: int) -> Table:
    """Of a contiguous store, in blocks that are even for the longest of its sequences."""
    longest = min(int(lengths.max()), slots, window or slots)
    size = even_block_tokens(longest, token_bytes, workers() if len(lengths) == 1 else 1)
    return slot_table(_counts(lengths), slots, window, size)


def rows_of(store: torch.Tensor) -> np.ndarray:
    """A store [B, slots, K, H] as loops see it, [B·slots, K, H]: bf16 as its bits."""
    return as_numpy(store).reshape(-1, *store.shape[2:])


def _counts(lengths: torch.Tensor) -> np.ndarray:
    return np.ascontiguousarray(lengths.numpy(), np.int64)


def _check(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, lengths: torch.Tensor
) -> None:
    """ValueError unless one query token for each sequence and the stores fit."""
    _check_tensors(q, keys, values, lengths)
    alike = keys.shape[:3] == values.shape[:3] and keys.dtype == values.dtype
    if not q.ndim == keys.ndim == values.ndim == 4 or q.shape[1] != 1 or not alike:
        raise ValueError(
            "compiled attention needs q [B, 1, N, H] and keys and values [B, slots, K, H] of one"
            f" dtype; got {list(q.shape)}, {keys.dtype} {list(keys.shape)} and {values.dtype}"
            f" {list(values.shape)}."
        )
    if not q.is_floating_point() or not min(*q.shape, *keys.shape, values.shape[3]):
        raise ValueError(
            "compiled attention needs floating-point queries, and at least one number of each"
            f" kind; got {q.dtype} {list(q.shape)}, keys {list(keys.shape)} and values"
            f" {list(values.shape)}."
        )
    if q.shape[3] != keys.shape[3] or q.shape[2] % keys.shape[2]:
        raise ValueError(
            f"q {list(q.shape)} and keys {list(keys.shape)} must agree in width, and query heads be"
            " a multiple of KV heads."
        )
    if keys.dtype not in STORED or not (keys.is_contiguous() and values.is_contiguous()):
        raise ValueError(
            f"keys and values must be contiguous, in fp32 or bf16; got {keys.dtype}. Take"
            " causal_attention, or copy them once."
        )
    if lengths.shape != q.shape[:1] or lengths.dtype not in INTEGERS or int(lengths.min()) < 0:
        raise ValueError(
            f"lengths are {len(q)} whole numbers of at least 0; got {lengths.dtype}"
            f" {list(lengths.shape)}."
        )


def _check_tensors(*given: Any) -> None:
    """ValueError unless all are tensors on the CPU that want no gradient."""
    if not all(isinstance(x, torch.Tensor) for x in given):
        kinds = ", ".join(type(x).__name__ for x in given)
        raise ValueError(
            f"compiled attention takes torch tensors; got {kinds}: call torch.tensor on them."
        )
    if any(x.device.type != "cpu" for x in given):
        raise ValueError("compiled attention runs on the CPU; take causal_attention elsewhere.")
    if torch.is_grad_enabled() and any(x.requires_grad for x in given):
        raise ValueError(
            "compiled attention has no gradient: take causal_attention, or torch.no_grad()."
        )
