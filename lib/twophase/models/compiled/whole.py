"""A step in one call, of a model whose layers are all in runs (`kernels.compiled.step`)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from twophase.kernels.compiled.addresses import addresses, shapes
from twophase.kernels.compiled.step import run_step
from twophase.kernels.span import Span
from twophase.models.cache import Cache
from twophase.models.compiled.ends import Embedding, Head
from twophase.models.compiled.products import NUMBERS
from twophase.models.compiled.run import Run
from twophase.models.compiled.state_run import StateRun
from twophase.models.compiled.token import Workspace


class Whole:
    """From a token to its logits: embedding, all layers, norm and output matrix."""

    def __init__(
        self, embed: Embedding, runs: Sequence[Run | StateRun], head: Head, work: Workspace
    ) -> None:
        self.embed, self.runs, self.head, self.work = embed, runs, head, work
        self.run = work.choose(run_step)
        norm, shift, eps, matrix, _, _, bias, _ = head.given
        learned = embed.table[:0] if embed.positions is None else embed.positions
        # kept alive: the call knows their addresses
        self.arrays = embed.table, learned, norm, shift, matrix, bias
        places = np.array(addresses(self.arrays), np.int64)
        self.ends = places, shapes(self.arrays), embed.table[:0], embed.scale, eps

    def __call__(self, tokens: torch.Tensor, span: Span, cache: Cache) -> torch.Tensor:
        """Logits fp32 [1, V] of one token [1, 1]; the cache waits for its commit."""
        token = self.embed.number_of(tokens)
        runs = tuple([run.given(span, cache) for run in self.runs])
        # the caller's own; a default device must not have it, since the loop gets its address
        logits = torch.empty(1, self.head.V, dtype=torch.float32, device="cpu")
        self.run(token, span.starts[0], *self.ends, runs, logits.data_ptr(), self.work.workers)
        return self.head.capped(logits)


def whole_of(embed: Any, halves: Sequence[Any], head: Any, work: Workspace) -> Whole | None:
    """All of a model in one call; None where it is more than ends in loops and runs of layers of
    numbers, or where its ends differ in dtype."""
    if not all(isinstance(half, Run | StateRun) for half in halves):
        return None
    if not isinstance(embed, Embedding) or not isinstance(head, Head) or head.loops is not NUMBERS:
        return None
    ends = [head.given[3], *([] if embed.positions is None else [embed.positions])]
    if any(matrix.dtype != embed.table.dtype for matrix in ends):
        return None
    return Whole(embed, halves, head, work)
