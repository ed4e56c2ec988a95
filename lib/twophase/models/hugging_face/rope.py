"""RoPE in a Config: how its frequencies are stretched, and Gemma 3's second base.

The two spellings of a config.json are made one by theory's `rope_settings`, which reads the base as
well; here is what each type of scaling may say, and what of it this package can do.
"""

from collections.abc import Mapping
from typing import Any

from twophase.kernels.rope import RopeScaling, yarn_mscale
from twophase.theory.hugging_face.rope import (
    CONTEXT,
    KINDS,
    local_rope_settings,
    read_object,
    rope_settings,
)
from twophase.theory.hugging_face.values import flag, number, size

Json = Mapping[str, Any]

# What each type may say. None of the rest is known to be harmless, so it is refused.
ANY_TYPE = {
    "rope_type",
    "type",
    "rope_theta",
    "partial_rotary_factor",
    "original_max_position_embeddings",
    "finetuned",
}
KEYS = {
    "default": ANY_TYPE,
    "linear": ANY_TYPE | {"factor"},
    "llama3": ANY_TYPE | {"factor", "low_freq_factor", "high_freq_factor"},
    "yarn": (
        ANY_TYPE
        | {
            "factor",
            "attention_factor",
            "beta_fast",
            "beta_slow",
            "mscale",
            "mscale_all_dim",
            "truncate",
        }
    ),
}
SHARE = "partial_rotary_factor"
LLAMA_3 = ("low_freq_factor", "high_freq_factor")


def rope_fields(text: Json) -> dict[str, Any]:
    """`rope_scaling` of a Config, and Gemma 3's `local_rope_theta`. ValueError for what is not
    supported."""
    if text.get(SHARE, 1) not in (None, 1):
        raise ValueError(_partial(text[SHARE], SHARE))
    where = "rope_scaling" if text.get("rope_scaling") else "rope_parameters"
    if text["model_type"] == "gemma3_text":
        return _gemma3(text, where)
    _check_kinds(text)
    return {"rope_scaling": read_scaling(rope_settings(text), where, text)}


def partial_rope_fields(text: Json, default: float) -> dict[str, Any]:
    """The same for families that turn a share of each head; `default` where the file has none."""
    _check_kinds(text)
    where = "rope_scaling" if text.get("rope_scaling") else "rope_parameters"
    settings = rope_settings(text)
    said = [part[SHARE] for part in (settings, text) if SHARE in part] or [default]
    if said[0] != said[-1]:
        raise ValueError(f"{SHARE} is {said[-1]}, but {where} says {said[0]}: keep one of the two.")
    if isinstance(said[0], bool) or not isinstance(said[0], (int, float)) or not 0 < said[0] <= 1:
        raise ValueError(
            f"{SHARE} {said[0]!r} is not supported: it is a share of each head, above 0, at most 1."
        )
    H = text.get("head_dim") or size(text, "hidden_size") // size(text, "num_attention_heads")
    rest = {key: value for key, value in settings.items() if key != SHARE}
    return {"rope_scaling": read_scaling(rest, where, text), "rotary_dim": int(H * said[0])}


def _check_kinds(text: Json) -> None:
    """Only Gemma 3 turns its kinds of layers by bases of their own."""
    for key in ("rope_scaling", "rope_parameters"):
        if set(KINDS) & read_object(text, key).keys():
            raise ValueError(
                f"{key} per kind of layer is not supported for model_type {text['model_type']!r}."
            )


def _gemma3(text: Json, where: str) -> dict[str, Any]:
    """Full layers may be scaled; sliding layers turn by a base of their own, unscaled."""
    old, new = read_object(text, "rope_scaling"), read_object(text, "rope_parameters")
    if new and not set(KINDS) & new.keys():
        raise ValueError(
            "rope_parameters of a gemma3_text must say full_attention and sliding_attention apart."
        )
    if old.get("type") not in (None, "default", old.get("rope_type")):
        raise ValueError(
            f"rope_scaling with type {old['type']!r} is not supported for gemma3_text: some"
            " releases of transformers scale by it, some do not; call it rope_type."
        )
    local = local_rope_settings(text)
    if read_scaling(local, "rope_parameters, sliding_attention", text) is not None:
        raise ValueError("rope_parameters: sliding layers with scaled positions are not supported.")
    full = rope_settings(text)
    if "truncate" in full or text.get(CONTEXT) is not None:
        raise ValueError(
            f"{where}: truncate and {CONTEXT} beside it are not supported for gemma3_text, where"
            " transformers ignores both."
        )
    scaling = read_scaling(full, where, text)
    return {"rope_scaling": scaling, "local_rope_theta": local["rope_theta"]}


def read_scaling(rope: Json, where: str, text: Json) -> RopeScaling | None:
    """The scaling that one dictionary describes; None for plain RoPE. `where` names the dictionary
    in messages."""
    kind = rope["rope_type"]
    if not isinstance(kind, str) or kind not in KEYS:
        raise ValueError(
            f"{where} type {kind!r} is not supported; supported: linear, llama3, yarn."
        )
    given = {key: value for key, value in rope.items() if value is not None}
    if unknown := sorted(given.keys() - KEYS[kind]):
        raise ValueError(
            f"{where} of type {kind!r}: {unknown[0]} {given[unknown[0]]!r} is not supported."
        )
    if given.get(SHARE, 1) != 1:
        raise ValueError(_partial(given[SHARE], where))
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling("linear", _factor(given, where))
    trained = {**text, **given}
    context = size(trained, "original_max_position_embeddings", "max_position_embeddings")
    if kind == "llama3":
        low, high = (
            number(given, key, 0) if key in given else _missing(where, key) for key in LLAMA_3
        )
        if low >= high:
            raise ValueError(
                f"{where}: low_freq_factor {low:g} must be below high_freq_factor {high:g}."
            )
        return RopeScaling(
            "llama3", _factor(given, where), context, low_freq_factor=low, high_freq_factor=high
        )
    return _yarn(given, where, context, text)


def _yarn(given: Json, where: str, context: int, text: Json) -> RopeScaling:
    stretch = size(text, "max_position_embeddings") / context if "factor" not in given else 1.0
    factor = number(given, "factor", stretch)
    optional = {
        key: number(given, key, 1.0)
        for key in ("attention_factor", "mscale", "mscale_all_dim")
        if given.get(key, 0) != 0 or (key == "attention_factor" and key in given)
    }
    if ("mscale" in optional) != ("mscale_all_dim" in optional):
        raise ValueError(
            f"{where}: mscale and mscale_all_dim are supported together only; about one alone,"
            " DeepSeek's code and transformers disagree."
        )
    betas = {
        "beta_fast": number(given, "beta_fast", 32.0),
        "beta_slow": number(given, "beta_slow", 1.0),
    }
    return RopeScaling(
        "yarn", factor, context, **betas, **optional, truncate=flag(given, "truncate", True)
    )


def score_factor(scaling: RopeScaling | None) -> float:
    """What DeepSeek multiplies attention scores with besides 1/sqrt(H): the square of YaRN's
    mscale_all_dim correction."""
    if scaling is None or not scaling.mscale_all_dim:
        return 1.0
    return yarn_mscale(scaling.factor, scaling.mscale_all_dim) ** 2


def _factor(given: Json, where: str) -> float:
    return number(given, "factor", 1.0) if "factor" in given else _missing(where, "factor")


def _missing(where: str, key: str) -> float:
    raise ValueError(f"{where} has no {key}.")


def _partial(value: Any, where: str) -> str:
    return (
        f"{where}: partial_rotary_factor {value!r} is not supported for these families; some"
        " implementations ignore it, some do not."
    )
