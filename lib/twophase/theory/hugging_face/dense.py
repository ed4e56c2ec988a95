"""The sizes of model types whose layers all have one MLP."""

from typing import Any

from twophase.theory.hugging_face.common import (
    activation,
    attention_bias,
    common_sizes,
    may_slide,
    one_kind,
    windowed,
)
from twophase.theory.hugging_face.values import Config, count, flag, number, size


def llama(config: Config) -> dict[str, Any]:
    return common_sizes(config) | attention_bias(config) | {"mlp_bias": flag(config, "mlp_bias")}


def mistral(config: Config) -> dict[str, Any]:
    return one_kind(config, common_sizes(config), sliding=config.get("sliding_window") is not None)


def qwen2(config: Config) -> dict[str, Any]:
    sizes = common_sizes(config) | {"qkv_bias": True}
    first = count(config, "max_window_layers") if may_slide(config) else sizes["L"]
    sizes = windowed(
        config, sizes, tuple("full" if i < first else "sliding" for i in range(sizes["L"]))
    )
    if sizes["window"] is not None and not may_slide(config):
        raise ValueError(
            "The config's 'layer_types' has sliding layers, but its 'use_sliding_window' is not"
            " set."
        )
    return sizes


def qwen3(config: Config) -> dict[str, Any]:
    return qwen2(config) | attention_bias(config) | {"qk_norm": True}


def gemma(config: Config) -> dict[str, Any]:
    """The first Gemma: Llama's layers. Its files say "gelu" and mean the approximation by tanh."""
    sizes = common_sizes(config) | attention_bias(config)
    return sizes | {
        "activation": {"gelu": "gelu_tanh"}.get(sizes["activation"], sizes["activation"])
    }


def gemma_pattern(config: Config, period: int) -> dict[str, Any]:
    """Every `period`-th layer is full, the others slide."""
    sizes = common_sizes(config) | attention_bias(config) | {"norms_per_layer": 4}
    sizes["activation"] = activation(config, "hidden_activation", "hidden_act", default="gelu_tanh")
    kinds = tuple("full" if (i + 1) % period == 0 else "sliding" for i in range(sizes["L"]))
    return windowed(config, sizes, kinds)


def gemma2(config: Config) -> dict[str, Any]:
    return gemma_pattern(config, 2)


def gemma3(config: Config) -> dict[str, Any]:
    return gemma_pattern(config, size(config, "sliding_window_pattern")) | {"qk_norm": True}


def stablelm(config: Config) -> dict[str, Any]:
    """Llama with layer norms, whose bias is theirs, and biases on queries, keys and values."""
    sizes = common_sizes(config)
    if sizes["H"] * sizes["N"] != sizes["D"]:
        raise ValueError(
            f"The config's 'head_dim' {sizes['H']} is not supported: a head of a stablelm is"
            f" 'hidden_size' {sizes['D']} divided by {sizes['N']} heads wide."
        )
    return sizes | {
        "qkv_bias": flag(config, "use_qkv_bias"),
        "norm": "layer",
        "norm_eps": number(config, "layer_norm_eps", 1e-5),
    }


def starcoder2(config: Config) -> dict[str, Any]:
    """Layer norms, an MLP without a gate, biases everywhere or nowhere; one window for all."""
    sizes = one_kind(config, common_sizes(config), sliding=config.get("sliding_window") is not None)
    biases = dict.fromkeys(("qkv_bias", "o_bias", "mlp_bias"), flag(config, "use_bias"))
    return (
        sizes
        | biases
        | {
            "gated_mlp": False,
            "norm": "layer",
            "norm_eps": number(config, "norm_epsilon", 1e-5),
        }
    )


def gpt2(config: Config) -> dict[str, Any]:
    D, N = size(config, "n_embd", "hidden_size"), size(config, "n_head", "num_attention_heads")
    if D % N:
        raise ValueError(f"The config's 'n_embd' {D} is no multiple of its 'n_head' {N}.")
    positions = size(config, "n_positions", "n_ctx", "max_position_embeddings")
    return {
        "L": size(config, "n_layer", "num_hidden_layers"),
        "D": D,
        "F": (
            size(config, "n_inner", "intermediate_size")
            if config.get("n_inner") is not None
            else 4 * D
        ),
        "N": N,
        "K": N,
        "H": D // N,
        "V": size(config, "vocab_size"),
        "tied_embeddings": flag(config, "tie_word_embeddings", default=True),
        "gated_mlp": False,
        "qkv_bias": True,
        "o_bias": True,
        "mlp_bias": True,
        "norm": "layer",
        "learned_positions": positions,
        "max_context": positions,
        "norm_eps": number(config, "layer_norm_epsilon", 1e-5),
        "activation": activation(config, "activation_function", default="gelu_tanh"),
    }
