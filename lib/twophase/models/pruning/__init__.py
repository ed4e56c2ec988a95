"""Structured pruning: what matters least, and a smaller model without it that everything else
loads."""

from twophase.models.pruning.cut import Kept, cut
from twophase.models.pruning.importance import (
    MEASURES,
    UNITS,
    importance,
    leave_one_out,
    loss_without,
)
from twophase.models.pruning.select import keep_best
from twophase.models.pruning.silence import silenced

__all__ = [
    "MEASURES",
    "UNITS",
    "Kept",
    "cut",
    "importance",
    "keep_best",
    "leave_one_out",
    "loss_without",
    "silenced",
]
