"""A mixture of experts in the place of the MLP: Mixtral, Qwen3-MoE, DeepSeek-V2 and V3 by their
settings."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from twophase.kernels.mixture_of_experts import (
    check_routing,
    load_balance_loss,
    route,
    router_scores,
    run_all_experts,
    run_experts,
)
from twophase.models.config import Config
from twophase.models.mlp import GatedMLP


class Router(nn.Module):
    """One logit per expert; with `router_bias` also DeepSeek-V3's number per expert that moves the
    choice only."""

    def __init__(self, D: int, E: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(E, D))
        # No gradient comes through a choice: DeepSeek moves this number by a fixed step after each
        # batch (arXiv 2408.15664); it is read from checkpoints here, and stays 0 in models trained
        # here.
        self.e_score_correction_bias = (
            nn.Parameter(torch.empty(E), requires_grad=False) if bias else None
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [tokens, D] → logits [tokens, E], in fp32 whatever the rest of the model computes
        in."""
        with torch.autocast(x.device.type, enabled=False):
            return functional.linear(x.float(), self.weight.float())


class Experts(nn.Module):
    """E gated MLPs, their matrices stacked: gate and up [E, F, D], down [E, D, F].

    Experts of another making (quantized, a part of the E) take the place of this module: what they
    need is its `forward`.

    `all_visited`: every expert is run on every token, which costs more and waits for nobody
    (`run_all_experts`); a step of training is captured on a card so.
    """

    all_visited = False

    def __init__(self, E: int, F: int, D: int, activation: str) -> None:
        super().__init__()
        self.activation = activation
        self.gate_proj = nn.Parameter(torch.empty(E, F, D))
        self.up_proj = nn.Parameter(torch.empty(E, F, D))
        self.down_proj = nn.Parameter(torch.empty(E, D, F))

    def forward(
        self, x: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """x: [tokens, D]; experts, weights: [tokens, k]; the weighted sum, [tokens, D]. Experts
        that no token names are not run, unless `all_visited`."""
        matrices = (self.gate_proj, self.up_proj, self.down_proj)
        run = run_all_experts if self.all_visited else run_experts
        return run(x, experts, weights, *matrices, activation=self.activation)


def run_every_expert(model: nn.Module, every: bool = True) -> None:
    """From here on all experts of the model are run on all tokens (`Experts.all_visited`), or not
    any more; those of another making are left as they are."""
    for part in model.modules():
        if isinstance(part, Experts):
            part.all_visited = every


class MixtureOfExperts(nn.Module):
    """E gated MLPs of width F of which each token visits k, and n_shared that all tokens visit.

    `aux_loss`: while training, how unevenly the last batch used the experts (1 is even), to be
    added to the loss with a small factor (0.01 in Switch Transformer); None otherwise. Raises
    ValueError for experts with biases or no gate.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        if config.moe is None:
            raise ValueError("a mixture of experts needs `moe`, its sizes; it is None.")
        if config.mlp_bias or config.moe.bias or not config.gated_mlp:
            raise ValueError(
                "experts are gated MLPs without biases: `mlp_bias` and the experts' `bias` must be"
                " False and `gated_mlp` True."
            )
        moe, r = config.moe, config.routing
        check_routing(moe.E, moe.k, r.groups, r.groups_kept, r.group_top)
        self.k, self.routing = moe.k, r
        self.gate = Router(config.D, moe.E, moe.router_bias)
        self.experts = Experts(moe.E, moe.F, config.D, config.activation)
        self.shared_experts = GatedMLP(config, moe.n_shared * moe.F) if moe.n_shared else None
        self.aux_loss: torch.Tensor | None = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the router and the stacked experts from a normal law of deviation 0.02; a router's
        bias starts at 0."""
        for weight in (self.gate.weight, *self.experts.parameters()):
            nn.init.normal_(weight, std=0.02)
        if self.gate.e_score_correction_bias is not None:
            nn.init.zeros_(self.gate.e_score_correction_bias)

    def __getstate__(self) -> dict[str, Any]:
        """A copy of the layer starts without a loss: torch refuses to copy a tensor that still has
        its graph."""
        return self.__dict__ | {"aux_loss": None}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [B, T, D] → [B, T, D]."""
        r, tokens = self.routing, x.flatten(0, 1)  # [B·T, D]
        logits = self.gate(tokens)  # [B·T, E]
        experts, weights = route(
            logits,
            self.k,
            score=r.score,
            normalize=r.normalize,
            scale=r.scale,
            groups=r.groups,
            groups_kept=r.groups_kept,
            group_top=r.group_top,
            bias=self.gate.e_score_correction_bias,
        )  # [B·T, k] each
        self.aux_loss = None
        if self.training:
            self.aux_loss = load_balance_loss(router_scores(logits, r.score), experts)
        y: torch.Tensor = self.experts(tokens, experts, weights).view_as(x)  # [B, T, D]
        return y if self.shared_experts is None else y + self.shared_experts(x)
