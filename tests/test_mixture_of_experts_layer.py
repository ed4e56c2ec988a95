"""The mixture of experts as a layer: against transformers' four blocks, what it reads, how it
trains and what it weighs."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from transformers import DeepseekV2Config, DeepseekV3Config, MixtralConfig, Qwen3MoeConfig
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Moe
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

from twophase.kernels.mixture_of_experts import route
from twophase.measure import Meter
from twophase.models.config import Config
from twophase.models.layer_sizes import Routing
from twophase.models.mixture_of_experts import MixtureOfExperts
from twophase.models.mlp import GatedMLP
from twophase.models.transformer import Transformer
from twophase.theory import catalog
from twophase.theory.sizes import MixtureOfExperts as Sizes

D = 20
# Both sides compute in fp32, in another order: sums of a few dozen products of numbers near 1.
SAME = {"rtol": 1e-5, "atol": 1e-5}


def draw(*shape: int, seed: int = 0, std: float = 1.0) -> torch.Tensor:
    return std * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def fill(module: nn.Module, seed: int = 0) -> None:
    """Weights large enough that experts differ and routers decide."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * weight.shape[-1] ** -0.5)


def layer(moe: Sizes, routing: Routing | None = None, **more: Any) -> MixtureOfExperts:
    """Our layer in a model of width D, its weights drawn."""
    made = MixtureOfExperts(
        Config(L=1, D=D, F=24, N=2, K=1, H=4, moe=moe, routing=routing or Routing(), **more)
    )
    fill(made)
    return made.eval()


# The oracle: transformers' blocks with our weights.


@dataclass(frozen=True)
class Case:
    """One block of transformers and the layer that should equal it."""

    name: str
    block: Callable[[], nn.Module]
    moe: Sizes
    routing: Routing

    def __str__(self) -> str:
        return self.name


def mixtral(E: int, k: int) -> Case:
    sizes = MixtralConfig(
        hidden_size=D,
        intermediate_size=14,
        num_local_experts=E,
        num_experts_per_tok=k,
        experts_implementation="eager",
    )
    return Case(
        f"mixtral-{E}-{k}", lambda: MixtralSparseMoeBlock(sizes), Sizes(E, k, 14), Routing()
    )


def qwen3(E: int, k: int, normalize: bool) -> Case:
    sizes = Qwen3MoeConfig(
        hidden_size=D,
        moe_intermediate_size=9,
        num_experts=E,
        num_experts_per_tok=k,
        norm_topk_prob=normalize,
        experts_implementation="eager",
    )
    routing = Routing(normalize=normalize)
    return Case(
        f"qwen3-{E}-{k}-{normalize}", lambda: Qwen3MoeSparseMoeBlock(sizes), Sizes(E, k, 9), routing
    )


def deepseek(version: int, E: int, k: int, n_shared: int, routing: Routing) -> Case:
    grouped = version == 3 or routing.groups > 1
    choice = (
        {"topk_method": "group_limited_greedy" if grouped else "greedy"} if version == 2 else {}
    )
    sizes = (DeepseekV2Config if version == 2 else DeepseekV3Config)(
        hidden_size=D,
        moe_intermediate_size=9,
        num_attention_heads=2,
        n_routed_experts=E,
        num_experts_per_tok=k,
        n_shared_experts=n_shared,
        n_group=routing.groups,
        topk_group=routing.groups_kept,
        norm_topk_prob=routing.normalize,
        routed_scaling_factor=routing.scale,
        experts_implementation="eager",
        **choice,
    )
    block = DeepseekV2Moe if version == 2 else DeepseekV3MoE
    name = f"deepseek_v{version}-{E}-{k}-{routing.groups_kept}of{routing.groups}-x{routing.scale}"
    return Case(name, lambda: block(sizes), Sizes(E, k, 9, n_shared, 0, version == 3), routing)


def v2(groups: int, kept: int, scale: float) -> Routing:
    return Routing("softmax", False, scale, groups, kept, 1)


def v3(groups: int, kept: int, scale: float, normalize: bool = True) -> Routing:
    return Routing("sigmoid", normalize, scale, groups, kept, 2)


CASES = [
    *(mixtral(E, k) for E, k in [(8, 2), (5, 1), (3, 3), (1, 1)]),
    *(qwen3(E, k, normalize) for E, k, normalize in [(12, 4, True), (7, 3, False), (6, 1, True)]),
    *(
        deepseek(2, E, k, n, r)
        for E, k, n, r in [(6, 2, 1, v2(1, 1, 1.0)), (12, 3, 2, v2(4, 2, 16.0))]
    ),
    deepseek(2, 9, 3, 1, v2(3, 1, 0.5)),  # all experts of the one group kept
    *(
        deepseek(3, E, k, n, r)
        for E, k, n, r in [(12, 4, 1, v3(3, 2, 2.5)), (10, 3, 2, v3(1, 1, 1.0, False))]
    ),
    deepseek(3, 8, 8, 1, v3(4, 4, 2.5)),  # k = E
    deepseek(3, 15, 1, 1, v3(5, 1, 1.5)),
]


def copy_weights(theirs: nn.Module, ours: MixtureOfExperts) -> None:
    """transformers stacks gate over up; everything else is stored as here."""
    state = {
        name: weight
        for name, weight in theirs.state_dict().items()
        if name != "experts.gate_up_proj"
    }
    fused = theirs.experts.gate_up_proj.detach()  # [E, 2F, D]
    state["experts.gate_proj"], state["experts.up_proj"] = fused.chunk(2, dim=1)
    ours.load_state_dict(state, strict=True)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_layer_equals_the_block_of_transformers(case):
    theirs = case.block().eval()
    fill(theirs)
    if case.moe.router_bias:
        theirs.gate.e_score_correction_bias.copy_(draw(case.moe.E, seed=5, std=0.3))
    ours = layer(case.moe, case.routing)
    copy_weights(theirs, ours)
    for B, T in [(1, 1), (2, 17), (1, 40)]:
        x = draw(B, T, D, seed=T)
        with torch.no_grad():
            torch.testing.assert_close(ours(x), theirs(x), **SAME)


@pytest.mark.parametrize(
    "case", [mixtral(8, 2), qwen3(7, 3, False), deepseek(3, 12, 4, 1, v3(3, 2, 2.5))], ids=str
)
def test_gradients_equal_those_of_the_block_of_transformers(case):
    theirs = case.block()
    fill(theirs)
    ours = layer(case.moe, case.routing)
    copy_weights(theirs, ours)
    x, y = (draw(2, 9, D).requires_grad_() for _ in range(2))
    ours(x).square().sum().backward()
    theirs(y).square().sum().backward()
    torch.testing.assert_close(
        x.grad, y.grad, rtol=1e-4, atol=1e-4
    )  # squares and sums of up to 100
    torch.testing.assert_close(ours.gate.weight.grad, theirs.gate.weight.grad, rtol=1e-4, atol=1e-4)
    fused = torch.cat([ours.experts.gate_proj.grad, ours.experts.up_proj.grad], dim=1)
    torch.testing.assert_close(fused, theirs.experts.gate_up_proj.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        ours.experts.down_proj.grad, theirs.experts.down_proj.grad, rtol=1e-4, atol=1e-4
    )


def test_all_experts_with_equal_weights_are_their_mean():
    ours = layer(Sizes(6, 6, 11))
    ours.gate.weight.data.zero_()
    x = draw(2, 5, D)
    e = ours.experts
    each = [
        functional.silu(x @ g.T) * (x @ u.T) @ d.T
        for g, u, d in zip(e.gate_proj, e.up_proj, e.down_proj, strict=True)
    ]
    torch.testing.assert_close(ours(x), torch.stack(each).mean(0), **SAME)


def test_one_expert_is_the_plain_mlp():
    ours = layer(Sizes(1, 1, 24), activation="gelu_tanh")
    mlp = GatedMLP(Config(L=1, D=D, F=24, N=2, K=1, H=4, activation="gelu_tanh"))
    mlp.load_state_dict(
        {
            f"{name}.weight": getattr(ours.experts, name)[0]
            for name in ("gate_proj", "up_proj", "down_proj")
        }
    )
    x = draw(3, 4, D)
    torch.testing.assert_close(ours(x), mlp(x), **SAME)


@draws(20)
@given(
    st.integers(1, 24).flatmap(lambda n: st.tuples(st.permutations(range(n)), st.integers(0, n)))
)
def test_a_token_is_answered_alike_in_any_order_and_any_company(order_and_cut):
    order, cut = order_and_cut
    ours = layer(Sizes(7, 3, 9, 1), Routing("sigmoid", scale=2.0))
    x = draw(1, len(order), D)
    with torch.no_grad():
        y = ours(x)
        torch.testing.assert_close(ours(x[:, order]), y[:, order], **SAME)
        pieces = [
            ours(piece) for piece in x.split([cut, len(order) - cut], dim=1) if piece.shape[1]
        ]
        torch.testing.assert_close(torch.cat(pieces, dim=1), y, **SAME)


# What is read.


def test_weights_of_experts_that_nobody_visits_are_never_used():
    ours = layer(Sizes(16, 2, 9))
    x = draw(1, 3, D)
    with torch.no_grad():
        expected = ours(x)
        touched = route(ours.gate(x[0]), 2)[0].unique()
        idle = [e for e in range(16) if e not in touched]
        assert len(idle) >= 10
        for weight in ours.experts.parameters():
            weight[idle] = torch.nan
        assert torch.equal(ours(x), expected)


@pytest.mark.parametrize("n", [1, 5, 40])
def test_the_meter_sees_the_weights_of_touched_experts_once_and_the_flops_of_theory(n):
    E, k, F, n_shared = 8, 2, 9, 2
    ours = layer(Sizes(E, k, F, n_shared))
    x = draw(1, n, D)
    with torch.inference_mode(), Meter() as m:
        ours(x)
    with torch.inference_mode():
        touched = len(route(ours.gate(x[0]), k)[0].unique())
    assert m.matmul_flops == 2 * n * ((k + n_shared) * 3 * D * F + D * E)
    products = sum(m.by_op[name].bytes for name in ("aten.mm", "aten.addmm") if name in m.by_op)
    weights = 4 * (touched * 3 * D * F + n_shared * 3 * D * F + D * E)
    activations = (
        4 * n * ((3 * D + 3 * F) * k + 3 * (D + n_shared * F) + D + E)
    )  # into and out of each product
    assert products == weights + activations


# The layer.


def test_the_auxiliary_loss_exists_only_while_training_and_is_no_part_of_the_model():
    ours = layer(Sizes(6, 2, 9))
    ours(draw(2, 5, D))
    assert ours.aux_loss is None
    ours.train()(draw(2, 5, D))
    assert ours.aux_loss.requires_grad
    assert ours.aux_loss.ndim == 0
    assert "aux_loss" not in "".join(ours.state_dict())
    assert copy.deepcopy(ours).aux_loss is None
    ours.eval()(draw(2, 5, D))
    assert ours.aux_loss is None


def test_training_on_the_auxiliary_loss_evens_out_a_router_that_had_collapsed():
    ours = layer(Sizes(6, 2, 9)).train()
    x = draw(4, 64, D)
    x[..., 0] = 2.0
    ours.gate.weight.data[:2, 0] += 2.0  # everybody likes experts 0 and 1
    optimizer = torch.optim.SGD([ours.gate.weight], lr=1.0)
    losses = []
    for _ in range(60):
        ours(x)
        optimizer.zero_grad()
        ours.aux_loss.backward()
        optimizer.step()
        losses.append(ours.aux_loss.item())
    assert losses[0] > 2.5
    assert losses[-1] < 1.05


def test_under_autocast_the_router_decides_as_in_fp32_and_gradients_are_finite():
    ours = layer(Sizes(6, 2, 9, 1, router_bias=True), Routing("sigmoid")).train()
    x = draw(4, 32, D).requires_grad_()
    exact = ours(x.detach())
    logits = ours.gate(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(ours.gate(x), logits)
        y = ours(x)
    torch.testing.assert_close(y.float(), exact, rtol=0.05, atol=0.05)  # bf16 keeps 8 bits
    (y.float().square().mean() + 0.01 * ours.aux_loss).backward()
    learned = {
        name: p for name, p in ours.named_parameters() if name != "gate.e_score_correction_bias"
    }
    assert all(p.grad is not None and p.grad.isfinite().all() for p in (x, *learned.values()))
    assert all(p.grad.dtype == torch.float32 and p.grad.any() for p in learned.values())
    assert not ours.gate.e_score_correction_bias.requires_grad


def test_a_bf16_layer_answers_in_bf16_near_the_fp32_answer():
    ours = layer(Sizes(6, 2, 9, 1))
    x = draw(2, 8, D).bfloat16()
    with torch.no_grad():
        narrow = copy.deepcopy(ours).bfloat16()
        wide = copy.deepcopy(narrow).float()  # the same rounded weights
        y = narrow(x)
        assert y.dtype == torch.bfloat16
        torch.testing.assert_close(y.float(), wide(x.float()), rtol=0.03, atol=0.03)


@pytest.mark.parametrize(
    "moe",
    [Sizes(8, 2, 9), Sizes(5, 1, 7, 2, 1, True), Sizes(3, 3, 10, 1, 2), Sizes(4, 2, 6, 0, 3, True)],
    ids=str,
)
def test_a_model_has_as_many_parameters_as_theory_counts(moe):
    config = Config(L=3, D=D, F=24, N=2, K=1, H=4, moe=moe)
    model = Transformer(config)
    assert model.n_params == config.architecture().n_params()
    assert sum(isinstance(m, MixtureOfExperts) for m in model.modules()) == 3 - moe.n_dense_layers


WITH_EXPERTS = [n for n, arch in catalog.MODELS.items() if arch.moe and not arch.moe.bias]


@pytest.mark.parametrize("name", WITH_EXPERTS)
def test_a_layer_of_a_real_model_has_as_many_parameters_as_theory_counts(name):
    arch = catalog.MODELS[name]
    with torch.device("meta"):
        ours = MixtureOfExperts(Config(L=arch.L, D=arch.D, F=arch.F, N=1, K=1, H=2, moe=arch.moe))
    routed = (arch.moe.E + arch.moe.n_shared) * arch.n_expert_params()
    assert sum(p.numel() for p in ours.parameters()) == routed + arch.moe.E * (
        arch.D + arch.moe.router_bias
    )


def test_a_new_model_starts_with_experts_of_the_deviation_that_other_matrices_have():
    torch.manual_seed(0)
    mlp = (
        Transformer(Config(L=8, D=64, F=64, N=2, K=1, H=4, moe=Sizes(8, 2, 64, 0, 0, True)))
        .layers[0]
        .mlp
    )
    # 32,768 numbers each: the deviation of a sample is within 2% of the law's
    for weight in (mlp.experts.gate_proj, mlp.experts.up_proj):
        assert weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert mlp.experts.down_proj.std().item() == pytest.approx(0.02 / 4, rel=0.02)
    assert mlp.gate.weight.std().item() == pytest.approx(0.02, rel=0.15)
    assert mlp.gate.e_score_correction_bias.count_nonzero() == 0


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({}, "needs `moe`"),
        ({"moe": Sizes(4, 2, 8), "mlp_bias": True}, "without biases"),
        ({"moe": Sizes(4, 2, 8), "gated_mlp": False}, "gated MLPs"),
        (
            {"moe": Sizes(6, 4, 8), "routing": Routing(groups=2, groups_kept=1)},
            "between 1 and 3 experts",
        ),
    ],
)
def test_the_layer_refuses_a_config_that_it_cannot_build(more, says):
    with pytest.raises(ValueError, match=says):
        MixtureOfExperts(Config(L=1, D=D, F=24, N=2, K=1, H=4, **more))


@pytest.mark.parametrize(
    "wrong", [{"score": "tanh"}, {"groups": 0}, {"group_top": 0}, {"groups": 2, "groups_kept": 3}]
)
def test_a_routing_that_means_nothing_is_refused(wrong):
    with pytest.raises(ValueError, match=r"router|groups"):
        Routing(**wrong)


def test_experts_with_biases_are_refused():
    with pytest.raises(ValueError, match="the experts' `bias` must be False"):
        Transformer(Config(L=1, D=4, F=4, N=1, K=1, H=4, moe=Sizes(2, 1, 4, bias=True)))
