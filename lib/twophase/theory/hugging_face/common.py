"""What the model types of a config.json share: sizes, activations, kinds of layers."""

from typing import Any

from twophase.theory.hugging_face.rope import rope_settings
from twophase.theory.hugging_face.values import Config, count, flag, number, size
from twophase.theory.sizes import MAX_LAYERS


def common_sizes(config: Config) -> dict[str, Any]:
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
        "activation": activation(config, "hidden_act", default="silu"),
    }


def activation(config: Config, *keys: str, default: str) -> str:
    """The activation under the first of these keys that is there, by the name that it has here."""
    name = next((config[key] for key in keys if config.get(key) is not None), default)
    return {"gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "swish": "silu"}.get(
        str(name), str(name)
    )


def layer_kinds(config: Config, L: int, default: tuple[str, ...]) -> tuple[str, ...]:
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


def windowed(config: Config, sizes: dict[str, Any], default: tuple[str, ...]) -> dict[str, Any]:
    """The sizes with the kinds of their layers, and the window if one of them slides."""
    kinds = layer_kinds(config, sizes["L"], default)
    sizes["attention"] = kinds[0] if len(set(kinds)) == 1 else kinds
    sizes["window"] = size(config, "sliding_window") if "sliding" in kinds else None
    return sizes


def one_kind(config: Config, sizes: dict[str, Any], sliding: bool) -> dict[str, Any]:
    """Families whose layers are all alike: `layer_types`, if it is there, must say the same."""
    kind = "sliding" if sliding else "full"
    if set(layer_kinds(config, sizes["L"], (kind,))) != {kind}:
        raise ValueError(
            "The config's 'layer_types' is not supported where it differs from 'sliding_window':"
            f" all layers of a {config['model_type']} are {kind}."
        )
    return windowed(config, sizes, (kind,) * sizes["L"])


def attention_bias(config: Config) -> dict[str, Any]:
    """`attention_bias`: of queries, keys and values, and of the output."""
    biased = flag(config, "attention_bias")
    return {"qkv_bias": biased, "o_bias": biased}


def may_slide(config: Config) -> bool:
    """Whether a Qwen uses windows at all."""
    return flag(config, "use_sliding_window") and config.get("sliding_window") is not None
