"""Structured pruning: what matters least, and a smaller model without it that everything else
loads."""

from twophase.models.pruning.cut import Kept, cut
from twophase.models.pruning.going import channels_going
from twophase.models.pruning.importance import (
    MEASURES,
    UNITS,
    importance,
    leave_one_out,
    loss_without,
)
from twophase.models.pruning.select import keep_best
from twophase.models.pruning.silence import silenced
from twophase.models.pruning.sparse import stored_bytes, with_zeros
from twophase.models.pruning.stages import Stage, prune

__all__ = [
    "MEASURES",
    "UNITS",
    "Kept",
    "Stage",
    "channels_going",
    "cut",
    "importance",
    "keep_best",
    "leave_one_out",
    "loss_without",
    "prune",
    "silenced",
    "stored_bytes",
    "with_zeros",
]
