"""The sizes of model types that are counted here, but not run: what a planner needs of them, to the
parameter (tests hold each against transformers)."""

from typing import Any

from twophase.theory.hugging_face.common import common_sizes
from twophase.theory.hugging_face.experts import deepseek, glm4_moe, qwen3_moe
from twophase.theory.hugging_face.values import Config, count, flag, need, size
from twophase.theory.sizes import MixtureOfExperts, SparseIndex

KINDS = {
    "full_attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "sliding",  # a chunk is a window that begins anew: never more keys
    "linear_attention": "state",
}


def kinds(config: Config, sizes: dict[str, Any], default: tuple[str, ...]) -> dict[str, Any]:
    """The kind of each layer from `layer_types`, or the family's default."""
    types = config.get("layer_types")
    if types is None:
        return {"attention": default}
    known = isinstance(types, (list, tuple)) and all(kind in KINDS for kind in types)
    if not known or len(types) != sizes["L"]:
        raise ValueError(
            f"The config's 'layer_types' must name one of {', '.join(KINDS)} for each of"
            f" {sizes['L']} layers."
        )
    return {"attention": tuple(KINDS[kind] for kind in types)}


def gpt_oss(config: Config) -> dict[str, Any]:
    """Windows in every other layer, sinks, biases everywhere, experts as wide as they say."""
    sizes = common_sizes(config)
    experts = MixtureOfExperts(
        E=size(config, "num_local_experts"),
        k=size(config, "num_experts_per_tok", "experts_per_token"),
        F=sizes["F"],
        router_bias=True,
        bias=True,
    )
    every_other = tuple("full" if i % 2 else "sliding" for i in range(sizes["L"]))
    biases = dict.fromkeys(("qkv_bias", "o_bias"), flag(config, "attention_bias", default=True))
    window = {"window": size(config, "sliding_window"), "sinks": True, "moe": experts}
    return sizes | kinds(config, sizes, every_other) | biases | window


def minimax_m2(config: Config) -> dict[str, Any]:
    """Grouped queries whose norms are as wide as all heads together; a router with a bias."""
    sizes = common_sizes(config)
    experts = MixtureOfExperts(
        E=size(config, "num_local_experts"),
        k=size(config, "num_experts_per_tok"),
        F=sizes["F"],
        router_bias=True,
    )
    norms = sizes["L"] * (sizes["N"] + sizes["K"]) * sizes["H"]
    return sizes | {"moe": experts, "other_params": norms}


def llama4(config: Config) -> dict[str, Any]:
    """Every so-manieth layer has experts, beside one that all tokens visit; three of four layers
    see a chunk of the context only."""
    sizes = common_sizes(config)
    every = size(config, "interleave_moe_layer_step")
    listed = config.get("moe_layers")
    n_moe = len(listed) if listed is not None else sizes["L"] // every
    experts = MixtureOfExperts(
        E=size(config, "num_local_experts"),
        k=size(config, "num_experts_per_tok"),
        F=sizes["F"],
        n_shared=1,
        n_dense_layers=sizes["L"] - n_moe,
    )
    default = tuple("full" if (i + 1) % 4 == 0 else "sliding" for i in range(sizes["L"]))
    sizes["F"] = size(config, "intermediate_size_mlp")
    chunk = {"window": size(config, "attention_chunk_size"), "moe": experts}
    return sizes | kinds(config, sizes, default) | chunk


def qwen3_5(config: Config) -> dict[str, Any]:
    """Gated delta rule in three of four layers, gated attention in the fourth."""
    sizes = common_sizes(config)
    every = count(config, "full_attention_interval", 4)
    default = tuple("state" if (i + 1) % every else "full" for i in range(sizes["L"]))
    gated = {"gated_attention": True, "qk_norm": True}
    return sizes | kinds(config, sizes, default) | gated | _delta_rule(config, sizes["D"])


def qwen3_5_moe(config: Config) -> dict[str, Any]:
    """The same with experts in all layers, one of them for all tokens, behind a gate."""
    sizes = qwen3_5(dict(config) | {"intermediate_size": need(config, "moe_intermediate_size")})
    F, shared = (
        size(config, "moe_intermediate_size"),
        size(config, "shared_expert_intermediate_size"),
    )
    if shared % F:
        raise ValueError(
            f"The config's 'shared_expert_intermediate_size' {shared} is supported only as a"
            f" multiple of 'moe_intermediate_size' {F}."
        )
    experts = MixtureOfExperts(
        E=size(config, "num_experts"),
        k=size(config, "num_experts_per_tok"),
        F=F,
        n_shared=shared // F,
    )
    return sizes | {"moe": experts, "other_params": sizes["L"] * sizes["D"]}


def _delta_rule(config: Config, D: int) -> dict[str, int]:
    """What a layer with a gated delta rule weighs, keeps and computes: projections, a short
    convolution, decays, a norm; a matrix a head; a matrix decayed, read, corrected, read."""
    heads = size(config, "linear_num_value_heads")
    key, value = size(config, "linear_key_head_dim"), size(config, "linear_value_head_dim")
    keys, values = size(config, "linear_num_key_heads") * key, heads * value
    mixed, kernel = 2 * keys + values, size(config, "linear_conv_kernel_dim")
    projections = D * (mixed + values + 2 * heads) + values * D
    return {
        "state_params": projections + mixed * kernel + 2 * heads + value,
        "state_values": heads * key * value + mixed * (kernel - 1),
        "state_flops": 7 * heads * key * value + 2 * mixed * kernel,
    }


def as_deepseek(config: Config) -> dict[str, Any]:
    """Kimi K2 and GLM 4.7 Flash: DeepSeek-V3's layers under a name of their own."""
    return deepseek(dict(config) | {"model_type": "deepseek_v3"})


def chosen_keys(config: Config) -> dict[str, Any]:
    """DeepSeek V3.2 and GLM 5: DeepSeek-V3's layers, of which some choose the keys that they and
    those after them attend to."""
    sizes = as_deepseek(config)
    kinds = config.get("indexer_types") or ["full"] * sizes["L"]
    known = isinstance(kinds, (list, tuple)) and set(kinds) <= {"full", "shared"}
    if not known or len(kinds) != sizes["L"] or kinds[0] != "full":
        raise ValueError(
            "The config's 'indexer_types' must say 'full' or 'shared' for each of"
            f" {sizes['L']} layers, and 'full' first."
        )
    index = SparseIndex(
        heads=size(config, "index_n_heads"),
        dim=size(config, "index_head_dim"),
        top_k=size(config, "index_topk"),
        layers=tuple(i for i, kind in enumerate(kinds) if kind == "full"),
    )
    return sizes | {"index": index}


def as_glm4_moe(config: Config) -> dict[str, Any]:
    """The language part of a GLM 4.5 that sees."""
    return glm4_moe(dict(config) | {"model_type": "glm4_moe"})


def as_qwen3_moe(config: Config) -> dict[str, Any]:
    """The language part of a Qwen3 with experts that sees."""
    return qwen3_moe(dict(config) | {"model_type": "qwen3_moe"})
