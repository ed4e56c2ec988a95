"""Model types that are counted but not run: to the parameter what transformers builds."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from twophase.theory import catalog
from twophase.theory.architecture import Architecture
from twophase.theory.catalog import hardware
from twophase.theory.plan import deployment, plan_deployment
from twophase.theory.weight_format import read_attention, read_dtype
from twophase.theory.workload import Workload

SMALL: dict[str, Any] = {
    "vocab_size": 1000, "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 96,
}  # fmt: skip
EXPERTS = {"num_local_experts": 8, "num_experts_per_tok": 2}
QWEN = {
    "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 96,
}  # fmt: skip
DELTA = {
    "linear_num_value_heads": 8, "linear_num_key_heads": 4, "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
}  # fmt: skip
LATENT = {
    "num_key_value_heads": 8, "kv_lora_rank": 64, "q_lora_rank": 48, "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32, "v_head_dim": 24, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 48, "n_shared_experts": 1, "first_k_dense_replace": 1,
}  # fmt: skip
CHOOSES = {"index_n_heads": 4, "index_head_dim": 32, "index_topk": 64}
ROWS = {
    "num_hidden_layers": 12, "hidden_size_per_layer_input": 24, "vocab_size_per_layer_input": 500,
    "tie_word_embeddings": True, "global_head_dim": 32,
}  # fmt: skip
NO_ROWS = ROWS | {"hidden_size_per_layer_input": 0}
BESIDE = {
    "enable_moe_block": True, "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 48,
}  # fmt: skip
MAMBA = {
    "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 24,
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
    "moe_shared_expert_intermediate_size": 96,
}  # fmt: skip
ALTERNATING = {"hybrid_override_pattern": "MEM*EME-M"} | MAMBA
NARROW = {"layers_block_type": ["moe", "mamba", "attention", "moe"], "moe_latent_size": 32} | MAMBA
TWO_WIDTHS = {
    "v_head_dim": 16, "num_hidden_layers": 7, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
}  # fmt: skip
BLOCKS = EXPERTS | {
    "dense_intermediate_size": 160, "shared_intermediate_size": 96, "index_n_heads": 2,
    "index_head_dim": 16, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
    "layer_types": ["full_attention"] + ["minimax_m3_sparse"] * 3,
}  # fmt: skip
CHANNELS = {
    "num_key_value_heads": 8, "kv_lora_rank": 64, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32,
    "v_head_dim": 24, "num_local_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1,
    "moe_intermediate_size": 48, "num_hidden_layers": 6, "linear_num_heads": 4,
    "linear_head_dim": 24, "pad_token_id": None,
}  # fmt: skip
SUMMARIES = {
    "num_key_value_heads": 1, "q_lora_rank": 48, "o_lora_rank": 24, "o_groups": 4,
    "moe_intermediate_size": 48, "n_routed_experts": 8, "num_experts_per_tok": 2, "hc_mult": 3,
    "index_n_heads": 4, "index_head_dim": 32, "index_topk": 16, "sliding_window": 8,
    "num_hidden_layers": 5, "qk_rope_head_dim": 8,
}  # fmt: skip
SEEING = ["qwen3_vl_text", "qwen3_vl_moe_text"]
KINDS = [
    ("gpt_oss", EXPERTS),
    ("minimax_m2", EXPERTS),
    ("llama4_text", EXPERTS | {"intermediate_size_mlp": 160, "interleave_moe_layer_step": 2}),
    ("llama4_text", EXPERTS | {"intermediate_size_mlp": 160, "interleave_moe_layer_step": 1}),
    ("qwen3_next", QWEN | DELTA),
    ("qwen3_5_text", DELTA),
    ("qwen3_5_text", DELTA | {"tie_word_embeddings": True, "num_hidden_layers": 7}),
    ("qwen3_5_moe_text", QWEN | DELTA),
    ("glm4_moe_lite", LATENT),
    ("deepseek_v32", LATENT | CHOOSES),
    ("glm_moe_dsa", LATENT | CHOOSES),
    ("glm_moe_dsa", LATENT | CHOOSES | {"indexer_types": ["full", "shared", "shared", "full"]}),
    ("gemma3n_text", ROWS | {"num_hidden_layers": 7, "num_kv_shared_layers": 2}),
    ("gemma4_text", ROWS | {"global_head_dim": 64}),
    ("gemma4_text", NO_ROWS | {"global_head_dim": 64, "attention_k_eq_v": True}),
    ("gemma4_text", NO_ROWS | BESIDE | {"num_global_key_value_heads": 1, "attention_k_eq_v": True}),
    ("gemma4_text", ROWS | {"num_kv_shared_layers": 6, "use_double_wide_mlp": True}),
    ("nemotron_h", ALTERNATING),
    ("nemotron_h", NARROW),
    ("kimi_linear", CHANNELS),
    ("kimi_linear", CHANNELS | {"q_lora_rank": 48}),
    ("mimo_v2_flash", TWO_WIDTHS),
    ("minimax_m3_vl_text", BLOCKS),
    ("deepseek_v4", SUMMARIES),
    ("deepseek_v4", SUMMARIES | {"compress_ratios": [0, 4, 128, 4, 0, 0], "num_hash_layers": 1}),
]


@pytest.mark.parametrize(("kind", "more"), KINDS, ids=[kind for kind, _ in KINDS])
def test_counts_are_those_of_the_model_that_transformers_builds(
    kind: str, more: dict[str, Any]
) -> None:
    config = AutoConfig.for_model(kind, **(SMALL | more))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    built = sum(p.numel() for p in model.parameters())
    # a router's correction of the load is stored, though not trained
    built += sum(b.numel() for name, b in model.named_buffers() if "correction_bias" in name)
    assert Architecture.from_hf(config.to_dict(), name=kind).n_params() == built


def test_a_delta_rules_state_is_what_transformers_keeps() -> None:
    """The matrices of all heads, and the inputs of a convolution of 4: as many numbers."""
    config = AutoConfig.for_model("qwen3_5_text", **(SMALL | DELTA))
    model = AutoModelForCausalLM.from_config(config)
    cache = model(torch.arange(6)[None], use_cache=True).past_key_values
    kept = [layer for layer in cache.layers if hasattr(layer, "recurrent_states")]
    arch = Architecture.from_hf(config.to_dict(), name="qwen")
    assert len(kept) == arch.layer_kinds.count("state") == 3
    keys, values = 4 * 16, 8 * 24
    states = kept[0].recurrent_states
    states = list(states.values()) if isinstance(states, dict) else [states]
    assert sum(state.numel() for state in states) == 8 * 16 * 24
    assert arch.state_values == 8 * 16 * 24 + (2 * keys + values) * 3


def test_keys_that_earlier_layers_keep_are_kept_once() -> None:
    """Gemma 3n E2B and E4B have fewer layers than caches of their own; transformers says the rest
    reuse. Wider heads of full layers are kept as they are."""
    config = AutoConfig.for_model("gemma3n_text")
    arch = Architecture.from_hf(config.to_dict(), name="e4b")
    owners = [i for i, mode in enumerate(config.kv_sharing_modes) if mode != "reuse"]
    assert [i for i, source in enumerate(arch.kv_source or ()) if source == i] == owners
    assert arch.cache_bytes(512) == len(owners) * 512 * 2 * 2 * 256 * 2
    n_full = sum(arch.layer_kinds[i] == "full" for i in owners)
    assert arch.cache_bytes(1512) - arch.cache_bytes(512) == n_full * 1000 * 2 * 2 * 256 * 2
    config = AutoConfig.for_model("gemma4_text", **(SMALL | NO_ROWS | {"global_head_dim": 96}))
    arch = Architecture.from_hf(config.to_dict(), name="gemma4")
    assert arch.layer_kinds.count("full") == 2
    assert arch.cache_bytes(10) == 10 * 2 * 2 * 2 * (10 * 32 + 2 * 96)


def test_chosen_keys_are_kept_for_all_positions_and_latents_read_of_those_alone() -> None:
    types = ["full", "shared", "shared", "full"]
    config = AutoConfig.for_model("glm_moe_dsa", **(SMALL | LATENT | CHOOSES))
    arch = Architecture.from_hf(config.to_dict() | {"indexer_types": types}, name="glm")
    latent, key = 4 * (64 + 16) * 2, 2 * 32 * 2  # bytes of a position: all layers, and two
    assert arch.cache_bytes(1000) == 1000 * (latent + key)
    assert arch.cache_read_bytes(1000) == 64 * latent + 1000 * key
    assert arch.cache_read_bytes(50) == arch.cache_bytes(50)
    more = arch.decode_step_flops(1, 1001) - arch.decode_step_flops(1, 1000)
    assert more == 2 * 2 * 4 * 32  # a score for each of 4 heads, in two layers
    dense = replace(arch, index=None)
    assert dense.decode_step_flops(1, 1001) - dense.decode_step_flops(1, 1000) > 10 * more
    for layout in (None, "tensor", "pipeline"):
        asked = Workload(n_chips=2, context=1000, layout=layout, batch=2)
        found, wide = (deployment(a, hardware("h100"), asked) for a in (arch, dense))
        assert found.step(2, 1000).memory_s < wide.step(2, 1000).memory_s
        assert found.cache_bytes(1000) > wide.cache_bytes(1000)
    with pytest.raises(ValueError, match="'full' first"):
        Architecture.from_hf(config.to_dict() | {"indexer_types": [*types[1:], "full"]}, name="x")


# Keys whose absence would otherwise be read as another size: as many KV heads as queries, heads of
# D / N, no experts.
ELSE_ANOTHER = ["num_key_value_heads", "head_dim", "q_lora_rank", "first_k_dense_replace"]
ELSE_ANOTHER += ["n_routed_experts", "n_shared_experts"]
D_OVER_N = [("qwen3_vl_moe_text", "head_dim")]  # by transformers, too


@pytest.mark.parametrize("kind", [*dict.fromkeys(kind for kind, _ in KINDS), *SEEING])
def test_a_key_that_is_left_out_is_transformers_value_or_refused(kind: str) -> None:
    usual = AutoConfig.for_model(kind).to_dict()
    wider = {"num_attention_heads": 2, "hidden_size": 4}  # then no default is N, nor D / N
    config = usual | {"model_type": kind} | {key: n * usual[key] for key, n in wider.items()}
    whole = Architecture.from_hf(config, name="x")
    for key in ELSE_ANOTHER:
        if key not in config or (kind, key) in D_OVER_N:
            continue
        left = {name: value for name, value in config.items() if name != key}
        with suppress(ValueError):
            assert Architecture.from_hf(left, name="x") == whole, key


def test_of_a_table_for_every_layer_a_step_reads_a_row_a_token() -> None:
    config = AutoConfig.for_model("gemma3n_text").to_dict()
    arch = Architecture.from_hf(config, name="e4b")
    whole, step = arch.breakdown()["positions"], arch.step_breakdown(3)["positions"]
    assert whole == 262144 * 35 * 256
    assert step == 3 * 35 * 256
    chip = Workload(n_chips=4)
    part = deployment(arch, catalog.hardware("h100"), chip).part
    assert part.breakdown()["positions"] == whole // 4


# Sizes as their makers print them, in billions: all parameters, and those of a token.
PRINTED = [
    ("gpt_oss", 117, 5.1),
    ("minimax_m2", 230, 10),
    ("qwen3_next", 80, 3),
    ("gemma3n_text", 6.87, 6.87),  # E4B: 8 billion with its encoders of images and sound
]


# OpenAI, gpt-oss-120b & gpt-oss-20b model card, arXiv 2508.10925, table 1: GiB of the checkpoints.
CHECKPOINTS = [("gpt-oss-120b", 60.8), ("gpt-oss-20b", 12.8)]
LEFT_WIDE = ["self_attn", "mlp.router", "embed_tokens", "lm_head"]


@pytest.mark.parametrize(("name", "gib"), CHECKPOINTS)
@pytest.mark.parametrize("layout", [None, "tensor"])
def test_gpt_oss_keeps_attention_wide_beside_narrow_experts(
    name: str, gib: float, layout: str | None
) -> None:
    left = [f"model.layers.*.{one}" for one in LEFT_WIDE]
    config = {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": left}}
    assert read_attention(config) == "bf16"
    asked = Workload(weights=read_dtype(config), attention=read_attention(config), layout=layout)
    d = deployment(catalog.model(name), catalog.hardware("b200"), asked)
    assert float(d.weight_bytes) / 2**30 == pytest.approx(gib, rel=3e-3)
    narrow = deployment(d.arch, d.chip, replace(asked, attention=None))
    assert narrow.weight_bytes < 0.985 * d.weight_bytes
    left.remove("model.layers.*.self_attn")
    assert read_attention(config) is None


@pytest.mark.parametrize(("kind", "total", "active"), PRINTED, ids=[k for k, *_ in PRINTED])
def test_sizes_are_those_that_their_makers_print(kind: str, total: float, active: float) -> None:
    arch = Architecture.from_hf(AutoConfig.for_model(kind).to_dict(), name=kind)
    assert arch.n_params() / 1e9 == pytest.approx(total, rel=0.02)
    assert arch.n_active_params() / 1e9 == pytest.approx(active, rel=0.35)


def test_kimi_k2_has_a_trillion_parameters_and_deepseeks_cache() -> None:
    config = {
        "model_type": "kimi_k2", "num_hidden_layers": 61, "hidden_size": 7168,
        "intermediate_size": 18432, "num_attention_heads": 64, "num_key_value_heads": 64,
        "vocab_size": 163840, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128, "v_head_dim": 128, "n_routed_experts": 384,
        "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1,
        "first_k_dense_replace": 1,
    }  # fmt: skip
    arch = Architecture.from_hf(config, name="kimi-k2")
    assert arch.n_params() / 1e12 == pytest.approx(1.03, abs=0.01)
    assert arch.n_active_params() / 1e9 == pytest.approx(32, rel=0.04)
    assert arch.cache_bytes(1000) == 61 * 1000 * (512 + 64) * 2


def test_a_model_that_is_only_counted_is_planned() -> None:
    arch = Architecture.from_hf(AutoConfig.for_model("qwen3_next").to_dict(), name="qwen3-next")
    asked = Workload(batch=32, context=32768, n_output=500, n_chips=4)
    plan = plan_deployment(arch, hardware("h100"), asked)
    assert plan.memory.fits
    assert plan.expected is not None
    assert plan.expected.expected_tpot_s > plan.expected.tpot_floor_s


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"layer_types": ["full_attention"]}, "for each of 4 layers"),
        ({"layer_types": ["ring"] * 4}, "must name one of full_attention"),
        ({"shared_expert_intermediate_size": 50}, "a multiple of 'moe_intermediate_size' 48"),
        ({"linear_key_head_dim": None}, "no key 'linear_key_head_dim'"),
    ],
)
def test_what_cannot_be_counted_is_a_sentence(changed: dict[str, Any], says: str) -> None:
    config = {"model_type": "qwen3_next"} | SMALL | QWEN | DELTA | changed
    with pytest.raises(ValueError, match=says):
        Architecture.from_hf(config | {"linear_conv_kernel_dim": 4}, name="x")


def test_heads_of_two_numbers_and_a_gate_a_head_are_counted_as_transformers_builds_them() -> None:
    from transformers.models.step3p7.configuration_step3p7 import Step3p7TextConfig
    from transformers.models.step3p7.modeling_step3p7 import Step3p7TextModel

    types = ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"]
    experts = {"n_routed_experts": 8, "moe_intermediate_size": 48, "share_expert_dim": 96}
    own = {"sliding_window": 16, "num_sliding_attention_heads": 12, "layer_types": types}
    config = Step3p7TextConfig(**SMALL, **own, **experts)
    with torch.device("meta"):
        built = sum(p.numel() for p in Step3p7TextModel(config).parameters())
    arch = Architecture.from_hf(config.to_dict() | own, name="step")
    assert {w.N for w in arch.layer_widths} == {8, 12}
    assert arch.n_params() == built + 1000 * 128 + 8  # the head, and the correction of a router
    assert arch.cache_bytes(100) == (100 + 3 * 16) * 2 * 2 * 32 * 2


def test_mamba2s_state_is_what_transformers_keeps() -> None:
    config = AutoConfig.for_model("nemotron_h", **(SMALL | ALTERNATING))
    model = AutoModelForCausalLM.from_config(config)
    cache = model(torch.arange(6)[None], use_cache=True).past_key_values
    arch = Architecture.from_hf(config.to_dict(), name="nemotron")
    kept = [layer for layer in cache.layers if hasattr(layer, "recurrent_states")]
    states = kept[0].recurrent_states
    states = list(states.values()) if isinstance(states, dict) else [states]
    assert len(kept) == arch.layer_kinds.count("state") == 4
    assert sum(state.numel() for state in states) == 8 * 16 * 24
    mixed = 8 * 16 + 2 * 2 * 24
    assert arch.state_values == 8 * 16 * 24 + 3 * mixed
    assert arch.cache_bytes(10) == 10 * 2 * 2 * 32 * 2 + 4 * 4 * arch.state_values


def test_summaries_of_positions_are_kept_as_transformers_keeps_them() -> None:
    """After 256 tokens: a window of 8 (of which transformers has dropped the oldest), one summary
    for each 4 positions with one to choose it by, one for each 128."""
    more = {"compress_ratios": [0, 4, 128], "num_hidden_layers": 3}
    config = AutoConfig.for_model("deepseek_v4", **(SMALL | SUMMARIES | more))
    model = AutoModelForCausalLM.from_config(config)
    cache = model(torch.arange(256)[None] % 100, use_cache=True).past_key_values
    arch = Architecture.from_hf(config.to_dict(), name="v4")
    found = 0
    for layer in cache.layers:
        found += layer.keys.numel() + 32  # the oldest of the window
        summaries = getattr(layer, "compressed_kv", {}).values()
        found += sum(one.numel() for one in summaries)
    assert arch.cache_bytes(256) == 2 * found
    unread = 2 * (256 // 4 - 16) * 32  # of 64 summaries 16 are met
    assert arch.cache_bytes(256) - arch.cache_read_bytes(256) == unread
    assert arch.bends == (8, 64)
    asked = Workload(batch=2, context=300, n_prompt=40, n_output=200, n_chips=2)
    d = deployment(arch, hardware("h200"), asked)
    each = [float(arch.cache_read_bytes(S)) for S in range(41, 240)]
    assert d.mean_cache_bytes == pytest.approx(sum(each) / len(each))
