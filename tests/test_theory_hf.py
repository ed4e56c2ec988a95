"""Hugging Face configs, as they are published and as they are not, give the catalog's models or a
clear sentence."""

from typing import Any

import pytest

from twophase.theory import catalog
from twophase.theory.architecture import Architecture
from twophase.theory.weight_format import read_dtype

LLAMA = {
    "model_type": "llama",
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "num_attention_heads": 40,
    "num_hidden_layers": 40,
    "vocab_size": 32000,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
}
GEMMA_3 = {
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "vision_config": {"hidden_size": 1152},
    "torch_dtype": "bfloat16",
}
QWEN_3_MOE = {
    "model_type": "qwen3_moe",
    "attention_bias": False,
    "decoder_sparse_step": 1,
    "head_dim": 128,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "max_position_embeddings": 40960,
    "max_window_layers": 48,
    "mlp_only_layers": [],
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "sliding_window": None,
    "use_sliding_window": False,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000,
    "tie_word_embeddings": False,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
GEMMA_2 = {
    "model_type": "gemma2",
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 3584,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "num_attention_heads": 16,
    "num_hidden_layers": 42,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-6,
    "sliding_window": 4096,
    "vocab_size": 256000,
}
MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "num_attention_heads": 32,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1000000.0,
    "sliding_window": None,
    "vocab_size": 32000,
}
GPT_2 = {
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
}
GPT_2 |= {"vocab_size": 50257}


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA, "llama-2-13b"),
        (QWEN_3_MOE, "qwen3-30b-a3b"),
        (DEEPSEEK_V3, "deepseek-v3"),
        (GEMMA_2, "gemma-2-9b"),
        (MIXTRAL, "mixtral-8x7b"),
    ],
)
def test_published_configs_give_the_models_of_the_catalog(
    config: dict[str, Any], name: str
) -> None:
    assert Architecture.from_hf(config, name) == catalog.model(name)


def test_a_config_with_images_gives_its_language_model_and_its_defaults() -> None:
    arch, known = Architecture.from_hf(GEMMA_3), catalog.model("gemma-3-4b")
    assert arch.breakdown() == known.breakdown()
    assert arch.layer_kinds == known.layer_kinds
    assert arch.layer_kinds[:6] == ("sliding",) * 5 + ("full",)
    assert arch.cache_bytes(5000) == known.cache_bytes(5000)


def test_gpt_2_counts_exactly() -> None:
    arch = Architecture.from_hf(GPT_2)
    assert arch.n_params() == 124_439_808  # the published small model
    assert (arch.H, arch.F, arch.K) == (64, 3072, 12)


def test_new_key_names_say_the_same_as_the_old() -> None:
    old = LLAMA | {"rope_theta": 500000.0}
    new = {k: v for k, v in LLAMA.items() if k != "torch_dtype"}
    new |= {"dtype": "float16", "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}
    assert Architecture.from_hf(old) == Architecture.from_hf(new)
    assert read_dtype(old) == read_dtype(new) == "fp16"
    assert read_dtype({}) == read_dtype(GEMMA_3) == "bf16"
    by_kind = GEMMA_2 | {"layer_types": ["sliding_attention", "full_attention"] * 21}
    assert Architecture.from_hf(by_kind) == Architecture.from_hf(GEMMA_2)


def test_head_width_and_kv_heads_fall_back_as_the_library_does() -> None:
    arch = Architecture.from_hf(LLAMA)
    assert (arch.H, arch.K) == (128, 40)
    wide = Architecture.from_hf(LLAMA | {"head_dim": 256, "num_key_value_heads": 8})
    assert (wide.H, wide.K) == (256, 8)
    assert wide.N * wide.H != wide.D


def test_qwen_2_has_biases_on_queries_keys_and_values_only() -> None:
    config = {k: v for k, v in QWEN_3_MOE.items() if "expert" not in k} | {
        "model_type": "qwen2",
        "head_dim": 64,
    }
    arch = Architecture.from_hf(config)
    assert arch.qkv_bias
    assert not arch.o_bias
    assert set(arch.layer_kinds) == {"full"}
    local = Architecture.from_hf(
        config | {"use_sliding_window": True, "sliding_window": 99, "max_window_layers": 40}
    )
    assert local.layer_kinds == ("full",) * 40 + ("sliding",) * 8


@pytest.mark.parametrize(
    "key", ["hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size"]
)
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(ValueError, match=f"no key '{key}'"):
        Architecture.from_hf({k: v for k, v in LLAMA.items() if k != key})


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({}, "no key 'model_type'"),
        ([], "must be a JSON object"),
        ({"model_type": "bert"}, "Unsupported model_type 'bert'. Supported: llama"),
        ({"model_type": ["llama"]}, "Unsupported model_type"),
        (LLAMA | {"hidden_size": "big"}, "'hidden_size' must be a positive integer"),
        (LLAMA | {"hidden_size": True}, "'hidden_size' must be a positive integer"),
        (LLAMA | {"num_attention_heads": 33}, "no multiple of 33 heads"),
        (LLAMA | {"num_hidden_layers": 10**9}, "beyond any transformer"),
        (LLAMA | {"rope_theta": "x"}, "'rope_theta' must be a positive number"),
        (LLAMA | {"num_key_value_heads": 7}, "multiple of K"),
        (GEMMA_2 | {"layer_types": ["full_attention"]}, "1 entries for 42 layers"),
        (GEMMA_2 | {"layer_types": ["chunked_attention"] * 42}, "'chunked_attention'"),
        (GEMMA_2 | {"sliding_window": None}, "no key 'sliding_window'"),
        (QWEN_3_MOE | {"mlp_only_layers": [1]}, "dense layers"),
        (QWEN_3_MOE | {"num_experts_per_tok": 200}, "k must lie between"),
        (DEEPSEEK_V3 | {"moe_layer_freq": 2}, "moe_layer_freq"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(config: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Architecture.from_hf(config)


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(ValueError, match="dtype 'int7' is unknown"):
        read_dtype({"dtype": "int7"})
