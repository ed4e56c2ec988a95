"""Which KV heads `decode_by_head` fetches, and which query heads use them, as events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from twophase.kernels import grouped_query_attention as kernel

from .events import EventLog
from .traffic import tensor_bytes


@contextmanager
def kv_fetches() -> Iterator[EventLog]:
    """The log of one call of `decode_by_head` until the block ends: the kernel's own two steps are
    wrapped, and put back."""
    log, fetch, attend = EventLog(), kernel.fetch, kernel.attend
    kv_held, queries = -1, 0

    def fetched(
        k: torch.Tensor, v: torch.Tensor, kv_head: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        nonlocal kv_held
        keys, values = fetch(k, v, kv_head)
        kv_held = kv_head
        n_bytes = tensor_bytes(keys) + tensor_bytes(values)
        log.write("fetch", kv_head=kv_head, n_bytes=n_bytes)
        return keys, values

    def attended(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        nonlocal queries
        log.write("attend", head=queries, kv_head=kv_held)
        queries += 1
        return attend(query, keys, values)

    kernel.fetch, kernel.attend = fetched, attended
    try:
        yield log
    finally:
        kernel.fetch, kernel.attend = fetch, attend
