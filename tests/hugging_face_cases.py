"""The table of small models that our Transformer is compared with: one line says what each is for.

Built and run by `hugging_face_models`; the seeds come from there, too.
"""

from dataclasses import dataclass, field
from typing import Any

V = 97  # odd, and prime


@dataclass(frozen=True)
class Case:
    """A config of one family, a prompt of B sequences of T tokens, and why it is here."""

    name: str
    why: str
    family: str  # transformers' `model_type`
    more: dict[str, Any] = field(default_factory=dict)  # what differs from the family's usual sizes
    B: int = 2
    T: int = 13
    seed: int = 0

    def __str__(self) -> str:
        return self.name


# What all families have unless they say otherwise. Sizes differ, so that a mixed-up pair cannot
# pass.
USUAL: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": 32,
    "intermediate_size": 44,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-3,  # large enough to be seen
}
FAMILY_USUAL: dict[str, dict[str, Any]] = {
    "qwen3": {"head_dim": 10},
    "qwen3_moe": {
        "head_dim": 10,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 14,
    },
    "mixtral": {"num_local_experts": 5, "num_experts_per_tok": 2},
    "gemma2": {
        "head_dim": 12,
        "tie_word_embeddings": True,
        "sliding_window": 5,
        "query_pre_attn_scalar": 20,  # neither head_dim nor a square
        "attn_logit_softcapping": 1.5,  # low enough to bite
        "final_logit_softcapping": 4.0,
    },
    "gemma3_text": {
        "head_dim": 12,
        "tie_word_embeddings": True,
        "sliding_window": 5,
        "query_pre_attn_scalar": 20,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    },
    "deepseek_v2": {
        "num_key_value_heads": 4,
        "kv_lora_rank": 14,
        "q_lora_rank": 18,
        "qk_nope_head_dim": 10,
        "qk_rope_head_dim": 6,
        "v_head_dim": 7,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 12,
        "n_shared_experts": 2,
        "first_k_dense_replace": 1,
    },
}
FAMILY_USUAL["gemma"] = {"head_dim": 12, "tie_word_embeddings": True}
FAMILY_USUAL["glm4_moe"] = {
    "head_dim": 12,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 12,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}
FAMILY_USUAL["stablelm"] = {"layer_norm_eps": 1e-3}
FAMILY_USUAL["starcoder2"] = {"norm_epsilon": 1e-3, "tie_word_embeddings": True}
FAMILY_USUAL["deepseek_v3"] = FAMILY_USUAL["deepseek_v2"] | {
    "n_shared_experts": 1,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 2.5,
}

# Scaling that moves every band of frequencies within the 77 positions of a test.
LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 5000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 100.0,
    "factor": 16.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 4.0,
    "beta_slow": 0.5,
}

DENSE = (
    Case("llama-2", "multi-head, N·H = D, nothing special", "llama", {"num_key_value_heads": 4}),
    Case("llama-wide-heads", "K = 1, N·H = 40 is not D = 24, tied", "llama",
         {"hidden_size": 24, "num_key_value_heads": 1, "head_dim": 10, "tie_word_embeddings": True}, seed=1),
    Case("llama-biases", "biases everywhere, D odd, heads of two numbers, one-token prompts", "llama",
         {"hidden_size": 35, "num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": 2,
          "attention_bias": True, "mlp_bias": True}, B=3, T=1),
    Case("llama-3", "Llama 3's scaling with all three bands, G = 3", "llama",
         {"hidden_size": 36, "num_attention_heads": 6, "head_dim": 16, "rope_parameters": LLAMA_3}, T=40, seed=1),
    Case("llama-linear", "positions divided by 4, another base, gelu, one layer", "llama",
         {"num_hidden_layers": 1, "hidden_act": "gelu_pytorch_tanh",
          "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 300.0}}, seed=1),
    Case("llama-yarn", "YaRN's correction given as a number, its ramp not rounded to whole pairs; exact gelu", "llama",
         {"head_dim": 16, "hidden_act": "gelu",
          "rope_parameters": YARN | {"attention_factor": 1.3, "truncate": False}}, T=40, seed=2),
    Case("mistral", "window 5 shorter than the prompt, K = 1", "mistral",
         {"sliding_window": 5, "num_key_value_heads": 1, "head_dim": 6}, seed=2),
    Case("mistral-window-1", "a token sees itself only", "mistral", {"sliding_window": 1}),
    Case("mistral-window-is-prompt", "the first new token pushes the first key out", "mistral",
         {"sliding_window": 13}, B=1, seed=2),
    Case("mistral-window-mid-decode", "the window fills while decoding; one-token prompts", "mistral",
         {"sliding_window": 40, "tie_word_embeddings": True}, B=3, T=1),
    Case("mistral-no-window", "null, as Mistral 0.2 has it", "mistral", {"sliding_window": None, "head_dim": 14}),
    Case("qwen2", "biases on queries, keys and values alone, tied", "qwen2", {"tie_word_embeddings": True}, seed=5),
    Case("qwen2-windowed", "full layers below, sliding ones above", "qwen2",
         {"num_hidden_layers": 4, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 2}),
    Case("qwen3", "norms of queries and keys, N·H = 40 is not D = 32, tied", "qwen3", {"tie_word_embeddings": True}, seed=1),
    Case("qwen3-biases", "with biases, K = 1, two tokens of prompt", "qwen3",
         {"attention_bias": True, "num_key_value_heads": 1}, T=2, seed=3),
    Case("qwen3-yarn", "YaRN as Qwen recommends it: no mscale given", "qwen3",
         {"head_dim": 16, "rope_parameters": YARN}, T=40),
)  # fmt: skip

OTHER_NORMS = (
    Case("stablelm", "a quarter of each head is turned; layer norms with biases; G = 2", "stablelm",
         {"partial_rotary_factor": 0.25, "use_qkv_bias": True}, seed=4),
    Case("stablelm-half", "half of each head, K = 1, one-token prompts, tied", "stablelm",
         {"partial_rotary_factor": 0.5, "num_key_value_heads": 1, "tie_word_embeddings": True}, B=3, T=1, seed=5),
    Case("stablelm-scaled", "the turned half stretched as Llama 3's", "stablelm",
         {"hidden_size": 64, "rope_parameters": LLAMA_3 | {"partial_rotary_factor": 0.5}}, T=40),
    Case("starcoder2", "no gate, layer norms, biases everywhere, window 5", "starcoder2", {"sliding_window": 5}, seed=7),
    Case("starcoder2-plain", "no biases, no window, untied, K = 1", "starcoder2",
         {"use_bias": False, "num_key_value_heads": 1, "tie_word_embeddings": False}, seed=1),
)  # fmt: skip

GEMMA = (
    Case("gemma-1", "norms stored minus one, scaled embeddings, gelu that means tanh, K = 1", "gemma",
         {"hidden_act": "gelu", "num_key_value_heads": 1}, seed=3),
    Case("gemma-1-biases", "biases, untied, K = N", "gemma",
         {"attention_bias": True, "num_key_value_heads": 4, "tie_word_embeddings": False}),
    Case("gemma-2", "both caps, four norms, window 5, scores by 1/sqrt(20), H = 12", "gemma2", seed=6),
    Case("gemma-2-uncapped", "caps are null, untied, K = 1", "gemma2",
         {"attn_logit_softcapping": None, "final_logit_softcapping": None, "num_key_value_heads": 1,
          "tie_word_embeddings": False}),
    Case("gemma-2-window-1", "local layers see the token itself only; one-token prompts, K = N, untied", "gemma2",
         {"sliding_window": 1, "num_key_value_heads": 4, "tie_word_embeddings": False}, B=3, T=1, seed=205),
    Case("gemma-3", "local and global theta, global positions divided by 8, q/k norms", "gemma3_text",
         {"rope_parameters": {
             "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 50000.0},
             "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}}, seed=17),
    Case("gemma-3-six", "the usual pattern, five local layers and a global one; logits capped; biases", "gemma3_text",
         {"num_hidden_layers": 6, "attention_bias": True, "layer_types": None, "num_key_value_heads": 1,
          "final_logit_softcapping": 4.0, "sliding_window": 20}, B=1, T=20, seed=2),
)  # fmt: skip

EXPERTS = (
    Case("mixtral", "2 of 5 experts", "mixtral"),
    Case("mixtral-one", "1 of 3 experts, its weight always 1; window 6; tied; N·H = 40", "mixtral",
         {"num_local_experts": 3, "num_experts_per_tok": 1, "sliding_window": 6, "head_dim": 10,
          "tie_word_embeddings": True}),
    Case("mixtral-all", "all 2 of 2 experts, one-token prompts", "mixtral",
         {"num_local_experts": 2, "num_experts_per_tok": 2, "num_key_value_heads": 1}, B=3, T=1),
    Case("qwen3-moe", "weights as the softmax gives them", "qwen3_moe"),
    Case("qwen3-moe-normalized", "weights divided by their sum; biases; tied", "qwen3_moe",
         {"norm_topk_prob": True, "attention_bias": True, "tie_word_embeddings": True, "num_key_value_heads": 4}, seed=2),
    Case("qwen3-moe-dense-first", "one layer without experts, then two with; all slide", "qwen3_moe",
         {"mlp_only_layers": [0], "use_sliding_window": True, "sliding_window": 7}),
)  # fmt: skip

SIGMOID = (
    Case("glm-4.5", "half of each head turned, sigmoid router, one shared expert, a dense layer first", "glm4_moe",
         {"attention_bias": True}),
    Case("glm-4.5-norms", "norms of queries and keys, best 2 of 4 groups, times 2.5, three quarters turned", "glm4_moe",
         {"head_dim": 16, "use_qk_norm": True, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5,
          "partial_rotary_factor": 0.75, "n_shared_experts": 2}, seed=1),
    Case("glm-4.5-all", "no dense layer, all turned, weights not normalized, tied", "glm4_moe",
         {"first_k_dense_replace": 0, "num_hidden_layers": 2, "partial_rotary_factor": 1.0,
          "norm_topk_prob": False, "tie_word_embeddings": True, "num_key_value_heads": 1}),
)  # fmt: skip

LATENT = (
    Case("deepseek-v2-lite", "queries without a latent, plain top-k, YaRN with equal mscales", "deepseek_v2",
         {"q_lora_rank": None, "rope_parameters": YARN | {"mscale": 0.707, "mscale_all_dim": 0.707}}, T=40, seed=1),
    Case("deepseek-v2", "best 2 of 4 groups by their best expert, weights times 16, mscales differ", "deepseek_v2",
         {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "routed_scaling_factor": 16.0,
          "rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 0.5}}, seed=1),
    Case("deepseek-v2-no-yarn", "no scaling, all layers with experts, one-token prompts", "deepseek_v2",
         {"first_k_dense_replace": 0, "num_hidden_layers": 2}, B=3, T=1),
    Case("deepseek-v2-biases", "biases on projections from and to the stream; every expert visited", "deepseek_v2",
         {"attention_bias": True, "num_experts_per_tok": 8}, seed=1),
    Case("deepseek-v3", "sigmoid, correction, best 2 of 4 groups by their two best, normalized, times 2.5", "deepseek_v3",
         {"rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}}),
    Case("deepseek-v3-plain", "no query latent, one group, weights not normalized, half pairing, tied", "deepseek_v3",
         {"q_lora_rank": None, "n_group": 1, "topk_group": 1, "norm_topk_prob": False, "rope_interleave": False,
          "tie_word_embeddings": True}, B=1, seed=1),
    Case("deepseek-v3-dense", "no experts at all; YaRN without mscale_all_dim; wide values", "deepseek_v3",
         {"first_k_dense_replace": 3, "v_head_dim": 20, "rope_parameters": YARN}, T=40),
)  # fmt: skip

CASES = DENSE + OTHER_NORMS + GEMMA + EXPERTS + SIGMOID + LATENT

# A family that the loader does not read; what it does differently our Transformer can do all the
# same.
BY_HAND = (
    Case("gpt2", "learned positions, no gate, no RoPE", "gpt2",
         {"max_position_embeddings": 80, "n_inner": 44, "bos_token_id": 0, "eos_token_id": 0}, seed=5),
)  # fmt: skip
