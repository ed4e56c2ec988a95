"""Waiting for memory: a chain of lines, each of which names the next.

A loop that adds up numbers knows where the next ones lie, and so does the processor, which asks
ahead. Along this chain nobody knows before a line is there. So one line is under way at a time, and
a step takes as long as a line takes to arrive.
"""

import numpy as np
import torch

from twophase.kernels.compiled.loops import inner
from twophase.kernels.compiled.pages import use_large_pages
from twophase.kernels.compiled.prefetch import LINE_BYTES

NUMBERS = LINE_BYTES // 8  # int64 of a line


def chain_of_lines(n_bytes: int) -> torch.Tensor:
    """A cycle through so many bytes, in an order that chance made: int64 [lines, 8], the first
    number of a line is the next line. In large pages where the system has them. Raises ValueError
    for less than a line."""
    lines = n_bytes // LINE_BYTES
    if lines < 1:
        raise ValueError(f"a chain has lines of {LINE_BYTES} bytes, at least one; got {n_bytes}.")
    order = torch.randperm(lines)
    chain = torch.zeros(lines, NUMBERS, dtype=torch.int64)
    use_large_pages(chain)
    chain[order, 0] = order.roll(-1)
    return chain


def follow(chain: torch.Tensor, line: int, steps: int) -> int:
    """The line where one is after so many steps from a line of `chain_of_lines`. Raises ValueError
    for what is no chain, no line of it, or a negative number of steps."""
    fits = chain.ndim == 2 and chain.dtype == torch.int64 and chain.is_contiguous()
    if not fits or not 0 <= line < len(chain) or steps < 0:
        raise ValueError(
            "follow takes a chain as chain_of_lines makes it, one of its lines and a number of"
            f" steps; got {chain.dtype} {list(chain.shape)}, line {line}, {steps} steps."
        )
    return int(_follow(chain.numpy(), line, steps))


@inner
def _follow(chain: np.ndarray, line: int, steps: int) -> int:
    for _ in range(steps):
        line = chain[line, 0]
    return line
