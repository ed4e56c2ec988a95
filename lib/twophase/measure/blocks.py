"""Which blocks of scores `flash_attention` makes, in their order, as events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from twophase.kernels import online_softmax

from .events import EventLog


@contextmanager
def attention_blocks() -> Iterator[EventLog]:
    """The log of every block of scores that `flash_attention` makes of one call until the block
    ends: the kernel's own step is wrapped, and put back."""
    log, step = EventLog(), online_softmax.partial_attention
    first_address, query_block, first_query = 0, -1, 0

    def noted(scores: torch.Tensor, v: torch.Tensor) -> online_softmax.Partial:
        nonlocal first_address, query_block, first_query
        if len(log) == 0:
            first_address = v.data_ptr()
        bytes_per_key = v.stride(-2) * v.element_size()
        start = (v.data_ptr() - first_address) // bytes_per_key  # the first call has the first key
        if start == 0:
            query_block += 1
            first_query = sum(e["queries"] for e in log if e["start"] == 0)
        one = scores.flatten(0, -3)[0]  # [t', s']: all heads have the same
        log.write(
            "block",
            query_block=query_block,
            query=first_query,
            queries=one.shape[0],
            start=start,
            keys=one.shape[1],
            masked=int((one == online_softmax.NEG_INF).sum()),
        )
        return step(scores, v)

    online_softmax.partial_attention = noted
    try:
        yield log
    finally:
        online_softmax.partial_attention = step
