"""What happens to blocks before a pass: copies, and what is put aside or comes back."""

from collections.abc import Sequence

import torch

from twophase.serving.request import Request
from twophase.serving.runner import Runner
from twophase.serving.scheduler import CopyBlock, SwapIn, SwapOut

Aside = dict[Request, list[torch.Tensor]]  # what swaps put aside


def carry_out(
    runner: Runner,
    moves: Sequence[CopyBlock | SwapOut | SwapIn],
    aside: Aside,
    has_windows: bool = False,
) -> None:
    """Do these moves in their order. `has_windows`: layers with a window have blocks of their own,
    so that there are two tables."""
    for move in moves:
        if isinstance(move, CopyBlock):
            copy = runner.copy_window_block if move.windowed else runner.copy_block
            copy(move.source, move.target)
            continue
        windowed = (move.window_table,) if has_windows else ()
        if isinstance(move, SwapOut):
            aside[move.request] = runner.save(move.request.id, move.table, *windowed)
        else:
            saved = aside.pop(move.request)
            runner.restore(move.request.id, move.table, saved, *windowed)
