"""RoPE: relative positions, both pairings, absolute offsets, longer contexts; scalings against
transformers."""

import dataclasses
import json

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from transformers import Gemma3TextConfig, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.deepseek_v2 import modeling_deepseek_v2 as deepseek_v2
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek_v3
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi import modeling_phi as phi

from twophase.kernels.rope import RopeScaling, apply_rope, rope_tables, yarn_mscale


def trained(context: int) -> dict[str, int]:
    return {"original_max_position_embeddings": context}


def turn(
    x: torch.Tensor, position: int, pairing: str = "half", theta: float = 10_000.0
) -> torch.Tensor:
    H = x.shape[-1]
    return apply_rope(
        x.view(1, 1, 1, H), *rope_tables(torch.tensor([position]), H, theta), pairing=pairing
    ).flatten()


@draws(50)
@given(
    st.integers(0, 5000),
    st.integers(0, 5000),
    st.integers(0, 5000),
    st.sampled_from(["half", "interleaved"]),
)
def test_products_depend_on_the_difference_of_positions_only(a, b, shift, pairing):
    g = torch.Generator().manual_seed(a + b)
    q, k = torch.randn(2, 10, generator=g, dtype=torch.float64)
    here = turn(q, a, pairing) @ turn(k, b, pairing)
    there = turn(q, a + shift, pairing) @ turn(k, b + shift, pairing)
    torch.testing.assert_close(here, there, rtol=0, atol=1e-5)  # the tables are fp32


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_rope_is_the_complex_rotation_of_the_paper(pairing):
    H, position, theta = 8, 7, 500.0
    x = torch.randn(H, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    pairs = (
        torch.complex(x[: H // 2], x[H // 2 :])
        if pairing == "half"
        else torch.complex(x[0::2], x[1::2])
    )
    angles = torch.tensor(
        [position * theta ** (-2 * i / H) for i in range(H // 2)], dtype=torch.float64
    )
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    parts = [turned.real, turned.imag]
    expected = torch.cat(parts) if pairing == "half" else torch.stack(parts, dim=-1).flatten()
    torch.testing.assert_close(turn(x, position, pairing, theta), expected, rtol=1e-6, atol=1e-6)


def test_the_two_pairings_differ_by_a_permutation_and_are_not_the_same():
    x = torch.randn(8, generator=torch.Generator().manual_seed(1))
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])  # interleaved → half
    torch.testing.assert_close(turn(x, 3, "interleaved")[order], turn(x[order], 3, "half"))
    assert not torch.allclose(turn(x, 3, "interleaved"), turn(x, 3, "half"))


def test_position_zero_turns_nothing_and_lengths_are_kept():
    x = torch.randn(6, generator=torch.Generator().manual_seed(2))
    assert torch.equal(turn(x, 0), x)
    torch.testing.assert_close(turn(x, 1234).norm(), x.norm())


def test_a_table_that_starts_at_an_offset_is_the_tail_of_the_whole_table():
    whole, tail = rope_tables(torch.arange(20), 6), rope_tables(torch.arange(13, 20), 6)
    assert torch.equal(whole[0][13:], tail[0])
    assert torch.equal(whole[1][13:], tail[1])


def test_sequences_at_different_positions_are_turned_each_by_its_own():
    x = torch.randn(2, 3, 2, 4, generator=torch.Generator().manual_seed(3))
    positions = torch.tensor([[5, 6, 7], [0, 1, 2]])
    together = apply_rope(x, *rope_tables(positions, 4))
    for b in range(2):
        assert torch.equal(
            together[b : b + 1], apply_rope(x[b : b + 1], *rope_tables(positions[b], 4))
        )


def test_an_odd_width_and_an_unknown_pairing_are_refused():
    with pytest.raises(ValueError, match="must be even; it is 5"):
        rope_tables(torch.arange(2), 5)
    with pytest.raises(ValueError, match='"half" or "interleaved"; got "neox"'):
        turn(torch.zeros(4), 1, "neox")


# What transformers computes for the same settings, in fp32.
SCALINGS = {
    "linear": (RopeScaling("linear", 8.0), {"rope_type": "linear", "factor": 8.0}),
    "llama3": (
        RopeScaling("llama3", 8.0, 256, low_freq_factor=1.0, high_freq_factor=4.0),
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            **trained(256),
        },
    ),
    "llama3, narrow band": (
        RopeScaling("llama3", 32.0, 8192, low_freq_factor=3.5, high_freq_factor=4.0),
        {
            "rope_type": "llama3",
            "factor": 32.0,
            "low_freq_factor": 3.5,
            "high_freq_factor": 4.0,
            **trained(8192),
        },
    ),
    "yarn": (
        RopeScaling("yarn", 16.0, 2048),
        {"rope_type": "yarn", "factor": 16.0, **trained(2048)},
    ),
    "yarn, not truncated": (
        RopeScaling("yarn", 4.0, 512, beta_fast=20.0, beta_slow=2.0, truncate=False),
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "beta_fast": 20.0,
            "beta_slow": 2.0,
            "truncate": False,
            **trained(512),
        },
    ),
    "yarn of DeepSeek-V2-Lite": (
        RopeScaling("yarn", 40.0, 4096, mscale=0.707, mscale_all_dim=0.707),
        {
            "rope_type": "yarn",
            "factor": 40.0,
            "mscale": 0.707,
            "mscale_all_dim": 0.707,
            **trained(4096),
        },
    ),
    "yarn, two mscales": (
        RopeScaling("yarn", 40.0, 4096, mscale=1.0, mscale_all_dim=0.5),
        {
            "rope_type": "yarn",
            "factor": 40.0,
            "mscale": 1.0,
            "mscale_all_dim": 0.5,
            **trained(4096),
        },
    ),
    "yarn, one mscale only": (
        RopeScaling("yarn", 40.0, 4096, mscale_all_dim=0.5),
        {"rope_type": "yarn", "factor": 40.0, "mscale_all_dim": 0.5, **trained(4096)},
    ),
    "yarn, a step": (
        RopeScaling("yarn", 4.0, 512, beta_fast=3.0, beta_slow=3.0, truncate=False),
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "beta_fast": 3.0,
            "beta_slow": 3.0,
            "truncate": False,
            **trained(512),
        },
    ),
    "yarn, given factor": (
        RopeScaling("yarn", 2.0, 64, attention_factor=1.25),
        {"rope_type": "yarn", "factor": 2.0, "attention_factor": 1.25, **trained(64)},
    ),
    "yarn, a context of one turn": (
        RopeScaling("yarn", 2.0, 6, beta_fast=1.0, beta_slow=1.0),
        {"rope_type": "yarn", "factor": 2.0, "beta_fast": 1.0, **trained(6)},
    ),
}


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize(("H", "theta"), [(64, 10_000.0), (10, 500_000.0), (2, 10_000.0)])
def test_scaled_frequencies_and_magnitude_equal_those_of_transformers(name, H, theta):
    scaling, theirs = SCALINGS[name]
    config = LlamaConfig(
        hidden_size=H, num_attention_heads=1, rope_parameters={"rope_theta": theta, **theirs}
    )
    expected, magnitude = ROPE_INIT_FUNCTIONS[theirs["rope_type"]](config)
    cos, sin = rope_tables(
        torch.tensor([1]), H, theta, scaling
    )  # at position 1 an angle is a frequency, at most 1
    frequency, length = torch.atan2(sin, cos)[0], torch.hypot(sin, cos)[0]
    # They take theta's powers in fp32: a few units in the 24th bit, which differences in the ramp
    # multiply.
    torch.testing.assert_close(frequency, expected, rtol=3e-6, atol=0)
    torch.testing.assert_close(length, torch.full_like(length, magnitude), rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", SCALINGS)
def test_tables_equal_the_rotary_embedding_of_transformers(name):
    scaling, theirs = SCALINGS[name]
    H, theta, last = 16, 10_000.0, 100
    config = LlamaConfig(
        hidden_size=H, num_attention_heads=1, rope_parameters={"rope_theta": theta, **theirs}
    )
    positions = torch.arange(last + 1)
    cos, sin = LlamaRotaryEmbedding(config)(
        torch.zeros(1), positions[None]
    )  # [1, T, H]: every angle twice
    ours = rope_tables(positions, H, theta, scaling)
    # An fp32 angle of `last` radians is off by its frequency's error times the position: 100 · 3e-7
    # = 3e-5.
    for mine, their in zip(ours, (cos, sin), strict=True):
        torch.testing.assert_close(mine, their[0, :, : H // 2], rtol=0, atol=3e-5)


def test_gemma_3_scales_its_global_layers_and_not_its_local_ones():
    rope = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    config = Gemma3TextConfig(
        hidden_size=24, num_attention_heads=2, head_dim=20, rope_parameters=rope
    )
    embedding, positions = Gemma3RotaryEmbedding(config), torch.arange(50)
    for kind, theta, scaling in (
        ("full_attention", 1e6, RopeScaling("linear", 8.0)),
        ("sliding_attention", 1e4, None),
    ):
        cos, sin = embedding(torch.zeros(1), positions[None], layer_type=kind)
        ours = rope_tables(positions, 20, theta, scaling)
        torch.testing.assert_close(
            ours[0], cos[0, :, :10], rtol=0, atol=2e-5
        )  # 50 · 3e-7, as above
        torch.testing.assert_close(ours[1], sin[0, :, :10], rtol=0, atol=2e-5)


@pytest.mark.parametrize("module", [deepseek_v2, deepseek_v3])
def test_deepseek_turns_interleaved_pairs_with_yarn(module):
    rope = {"rope_theta": 1e4, **SCALINGS["yarn, two mscales"][1]}
    config_class = module.DeepseekV2Config if module is deepseek_v2 else module.DeepseekV3Config
    config = config_class(
        hidden_size=32, num_attention_heads=2, qk_rope_head_dim=8, rope_parameters=rope
    )
    x = torch.randn(1, 2, 30, 8, generator=torch.Generator().manual_seed(4))  # [B, N, T, H]
    positions = torch.arange(30)
    if module is deepseek_v2:
        turned, _ = module.apply_rotary_emb(
            x, x, module.DeepseekV2RotaryEmbedding(config)(x, positions[None])
        )
    else:
        cos, sin = module.DeepseekV3RotaryEmbedding(config)(x, positions[None])
        turned, _ = module.apply_rotary_pos_emb_interleave(x, x, cos, sin)
    tables = rope_tables(positions, 8, 1e4, SCALINGS["yarn, two mscales"][0])
    ours = apply_rope(x.transpose(1, 2), *tables, pairing="interleaved").transpose(1, 2)
    # Scores are what counts: V3 leaves the turned numbers in another order, in queries and keys
    # alike.
    torch.testing.assert_close(ours @ ours.mT, turned @ turned.mT, rtol=0, atol=1e-3)
    torch.testing.assert_close(ours.sort(-1).values, turned.sort(-1).values, rtol=0, atol=1e-4)


@pytest.mark.parametrize("mscale", [0.0, 0.707, 1.0])
@pytest.mark.parametrize("factor", [0.5, 1.0, 40.0])
def test_yarn_mscale_is_what_deepseek_squares_into_its_attention_scale(factor, mscale):
    rope = {"rope_type": "yarn", "factor": factor, "mscale_all_dim": mscale}
    expected = deepseek_v3.yarn_apply_mscale(rope, 1.0)
    assert yarn_mscale(factor, mscale) ** 2 == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kind", ["llama3", "yarn"])
def test_fast_points_keep_their_frequency_and_slow_ones_are_divided(kind):
    plain = 10_000.0 ** (-torch.arange(32, dtype=torch.float64) / 32)
    scaled = RopeScaling(kind, 8.0, 2048).frequencies(plain, 10_000.0)
    assert scaled[0] == plain[0]
    assert scaled[-1] == plain[-1] / 8
    assert (scaled <= plain).all()
    assert (scaled >= plain / 8).all()
    assert (scaled.diff() < 0).all()


def test_linear_scaling_reads_position_p_as_the_unscaled_p_over_factor():
    whole, scaled = (
        rope_tables(torch.arange(5), 6),
        rope_tables(4 * torch.arange(5), 6, scaling=RopeScaling("linear", 4)),
    )
    assert torch.equal(whole[0], scaled[0])
    assert torch.equal(whole[1], scaled[1])


@pytest.mark.parametrize("name", SCALINGS)
def test_a_scaling_survives_json(name):
    scaling = SCALINGS[name][0]
    assert RopeScaling(**json.loads(json.dumps(dataclasses.asdict(scaling)))) == scaling


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (
            {"kind": "longrope", "factor": 2.0},
            'unknown RoPE scaling "longrope"; known: linear, llama3, yarn',
        ),
        ({"kind": "linear", "factor": 0.0}, "positive factor; got 0.0"),
        ({"kind": "linear", "factor": float("nan")}, "positive factor; got nan"),
        ({"kind": "yarn", "factor": 2.0}, "original_context must be at least 1; got None"),
        ({"kind": "llama3", "factor": 2.0, "original_context": 0}, "at least 1; got 0"),
        (
            {"kind": "llama3", "factor": 2.0, "original_context": 9, "low_freq_factor": 4.0},
            "low_freq_factor < high_freq",
        ),
        (
            {"kind": "yarn", "factor": 2.0, "original_context": 9, "beta_slow": 40.0},
            "beta_slow <= beta_fast",
        ),
        (
            {"kind": "yarn", "factor": 2.0, "original_context": 9, "attention_factor": 0.0},
            "must be positive; got 0.0",
        ),
    ],
)
def test_impossible_scalings_are_refused_in_one_sentence(bad, says):
    with pytest.raises(ValueError, match=says):
        RopeScaling(**bad)


def test_yarn_needs_frequencies_that_fall():
    with pytest.raises(ValueError, match=r"a theta above 1; it is 1\.0"):
        rope_tables(torch.arange(2), 4, 1.0, RopeScaling("yarn", 2.0, 9))


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("turned", [2, 4, 6])
def test_partial_rotary_turns_the_first_numbers_and_leaves_the_rest(pairing, turned):
    x = torch.randn(2, 3, 2, 10, generator=torch.Generator().manual_seed(5))
    tables = rope_tables(torch.arange(4, 7), turned)
    out = apply_rope(x, *tables, pairing=pairing)
    assert torch.equal(out[..., turned:], x[..., turned:])
    assert torch.equal(
        out[..., :turned], apply_rope(x[..., :turned].contiguous(), *tables, pairing=pairing)
    )


def test_partial_rotary_equals_that_of_transformers():
    x = torch.randn(1, 2, 9, 16, generator=torch.Generator().manual_seed(6))  # [B, N, T, H]
    cos, sin = rope_tables(torch.arange(9), 4)
    theirs, _ = phi.apply_rotary_pos_emb(
        x[..., :4], x[..., :4], cos.repeat(1, 2)[None], sin.repeat(1, 2)[None]
    )
    ours = apply_rope(x.transpose(1, 2), cos, sin).transpose(1, 2)
    torch.testing.assert_close(
        ours, torch.cat([theirs, x[..., 4:]], dim=-1), rtol=1e-6, atol=1e-6
    )  # the same in fp32


def test_tables_wider_than_a_head_are_refused():
    with pytest.raises(ValueError, match="turn 8 numbers, but a head has 4"):
        apply_rope(torch.zeros(1, 1, 1, 4), *rope_tables(torch.tensor([0]), 8))


def test_bf16_heads_are_turned_in_fp32_and_rounded_once():
    x = torch.randn(1, 5, 2, 8, generator=torch.Generator().manual_seed(7)).bfloat16()
    tables = rope_tables(torch.arange(5), 6)
    out = apply_rope(x, *tables)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, apply_rope(x.float(), *tables).bfloat16())
