"""A mixture of experts: the router in loops, its choice in torch, then the experts chosen."""

import numpy as np
import torch

from twophase.kernels.compiled.experts import visit_experts
from twophase.kernels.compiled.linear import norm_project
from twophase.kernels.mixture_of_experts import route
from twophase.kernels.mlp import ACTIVATIONS as TORCH_ACTIVATIONS
from twophase.models.compiled.halves import MLP, activation_number, choose
from twophase.models.compiled.plain import PlainHalf
from twophase.models.compiled.token import Token
from twophase.models.compiled.weights import NoKernel, check_kind, norm, stored
from twophase.models.mixture_of_experts import Experts as PlainExperts
from twophase.models.mixture_of_experts import MixtureOfExperts, Router


class Experts:
    """A mixture of experts: norm and router; the choice; the experts, and those that all visit."""

    def __init__(self, half: PlainHalf, parallel: bool) -> None:
        layer = half.layer
        check_kind(layer, MixtureOfExperts)
        check_kind(layer.gate, Router)
        check_kind(layer.experts, PlainExperts)
        if half.after is not None:
            raise NoKernel("a norm follows its experts")
        E, F, D = layer.experts.gate_proj.shape
        self.norm, self.k, self.routing = norm(half.before), layer.k, layer.routing
        self.router = stored(layer.gate.weight, E, D)
        self.correction = layer.gate.e_score_correction_bias
        self.gate = stored(layer.experts.gate_proj, E, F, D)
        self.up = stored(layer.experts.up_proj, E, F, D)
        self.down = stored(layer.experts.down_proj, E, D, F)
        self.activation = activation_number(TORCH_ACTIVATIONS[layer.experts.activation])
        self.logits, self.bias = np.empty(E, np.float32), np.zeros(E, np.float32)
        self.h, self.between = np.empty((1, D), np.float32), np.empty((self.k, F), np.float32)
        self.added = np.empty(D, np.float32)
        self.project, self.visit = choose(norm_project, parallel), choose(visit_experts, parallel)
        self.shared = None
        if layer.shared_experts is not None:
            self.shared = MLP(PlainHalf(half.before, layer.shared_experts, None, False), parallel)

    def __call__(self, token: Token) -> None:
        """Add to the stream what the token's experts make of it."""
        n, none = self.norm, self.router[:0]
        self.project(
            token.x, n.scale, n.shift, n.eps, self.router, none, none, self.bias, self.h[0],
            self.logits,
        )  # fmt: skip
        experts, weights = self._choose()
        self.added[:] = 0
        self.visit(
            self.h, experts, weights, self.gate, self.up, self.down, self.activation, self.between,
            self.added,
        )  # fmt: skip
        if self.shared:  # it reads the stream as the experts found it
            self.shared(token)
        token.x += self.added

    def _choose(self) -> tuple[np.ndarray, np.ndarray]:
        """The k experts and their weights."""
        r = self.routing
        experts, weights = route(
            torch.from_numpy(self.logits)[None], self.k, score=r.score, normalize=r.normalize,
            scale=r.scale, groups=r.groups, groups_kept=r.groups_kept, group_top=r.group_top,
            bias=self.correction,
        )  # fmt: skip
        return experts[0].numpy(), weights[0].numpy()
