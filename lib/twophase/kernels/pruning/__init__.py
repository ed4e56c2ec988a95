"""Weights that stay in the matrix as zeros, how they are stored, and how a smaller model is taught
by the larger one."""

from twophase.kernels.pruning.distillation import hidden_loss, logits_loss
from twophase.kernels.pruning.masks import kept_per_row, magnitude, two_four, wanda
from twophase.kernels.pruning.storage import Bitmap, TwoFour

__all__ = [
    "Bitmap",
    "TwoFour",
    "hidden_loss",
    "kept_per_row",
    "logits_loss",
    "magnitude",
    "two_four",
    "wanda",
]
