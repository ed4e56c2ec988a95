"""The MLP as a layer: gated (Llama and most others) or plain (GPT)."""

import torch
from torch import nn

from twophase.kernels.mlp import ACTIVATIONS
from twophase.models.config import Config
from twophase.models.linear import Linear


class GatedMLP(nn.Module):
    """D → F twice, F → D once."""

    def __init__(self, config: Config, F: int | None = None) -> None:
        super().__init__()
        F = F or config.F
        self.activation = ACTIVATIONS[config.activation]
        self.gate_proj = Linear(config.D, F, config.mlp_bias)
        self.up_proj = Linear(config.D, F, config.mlp_bias)
        self.down_proj = Linear(F, config.D, config.mlp_bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [B, T, D] → [B, T, D]."""
        gate = self.activation(self.gate_proj(x))  # [B, T, F]
        up = self.up_proj(x)  # [B, T, F]
        return self.down_proj(gate * up)  # type: ignore[no-any-return]


class PlainMLP(nn.Module):
    """D → F, F → D."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.up_proj = Linear(config.D, config.F, config.mlp_bias)
        self.down_proj = Linear(config.F, config.D, config.mlp_bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [B, T, D] → [B, T, D]."""
        return self.down_proj(self.activation(self.up_proj(x)))  # type: ignore[no-any-return]
