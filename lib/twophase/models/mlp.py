"""The MLP as a layer: gated (Llama and most others) or plain (GPT)."""

import torch
from torch import nn

from twophase.kernels.mlp import activate, gated_mlp
from twophase.models.config import Config


class GatedMLP(nn.Module):
    """D → F twice, F → D once."""

    def __init__(self, config: Config, F: int | None = None) -> None:
        super().__init__()
        F = F or config.F
        self.activation = config.activation
        self.gate_proj = nn.Linear(config.D, F, bias=config.mlp_bias)
        self.up_proj = nn.Linear(config.D, F, bias=config.mlp_bias)
        self.down_proj = nn.Linear(F, config.D, bias=config.mlp_bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [B, T, D] → [B, T, D]."""
        matrices = (self.gate_proj.weight, self.up_proj.weight, self.down_proj.weight)
        biases = (self.gate_proj.bias, self.up_proj.bias, self.down_proj.bias)
        return gated_mlp(x, *matrices, activation=self.activation, biases=biases)


class PlainMLP(nn.Module):
    """D → F, F → D."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.activation = config.activation
        self.up_proj = nn.Linear(config.D, config.F, bias=config.mlp_bias)
        self.down_proj = nn.Linear(config.F, config.D, bias=config.mlp_bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [B, T, D] → [B, T, D]."""
        return self.down_proj(activate(self.up_proj(x), self.activation))  # type: ignore[no-any-return]
