"""Linear attention as a layer: queries and keys of a few numbers per head, and a state that does
not grow."""

import torch
from torch import nn

from twophase.kernels.linear_attention import (
    chunked_linear_attention,
    parallel_linear_attention,
    recurrent_step,
)
from twophase.kernels.rope import apply_rope
from twophase.kernels.state import Tensors
from twophase.models.config import Config
from twophase.models.linear import Linear
from twophase.models.step import Step


class LinearAttention(nn.Module):
    """N heads of BASED's Taylor linear attention, each with its own queries and keys of width f and
    values of width H.

    RoPE turns queries and keys before their features are taken: products still depend on the
    difference of positions only, a key is still added to the state once, and without it a stack of
    such layers hardly knows which token is near.
    """

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        if config.linear is None:
            raise ValueError('layers of the kind "linear" need `linear`; it is None.')
        self.layer, self.N, self.H, self.f = layer, config.N, config.H, config.linear.feature_dim
        self.q_proj = Linear(config.D, self.N * self.f)
        self.k_proj = Linear(config.D, self.N * self.f)
        self.v_proj = Linear(config.D, self.N * self.H)
        self.o_proj = Linear(self.N * self.H, config.D)

    def forward(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """x: [B, T, D] → [B, T, D]; with a cache, the T tokens continue its state."""
        B, T, _ = x.shape
        q = self.q_proj(x).view(B, T, self.N, self.f)  # [B, T, N, f]
        k = self.k_proj(x).view(B, T, self.N, self.f)  # [B, T, N, f]
        v = self.v_proj(x).view(B, T, self.N, self.H)  # [B, T, N, H]
        if (tables := step.rope.get("linear")) is not None:
            q, k = (apply_rope(heads, *tables) for heads in (q, k))
        state, real = step.state(self.layer), step.span.real

        def advance(tokens: slice, sums: Tensors) -> tuple[torch.Tensor, Tensors]:
            some = (heads[:, tokens] for heads in (q, k, v))
            attend = recurrent_step if len(range(T)[tokens]) == 1 else chunked_linear_attention
            out, after = attend(*some, *sums, real=None if real is None else real[:, tokens])
            return out, (after,)

        out = state.run(step.span, advance) if state else parallel_linear_attention(q, k, v)
        return self.o_proj(out.reshape(B, T, self.N * self.H))  # type: ignore[no-any-return]
