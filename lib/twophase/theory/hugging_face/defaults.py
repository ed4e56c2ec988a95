"""What a key means that a Hugging Face config.json leaves out: the values of the family's config
class in transformers 5.

Files of transformers write nearly every key; hand-written and early ones do not, and then mean
these. A key that is null means something else than a key that is not there: `"sliding_window":
null` in a Mistral config is no window, no `sliding_window` is 4096. Sizes that no file leaves out
have no default: without them a config is damaged.
"""

from typing import Any

_WINDOWED_QWEN = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
_GEMMA = {
    "head_dim": 256,
    "num_key_value_heads": 4,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}
_LATENT = {
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
}
_GLM = {
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "moe_intermediate_size": 1408,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.0,
    "norm_topk_prob": True,
    "n_group": 1,
    "topk_group": 1,
}
_CHOOSES = {"n_routed_experts": 256, "n_shared_experts": 1, "first_k_dense_replace": 3}

_ROWS = {
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "sliding_window": 512,
    "vocab_size_per_layer_input": 262144,
    "hidden_size_per_layer_input": 256,
}
_M3 = {"num_key_value_heads": 4, "head_dim": 128, "shared_intermediate_size": 3072}
_M3 |= {"index_n_heads": 4, "index_head_dim": 128, "index_block_size": 128, "index_topk_blocks": 16}
_STEP = {"num_key_value_heads": 8, "head_dim": 128, "n_routed_experts": 288}
_V4 = {"head_dim": 512, "q_lora_rank": 1024, "n_routed_experts": 256, "n_shared_experts": 1}

LEFT_OUT: dict[str, dict[str, Any]] = {
    "gemma3n_text": (
        _ROWS
        | {
            "num_key_value_heads": 2,
            "altup_num_inputs": 4,
            "laurel_rank": 64,
            "num_kv_shared_layers": 15,
        }
    ),
    "gemma4_text": _ROWS | {"num_key_value_heads": 4, "global_head_dim": 512},
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "mixtral": {
        "num_key_value_heads": 8,
        "sliding_window": None,
        "rms_norm_eps": 1e-5,
        "num_experts_per_tok": 2,
    },
    "qwen2": {"num_key_value_heads": 32, **_WINDOWED_QWEN},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128, **_WINDOWED_QWEN},
    "qwen3_moe": {
        "num_key_value_heads": 4,
        **_WINDOWED_QWEN,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "norm_topk_prob": False,
    },
    "gemma": {
        "num_key_value_heads": 16,
        "head_dim": 256,
        "hidden_act": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
    },
    "gemma2": _GEMMA | {"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0},
    "gemma3_text": (
        _GEMMA | {"vocab_size": 262208, "num_attention_heads": 8, "sliding_window_pattern": 6}
    ),
    "deepseek_v2": (
        _LATENT
        | {
            "n_routed_experts": 64,
            "n_shared_experts": 2,
            "moe_intermediate_size": 1407,
            "first_k_dense_replace": 0,
            "topk_method": "greedy",
            "routed_scaling_factor": 1.0,
            "norm_topk_prob": False,
        }
    ),
    "deepseek_v3": (
        _LATENT
        | {
            "n_routed_experts": 256,
            "n_shared_experts": 1,
            "moe_intermediate_size": 2048,
            "num_experts_per_tok": 8,
            "first_k_dense_replace": 3,
            "routed_scaling_factor": 2.5,
            "norm_topk_prob": True,
            "n_group": 8,
            "topk_group": 4,
            "rope_interleave": True,
        }
    ),
    "glm4_moe": _GLM,
    "glm4v_moe_text": _GLM,
    "stablelm": {"num_key_value_heads": 32},
    "starcoder2": {
        "num_key_value_heads": 2,
        "hidden_act": "gelu_pytorch_tanh",
        "use_bias": True,
        "tie_word_embeddings": True,
    },
    "gpt_oss": {"num_key_value_heads": 8, "head_dim": 64},
    "minimax_m2": {"num_key_value_heads": 8, "head_dim": 128},
    "llama4_text": {"num_key_value_heads": 8, "head_dim": 128},
    "qwen3_vl_text": {"num_key_value_heads": 32, "head_dim": 128},
    "qwen3_vl_moe_text": {"num_key_value_heads": 16},
    "qwen3_next": {"num_key_value_heads": 2, "head_dim": 256},
    "qwen3_5_text": {"num_key_value_heads": 4, "head_dim": 256},
    "qwen3_5_moe_text": {"num_key_value_heads": 2, "head_dim": 256},
    "deepseek_v32": _CHOOSES,
    "glm_moe_dsa": _CHOOSES,
    "glm4_moe_lite": {
        "q_lora_rank": 768,
        "n_routed_experts": 64,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
    },
    "nemotron_h": {"num_key_value_heads": 8, "head_dim": 128},
    "mimo": {"num_key_value_heads": 32, **_WINDOWED_QWEN},
    "mimo_v2_flash": {"num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128},
    "minimax_m3": _M3,
    "minimax_m3_vl_text": _M3,
    "step3p5": _STEP,
    "step3p7": _STEP,
    "step3p7_text": _STEP,
    "deepseek_v4": _V4,
    "deepseek_ref": _V4,
}
