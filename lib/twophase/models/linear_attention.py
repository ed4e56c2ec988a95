"""Linear attention as a layer: queries and keys of a few numbers per head, and a state that does
not grow."""

import torch
from torch import nn

from twophase.kernels.linear_attention import (
    LinearState,
    chunked_linear_attention,
    parallel_linear_attention,
    recurrent_step,
)
from twophase.kernels.rope import apply_rope
from twophase.models.attention import Step
from twophase.models.cache import LayerCaches
from twophase.models.config import Config


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
        self.q_proj = nn.Linear(config.D, self.N * self.f, bias=False)
        self.k_proj = nn.Linear(config.D, self.N * self.f, bias=False)
        self.v_proj = nn.Linear(config.D, self.N * self.H, bias=False)
        self.o_proj = nn.Linear(self.N * self.H, config.D, bias=False)

    def forward(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """x: [B, T, D] → [B, T, D]; with a cache, the T tokens continue its state, and are added to
        it."""
        B, T, _ = x.shape
        q = self.q_proj(x).view(B, T, self.N, self.f)  # [B, T, N, f]
        k = self.k_proj(x).view(B, T, self.N, self.f)  # [B, T, N, f]
        v = self.v_proj(x).view(B, T, self.N, self.H)  # [B, T, N, H]
        if (tables := step.rope.get("linear")) is not None:
            q, k = (apply_rope(heads, *tables) for heads in (q, k))
        state = self._state(step)
        if state is None:
            out = parallel_linear_attention(q, k, v)
        elif T == 1:
            out = recurrent_step(q, k, v, state)
        else:
            out = chunked_linear_attention(q, k, v, state)  # [B, T, N, H]
        return self.o_proj(out.reshape(B, T, self.N * self.H))  # type: ignore[no-any-return]  # [B, T, D]

    def _state(self, step: Step) -> LinearState | None:
        """The state of this layer; None where there is no cache. ValueError for a cache that keeps
        keys instead."""
        if step.cache is None:
            return None
        store = step.cache.stores.get(self.layer) if isinstance(step.cache, LayerCaches) else None
        if not isinstance(store, LinearState):
            raise ValueError(
                "linear attention needs the cache that `model.new_cache` makes; layer "
                f"{self.layer} got a "
                f"{type(step.cache).__name__} without its state."
            )
        return store
