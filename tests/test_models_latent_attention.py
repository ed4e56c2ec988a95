"""The latent attention layer: the outputs of DeepSeek's as `transformers` runs them, by either form
and through its cache."""

from unittest import mock

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from transformers import DeepseekV2Config, DeepseekV3Config
from transformers.models.deepseek_v2.modeling_deepseek_v2 import (
    DeepseekV2Attention,
    DeepseekV2RotaryEmbedding,
)
from transformers.models.deepseek_v3.modeling_deepseek_v3 import (
    DeepseekV3Attention,
    DeepseekV3RotaryEmbedding,
)

from twophase.kernels.latent_attention import attend_unfolded
from twophase.kernels.rope import rope_tables
from twophase.kernels.span import Span
from twophase.measure import Meter
from twophase.models import latent_attention as module
from twophase.models.cache import Cache
from twophase.models.config import Config
from twophase.models.latent_attention import LatentAttention
from twophase.models.step import Step
from twophase.models.stores import new_cache
from twophase.models.transformer import Transformer
from twophase.theory.model_list import DEEPSEEK_V2, DEEPSEEK_V3
from twophase.theory.sizes import LatentAttention as Sizes

# fp32 rounds by 1e-7 per operation; outputs are of order 1 and sums some dozen terms long, in
# another order.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
T = 13


def small(q_rank: int | None = None, **more) -> Config:
    """No two sizes are equal, so that a mixed-up pair cannot pass unseen; N·v_dim is not D."""
    sizes = Sizes(R=14, rope_dim=6, nope_dim=10, v_dim=7, q_rank=q_rank)
    return Config(
        **(
            {
                "L": 1,
                "D": 24,
                "F": 20,
                "N": 3,
                "K": 3,
                "H": 16,
                "V": 31,
                "attention": "mla",
                "mla": sizes,
            }
            | more
        )
    )


def at_random(layer: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Weights so large that a mistake cannot hide in the tolerance, norms and biases included."""
    generator = torch.Generator().manual_seed(seed)
    for name, p in layer.named_parameters():
        scale = 0.3 if p.ndim > 1 else 0.5
        p.data = (1.0 if "layernorm" in name else 0.0) + scale * torch.randn(
            p.shape, generator=generator
        )
    return layer.eval().requires_grad_(False)


def stream(B: int = 2, n: int = T, D: int = 24, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(B, n, D, generator=torch.Generator().manual_seed(1))


def run(layer: LatentAttention, x: torch.Tensor, cache: Cache | None = None) -> torch.Tensor:
    """What the layer makes of x [B, T, D], as the only one of a model."""
    B, T, _ = x.shape
    span = Span.of(B, T) if cache is None else cache.begin(B, T)
    config = layer.config
    y = layer(
        x, Step(span, {"mla": rope_tables(span.positions, config.turned, config.rope_theta)}, cache)
    )
    if cache is not None:
        cache.commit()
    return y


def in_blocks(layer: LatentAttention, x: torch.Tensor, blocks: list[int]) -> torch.Tensor:
    """The layer's outputs when the tokens come block by block, through a cache that they fill to
    the last token."""
    cache = new_cache(layer.config, x.shape[0], x.shape[1], 0, x.dtype, None)
    outs = [run(layer, block, cache) for block in x.split(blocks, dim=1)]
    assert cache.length == x.shape[1]
    return torch.cat(outs, dim=1)


def theirs(version: int, q_rank: int | None, bias: bool, interleave: bool, x: torch.Tensor):
    """transformers' attention of the same sizes as `small`, at random, and what it makes of x."""
    sizes = {
        "hidden_size": 24,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "q_lora_rank": q_rank,
        "kv_lora_rank": 14,  # even, or the view of complex numbers in transformers fails
        "qk_rope_head_dim": 6,
        "qk_nope_head_dim": 10,
        "v_head_dim": 7,
        "attention_bias": bias,
        "rms_norm_eps": 0.1,  # of the stream's norms: those of the latents must not have it
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
        "attn_implementation": "eager",
    }
    if version == 2:
        config, kinds = DeepseekV2Config(**sizes), (DeepseekV2Attention, DeepseekV2RotaryEmbedding)
    else:
        config, kinds = (
            DeepseekV3Config(**sizes, rope_interleave=interleave),
            (DeepseekV3Attention, DeepseekV3RotaryEmbedding),
        )
    attention, rotary = at_random(kinds[0](config, 0)), kinds[1](config)
    mask = torch.full((T, T), float("-inf")).triu(1)[None, None]  # [1, 1, T, T]
    out, _ = attention(
        hidden_states=x,
        position_embeddings=rotary(x, torch.arange(T)[None]),
        attention_mask=mask,
        past_key_values=None,
    )
    return attention, out


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("q_rank", [None, 9])
@pytest.mark.parametrize(("version", "interleave"), [(2, True), (3, True), (3, False)])
def test_the_layer_is_deepseeks_expanded_absorbed_and_cached(version, interleave, q_rank, bias):
    config = small(
        q_rank,
        rope_pairing="interleaved" if interleave else "half",
        qkv_bias=bias,
        o_bias=bias,
        norm_eps=0.1,
        rope_theta=500.0,
    )
    x = stream(scale=0.01)  # so small that another eps in the norms of the latents would show
    attention, expected = theirs(version, q_rank, bias, interleave, x)
    layer = LatentAttention(config, 0).requires_grad_(False)
    layer.load_state_dict(attention.state_dict(), strict=True)
    for layer.absorbed in (None, False, True):
        torch.testing.assert_close(run(layer, x), expected, **TOLERANCE)
        torch.testing.assert_close(in_blocks(layer, x, [4, 1, 1, 7]), expected, **TOLERANCE)


@draws(25)
@given(
    cuts=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    absorbed=st.sampled_from([None, False, True]),
)
def test_cached_outputs_equal_uncached_ones_however_the_tokens_are_fed(cuts, absorbed):
    layer, x = at_random(LatentAttention(small(9), 0)), stream(n=sum(cuts))
    layer.absorbed = absorbed
    torch.testing.assert_close(in_blocks(layer, x, cuts), run(layer, x), **TOLERANCE)


def used(T: int, start: int | None) -> str:
    """Which form the layer takes for T tokens after `start` that a cache holds; None: no cache."""
    layer = at_random(LatentAttention(small(), 0))
    cache = None if start is None else new_cache(layer.config, 2, 4000, 0, torch.float32, None)
    if start:
        cache.fill_with_noise(start)
    chosen = []
    with (
        mock.patch.object(layer.kv_b_proj, "absorb", side_effect=layer.kv_b_proj.absorb) as absorb,
        mock.patch.object(module, "attend_unfolded", side_effect=attend_unfolded) as unfold,
    ):
        run(layer, stream(n=T), cache)
        chosen = ["absorbed"] * absorb.called + ["unfolded"] * unfold.called
    (only,) = chosen
    return only


def test_few_tokens_over_many_are_absorbed_and_everything_else_is_unfolded():
    assert [used(1, None), used(5, None), used(4, 0)] == ["unfolded"] * 3
    assert [used(1, 0), used(1, 9), used(5, 3000)] == ["absorbed"] * 3
    R, unfolded = 14, 17  # of `small`; the head of the kernel's module says where it pays no more
    border = R * unfolded / (2 * R - unfolded)  # 21.6 tokens, over very many
    assert used(int(border) - 1, 3900) == "absorbed"
    assert used(int(border) + 1, 3900) == "unfolded"


def test_without_the_two_halves_of_the_up_projection_the_layer_always_unfolds():
    class Plain(torch.nn.Module):
        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    layer, x = at_random(LatentAttention(small(), 0)), stream()
    expected = in_blocks(layer, x, [4, 1, 1, 7])
    layer.kv_b_proj = Plain(layer.kv_b_proj)
    torch.testing.assert_close(in_blocks(layer, x, [4, 1, 1, 7]), expected, **TOLERANCE)


def test_scores_are_scaled_as_the_config_says():
    plain, sharper = (
        at_random(LatentAttention(small(score_scale=scale), 0)) for scale in (None, 0.9)
    )
    x = stream()
    same = at_random(LatentAttention(small(score_scale=16**-0.5), 0))  # 1/sqrt(nope_dim + rope_dim)
    torch.testing.assert_close(run(plain, x), run(same, x), **TOLERANCE)
    for sharper.absorbed in (False, True):  # a larger scale is the same as larger queries
        louder = at_random(LatentAttention(small(), 0))
        louder.q_proj.weight.data *= 0.9 * 16**0.5
        torch.testing.assert_close(run(sharper, x), run(louder, x), **TOLERANCE)


def test_training_in_bf16_gives_the_gradients_of_fp32_within_roundings():
    config = Config(
        L=1,
        D=128,
        F=352,
        N=4,
        K=4,
        H=48,
        attention="mla",
        mla=Sizes(R=32, rope_dim=16, nope_dim=32, v_dim=32),
    )
    layer, x = LatentAttention(config, 0), stream(n=65, D=128)
    gradients = []
    for autocast in (False, True):
        layer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            out = run(layer, x)
        out.float().square().sum().backward()
        gradients.append({name: p.grad.clone() for name, p in layer.named_parameters()})
    for name, exact in gradients[0].items():
        # a dozen roundings of 2⁻⁹ one after the other, each in its own direction
        assert (gradients[1][name] - exact).norm() < 0.03 * exact.norm(), name


@draws(20)
@given(
    D=st.integers(1, 9),
    N=st.integers(1, 4),
    R=st.integers(1, 9),
    half=st.integers(1, 3),
    nope_dim=st.integers(1, 5),
    v_dim=st.integers(1, 5),
    q_rank=st.none() | st.integers(1, 6),
    qkv_bias=st.booleans(),
    o_bias=st.booleans(),
)
def test_a_model_has_the_parameters_that_the_theory_counts(
    D, N, R, half, nope_dim, v_dim, q_rank, qkv_bias, o_bias
):
    sizes = Sizes(R, 2 * half, nope_dim, v_dim, q_rank)
    config = small(D=D, N=N, K=N, L=2, mla=sizes, qkv_bias=qkv_bias, o_bias=o_bias)
    assert Transformer(config).n_params == config.architecture().n_params()


@pytest.mark.parametrize("arch", [DEEPSEEK_V2, DEEPSEEK_V3], ids=lambda arch: arch.name)
def test_a_layer_at_deepseeks_size_has_the_parameters_that_the_theory_counts(arch):
    config = Config(
        L=1, D=arch.D, F=1, N=arch.N, K=arch.K, H=arch.H, V=1, attention="mla", mla=arch.mla
    )
    with torch.device("meta"):
        layer = LatentAttention(config, 0)
    counted = config.architecture().breakdown()
    inner_norms = (
        counted["norms"] - 3 * arch.D
    )  # but for the two of the layer and the one before the head
    assert sum(p.numel() for p in layer.parameters()) == counted["attention"] + inner_norms


@pytest.mark.parametrize("q_rank", [None, 7])
@pytest.mark.parametrize("S", [1, 9])
def test_a_decode_step_of_a_whole_model_costs_what_the_theory_counts(q_rank, S):
    config = small(q_rank, L=2)
    model = Transformer(config).requires_grad_(False)
    cache = model.new_cache(3, S)
    if S > 1:
        model(torch.zeros(3, S - 1, dtype=torch.long), cache)
    with Meter() as m:
        model(torch.zeros(3, 1, dtype=torch.long), cache)
    assert m.matmul_flops == config.architecture().decode_step_flops(B=3, S=S)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_models_cache_takes_the_bytes_that_the_theory_says(dtype):
    config = small(9, L=3)
    cache = Transformer(config).to(dtype).new_cache(2, 50)
    assert cache.nbytes == 2 * config.architecture().cache_bytes(50, dtype.itemsize)


def test_decoding_in_bf16_stays_near_fp32():
    layer, x = at_random(LatentAttention(small(), 0)), stream()
    exact = run(layer, x)
    rounded = in_blocks(layer.to(torch.bfloat16), x.bfloat16(), [5] + [1] * 8)
    assert rounded.dtype == torch.bfloat16
    assert (rounded - exact).norm() < 0.03 * exact.norm()  # a dozen roundings of 2⁻⁹


def test_a_cache_that_keeps_no_latents_is_refused():
    layer = LatentAttention(small(), 0)
    foreign = new_cache(small(attention="gqa", mla=None), 2, 5, 0, torch.float32, None)
    with pytest.raises(
        ValueError,
        match="layer 0 keeps latents: it needs a cache from `new_cache` of its own model",
    ):
        run(layer, stream(n=1), foreign)


def test_a_config_that_says_nothing_of_latents_or_shares_them_is_refused():
    with pytest.raises(ValueError, match="needs the sizes in `mla`"):
        LatentAttention(Config(L=1, D=8, F=8, N=2, K=2, H=4), 0)
    with pytest.raises(ValueError, match="layer 1 cannot read the keys of another"):
        LatentAttention(small(L=2, kv_source=(0, 0)), 1)
