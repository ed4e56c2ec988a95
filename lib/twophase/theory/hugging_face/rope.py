"""RoPE's settings in a config.json, of which there are two spellings, as one dictionary.

transformers 4 writes `rope_theta` beside `rope_scaling`, transformers 5 puts both into
`rope_parameters`, for Gemma 3 once for each kind of layer. A file may have both spellings, as long
as they say the same: where they do not, releases of transformers disagree about which counts.
"""

from collections.abc import Mapping
from typing import Any

from twophase.theory.hugging_face.values import Config, number

OLD, NEW = "rope_scaling", "rope_parameters"
KINDS = ("full_attention", "sliding_attention")
THETA = {"mixtral": 1e6, "gemma3_text": 1e6}  # where a file has none; all others: 10,000
LOCAL_THETA = 1e4  # Gemma 3's sliding layers
CONTEXT = "original_max_position_embeddings"


def rope_settings(text: Config) -> dict[str, Any]:
    """What a config says about RoPE (in Gemma 3: of its full layers), `rope_type` and `rope_theta`
    always there.

    Raises ValueError where two places in the file contradict each other.
    """
    top = {key: text[key] for key in ("rope_theta", CONTEXT) if key in text}
    old, new = read_object(text, OLD), read_object(text, NEW)
    if set(KINDS) & new.keys():
        new = read_object(new, KINDS[0], f"{NEW}, {KINDS[0]}")
    default = THETA.get(str(text.get("model_type")), 1e4)
    found = [
        _settings(said, where, top, default) for said, where in ((old, OLD), (new, NEW)) if said
    ]
    if len(found) == 2 and found[0] != found[1]:
        key = next(key for key in found[0] | found[1] if found[0].get(key) != found[1].get(key))
        raise ValueError(
            f"The config's {OLD!r} and {NEW!r} contradict each other: {key} is"
            f" {found[0].get(key)!r} by the first and {found[1].get(key)!r} by the second; keep one"
            " of the two."
        )
    return found[0] if found else _settings({}, NEW, top, default)


def local_rope_settings(text: Config) -> dict[str, Any]:
    """The same of Gemma 3's sliding layers."""
    local = read_object(read_object(text, NEW), KINDS[1], f"{NEW}, {KINDS[1]}")
    base = text.get("rope_local_base_freq")
    top = {} if base is None else {"rope_theta": base}
    return _settings(local, f"{NEW}, {KINDS[1]}", top, LOCAL_THETA, "rope_local_base_freq")


def read_object(config: Config, key: str, where: str = "") -> dict[str, Any]:
    """The object under a key, without what is null in it; empty where there is none."""
    found = config.get(key)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise ValueError(f"The config's {where or key!r} must be an object, but it is {found!r}.")
    return {inner: value for inner, value in found.items() if value is not None}


def _settings(
    said: Config, where: str, top: Config, default: float, outside: str = "rope_theta"
) -> dict[str, Any]:
    """One dictionary with what stands outside of it put in; ValueError where the two differ."""
    kind, old_kind = said.get("rope_type"), said.get("type")
    if kind is not None and old_kind is not None and kind != old_kind:
        raise ValueError(
            f"The config's {where!r} has rope_type {kind!r} and type {old_kind!r}: keep one of the"
            " two."
        )
    found = {key: value for key, value in said.items() if key != "type"}
    for key, value in top.items():
        name = outside if key == "rope_theta" else key
        if value is not None and key in said and said[key] != value:
            raise ValueError(
                f"The config's {name!r} is {value!r}, but {where!r} says {said[key]!r}: keep one"
                " of the two."
            )
        if value is not None:
            found[key] = value
    theta = number(found, "rope_theta", default)
    return found | {"rope_type": kind or old_kind or "default", "rope_theta": theta}
