"""Norms as layers."""

import torch
from torch import nn
from torch.nn import functional

from twophase.kernels.norm import rms_norm
from twophase.models.config import Config


class RMSNorm(nn.Module):
    """`rms_norm` with its weight; some families store the weight minus one (`norm_offset`)."""

    def __init__(self, width: int, config: Config) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((width,), 1.0 - config.norm_offset))
        self.eps, self.offset = config.norm_eps, config.norm_offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., width] → [..., width]."""
        if not self.offset:
            return rms_norm(x, self.weight, self.eps)
        # Gemma adds and multiplies before it rounds: 1 plus a small weight has no digits left for
        # it in bf16.
        return rms_norm(x.float(), self.weight.float() + self.offset, self.eps).to(x.dtype)


class LayerNorm(nn.Module):
    """Layer normalization, with a mean and a bias (Ba et al., 2016, arXiv 1607.06450)."""

    def __init__(self, width: int, config: Config) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.eps = config.norm_eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., width] → [..., width]."""
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


def make_norm(config: Config) -> nn.Module:
    """The norm of the residual stream."""
    return (RMSNorm if config.norm == "rms" else LayerNorm)(config.D, config)
