"""A model that was cut is the old one with those parts silenced; importances are what they say."""

from __future__ import annotations

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.models import checkpoints
from twophase.models.config import Config
from twophase.models.generate import complete
from twophase.models.layer_sizes import StateSpace
from twophase.models.pruning import (
    MEASURES,
    UNITS,
    Kept,
    channels_going,
    cut,
    importance,
    keep_best,
    leave_one_out,
    loss_without,
    silenced,
)
from twophase.models.transformer import Transformer
from twophase.theory.sizes import LatentAttention, LayerWidths, MixtureOfExperts

L, N, F, D = 3, 6, 10, 16
KINDS = {
    "gqa": {},
    "mqa": {"K": 1},
    "mha": {"K": 6},
    "sliding": {"attention": ("sliding", "gqa", "sliding"), "window": 3},
    "cross": {"kv_source": (0, 0, 2)},
    "widths": {"widths": (LayerWidths(10, 6, 3), LayerWidths(7, 4, 2), LayerWidths(5, 6, 3))},
    "gemma": {"qk_norm": True, "norms_per_layer": 4, "norm_offset": 1.0, "activation": "gelu_tanh"},
    "gpt": {
        "learned_positions": 32,
        "norm": "layer",
        "gated_mlp": False,
        "qkv_bias": True,
        "o_bias": True,
        "mlp_bias": True,
        "activation": "gelu",
        "K": 6,
    },
    "untied": {"tied": False},
}
EXPERTS = {"moe": MixtureOfExperts(E=3, k=2, F=4, n_dense_layers=1)}
LATENT = {"attention": "mla", "mla": LatentAttention(R=6, rope_dim=4, nope_dim=4, v_dim=4), "K": 6}
STATE = {"attention": ("gqa", "ssm", "gqa"), "ssm": StateSpace(16)}
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5], [2, 7, 1, 8, 2, 8, 1, 8, 2]])


def model(kind: str | dict = "gqa", seed: int = 0) -> Transformer:
    torch.manual_seed(seed)
    sizes = {"L": L, "D": D, "F": F, "N": N, "K": 3, "H": 4, "V": 11, "context": 32}
    net = Transformer(Config(**{**sizes, **(KINDS[kind] if isinstance(kind, str) else kind)}))
    for p in net.parameters():
        torch.nn.init.normal_(p, std=0.4) if p.ndim > 1 else p.data.add_(0.3 * torch.randn_like(p))
    return net.eval().requires_grad_(False)


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal but for sums in another order, over at most 16 numbers of about 1."""
    return torch.allclose(one, other, atol=2e-5, rtol=1e-4)


def groups(net: Transformer, layer: int, kv_heads: list[int]) -> list[int]:
    G = net.config.at(layer).G
    return [k * G + g for k in kv_heads for g in range(G)]


def rest(n: int, gone: list[int]) -> list[int]:
    return [i for i in range(n) if i not in gone]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_cut_is_what_was_silenced(kind):
    net = model(kind)
    widths = [net.config.at(layer) for layer in range(L)]
    sharing = kind == "cross"  # layers that share keys must lose the same KV heads
    if kind == "mqa" or kind in ("mha", "gpt"):
        heads_gone = {0: [1, 4], 2: [0]}
    else:
        heads_gone = {0: groups(net, 0, [1])}
        heads_gone |= {1: groups(net, 1, [1 if sharing else 0])}
    channels_gone = {0: [0], 1: [1, 3], 2: [2, 4]}
    kept = Kept(
        heads={x: rest(widths[x].N, gone) for x, gone in heads_gone.items()},
        channels={x: rest(widths[x].F, gone) for x, gone in channels_gone.items()},
    )
    small = cut(net, kept)
    with silenced(net, heads=heads_gone, channels=channels_gone):
        assert close(small(TOKENS), net(TOKENS))
    assert not close(small(TOKENS), net(TOKENS))  # and it is gone after the block
    assert small.n_params < net.n_params


@pytest.mark.parametrize("kind", [*KINDS, EXPERTS, LATENT, STATE], ids=str)
def test_layers_can_be_left_out_of_every_kind_of_model(kind):
    net = model(kind)
    small = cut(net, Kept(layers=[0, 2]))
    assert small.config.L == 2
    with silenced(net, layers=[1]):
        assert close(small(TOKENS), net(TOKENS))


@pytest.mark.parametrize("kind", ["gqa", "untied", "sliding"])
def test_numbers_of_the_stream_that_say_nothing_can_go(kind):
    """Where the numbers that go are zero everywhere, nothing changes but the mean square, which is
    over fewer numbers: by a constant factor, which the norms' weights take up."""
    net, gone = model(kind), [2, 3, 11]
    for name, p in net.named_parameters():
        if name.endswith("embed_tokens.weight"):
            p[:, gone] = 0
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            p[gone] = 0
    small = cut(net, Kept(width=rest(D, gone)))
    assert small.config.D == D - 3
    for name, p in small.named_parameters():
        if name.endswith("norm.weight"):
            p.mul_((D / (D - 3)) ** 0.5)
    assert close(small(TOKENS), net(TOKENS))


@draws(30)
@given(data=st.data())
def test_any_choice_leaves_a_model_whose_cache_and_file_work(data, tmp_path_factory):
    net = model(data.draw(st.sampled_from(["gqa", "sliding", "widths", "mha", "untied"])))

    def some(n: int) -> list[int]:
        return data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True))

    layers = some(L)
    kept = Kept(
        layers=layers,
        width=some(D),
        channels={x: some(net.config.at(x).F) for x in layers},
        heads={x: groups(net, x, some(net.config.at(x).K)) for x in layers},
    )
    small = cut(net, kept).bfloat16().float()
    folder = tmp_path_factory.mktemp("pruned")
    checkpoints.save(small, "small", {}, folder)
    loaded = checkpoints.load("small", folder=folder)
    assert torch.equal(loaded(TOKENS), small(TOKENS))
    cached = complete(loaded, [3, 1, 4], 6).tokens
    assert cached == complete(loaded, [3, 1, 4], 6, cache=False).tokens


@pytest.mark.parametrize("unit", ["layers", "heads", "channels"])
def test_leaving_one_out_is_the_loss_of_the_model_without_it(unit):
    net = model("mha")
    found = leave_one_out(net, TOKENS, unit)
    whole = loss_without(net, TOKENS)
    for place in [(0, 0), (1, 4), (2, 5)]:
        layer, i = place
        kept = {
            "layers": Kept(layers=rest(L, [layer])),
            "heads": Kept(heads={layer: rest(N, [i])}),
            "channels": Kept(channels={layer: rest(F, [i])}),
        }[unit]
        risen = loss_without(cut(net, kept), TOKENS) - whole
        here = found[layer] if unit == "layers" else found[layer, i]
        assert float(here) == pytest.approx(risen, abs=1e-5)
        assert abs(risen) > 1e-3  # it says something


@pytest.mark.parametrize("unit", ["layers", "heads", "channels"])
def test_a_gradient_is_the_slope_of_the_loss_in_a_gate_on_what_the_unit_says(unit):
    net = model("gqa")
    found = importance(net, TOKENS, unit, "gradient")
    assert not any(p.requires_grad for p in net.parameters())
    size = {"heads": 4, "channels": 1, "layers": D}[unit]
    for layer, i in [(0, 0), (1, 3), (2, 5)]:
        gates = torch.ones(2, requires_grad=True)  # one for each sequence

        def scale(module, args, gates=gates, i=i):
            x = args[0].clone()
            x[..., i * size : (i + 1) * size] *= gates[:, None, None]
            return (x,)

        def scale_what_is_added(module, args, out, gates=gates):
            return args[0] + gates[:, None, None] * (out - args[0])

        if unit == "layers":
            hook = net.layers[layer].register_forward_hook(scale_what_is_added)
        else:
            seam = {"heads": "self_attn.o_proj", "channels": "mlp.down_proj"}[unit]
            hook = net.layers[layer].get_submodule(seam).register_forward_pre_hook(scale)
        logits = net(TOKENS[:, :-1])
        hook.remove()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), TOKENS[:, 1:].flatten())
        (slopes,) = torch.autograd.grad(loss, gates)  # [2]
        here = found[layer] if unit == "layers" else found[layer, i]
        assert float(here) == pytest.approx(float(slopes.abs().sum()), rel=1e-4)


def test_activations_are_the_mean_length_of_what_a_unit_says():
    net, said = model("gqa"), {}
    for layer, block in enumerate(net.layers):
        block.self_attn.o_proj.register_forward_pre_hook(
            lambda m, args, layer=layer: said.__setitem__(("heads", layer), args[0])
        )
        block.register_forward_hook(
            lambda m, args, out, layer=layer: said.__setitem__(("layers", layer), (args[0], out))
        )
    heads = importance(net, TOKENS, "heads", "activation")
    layers = importance(net, TOKENS, "layers", "activation")
    for layer in range(L):
        one = said["heads", layer][..., 4:8].norm(dim=-1).mean()  # head 1
        assert float(heads[layer, 1]) == pytest.approx(float(one), rel=1e-5)
        before, after = (x / x.norm(dim=-1, keepdim=True) for x in said["layers", layer])
        assert float(layers[layer]) == pytest.approx(
            1 - float((before * after).sum(-1).mean()), rel=1e-4
        )


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("unit", UNITS)
def test_every_measure_ranks_every_unit_of_uneven_layers(unit, measure):
    net = model("widths")
    if (unit, measure) == ("width", "leave_one_out"):
        with pytest.raises(ValueError, match="has no seam"):
            importance(net, TOKENS, unit, measure)
        return
    found = importance(net, TOKENS, unit, measure)
    shape = {"layers": (3,), "heads": (3, 6), "channels": (3, 10), "width": (D,)}[unit]
    assert found.shape == shape
    missing = {"heads": 2, "channels": 3 + 5}.get(unit, 0)
    assert int(found.isnan().sum()) == missing
    kept = keep_best(net, found, unit, 2)
    small = cut(net, kept)
    assert torch.isfinite(small(TOKENS)).all()
    assert torch.equal(net(TOKENS), model("widths")(TOKENS))  # nothing was left behind


def test_the_best_are_kept_and_heads_go_by_group():
    net = model("gqa")
    scores = torch.tensor([[9.0, 0, 1, 1, 5, 5]] * L)
    kept = keep_best(net, scores, "heads", 2)
    assert kept.heads == {layer: [0, 1, 4, 5] for layer in range(L)}
    assert keep_best(net, torch.tensor([1.0, 3, 2]), "layers", 2).layers == [1, 2]
    assert keep_best(net, torch.zeros(L), "layers", 2).layers == [0, 1]  # of equals the first
    with pytest.raises(ValueError, match="there are 3 KV heads of layer 0; 4 of them cannot stay"):
        keep_best(net, scores, "heads", 4)


@pytest.mark.parametrize(
    ("kind", "kept", "sentence"),
    [
        ("gqa", Kept(layers=[]), "of 3 layers, numbered from 0, at least one stays"),
        ("gqa", Kept(layers=[0, 3]), r"each named once; got \[0, 3\]"),
        ("gqa", Kept(heads={0: [1, 1]}), "query heads of layer 0"),
        ("gqa", Kept(heads={1: [0, 2, 3]}), r"unequally many query heads \(0 by 1, 1 by 2\)"),
        ("gqa", Kept(channels={0: [2.0]}), "a number among the channels of layer 0 is a whole"),
        ("cross", Kept(layers=[1, 2]), "layer 0 cannot be left out: layer 1 reads its keys"),
        ("cross", Kept(heads={0: [0, 1]}), "layer 1 reads the KV heads of layer 0: both must keep"),
        (EXPERTS, Kept(channels={1: [0]}), "layer 1 has a part that is not cut here"),
        (LATENT, Kept(heads={0: [0]}), "layer 0 has a part that is not cut here"),
        (STATE, Kept(width=[0, 1]), "layer 1 has a part that is not cut here"),
    ],
    ids=str,
)
def test_what_cannot_be_cut_is_refused_by_a_sentence(kind, kept, sentence):
    with pytest.raises(ValueError, match=sentence):
        cut(model(kind), kept)


def test_what_cannot_be_measured_is_refused_by_a_sentence():
    with pytest.raises(ValueError, match="a unit is one of layers, heads, channels, width"):
        importance(model(), TOKENS, "head", "random")
    with pytest.raises(ValueError, match="layer 1 has no channels that can be cut"):
        importance(model(EXPERTS), TOKENS, "channels", "activation")
    with pytest.raises(ValueError, match="layer 1 has no heads that can be cut"):
        importance(model(STATE), TOKENS, "heads", "random")


def test_the_log_of_channels_that_go_has_the_loss_of_the_model_without_them():
    net = model("gqa")
    log = channels_going(net, TOKENS, 1, [3, 0, 7, 2], [0, 1, 3])
    assert [event["gone"] for event in log] == [[], [3], [3, 0, 7]]
    assert log[0]["loss"] == loss_without(net, TOKENS)
    without = cut(net, Kept(channels={1: rest(F, [0, 3, 7])}))
    assert log[2]["loss"] == pytest.approx(loss_without(without, TOKENS), abs=1e-5)
    assert {event["layer"] for event in log} == {1}
