"""Where linear layers plug in: every matrix that multiplies tokens is a module that is called."""

import pytest
import torch
from torch import nn

from twophase.models.family import FAMILY
from twophase.models.latent_attention import UpProjection
from twophase.models.linear import Linear, linears, replace_linears
from twophase.models.transformer import Config, Transformer


class Counting(nn.Module):
    """A linear layer that counts its calls, and is nothing but callable."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.calls = 0
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.inner(x)


def tokens(config: Config) -> torch.Tensor:
    return torch.randint(0, config.V, (2, 6), generator=torch.Generator().manual_seed(0))


def logits(model: Transformer) -> torch.Tensor:
    """Of a prompt and a decode step, through a cache where the model has one."""
    ids = tokens(model.config)
    if not model.config.causal:
        return model(ids)
    cache = model.new_cache(2, 6)
    return torch.cat([model(ids[:, :4], cache), model(ids[:, 4:5], cache)], dim=1)


@pytest.mark.parametrize("name", FAMILY)
def test_every_linear_layer_of_every_member_can_be_replaced_and_is_called(name):
    torch.manual_seed(0)
    model = Transformer(FAMILY[name]).eval().requires_grad_(False)
    expected, names = logits(model), [name for name, _ in linears(model)]
    assert replace_linears(model, lambda _, linear: Counting(linear)) == names
    torch.testing.assert_close(logits(model), expected, rtol=1e-4, atol=1e-5)  # MLA unfolds now
    passes = 2 if model.config.causal else 1
    counted = {n: m.calls for n, m in model.named_modules() if isinstance(m, Counting)}
    assert counted == dict.fromkeys(names, passes)


@pytest.mark.parametrize("name", FAMILY)
def test_no_matrix_of_a_layer_is_hidden_from_the_list_but_routers_experts_and_convolutions(name):
    model = Transformer(FAMILY[name])
    listed = {f"{n}.weight" for n, _ in linears(model)} | {"embed_tokens.weight"}
    others = {n for n, p in model.named_parameters() if p.ndim > 1 and n not in listed}
    known = ("mlp.gate.weight", "conv1d.weight", "A_log")
    assert not [n for n in others if not n.endswith(known) and ".mlp.experts." not in n]


def test_hooks_on_every_linear_layer_fire():
    model = Transformer(FAMILY["gqa"])
    fired = []
    for name, linear in linears(model):
        linear.register_forward_hook(lambda *_, name=name: fired.append(name))
    logits(model)
    assert sorted(set(fired)) == sorted(name for name, _ in linears(model))


def test_experts_of_another_making_take_the_place_of_the_stacked_ones():
    torch.manual_seed(0)
    model = Transformer(FAMILY["moe"]).eval().requires_grad_(False)
    expected, visits = logits(model), []

    class OneByOne(nn.Module):
        def __init__(self, stacked: nn.Module) -> None:
            super().__init__()
            self.stacked = stacked

        def forward(
            self, x: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor
        ) -> torch.Tensor:
            visits.append(experts)
            e, y = self.stacked, torch.zeros_like(x)
            for t, row in enumerate(x):
                for i, w in zip(experts[t], weights[t], strict=True):
                    gate = nn.functional.silu(e.gate_proj[i] @ row)
                    y[t] += w * (e.down_proj[i] @ (gate * (e.up_proj[i] @ row)))
            return y

    for layer in model.layers:
        layer.mlp.experts = OneByOne(layer.mlp.experts)
    torch.testing.assert_close(logits(model), expected, rtol=1e-4, atol=1e-5)
    assert len(visits) == 2 * model.config.L


def test_only_what_is_asked_for_is_replaced_and_a_misspelled_name_is_said():
    model = Transformer(FAMILY["gqa"])
    names = replace_linears(
        model, lambda name, linear: Counting(linear) if name.endswith("up_proj") else None
    )
    assert names == [f"layers.{i}.mlp.up_proj" for i in range(model.config.L)]
    with pytest.raises(ValueError, match=r"no linear .* was replaced: .*layers\.0\.self_attn\.q"):
        replace_linears(model, lambda name, linear: Counting(linear) if "up_prj" in name else None)
    with pytest.raises(ValueError, match="which has none"):
        replace_linears(nn.Identity(), lambda name, linear: None)


def test_a_tied_head_is_untied_by_what_takes_its_place_and_by_nothing_else():
    model = Transformer(FAMILY["gqa"])
    assert model.lm_head.weight is model.embed_tokens.weight
    c, before = model.config, model.embed_tokens.weight.clone()
    replace_linears(model, lambda n, _: Linear(c.D, c.V) if n == "lm_head" else None)
    assert model.lm_head.weight is not model.embed_tokens.weight
    assert torch.equal(model.embed_tokens.weight, before)


def test_the_up_projection_and_its_two_halves_are_one_matrix():
    sizes = FAMILY["mla"].mla
    up = UpProjection(3, sizes).requires_grad_(False).double()
    latent, q = torch.randn(2, 5, sizes.R).double(), torch.randn(2, 4, 3, sizes.nope_dim).double()
    keys, values = up(latent).view(2, 5, 3, -1).split([sizes.nope_dim, sizes.v_dim], dim=-1)
    scores = torch.einsum("btnd,bsnd->bnts", q, keys)
    torch.testing.assert_close(torch.einsum("btnr,bsr->bnts", up.absorb(q), latent), scores)
    summed = torch.einsum("bnts,bsr->btnr", scores, latent)
    expected = torch.einsum("bnts,bsnd->btnd", scores, values)
    torch.testing.assert_close(up.unfold(summed), expected)
