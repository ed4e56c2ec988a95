"""A mixture of experts in two calls: norm and router; its choice, and the experts chosen."""

import numpy as np

from twophase.kernels.compiled.experts import Choice, visit_experts
from twophase.kernels.mlp import ACTIVATIONS as TORCH_ACTIVATIONS
from twophase.models.compiled.halves import MLP, activation_number
from twophase.models.compiled.plain import PlainHalf
from twophase.models.compiled.products import NormProjection, three
from twophase.models.compiled.token import Token, Workspace
from twophase.models.compiled.weights import NoKernel, check_kind, norm, stored, zeros
from twophase.models.mixture_of_experts import Experts as PlainExperts
from twophase.models.mixture_of_experts import MixtureOfExperts, Router


class Experts:
    """A mixture of experts, and those that all tokens visit."""

    def __init__(self, half: PlainHalf, work: Workspace) -> None:
        layer = half.layer
        check_kind(layer, MixtureOfExperts)
        check_kind(layer.gate, Router)
        check_kind(layer.experts, PlainExperts)
        if half.after is not None:
            raise NoKernel("a norm follows its experts")
        E, F, D = layer.experts.gate_proj.shape
        router = stored(layer.gate.weight, E, D)
        self.project = NormProjection(norm(half.before), three([router]), zeros(E), work)
        self.given = (
            self.project.y, choice(layer, E), self.project.h,
            stored(layer.experts.gate_proj, E, F, D), stored(layer.experts.up_proj, E, F, D),
            stored(layer.experts.down_proj, E, D, F),
            activation_number(TORCH_ACTIVATIONS[layer.experts.activation]),
            work.scratch("between", layer.k, F),
        )  # fmt: skip
        self.visit = work.choose(visit_experts)
        self.shared = None
        if layer.shared_experts is not None:
            self.shared = MLP(PlainHalf(half.before, layer.shared_experts, None, False), work)

    def __call__(self, token: Token) -> None:
        """Add to the stream what the token's experts make of it."""
        self.project(token.x, token.workers)
        if self.shared:  # it reads the stream as the experts find it, and leaves the same norm
            self.shared(token)
        self.visit(*self.given, token.x, token.workers)


def choice(layer: MixtureOfExperts, E: int) -> Choice:
    """How its router chooses among E experts."""
    r, bias = layer.routing, layer.gate.e_score_correction_bias
    return Choice(
        r.score == "sigmoid", r.normalize, np.float32(r.scale), r.groups, r.groups_kept,
        r.group_top, zeros(E) if bias is None else bias.detach().float().numpy().copy(),
    )  # fmt: skip
