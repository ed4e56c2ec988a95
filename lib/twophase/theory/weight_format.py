"""The formats that a model's weights are stored in: bytes by part, and what a Hugging Face
config.json says."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from twophase.theory._domain import Number
from twophase.theory.hardware import BYTES_PER_VALUE, bytes_per_value
from twophase.theory.quantization import BLOCK_FORMATS, normal_float_bytes

PLAIN = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
METHODS = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "fp4"}
# quant_algo of NVIDIA's Model Optimizer
MODELOPT = {"FP8": "fp8", "NVFP4": "nvfp4", "W4A16_NVFP4": "nvfp4", "MXFP8": "mxfp8"}
PACKED = {
    "float-quantized": "fp8",
    "mxfp4-pack-quantized": "fp4",
    "nvfp4-pack-quantized": "nvfp4",
}  # of compressed-tensors

NORMAL_FLOATS = {"nf4": False, "nf4-double": True}  # and whether their maxima are quantized


def stored_bytes_per_value(name: str) -> Fraction:
    """Bytes of a stored value with its share of what scales it, in a format that fixes who shares a
    scale (blocks, NF4); of a plain one its own bytes. What a tensor has once is not counted.
    ValueError for an unknown one, listing the known."""
    if name in BLOCK_FORMATS:
        return BLOCK_FORMATS[name].bits_per_weight / 8
    if name in NORMAL_FLOATS:
        n = 64 * 256
        once = 4 * NORMAL_FLOATS[name]  # the mean of all maxima
        return Fraction(int(normal_float_bytes(n, double=NORMAL_FLOATS[name])) - once, n)
    if name == "e4m3":  # fp8 with a scale a tensor
        return Fraction(bytes_per_value("fp8"))
    if name not in BYTES_PER_VALUE:
        known = ", ".join([*BYTES_PER_VALUE, *BLOCK_FORMATS, *NORMAL_FLOATS, "e4m3"])
        raise ValueError(f"Unknown format {name!r}. Known formats: {known}.")
    return Fraction(bytes_per_value(name))


def stored_bytes(
    parts: Mapping[str, Number],
    bytes_per_weight: Number,
    bytes_per_kept: Number,
    bytes_per_attention: Number | None = None,
) -> Number:
    """Bytes of parameters by part (`Architecture.breakdown`): attention and MLP in the weights'
    format (attention in its own, if that is given), embedding, head, norms and router in the one
    that narrow checkpoints keep for them."""
    narrow = parts["attention"] + parts["mlp"]
    kept = (sum(parts.values()) - narrow) * bytes_per_kept
    if bytes_per_attention is None:
        return narrow * bytes_per_weight + kept
    return parts["mlp"] * bytes_per_weight + parts["attention"] * bytes_per_attention + kept


def read_dtype(config: Mapping[str, Any]) -> str:
    """The format of the weights, "bf16" style: of the quantized ones if there are any, else `dtype`
    (`torch_dtype` in older files).

    bf16 if the config does not say. ValueError for a format that is unknown.
    """
    inner = config.get("text_config")  # a model that also sees images: its language part first
    parts = [inner, config] if isinstance(inner, Mapping) else [config]
    for part in parts:
        if part.get("quantization_config"):
            how, experts = part["quantization_config"], part.get("expert_dtype")
            listed = any(_layers(how))
            return _experts_dtype(experts) if experts and not listed else _quantized(how)
    stated = next((p[k] for p in parts for k in ("dtype", "torch_dtype") if p.get(k)), "bfloat16")
    plain = str(stated).removeprefix("torch.")
    if plain not in PLAIN:
        raise ValueError(
            f"The config's dtype {stated!r} is unknown; supported: {', '.join(PLAIN)}."
        )
    return PLAIN[plain]


def read_groups(config: Mapping[str, Any]) -> tuple[int | None, int]:
    """The weights that share a scale, and the bits of a zero point, of a quantized config: (None,
    0) if it does not say. A group of −1 is a row, of which the width of the model stands here; GPTQ
    and AWQ store zero points also where all are the same."""
    inner = config.get("text_config")
    parts = [inner, config] if isinstance(inner, Mapping) else [config]
    how = next((p["quantization_config"] for p in parts if p.get("quantization_config")), None)
    if isinstance(how, Mapping) and how.get("format") == "pack-quantized":
        size = _packed(how).get("group_size")
        return (size, 0) if type(size) is int and size >= 1 else (None, 0)
    if not isinstance(how, Mapping) or how.get("quant_method") not in ("gptq", "awq"):
        return None, 0
    size, bits = how.get("group_size"), how.get("bits")
    width = next((p["hidden_size"] for p in parts if p.get("hidden_size")), None)
    group = width if size == -1 else size
    counts = type(group) is int and group >= 1
    return (group, bits) if counts and type(bits) is int and 1 <= bits <= 8 else (None, 0)


def read_attention(config: Mapping[str, Any]) -> str | None:
    """The format of attention in a quantized config that leaves it as it was, as gpt-oss does
    beside its narrow experts; None if it is that of the weights."""
    inner = config.get("text_config")
    parts = [inner, config] if isinstance(inner, Mapping) else [config]
    how = next((p["quantization_config"] for p in parts if p.get("quantization_config")), None)
    experts, others = _layers(how)
    if experts and set(others.values()) - set(experts.values()):
        return next(iter(others.values()))
    stated = any(p.get("expert_dtype") for p in parts) or _method_differs(how)
    if stated and isinstance(how, Mapping) and how.get("quant_method") in METHODS:
        return METHODS[how["quant_method"]]
    left = how.get("modules_to_not_convert") if isinstance(how, Mapping) else None
    names = left if isinstance(left, (list, tuple)) else []
    if isinstance(how, Mapping) and isinstance(how.get("ignore"), (list, tuple)):
        names = how["ignore"]  # of compressed-tensors, whose names may be patterns
    wide = ("*.self_attn", "*self_attn.*", "*self_attn*")
    return "bf16" if any(str(name).endswith(wide) for name in names) else None


def _packed(how: Mapping[str, Any]) -> Mapping[str, Any]:
    """What compressed-tensors says of the weights of its one group of integers; nothing where there
    are several, or none."""
    groups = how.get("config_groups")
    own = list(groups.values()) if isinstance(groups, Mapping) else []
    found = own[0].get("weights") if len(own) == 1 and isinstance(own[0], Mapping) else None
    return found if isinstance(found, Mapping) and found.get("type") == "int" else {}


def _layers(how: Any) -> tuple[dict[str, str], dict[str, str]]:
    """The formats that Model Optimizer lists layer by layer: of MLPs (where there are experts, of
    those alone), and of attention and states. Empty where it does not, or where they differ."""
    listed = how.get("quantized_layers") if isinstance(how, Mapping) else None
    known = {
        str(name): MODELOPT[layer["quant_algo"]]
        for name, layer in (listed.items() if isinstance(listed, Mapping) else ())
        if isinstance(layer, Mapping) and layer.get("quant_algo") in MODELOPT
    }
    routed = {name: own for name, own in known.items() if ".experts" in name}
    mlps = routed or {name: own for name, own in known.items() if ".mlp." in name}
    beside = (".self_attn.", ".linear_attn.", ".mixer.in_proj", ".mixer.out_proj")
    others = {name: own for name, own in known.items() if any(part in name for part in beside)}
    return mlps, others


def _method_differs(how: Any) -> bool:
    """Whether the format of the experts alone is listed beside a method for all others."""
    experts, others = _layers(how)
    return bool(experts) and not others


def _experts_dtype(stated: Any) -> str:
    if stated not in ("fp4", "fp8"):
        raise ValueError(f"The config's expert_dtype {stated!r} is unknown; supported: fp4, fp8.")
    return str(stated)


def _quantized(how: Any) -> str:
    found = how if isinstance(how, Mapping) else {}
    method, bits = str(found.get("quant_method")), found.get("bits")
    experts, _ = _layers(found)
    if len(set(experts.values())) == 1:
        return next(iter(experts.values()))
    if found.get("load_in_4bit") is True or found.get("load_in_8bit") is True:
        return "int4" if found.get("load_in_4bit") is True else "int8"
    if method in METHODS:
        return METHODS[method]
    if method in ("modelopt", "None") and found.get("quant_algo") in MODELOPT:
        return MODELOPT[found["quant_algo"]]
    if method == "compressed-tensors":
        if found.get("format") in PACKED:
            return PACKED[found["format"]]
        bits = _packed(found).get("num_bits")
    if bits in (2, 3, 4, 8):
        return f"int{bits:.0f}"
    raise ValueError(
        "The config's weights are quantized in a way that is unknown here: quant_method"
        f" {method!r}."
    )
