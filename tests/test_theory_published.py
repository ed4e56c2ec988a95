"""Model types that are counted but not run: what their makers publish, what their files say of
formats, and what is refused."""

from dataclasses import replace
from typing import Any

import pytest

from twophase.theory.architecture import Architecture
from twophase.theory.catalog import hardware
from twophase.theory.grid import Grid
from twophase.theory.plan import deployment, plan_deployment
from twophase.theory.weight_format import read_attention, read_dtype
from twophase.theory.workload import Workload

NEMOTRON: dict[str, Any] = {
    "model_type": "nemotron_h", "vocab_size": 131072, "num_key_value_heads": 2, "head_dim": 128,
    "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4,
    "num_hidden_layers": 1,
}  # fmt: skip
NANO = NEMOTRON | {
    "hidden_size": 2688, "num_attention_heads": 32, "mamba_num_heads": 64,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "n_routed_experts": 128, "num_experts_per_tok": 6, "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
}  # fmt: skip
SUPER = NEMOTRON | {
    "hidden_size": 4096, "num_attention_heads": 32, "mamba_num_heads": 128,
    "hybrid_override_pattern": "MEMEMEM*" + "EMEMEMEM*" * 2 + "EMEMEMEMEM*" * 4
    + "EMEMEMEM*EMEMEMEME",
    "n_routed_experts": 512, "num_experts_per_tok": 22, "moe_intermediate_size": 2688,
    "moe_shared_expert_intermediate_size": 5376, "moe_latent_size": 1024,
}  # fmt: skip
H_56B = NEMOTRON | {
    "hidden_size": 8192, "num_attention_heads": 64, "num_key_value_heads": 8,
    "mamba_num_heads": 256, "ssm_state_size": 256, "intermediate_size": 32768,
    "hybrid_override_pattern": "M-M-M-M*-" + "M-M-M-M-M*-" * 9 + "M-M-M-M-M-",
}  # fmt: skip
FLASH: dict[str, Any] = {
    "model_type": "deepseek_v4", "vocab_size": 129280, "hidden_size": 4096,
    "num_hidden_layers": 43, "num_attention_heads": 64, "head_dim": 512, "q_lora_rank": 1024,
    "o_lora_rank": 1024, "o_groups": 8, "moe_intermediate_size": 2048, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 6, "index_n_heads": 64, "index_head_dim": 128,
    "index_topk": 512, "sliding_window": 128, "hc_mult": 4, "num_hash_layers": 3,
    "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0], "num_nextn_predict_layers": 1,
    "expert_dtype": "fp4", "quantization_config": {"quant_method": "fp8"},
}  # fmt: skip
PRO = FLASH | {
    "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128, "o_groups": 16,
    "q_lora_rank": 1536, "moe_intermediate_size": 3072, "n_routed_experts": 384,
    "index_topk": 1024, "compress_ratios": [128, 128, *[4, 128] * 29, 4, 0],
}  # fmt: skip
MIMO_FLASH = {
    "model_type": "mimo_v2_flash", "vocab_size": 152576, "hidden_size": 4096,
    "num_hidden_layers": 48, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 192,
    "v_head_dim": 128, "intermediate_size": 16384, "sliding_window": 128,
    "sliding_window_size": 128, "hybrid_layer_pattern": [0, 1, 1, 1, 1, *[0, 1, 1, 1, 1, 1] * 7, 0],
    "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
}  # fmt: skip
STEP_FLASH = {
    "model_type": "step3p5", "vocab_size": 128896, "hidden_size": 4096, "num_hidden_layers": 45,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 11264, "moe_intermediate_size": 1280, "share_expert_dim": 1280,
    "n_routed_experts": 288, "num_experts_per_tok": 8,
}  # fmt: skip
KIMI = {
    "model_type": "kimi_linear", "vocab_size": 163840, "hidden_size": 2304, "num_hidden_layers": 27,
    "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 9216,
    "kv_lora_rank": 512, "q_lora_rank": None, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128, "num_experts": 256, "num_experts_per_token": 8, "num_shared_experts": 1,
    "moe_intermediate_size": 1024, "first_k_dense_replace": 1,
    "linear_attn_config": {
        "num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4,
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
    },
}  # fmt: skip
# (KV group, or 0 for no attention; ffn_mult) and how many such blocks follow each other
NAS_49B = [
    (8, 2.625, 1), (8, 5.25, 5), (0, 2.625, 2), (8, 5.25, 3), (0, 3.28125, 1), (8, 5.25, 30),
    (0, 1.3125, 1), (0, 2.625, 2), (0, 1.3125, 1), (0, 5.25, 1), (0, 1.3125, 1), (0, 2.625, 1),
    (0, 1.3125, 3), (8, 5.25, 1), (0, 1.3125, 1), (0, 1.0, 2), (0, 1.3125, 1), (0, 1.0, 3),
    (0, 1.3125, 2), (0, 0.5, 2), (0, 1.0, 2), (0, 0.5, 2), (0, 1.0, 1), (0, 0.5, 2), (8, 5.25, 9),
]  # fmt: skip
NAS = {
    "model_type": "nemotron-nas", "vocab_size": 128256, "hidden_size": 8192,
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": None,
    "block_configs": [
        {
            "attention": {"no_op": not group, "n_heads_in_group": group or None},
            "ffn": {"no_op": False, "ffn_mult": width},
        }
        for group, width, n in NAS_49B
        for _ in range(n)
    ],
}  # fmt: skip
# 10^9 parameters as the makers' model cards say, and active ones; the sum of a token's experts
# counts an embedding's table here, and not there (Nano: 3.2 without, 3.6 with it)
PUBLISHED = [
    (NANO, 31.6, 3.6),  # huggingface.co/nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16
    (SUPER, 120.6, 12.7),  # .../NVIDIA-Nemotron-3-Super-120B-A12B: "120B (12B active)"
    (H_56B, 56, 56),  # .../Nemotron-H-56B-Base-8K
    (NAS, 49.9, 49.9),  # .../Llama-3_3-Nemotron-Super-49B-v1
    (FLASH, 284, 13),  # huggingface.co/deepseek-ai/DeepSeek-V4-Flash
    (PRO, 1600, 49),  # .../DeepSeek-V4-Pro: "1.6T"
    (MIMO_FLASH, 309, 15),  # huggingface.co/XiaomiMiMo/MiMo-V2-Flash
    (KIMI, 49.1, 3.3),  # huggingface.co/moonshotai/Kimi-Linear-48B-A3B-Instruct: "49B params"
    (STEP_FLASH, 196, 11),  # huggingface.co/stepfun-ai/Step-3.5-Flash
]


@pytest.mark.parametrize(
    ("config", "total", "active"), PUBLISHED, ids=[str(total) for _, total, _ in PUBLISHED]
)
def test_published_parameters_are_counted(config: Any, total: float, active: float) -> None:
    arch = Architecture.from_hf(config, name="x")
    assert arch.n_params() == pytest.approx(total * 1e9, rel=0.02)
    assert arch.n_active_params() == pytest.approx(active * 1e9, rel=0.07)  # printed as integers
    assert arch.cache_bytes(4096) > 0


def test_layers_without_a_half_send_and_weigh_half() -> None:
    """Nano: 23 states, 6 layers of attention, 23 mixtures of experts, each with a sum over chips
    of its own."""
    arch = Architecture.from_hf(NANO, name="nano")
    assert (arch.L, arch.n_halves, arch.n_moe_layers) == (29, 52, 23)
    asked = Workload(n_chips=4, layout="tensor", context=1000)
    sent = deployment(arch, hardware("h200"), asked).step_sent_bytes(1, 1000)
    once = 2 * 3 / 4 * 2688 * 2  # of a sum over 4 chips, in bf16; the embedding has one, too
    assert sent == 53 * once + 3 / 4 * 131072 * 4  # logits are gathered in fp32
    staged = deployment(arch, hardware("h200"), Workload(n_chips=4, layout="pipeline", batch=4))
    assert staged.weight_bytes < 2 * arch.n_params() * 0.3


def test_formats_that_are_listed_layer_by_layer_are_the_experts_and_the_others() -> None:
    assert (read_dtype(FLASH), read_attention(FLASH)) == ("fp4", "fp8")
    listed = {"layers.0.ffn.experts": {"quant_algo": "NVFP4"}}
    how = {"quant_method": "fp8", "quant_algo": "MIXED_PRECISION", "quantized_layers": listed}
    own = FLASH | {"quantization_config": how}
    assert (read_dtype(own), read_attention(own)) == ("nvfp4", "fp8")
    listed = {
        "model.layers.0.mlp.gate_proj": {"quant_algo": "W4A16_NVFP4"},
        "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
    }
    how = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": listed}
    own = {"quantization_config": how}
    assert (read_dtype(own), read_attention(own)) == ("nvfp4", "fp8")
    plain = {"quantization_config": {"quant_algo": "FP8", "producer": {"name": "modelopt"}}}
    assert (read_dtype(plain), read_attention(plain)) == ("fp8", None)
    with pytest.raises(ValueError, match="expert_dtype 'fp3'"):
        read_dtype(FLASH | {"expert_dtype": "fp3"})


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (NANO | {"hybrid_override_pattern": "MEX"}, "needs 'layers_block_type'"),
        (NANO | {"hybrid_override_pattern": None}, "needs 'layers_block_type'"),
        (NANO | {"use_bias": True}, "'use_bias' is unsupported"),
        (NANO | {"moe_shared_expert_intermediate_size": 1000}, "only as a multiple"),
        (MIMO_FLASH | {"swa_head_dim": 128}, "'swa_head_dim' 128 is unsupported"),
        (MIMO_FLASH | {"hybrid_layer_pattern": [0, 1]}, "a list with an entry for each of 48"),
        (FLASH | {"compress_ratios": [7] * 43}, "must be of"),
        (FLASH | {"o_groups": 7}, "does not divide 64 heads"),
        (KIMI | {"attn_res_block_size": 12}, "'attn_res_block_size' is unsupported"),
        (NAS | {"block_configs": []}, "an entry for each of its layers"),
    ],
)
def test_what_is_not_counted_is_refused_by_its_name(config: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Architecture.from_hf(config, name="x")


LAYOUTS: list[dict[str, Any]] = [
    {"layout": "pipeline"},
    {"layout": "tensor"},
    {"layout": "gathered"},
    {"split_cache": "evenly"},
]


@pytest.mark.parametrize("how", LAYOUTS, ids=lambda how: next(iter(how.values())))
@pytest.mark.parametrize("config", [NAS, SUPER, FLASH, KIMI], ids=["nas", "super", "flash", "kimi"])
def test_plans_of_uneven_layers_keep_floor_and_ceiling(config: Any, how: dict[str, Any]) -> None:
    """Also where a stage has no attention at all, and so nothing of a prefix that was found."""
    arch = Architecture.from_hf(config, name="x")
    asked = Workload(24, 9000, 8000, 1000, 8, weights="fp8", found_share=0.3, **how)
    found = plan_deployment(arch, hardware("b200"), asked)
    e, m = found.expected, found.memory
    assert e is not None
    assert e.requests_ceiling_per_s is not None
    assert e.expected_tpot_s >= e.tpot_floor_s
    assert e.expected_ttft_s >= e.ttft_floor_s
    assert 0 < (e.expected_requests_per_s or 0) <= e.requests_ceiling_per_s
    assert 24 <= m.expected_max_batch <= m.max_batch
    assert any("had" in line for line in found.warnings)  # no run had such layers


@pytest.mark.parametrize(("config", "chooses"), [(FLASH, True), (KIMI, False)])
def test_a_plan_says_what_of_the_caches_is_read_and_where_they_lie(
    config: Any, chooses: bool
) -> None:
    """Of one output: a step reads less than the caches hold just where it says so, and latents of
    every kind lie whole on each chip of a copy, as the warning says."""
    asked = Workload(n_chips=4, grid=Grid(tp=4), context=10_000)
    arch = Architecture.from_hf(config, name="x")
    plan = plan_deployment(arch, hardware("b200"), asked)
    said = " ".join(plan.assumptions)
    assert plan.step is not None
    reads_all = plan.step.step_bytes - plan.step.step_weight_bytes == plan.memory.cache_bytes
    assert reads_all != chooses
    assert ("every sequence's whole cache" in said) == reads_all
    assert ("the chosen ones" in said) == chooses
    assert "latents whole on each" in said
    assert "caches by KV head" not in said
    assert any("every chip keeps the whole cache" in line for line in plan.warnings)


@pytest.mark.parametrize("split", ["heads", "evenly"])
def test_latents_of_every_kind_are_expected_to_be_read_whole_on_each_chip(split: str) -> None:
    """However memory is counted: engines' tensor parallel attention has a copy on every chip."""
    asked = Workload(64, 20_000, n_chips=8, split_cache=split)
    plan = plan_deployment(Architecture.from_hf(FLASH, name="x"), hardware("b200"), asked)
    whole = replace(asked, split_cache="heads")
    same = plan_deployment(Architecture.from_hf(FLASH, name="x"), hardware("b200"), whole)
    assert plan.expected is not None
    assert same.expected is not None
    found = plan.expected.expected_tpot_s
    assert found == pytest.approx(same.expected.expected_tpot_s, rel=1e-9)
    assert ("latents whole on each" in " ".join(plan.assumptions)) == (split == "heads")
