"""The selective state space as a layer: Mamba's mixer, between a convolution over neighbors and a
gate.

Parameter names are those of Mamba checkpoints on Hugging Face. Source: Gu and Dao 2023 (arXiv
2312.00752), figure 3.
"""

import math

import torch
from torch import nn
from torch.nn import functional

from twophase.kernels.state_space import causal_conv, selective_scan
from twophase.kernels.state_space_compiled import compiled_scan
from twophase.models.attention import Step
from twophase.models.config import Config

STEP_RANGE = (
    1e-3,
    1e-1,
)  # step sizes at the start: memories of some 10 to 1,000 tokens where A = -1


class SelectiveStateSpace(nn.Module):
    """d_inner channels, each with d_state numbers of memory; the token decides how they fade, take
    it in and are read."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        if config.ssm is None:
            raise ValueError("a state-space layer needs `ssm`, its sizes; the config has none.")
        self.layer, self.sizes = layer, config.ssm
        s = config.ssm
        self.in_proj = nn.Linear(
            config.D, 2 * s.d_inner, bias=False
        )  # the channels, and their gate
        self.conv1d = nn.Conv1d(s.d_inner, s.d_inner, s.conv_width, groups=s.d_inner)
        self.x_proj = nn.Linear(
            s.d_inner, s.dt_rank + 2 * s.d_state, bias=False
        )  # low-rank dt, B and C
        self.dt_proj = nn.Linear(s.dt_rank, s.d_inner)
        self.A_log = nn.Parameter(torch.empty(s.d_inner, s.d_state))
        self.D = nn.Parameter(torch.empty(s.d_inner))
        self.out_proj = nn.Linear(s.d_inner, config.D, bias=False)
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
        """x: [B, T, D] → [B, T, D]; with a cache, the T tokens continue its state and leave it
        theirs."""
        store = None if step.cache is None else step.cache.stores[self.layer]  # type: ignore[union-attr]
        T = x.shape[1]
        u, gate = self.in_proj(x).chunk(2, dim=-1)  # [B, T, d_inner] each
        weight = self.conv1d.weight.squeeze(1)  # [d_inner, W]
        u, inputs = causal_conv(u, weight, self.conv1d.bias, store and store.inputs)
        u = functional.silu(u)
        dt, B_in, C = self._select(u)
        scan = compiled_scan if x.device.type == "cpu" and T > 1 else selective_scan
        A = -torch.exp(self.A_log.float())  # [d_inner, d_state]
        y, state = scan(u, dt, A, B_in, C, self.D.float(), store and store.ssm)
        if store is not None:
            store.update(inputs, state, T)
        return self.out_proj(y * functional.silu(gate))  # type: ignore[no-any-return]  # [B, T, D]

    def _select(self, u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Step sizes [B, T, d_inner], B and C [B, T, d_state]: functions of the token, hence the
        name.

        The bias of dt is added in fp32: it is near -7 where the step is 1e-3, and bf16 would round
        the step by 3 %.
        """
        s = self.sizes
        low, B_in, C = self.x_proj(u).split([s.dt_rank, s.d_state, s.d_state], dim=-1)
        dt = (
            functional.linear(low, self.dt_proj.weight).float() + self.dt_proj.bias.float()
        )  # [B, T, d_inner]
        return functional.softplus(dt), B_in, C
