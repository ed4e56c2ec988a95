"""The selective state space as a layer: Mamba's mixer, between a convolution over neighbors and a
gate.

Parameter names are those of Mamba checkpoints on Hugging Face. Source: Gu and Dao 2023 (arXiv
2312.00752), figure 3.
"""

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from twophase.kernels.state import Tensors
from twophase.kernels.state_space import Pair, causal_conv, selective_scan
from twophase.kernels.state_space_compiled import compiled_scan
from twophase.kernels.state_space_triton import has_triton, triton_scan
from twophase.models.config import Config
from twophase.models.linear import BiasInFloat32, Linear
from twophase.models.step import Step

# Step sizes at the start: memories of some 10 to 1,000 tokens where A = -1.
STEP_RANGE = (1e-3, 1e-1)


class SelectiveStateSpace(nn.Module):
    """d_inner channels, each with d_state numbers of memory; the token decides how they fade, take
    it in and are read."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        if config.ssm is None:
            raise ValueError("a state-space layer needs `ssm`, its sizes; the config has none.")
        self.layer, self.sizes = layer, config.ssm
        s = config.ssm
        self.in_proj = Linear(config.D, 2 * s.d_inner)  # channels, gate
        self.conv1d = nn.Conv1d(s.d_inner, s.d_inner, s.conv_width, groups=s.d_inner)
        self.x_proj = Linear(s.d_inner, s.dt_rank + 2 * s.d_state)  # low-rank dt, B, C
        # The bias is near -7 where the step is 1e-3, and bf16 would round the step by 3%.
        self.dt_proj = BiasInFloat32(s.dt_rank, s.d_inner)
        self.A_log = nn.Parameter(torch.empty(s.d_inner, s.d_state))
        self.D = nn.Parameter(torch.empty(s.d_inner))
        self.out_proj = Linear(s.d_inner, config.D)
        self.A_log._no_weight_decay = True  # type: ignore[attr-defined]  # zero is no neutral value: it is A = -1
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Mamba's start: A = -1 ... -d_state, steps spread over STEP_RANGE on a logarithmic scale,
        the skip at 1.

        What the memory adds is a product of three projections (x, B and C). Weights as small as
        those of a transformer would make it next to nothing beside the skip, so they start as
        torch's layers do, uniform within 1/sqrt(inputs).
        """
        s = self.sizes
        for module in (self.in_proj, self.conv1d, self.x_proj):
            module.reset_parameters()
        bound = s.dt_rank**-0.5
        nn.init.uniform_(self.dt_proj.weight, -bound, bound)
        low, high = (math.log(size) for size in STEP_RANGE)
        dt = torch.empty_like(self.dt_proj.bias).uniform_(low, high).exp()  # [d_inner]
        self.dt_proj.bias.copy_(dt + torch.log(-torch.expm1(-dt)))  # softplus undone
        self.A_log.copy_(torch.arange(1, s.d_state + 1).log().expand_as(self.A_log))
        nn.init.ones_(self.D)

    def forward(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """x: [B, T, D] → [B, T, D]; with a cache, the T tokens continue its state."""
        u, gate = self.in_proj(x).chunk(2, dim=-1)  # [B, T, d_inner] each
        state, real = step.state(self.layer), step.span.real

        def advance(tokens: slice, before: Tensors) -> tuple[torch.Tensor, Tensors]:
            return self._scan(u[:, tokens], *before, real=None if real is None else real[:, tokens])

        y = self._scan(u)[0] if state is None else state.run(step.span, advance)
        return self.out_proj(y * functional.silu(gate))  # type: ignore[no-any-return]  # [B, T, D]

    def _scan(
        self,
        u: torch.Tensor,
        inputs: torch.Tensor | None = None,
        memory: torch.Tensor | None = None,
        *,
        real: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, Tensors]:
        """The channels u [B, T, d_inner] through convolution and memory, and what these are after
        them: inputs [B, d_inner, W], memory [B, d_inner, d_state]. Only `real` tokens leave a
        trace."""
        weight = self.conv1d.weight.squeeze(1)  # [d_inner, W]
        n_new = None if real is None else real.sum(-1)  # [B]
        u, inputs = causal_conv(u, weight, self.conv1d.bias, inputs, n_new)
        u = functional.silu(u)
        dt, B_in, C = self._select(u)
        if real is not None:
            dt = dt.masked_fill(~real[..., None], 0.0)  # a step of length 0: nothing fades or comes
        scan = _scan_for(u)
        A = -torch.exp(self.A_log.float())  # [d_inner, d_state]
        y, memory = scan(u, dt, A, B_in, C, self.D.float(), memory)
        return y, (inputs, memory)

    def _select(self, u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Step sizes, fp32 [B, T, d_inner], B and C [B, T, d_state]: functions of the token, hence
        the name."""
        s = self.sizes
        low, B_in, C = self.x_proj(u).split([s.dt_rank, s.d_state, s.d_state], dim=-1)
        return functional.softplus(self.dt_proj(low)), B_in, C


def _scan_for(u: torch.Tensor) -> Callable[..., Pair]:
    """The fastest form of the scan for the channels u [B, T, d_inner] where they are; one token is
    no loop."""
    if u.shape[1] > 1 and u.device.type == "cpu":
        return compiled_scan
    if u.shape[1] > 1 and u.device.type == "cuda" and has_triton():
        return triton_scan
    return selective_scan
