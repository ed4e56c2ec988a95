"""The gated MLP of Llama, Mistral and Qwen: SwiGLU (Shazeer, 2020, arXiv 2002.05202, eq. 6)."""

import torch
from torch.nn import functional


def gated_mlp(x: torch.Tensor, w_gate: torch.Tensor, w_up: torch.Tensor, w_down: torch.Tensor) -> torch.Tensor:
    """`(silu(x W_gate) * (x W_up)) W_down`: three matrices, hence 6·D·F FLOPs per token.

    x: [..., D]; w_gate and w_up: [F, D]; w_down: [D, F] (rows are outputs, as torch and checkpoints store them).
    Returns [..., D].
    """
    gate = functional.silu(functional.linear(x, w_gate))  # [..., F]
    up = functional.linear(x, w_up)  # [..., F]
    return functional.linear(gate * up, w_down)  # [..., D]
