"""Read the sizes of a model out of a Hugging Face config.json, with the old and the new names of
its keys."""

from collections.abc import Callable, Mapping
from typing import Any

from twophase.theory.hf_defaults import LEFT_OUT
from twophase.theory.hf_rope import rope_settings
from twophase.theory.hf_values import Config, count, flag, number, size
from twophase.theory.sizes import MAX_LAYERS, LatentAttention, MixtureOfExperts


def config_sizes(config: Config) -> dict[str, Any]:
    """The fields of an `Architecture`, all but its name; see `Architecture.from_hf`."""
    text = language_part(config)
    return _READERS[text["model_type"]](text)


def language_part(config: Config) -> dict[str, Any]:
    """The part of a config that describes a decoder, with the family's values for keys that the
    file leaves out.

    For a model that also sees images that is its `text_config`. Raises ValueError for a model type
    without a reader.
    """
    if not isinstance(config, Mapping):
        raise ValueError(f"A config must be a JSON object, but it is a {type(config).__name__}.")
    kind = config.get("model_type")
    if isinstance(config.get("text_config"), Mapping):
        outer = {key: config[key] for key in ("tie_word_embeddings",) if key in config}
        return language_part({"model_type": f"{kind}_text"} | outer | dict(config["text_config"]))
    if kind is None:
        raise ValueError("The config has no key 'model_type', so its layers are unknown.")
    if not isinstance(kind, str) or kind not in _READERS:
        raise ValueError(f"Unsupported model_type {kind!r}. Supported: {', '.join(_READERS)}.")
    return LEFT_OUT.get(kind, {}) | dict(config)


def config_name(config: Config) -> str:
    """The model's name, as far as the config knows one."""
    return str(config.get("_name_or_path") or config.get("model_type") or "config.json")


def _common(config: Config) -> dict[str, Any]:
    """What Llama and all its descendants share."""
    D, N = size(config, "hidden_size"), size(config, "num_attention_heads")
    if config.get("head_dim") is None and D % N:
        raise ValueError(
            f"The config has no 'head_dim', and 'hidden_size' {D} is no multiple of {N} heads."
        )
    if (
        L := size(config, "num_hidden_layers")
    ) > MAX_LAYERS:  # lists of that length are made before anything is checked
        raise ValueError(
            f"The config's 'num_hidden_layers' is {L}, beyond any transformer this package plans"
            " for."
        )
    return {
        "L": L,
        "D": D,
        "F": size(config, "intermediate_size"),
        "N": N,
        "K": (
            size(config, "num_key_value_heads")
            if config.get("num_key_value_heads") is not None
            else N
        ),
        "H": size(config, "head_dim") if config.get("head_dim") is not None else D // N,
        "V": size(config, "vocab_size"),
        "tied_embeddings": flag(config, "tie_word_embeddings"),
        "max_context": count(config, "max_position_embeddings") or None,
        "rope_theta": rope_settings(config)["rope_theta"],
        "norm_eps": number(config, "rms_norm_eps", 1e-6),
        "activation": _activation(config, "hidden_act", default="silu"),
    }


def _activation(config: Config, *keys: str, default: str) -> str:
    name = next((config[key] for key in keys if config.get(key) is not None), default)
    return {"gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "swish": "silu"}.get(
        str(name), str(name)
    )


def _layers(config: Config, L: int, default: tuple[str, ...]) -> tuple[str, ...]:
    """The kind of each layer from `layer_types`, or the family's default."""
    types = config.get("layer_types")
    if types is None:
        return default
    if not isinstance(types, (list, tuple)):
        raise ValueError(f"The config's 'layer_types' must be a list, but it is {types!r}.")
    names = {"full_attention": "full", "sliding_attention": "sliding"}
    unknown = [t for t in types if not isinstance(t, str) or t not in names]
    if unknown:
        raise ValueError(
            f"The config's 'layer_types' has {unknown[0]!r}; supported: {', '.join(names)}."
        )
    if len(types) != L:
        raise ValueError(f"The config's 'layer_types' has {len(types)} entries for {L} layers.")
    return tuple(names[t] for t in types)


def _windowed(config: Config, sizes: dict[str, Any], default: tuple[str, ...]) -> dict[str, Any]:
    kinds = _layers(config, sizes["L"], default)
    sizes["attention"] = kinds[0] if len(set(kinds)) == 1 else kinds
    sizes["window"] = size(config, "sliding_window") if "sliding" in kinds else None
    return sizes


def _one_kind(config: Config, sizes: dict[str, Any], sliding: bool) -> dict[str, Any]:
    """Families whose layers are all alike: `layer_types`, if it is there, must say the same."""
    kind = "sliding" if sliding else "full"
    if set(_layers(config, sizes["L"], (kind,))) != {kind}:
        raise ValueError(
            "The config's 'layer_types' is not supported where it differs from 'sliding_window':"
            f" all layers of a {config['model_type']} are {kind}."
        )
    return _windowed(config, sizes, (kind,) * sizes["L"])


def _llama(config: Config) -> dict[str, Any]:
    return _common(config) | _attention_bias(config) | {"mlp_bias": flag(config, "mlp_bias")}


def _attention_bias(config: Config) -> dict[str, Any]:
    biased = flag(config, "attention_bias")
    return {"qkv_bias": biased, "o_bias": biased}


def _mistral(config: Config) -> dict[str, Any]:
    return _one_kind(config, _common(config), sliding=config.get("sliding_window") is not None)


def _mixtral(config: Config) -> dict[str, Any]:
    sizes = _mistral(config)
    E, k = size(config, "num_local_experts", "num_experts"), size(config, "num_experts_per_tok")
    return sizes | {"moe": MixtureOfExperts(E=E, k=k, F=sizes["F"])}


def _may_slide(config: Config) -> bool:
    """Whether a Qwen uses windows at all."""
    return flag(config, "use_sliding_window") and config.get("sliding_window") is not None


def _qwen2(config: Config) -> dict[str, Any]:
    sizes = _common(config) | {"qkv_bias": True}
    first = count(config, "max_window_layers") if _may_slide(config) else sizes["L"]
    sizes = _windowed(
        config, sizes, tuple("full" if i < first else "sliding" for i in range(sizes["L"]))
    )
    if sizes["window"] is not None and not _may_slide(config):
        raise ValueError(
            "The config's 'layer_types' has sliding layers, but its 'use_sliding_window' is not"
            " set."
        )
    return sizes


def _qwen3(config: Config) -> dict[str, Any]:
    return _qwen2(config) | _attention_bias(config) | {"qk_norm": True}


def _qwen3_moe(config: Config) -> dict[str, Any]:
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
    sizes = _one_kind(config, _common(config), sliding=_may_slide(config))
    return sizes | _attention_bias(config) | {"qk_norm": True, "moe": moe}


def _gemma(config: Config, period: int) -> dict[str, Any]:
    """Every `period`-th layer is full, the others slide."""
    sizes = _common(config) | _attention_bias(config) | {"norms_per_layer": 4}
    sizes["activation"] = _activation(
        config, "hidden_activation", "hidden_act", default="gelu_tanh"
    )
    kinds = tuple("full" if (i + 1) % period == 0 else "sliding" for i in range(sizes["L"]))
    return _windowed(config, sizes, kinds)


def _gemma2(config: Config) -> dict[str, Any]:
    return _gemma(config, 2)


def _gemma3(config: Config) -> dict[str, Any]:
    return _gemma(config, size(config, "sliding_window_pattern")) | {"qk_norm": True}


def _deepseek(config: Config) -> dict[str, Any]:
    mla = LatentAttention(
        R=size(config, "kv_lora_rank"),
        rope_dim=size(config, "qk_rope_head_dim"),
        nope_dim=size(config, "qk_nope_head_dim"),
        v_dim=size(config, "v_head_dim"),
        q_rank=size(config, "q_lora_rank") if config.get("q_lora_rank") is not None else None,
    )
    if config.get("moe_layer_freq", 1) != 1:
        raise ValueError("A deepseek config with 'moe_layer_freq' other than 1 is unsupported.")
    moe = None
    if config.get("n_routed_experts") is not None:
        moe = MixtureOfExperts(
            E=size(config, "n_routed_experts"),
            k=size(config, "num_experts_per_tok"),
            F=size(config, "moe_intermediate_size"),
            n_shared=count(config, "n_shared_experts"),
            n_dense_layers=min(
                count(config, "first_k_dense_replace"), size(config, "num_hidden_layers")
            ),
            router_bias=config["model_type"] == "deepseek_v3",
        )
    # `head_dim` means the rotated part in newer files; a query head is the sum of its two parts.
    # Each has its own keys.
    sizes = _common(
        dict(config) | {"head_dim": mla.nope_dim + mla.rope_dim, "num_key_value_heads": None}
    )
    mlp_bias = config["model_type"] == "deepseek_v2" and flag(config, "mlp_bias")
    return (
        sizes
        | _attention_bias(config)
        | {
            "attention": "mla",
            "mla": mla,
            "moe": moe,
            "mlp_bias": mlp_bias,
        }
    )


def _gpt2(config: Config) -> dict[str, Any]:
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
        "activation": _activation(config, "activation_function", default="gelu_tanh"),
    }


# Model types whose layers are known.
_READERS: dict[str, Callable[[Config], dict[str, Any]]] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "gpt2": _gpt2,
}
