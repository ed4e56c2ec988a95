"""A Config from the content of a config.json: everything in it that changes a number, or a sentence about what cannot.

Sizes are read by `twophase.theory.from_hf`; what each family does with them is here. Each family's note names the code
that is followed where papers leave it open: the implementation in transformers 5.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from twophase.kernels.mlp import ACTIVATIONS
from twophase.models.config import Config
from twophase.models.hugging_face.keys import HARMLESS, READ, REFUSED
from twophase.models.hugging_face.rope import rope_fields
from twophase.theory import from_hf
from twophase.theory.architecture import Architecture

Json = Mapping[str, Any]
Fields = dict[str, Any]  # of a Config


@dataclass(frozen=True)
class Family:
    """A model type: the class names it goes by, and what its Config has beyond the sizes."""

    classes: tuple[str, ...]
    more: Callable[[Json], Fields]


def read_config(config: Json) -> Config:
    """The Config of a config.json, old (transformers 4) or new (5) in its spelling.

    Raises ValueError that names the key and its value where something that changes results is not supported. Keys on
    no list of `keys.py` are ignored with a warning that names them.
    """
    try:
        text = from_hf.language_part(config)
        family = _family(config, text)
        _check_keys(config, text)
        arch = Architecture.from_hf(config)
        return Config.from_architecture(arch, **_checked(text, family, arch))
    except ValueError as error:
        raise ValueError(f"config.json: {error}") from None


def _checked(text: Json, family: Family, arch: Architecture) -> Fields:
    if arch.activation not in ACTIVATIONS:
        raise ValueError(f"the activation {arch.activation!r} is not supported; supported: {', '.join(ACTIVATIONS)}.")
    if arch.moe is not None and arch.mlp_bias:
        raise ValueError("mlp_bias true is not supported in a model with experts, which have no biases here.")
    return rope_fields(text) | family.more(text)


def _family(config: Json, text: Json) -> Family:
    kind = text["model_type"]
    if kind not in FAMILIES or (config is not text and config.get("model_type") not in (kind, "gemma3")):
        named = config.get("model_type", kind)
        raise ValueError(f"model_type {named!r} is not supported; supported: gemma3, {', '.join(FAMILIES)}.")
    family = FAMILIES[kind]
    for name in config.get("architectures") or ():
        if name not in family.classes:
            raise ValueError(
                f"the architecture {name!r} is not supported; supported here: {', '.join(family.classes)}."
            )
    return family


def _check_keys(config: Json, text: Json) -> None:
    """Refuse what would change the result, and name what is not known."""
    for part in (config, text):
        for key, neutral in REFUSED.items():
            if key in part and part[key] not in neutral:
                raise ValueError(f"{key} {_short(part[key])} is not supported.")
    unknown = sorted(key for key in config.keys() | text.keys() if key not in READ | HARMLESS | REFUSED.keys())
    if unknown:
        warnings.warn(f"config.json: ignored, as nothing is known about it: {', '.join(unknown)}.", stacklevel=5)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:56]} ..."


def _llama(text: Json) -> Fields:
    return {}


FAMILIES: dict[str, Family] = {
    "llama": Family(("LlamaForCausalLM", "LlamaModel"), _llama),
}
