"""What happens to seats and blocks before a pass: copies, what is put aside or comes back."""

import torch

from twophase.serving.request import Request
from twophase.serving.runner import Runner
from twophase.serving.scheduled import CopyBlock, Scheduled, SwapOut

Aside = dict[Request, list[torch.Tensor]]  # what swaps put aside


def carry_out(runner: Runner, made: Scheduled, aside: Aside, has_windows: bool = False) -> None:
    """Give seats to those that join, move blocks, and take the seats of those that give way.
    `has_windows`: layers with a window have blocks of their own, so that there are two tables."""
    for request in made.admitted:
        runner.seat(request.id)
    for move in made.moves:
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
    for request in made.preempted:
        runner.unseat(request.id)
