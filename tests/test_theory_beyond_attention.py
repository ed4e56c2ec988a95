"""The formulas for mixers with a state count what a step does, number by number."""

from dataclasses import replace

import pytest

from twophase.models.config import Config
from twophase.models.layer_sizes import LinearAttention, StateSpace
from twophase.theory.beyond_attention import (
    linear_attention_flops,
    state_space_flops,
    taylor_features,
)

COUNT = [0]


class Counted:
    """A number that counts what is done to it."""

    def _one(self, _: object) -> "Counted":
        COUNT[0] += 1
        return self

    __add__ = __mul__ = __truediv__ = _one


def vector(n: int) -> list[Counted]:
    return [Counted() for _ in range(n)]


@pytest.mark.parametrize(("d_inner", "d_state", "conv_width"), [(1, 1, 1), (3, 2, 4), (5, 7, 2)])
def test_a_step_of_the_state_space_does_as_many_operations_as_the_formula_says(
    d_inner, d_state, conv_width
):
    COUNT[0] = 0
    for _ in range(d_inner):
        x, dt, skip, bias = vector(4)
        x = sum(
            (w * u for w, u in zip(vector(conv_width), vector(conv_width), strict=True)), start=bias
        )
        y = skip * x
        dt_x = dt * x
        for A, B, C, h in zip(*(vector(d_state) for _ in range(4)), strict=True):
            h = (dt * A) * h + dt_x * B  # the exponential of dt·A is not counted
            y = y + C * h
    # The skip's product starts the sum; the formula counts its addition as well, as torch does it.
    assert COUNT[0] + d_inner == state_space_flops(d_inner, d_state, conv_width)


@pytest.mark.parametrize(("N", "features", "H"), [(1, 1, 1), (2, 7, 3)])
def test_a_step_of_linear_attention_does_as_many_operations_as_the_formula_says(N, features, H):
    COUNT[0] = 0
    for _ in range(N):
        phi_k, phi_q, total = (vector(features) for _ in range(3))
        v, out, weight = vector(H), vector(H), Counted()
        state = [vector(H) for _ in range(features)]
        for f in range(features):
            state[f] = [s + phi_k[f] * value for s, value in zip(state[f], v, strict=True)]
            total[f] = total[f] + phi_k[f]
            out = [o + phi_q[f] * s for o, s in zip(out, state[f], strict=True)]
            weight = weight + phi_q[f] * total[f]
        out = [o / weight for o in out]
    assert COUNT[0] == linear_attention_flops(N, features, H)


@pytest.mark.parametrize(
    "kind",
    [
        {"attention": "linear", "linear": LinearAttention(feature_dim=4)},
        {"attention": "ssm", "ssm": StateSpace(d_inner=20, d_state=3, dt_rank=2)},
    ],
)
def test_a_decode_step_of_state_layers_costs_the_same_after_any_context(kind):
    arch = replace(Config(L=2, D=16, F=24, N=4, K=4, H=4), **kind).architecture()
    assert arch.state_flops > 0
    assert arch.decode_step_flops(1, 1) == arch.decode_step_flops(1, 10**6)
    assert arch.prefill_flops(1, 10) == 10 * arch.decode_step_flops(1, 1)
    assert taylor_features(4) == 21
