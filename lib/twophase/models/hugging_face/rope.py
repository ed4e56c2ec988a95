"""RoPE's settings in a config.json: `rope_theta` and `rope_scaling` in old files, `rope_parameters`
in new ones.

New files have one dictionary, or (Gemma 3) one per kind of layer. Old names win where a file has
both, as in transformers. `rope_theta` is read by theory's `from_hf`, with the other numbers that
size a model.
"""

from collections.abc import Mapping
from typing import Any

from twophase.kernels.rope import RopeScaling, yarn_mscale
from twophase.theory.hf_values import number, size

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
LAYER_KINDS = {"full_attention", "sliding_attention"}


def rope_fields(text: Json) -> dict[str, Any]:
    """`rope_scaling` of a Config, and Gemma 3's `local_rope_theta`. ValueError for what is not
    supported."""
    if _number_or(text.get("partial_rotary_factor"), 1) != 1:
        raise ValueError(_partial(text["partial_rotary_factor"], "partial_rotary_factor"))
    where = "rope_scaling" if text.get("rope_scaling") else "rope_parameters"
    found = text.get(where) or {}
    if not isinstance(found, Mapping):
        raise ValueError(f"{where} must be an object, but it is {found!r}.")
    if text["model_type"] == "gemma3_text":
        return _gemma3(text, where)
    if LAYER_KINDS & found.keys():
        raise ValueError(
            f"{where} per kind of layer is not supported for model_type {text['model_type']!r}."
        )
    return {"rope_scaling": read_scaling(found, where, text)}


def _gemma3(text: Json, where: str) -> dict[str, Any]:
    """Full layers may be scaled; sliding layers turn by a base of their own, unscaled."""
    new = text.get("rope_parameters") or {}
    if new and not LAYER_KINDS & new.keys():
        raise ValueError(
            "rope_parameters of a gemma3_text must say full_attention and sliding_attention apart."
        )
    full = dict(new.get("full_attention") or {}) | dict(text.get("rope_scaling") or {})
    local = new.get("sliding_attention") or {}
    if read_scaling(local, "rope_parameters, sliding_attention", text) is not None:
        raise ValueError("rope_parameters: sliding layers with scaled positions are not supported.")
    theta = number(local, "rope_theta", number(text, "rope_local_base_freq", 10_000.0))
    return {"rope_scaling": read_scaling(full, where, text), "local_rope_theta": theta}


def read_scaling(rope: Json, where: str, text: Json) -> RopeScaling | None:
    """The scaling that one dictionary describes; None for plain RoPE. `where` names the dictionary
    in messages."""
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if not isinstance(kind, str) or kind not in KEYS:
        raise ValueError(
            f"{where} type {kind!r} is not supported; supported: linear, llama3, yarn."
        )
    given = {key: value for key, value in rope.items() if value is not None}
    if unknown := sorted(given.keys() - KEYS[kind]):
        raise ValueError(
            f"{where} of type {kind!r}: {unknown[0]} {given[unknown[0]]!r} is not supported."
        )
    if given.get("partial_rotary_factor", 1) != 1:
        raise ValueError(_partial(given["partial_rotary_factor"], where))
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling("linear", _factor(given, where))
    trained = {**text, **given, **_top(text)}
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


LLAMA_3 = ("low_freq_factor", "high_freq_factor")


def _yarn(given: Json, where: str, context: int, text: Json) -> RopeScaling:
    stretch = size(text, "max_position_embeddings") / context if "factor" not in given else 1.0
    factor = number(given, "factor", stretch)
    optional = {
        key: number(given, key, 1.0)
        for key in ("attention_factor", "mscale", "mscale_all_dim")
        if given.get(key)
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
        "yarn", factor, context, **betas, **optional, truncate=bool(given.get("truncate", True))
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


def _top(text: Json) -> dict[str, Any]:
    """The context of the training, where it stands outside the dictionary: it then wins."""
    key = "original_max_position_embeddings"
    return {key: text[key]} if text.get(key) is not None else {}


def _number_or(value: Any, default: float) -> Any:
    return default if value is None else value


def _partial(value: Any, where: str) -> str:
    return (
        f"{where}: partial_rotary_factor {value!r} is not supported for these families; some"
        " implementations ignore it, some do not."
    )
