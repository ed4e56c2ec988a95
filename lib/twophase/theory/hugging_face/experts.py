"""The sizes of model types with experts."""

from typing import Any

from twophase.theory.hugging_face.common import attention_bias, common_sizes, may_slide, one_kind
from twophase.theory.hugging_face.dense import mistral
from twophase.theory.hugging_face.values import Config, count, flag, size
from twophase.theory.sizes import LatentAttention, MixtureOfExperts


def mixtral(config: Config) -> dict[str, Any]:
    sizes = mistral(config)
    E, k = size(config, "num_local_experts", "num_experts"), size(config, "num_experts_per_tok")
    return sizes | {"moe": MixtureOfExperts(E=E, k=k, F=sizes["F"])}


def qwen3_moe(config: Config) -> dict[str, Any]:
    dense = config.get("mlp_only_layers") or []
    whole = isinstance(dense, list) and all(type(layer) is int for layer in dense)
    first = whole and dense == list(range(len(dense)))
    if not first or config.get("decoder_sparse_step", 1) != 1:
        raise ValueError(
            "A qwen3_moe config with dense layers ('mlp_only_layers', 'decoder_sparse_step') is"
            f" supported only where they come before all others; 'mlp_only_layers' is {dense}."
        )
    E, k = size(config, "num_experts", "num_local_experts"), size(config, "num_experts_per_tok")
    moe = MixtureOfExperts(
        E=E, k=k, F=size(config, "moe_intermediate_size"), n_dense_layers=len(dense)
    )
    sizes = one_kind(config, common_sizes(config), sliding=may_slide(config))
    return sizes | attention_bias(config) | {"qk_norm": True, "moe": moe}


def deepseek(config: Config) -> dict[str, Any]:
    mla = LatentAttention(
        R=size(config, "kv_lora_rank"),
        rope_dim=size(config, "qk_rope_head_dim"),
        nope_dim=size(config, "qk_nope_head_dim"),
        v_dim=size(config, "v_head_dim"),
        q_rank=size(config, "q_lora_rank") if config.get("q_lora_rank") is not None else None,
    )
    # `head_dim` means the rotated part in newer files; a query head is the sum of its two parts.
    # Each has its own keys.
    sizes = common_sizes(
        dict(config) | {"head_dim": mla.nope_dim + mla.rope_dim, "num_key_value_heads": None}
    )
    mlp_bias = config["model_type"] == "deepseek_v2" and flag(config, "mlp_bias")
    return (
        sizes
        | attention_bias(config)
        | {
            "attention": "mla",
            "mla": mla,
            "moe": _routed(config, router_bias=config["model_type"] == "deepseek_v3"),
            "mlp_bias": mlp_bias,
        }
    )


def glm4_moe(config: Config) -> dict[str, Any]:
    """Grouped queries with DeepSeek-V3's experts; `attention_bias` is not of the output."""
    return common_sizes(config) | {
        "qkv_bias": flag(config, "attention_bias"),
        "qk_norm": flag(config, "use_qk_norm"),
        "moe": _routed(config, router_bias=True),
    }


def _routed(config: Config, router_bias: bool) -> MixtureOfExperts | None:
    """DeepSeek's experts, some of them shared by all tokens, after a few dense layers."""
    if config.get("moe_layer_freq", 1) != 1:
        raise ValueError(
            f"A {config['model_type']} config with 'moe_layer_freq' other than 1 is unsupported."
        )
    if config.get("n_routed_experts") is None:
        return None
    return MixtureOfExperts(
        E=size(config, "n_routed_experts"),
        k=size(config, "num_experts_per_tok"),
        F=size(config, "moe_intermediate_size"),
        n_shared=count(config, "n_shared_experts"),
        n_dense_layers=min(
            count(config, "first_k_dense_replace"), size(config, "num_hidden_layers")
        ),
        router_bias=router_bias,
    )
