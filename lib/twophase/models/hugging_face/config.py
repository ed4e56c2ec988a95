"""A Config from the content of a config.json: all in it that changes a number, or a sentence about
what cannot be had.

Sizes are read by `twophase.theory.hugging_face`; here is what each family does with them. Where
papers leave something open, transformers 5 is followed; where it and a family's own code disagree,
the config is refused.
"""

import warnings
from collections.abc import Mapping
from typing import Any

from twophase.kernels.mlp import ACTIVATIONS
from twophase.models.config import Config
from twophase.models.hugging_face.families import FAMILIES, Family
from twophase.models.hugging_face.keys import (
    COUNTS,
    EXPERTS,
    HARMLESS,
    NEVER_NULL,
    NULL_MEANS,
    NUMBERS,
    READ,
    REFUSED,
    SWITCHES,
)
from twophase.theory import hugging_face
from twophase.theory.architecture import Architecture
from twophase.theory.hugging_face.defaults import LEFT_OUT
from twophase.theory.hugging_face.values import count, flag, number

Json = Mapping[str, Any]
WITH_IMAGES = {
    "gemma3": "Gemma3ForConditionalGeneration"
}  # a text model inside: what it says is `text_config`


def read_config(config: Json) -> Config:
    """The Config of a config.json, old (transformers 4) or new (5) in its spelling.

    Raises ValueError that names the key and its value where something that changes results is not
    supported. A key that is on no list of `keys.py` is ignored, with a warning that names it.
    """
    try:
        if isinstance(config, Mapping):
            _check_type(config)
        text = hugging_face.language_part(config)
        family = _family(config, text)
        _check_keys(config, text, family)
        arch = Architecture.from_hf(config)
        if arch.activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ValueError(
                f"the activation {arch.activation!r} is not supported; supported: {known}."
            )
        if arch.moe is not None and arch.mlp_bias:
            raise ValueError(
                "mlp_bias true is not supported in a model with experts, which have no biases here."
            )
        return Config.from_architecture(arch, **family.more(text))
    except ValueError as error:
        raise ValueError(f"config.json: {error}") from None


def _check_type(config: Json) -> None:
    """Whether the model type is one that is read here, and the text part its own."""
    outer, text = config.get("model_type"), config.get("text_config")
    inner = text.get("model_type", f"{outer}_text") if isinstance(text, Mapping) else outer
    if outer not in (*FAMILIES, *WITH_IMAGES):
        known = ", ".join([*FAMILIES, *WITH_IMAGES])
        raise ValueError(f"model_type {outer!r} is not supported; supported: {known}.")
    if inner != (f"{outer}_text" if outer in WITH_IMAGES else outer):
        raise ValueError(f"a text_config of model_type {inner!r} is not supported in a {outer}.")


def _family(config: Json, text: Json) -> Family:
    """The family of a config, if all its classes are known."""
    outer, family = config["model_type"], FAMILIES[text["model_type"]]
    classes = {f"{family.prefix}ForCausalLM", f"{family.prefix}Model", f"{family.prefix}TextModel"}
    named = config.get("architectures") or []
    for name in named if isinstance(named, list) else [named]:
        if str(name) not in classes and name != WITH_IMAGES.get(outer):
            raise ValueError(
                f"the architecture {name!r} is not supported with model_type"
                f" {text['model_type']!r}; supported: {', '.join(sorted(classes))}."
            )
    return family


def _check_keys(config: Json, text: Json, family: Family) -> None:
    """Refuse what would change the result; name what is not known."""
    for part in (config, text):
        _check_kinds(part)
        for key in REFUSED.keys() & part.keys() - family.reads:
            if part[key] not in REFUSED[key]:
                raise ValueError(
                    f"{key} {_short(part[key])} is not supported for model_type"
                    f" {text['model_type']!r}."
                )
    for key in sorted(LEFT_OUT.get(text["model_type"], {}).keys() - NULL_MEANS):
        if text[key] is None:
            raise ValueError(f"{key} is null: write its value, or leave the key out.")
    if config.get("model_type") in WITH_IMAGES:
        _check_both_parts(config, text)
    if unknown := sorted((config.keys() | text.keys()) - READ - HARMLESS - REFUSED.keys()):
        warnings.warn(
            f"config.json: nothing is known about {', '.join(unknown)}: ignored.", stacklevel=3
        )


def _check_kinds(part: Json) -> None:
    """Whether switches are switches and numbers numbers, and names of one number agree."""
    for key in sorted(part.keys()):
        if part[key] is None and key in NEVER_NULL:
            raise ValueError(f"{key} is null: write its value, or leave the key out.")
        if key in SWITCHES:
            flag(part, key)
        elif key in COUNTS:
            count(part, key)
        elif key in NUMBERS:
            number(part, key, 1.0)
    experts = {key: part[key] for key in EXPERTS if part.get(key) is not None}
    if len(set(experts.values())) > 1:
        said = ", ".join(f"{key} is {value}" for key, value in experts.items())
        raise ValueError(f"{said}: these are names of one number; keep one of them.")


def _check_both_parts(config: Json, text: Json) -> None:
    """Where the two parts of a model that sees may say different things, implementations differ
    about which counts."""
    tied = "tie_word_embeddings"
    if tied in config and flag(config, tied) != flag(text, tied):
        raise ValueError(
            f"{tied} is {config[tied]}, but {text[tied]} in text_config: say the same in both."
        )
    if text.get("final_logit_softcapping") is not None:
        raise ValueError(
            "final_logit_softcapping in text_config is not supported: models that see ignore it."
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:56]} ..."
