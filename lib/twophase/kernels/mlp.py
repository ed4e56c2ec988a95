"""The gated MLP of Llama, Mistral and Qwen: SwiGLU (Shazeer, 2020, arXiv 2002.05202, eq. 6)."""

from collections.abc import Callable

import torch
from torch.nn import functional


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    """GELU by its formula with tanh. A function and no `partial`: a copy of a model has the very
    same one, by which compiled loops know it."""
    return functional.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": gelu_tanh,
    "relu": functional.relu,
}


def gated_mlp(
    x: torch.Tensor,
    w_gate: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
    *,
    activation: str = "silu",
) -> torch.Tensor:
    """`(silu(x W_gate) * (x W_up)) W_down`: three matrices, hence 6·D·F FLOPs per token.

    x: [..., D]; w_gate and w_up: [F, D]; w_down: [D, F] (rows are outputs, as torch and checkpoints
    store them). Gemma has gelu_tanh in the place of silu. Returns [..., D]. Raises ValueError for
    an activation that is not in ACTIVATIONS, and if shapes do not fit.
    """
    if not w_gate.ndim == w_down.ndim == 2 or not (
        w_gate.shape == w_up.shape == w_down.mT.shape and x.shape[-1:] == w_gate.shape[1:]
    ):
        raise ValueError(
            "a gated MLP needs x [..., D], w_gate and w_up [F, D] and w_down [D, F]; got"
            f" {', '.join(str(list(t.shape)) for t in (x, w_gate, w_up, w_down))}."
        )
    if activation not in ACTIVATIONS:
        raise ValueError(f'unknown activation "{activation}"; known: {", ".join(ACTIVATIONS)}.')
    gate = ACTIVATIONS[activation](functional.linear(x, w_gate))  # [..., F]
    up = functional.linear(x, w_up)  # [..., F]
    return functional.linear(gate * up, w_down)  # [..., D]
