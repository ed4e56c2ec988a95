"""Read the sizes of a model out of a Hugging Face config.json, with the old and the new names of its keys."""

from collections.abc import Callable, Mapping
from typing import Any

from twophase.theory.architecture import Architecture, LatentAttention, MixtureOfExperts

Config = Mapping[str, Any]


def read_config(config: Config, name: str | None = None) -> Architecture:
    """The `Architecture` of a config; see `Architecture.from_hf`."""
    if not isinstance(config, Mapping):
        raise ValueError(f"A config must be a JSON object, but it is a {type(config).__name__}.")
    kind = config.get("model_type")
    if isinstance(config.get("text_config"), Mapping):  # a model that also sees images: its language part
        inner = dict(config["text_config"])
        inner.setdefault("model_type", f"{kind}_text")
        return read_config(inner, name or _name(config))
    if kind is None:
        raise ValueError("The config has no key 'model_type', so its layers are unknown.")
    if not isinstance(kind, str) or kind not in _READERS:
        raise ValueError(f"Unsupported model_type {kind!r}. Supported: {', '.join(_READERS)}.")
    return Architecture(name=name or _name(config), **_READERS[kind](config))


def _name(config: Config) -> str:
    return str(config.get("_name_or_path") or config.get("model_type") or "config.json")


def _need(config: Config, *keys: str) -> Any:
    """The first of these keys that is there and not null; ValueError names the first when none is."""
    for key in keys:
        if config.get(key) is not None:
            return config[key]
    raise ValueError(f"The config of model_type {config.get('model_type')!r} has no key {keys[0]!r}.")


def _size(config: Config, *keys: str) -> int:
    value = _need(config, *keys)
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ValueError(f"The config's {keys[0]!r} must be a positive integer, but it is {value!r}.")
    return value


def _count(config: Config, key: str, default: int = 0) -> int:
    value = config.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"The config's {key!r} must be a whole number, but it is {value!r}.")
    return value


def _float(config: Config, key: str, default: float) -> float:
    value = default if config.get(key) is None else config[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e30:
        raise ValueError(f"The config's {key!r} must be a positive number, but it is {value!r}.")
    return float(value)


def _rope_theta(config: Config, default: float = 10000.0) -> float:
    """Old configs have `rope_theta`; new ones `rope_parameters`, for all layers or per kind of layer."""
    rope = config.get("rope_parameters")
    if isinstance(rope, Mapping):
        inner = rope.get("full_attention", rope)
        return _float(inner if isinstance(inner, Mapping) else rope, "rope_theta", default)
    return _float(config, "rope_theta", default)


def _common(config: Config) -> dict[str, Any]:
    """What Llama and all its descendants share."""
    D, N = _size(config, "hidden_size"), _size(config, "num_attention_heads")
    if config.get("head_dim") is None and D % N:
        raise ValueError(f"The config has no 'head_dim', and 'hidden_size' {D} is no multiple of {N} heads.")
    return {
        "L": _size(config, "num_hidden_layers"),
        "D": D,
        "F": _size(config, "intermediate_size"),
        "N": N,
        "K": _size(config, "num_key_value_heads") if config.get("num_key_value_heads") is not None else N,
        "H": _size(config, "head_dim") if config.get("head_dim") is not None else D // N,
        "V": _size(config, "vocab_size"),
        "tied_embeddings": bool(config.get("tie_word_embeddings", False)),
        "max_context": _count(config, "max_position_embeddings") or None,
        "rope_theta": _rope_theta(config),
        "norm_eps": _float(config, "rms_norm_eps", 1e-6),
        "activation": _activation(config, "hidden_act", default="silu"),
    }


def _activation(config: Config, *keys: str, default: str) -> str:
    name = next((config[key] for key in keys if config.get(key) is not None), default)
    return {"gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "swish": "silu"}.get(str(name), str(name))


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
        raise ValueError(f"The config's 'layer_types' has {unknown[0]!r}; supported: {', '.join(names)}.")
    if len(types) != L:
        raise ValueError(f"The config's 'layer_types' has {len(types)} entries for {L} layers.")
    return tuple(names[t] for t in types)


def _windowed(config: Config, sizes: dict[str, Any], default: tuple[str, ...]) -> dict[str, Any]:
    kinds = _layers(config, sizes["L"], default)
    sizes["attention"] = kinds[0] if len(set(kinds)) == 1 else kinds
    sizes["window"] = _size(config, "sliding_window") if "sliding" in kinds else None
    return sizes


def _llama(config: Config) -> dict[str, Any]:
    biased = bool(config.get("attention_bias", False))
    return _common(config) | {
        "qkv_bias": biased,
        "o_bias": biased,
        "mlp_bias": bool(config.get("mlp_bias", False)),
    }


def _mistral(config: Config) -> dict[str, Any]:
    sizes = _common(config)
    kind = "sliding" if config.get("sliding_window") is not None else "full"
    return _windowed(config, sizes, (kind,) * sizes["L"])


def _mixtral(config: Config) -> dict[str, Any]:
    sizes = _mistral(config)
    E, k = _size(config, "num_local_experts", "num_experts"), _size(config, "num_experts_per_tok")
    return sizes | {"moe": MixtureOfExperts(E=E, k=k, F=sizes["F"])}


def _qwen2(config: Config) -> dict[str, Any]:
    sizes = _common(config) | {"qkv_bias": True}
    first = _count(config, "max_window_layers") if config.get("use_sliding_window") else sizes["L"]
    return _windowed(config, sizes, tuple("full" if i < first else "sliding" for i in range(sizes["L"])))


def _qwen3(config: Config) -> dict[str, Any]:
    biased = bool(config.get("attention_bias", False))
    config = {"head_dim": 128} | dict(config)
    return _qwen2(config) | {"qkv_bias": biased, "o_bias": biased, "qk_norm": True}


def _qwen3_moe(config: Config) -> dict[str, Any]:
    if config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) != 1:
        raise ValueError(
            "A qwen3_moe config with dense layers ('mlp_only_layers', 'decoder_sparse_step') is unsupported."
        )
    E, k = _size(config, "num_experts", "num_local_experts"), _size(config, "num_experts_per_tok")
    return _qwen3(config) | {"moe": MixtureOfExperts(E=E, k=k, F=_size(config, "moe_intermediate_size"))}


def _gemma(config: Config, period: int) -> dict[str, Any]:
    config = {"tie_word_embeddings": True, "head_dim": 256} | dict(config)
    sizes = _common(config) | {
        "norms_per_layer": 4,
        "activation": _activation(config, "hidden_activation", "hidden_act", default="gelu_tanh"),
    }
    period = _count(config, "sliding_window_pattern") or _count(config, "_sliding_window_pattern") or period
    kinds = tuple("full" if (i + 1) % period == 0 else "sliding" for i in range(sizes["L"]))
    return _windowed(config, sizes, kinds)


def _gemma2(config: Config) -> dict[str, Any]:
    return _gemma(config, 2)


def _gemma3(config: Config) -> dict[str, Any]:
    theta = _rope_theta(config, default=1e6)
    # Published files leave out what equals the library's defaults.
    config = {"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4} | dict(config)
    return _gemma(config, 6) | {"qk_norm": True, "rope_theta": theta}


def _deepseek(config: Config) -> dict[str, Any]:
    mla = LatentAttention(
        R=_size(config, "kv_lora_rank"),
        rope_dim=_size(config, "qk_rope_head_dim"),
        nope_dim=_size(config, "qk_nope_head_dim"),
        v_dim=_size(config, "v_head_dim"),
        q_rank=_size(config, "q_lora_rank") if config.get("q_lora_rank") is not None else None,
    )
    if config.get("moe_layer_freq", 1) != 1:
        raise ValueError("A deepseek config with 'moe_layer_freq' other than 1 is unsupported.")
    moe = None
    if config.get("n_routed_experts") is not None:
        moe = MixtureOfExperts(
            E=_size(config, "n_routed_experts"),
            k=_size(config, "num_experts_per_tok"),
            F=_size(config, "moe_intermediate_size"),
            n_shared=_count(config, "n_shared_experts"),
            n_dense_layers=_count(config, "first_k_dense_replace"),
            router_bias=config["model_type"] == "deepseek_v3",
        )
    # `head_dim` means the rotated part in newer files; a query head is the sum of its two parts.
    sizes = _common(dict(config) | {"head_dim": mla.nope_dim + mla.rope_dim})
    return sizes | {"attention": "mla", "mla": mla, "moe": moe}


def _gpt2(config: Config) -> dict[str, Any]:
    D, N = _size(config, "n_embd", "hidden_size"), _size(config, "n_head", "num_attention_heads")
    if D % N:
        raise ValueError(f"The config's 'n_embd' {D} is no multiple of its 'n_head' {N}.")
    positions = _size(config, "n_positions", "n_ctx", "max_position_embeddings")
    return {
        "L": _size(config, "n_layer", "num_hidden_layers"),
        "D": D,
        "F": _size(config, "n_inner", "intermediate_size") if config.get("n_inner") is not None else 4 * D,
        "N": N,
        "K": N,
        "H": D // N,
        "V": _size(config, "vocab_size"),
        "tied_embeddings": bool(config.get("tie_word_embeddings", True)),
        "gated_mlp": False,
        "qkv_bias": True,
        "o_bias": True,
        "mlp_bias": True,
        "norm": "layer",
        "learned_positions": positions,
        "max_context": positions,
        "norm_eps": _float(config, "layer_norm_epsilon", 1e-5),
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
