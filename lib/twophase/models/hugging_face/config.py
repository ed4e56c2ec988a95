"""A Config from the content of a config.json: all in it that changes a number, or a sentence about
what cannot be had.

Sizes are read by `twophase.theory.from_hf`; here is what each family does with them. Where papers
leave something open, transformers 5 is followed; where it and a family's own code disagree, the
config is refused.
"""

import warnings
from collections.abc import Mapping
from typing import Any

from twophase.kernels.mlp import ACTIVATIONS
from twophase.models.config import Config
from twophase.models.hugging_face.families import FAMILIES, Family
from twophase.models.hugging_face.keys import HARMLESS, READ, REFUSED
from twophase.theory import from_hf
from twophase.theory.architecture import Architecture

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
        text = from_hf.language_part(config)
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


def _family(config: Json, text: Json) -> Family:
    """The family of a config, if its model type and all its classes are known."""
    kind, outer = (
        text["model_type"],
        config["model_type"] if "model_type" in config else text["model_type"],
    )
    if kind not in FAMILIES or (outer != kind and outer not in WITH_IMAGES):
        known = ", ".join([*FAMILIES, *WITH_IMAGES])
        raise ValueError(f"model_type {outer!r} is not supported; supported: {known}.")
    family = FAMILIES[kind]
    classes = {f"{family.prefix}ForCausalLM", f"{family.prefix}Model", f"{family.prefix}TextModel"}
    named = config.get("architectures") or []
    for name in named if isinstance(named, list) else [named]:
        if str(name) not in classes and name != WITH_IMAGES.get(outer):
            raise ValueError(
                f"the architecture {name!r} is not supported; supported:"
                f" {', '.join(sorted(classes))}."
            )
    return family


def _check_keys(config: Json, text: Json, family: Family) -> None:
    """Refuse what would change the result; name what is not known."""
    for part in (config, text):
        for key in REFUSED.keys() & part.keys() - family.reads:
            if part[key] not in REFUSED[key]:
                raise ValueError(
                    f"{key} {_short(part[key])} is not supported for model_type"
                    f" {text['model_type']!r}."
                )
    if config.get("model_type") in WITH_IMAGES:
        _check_both_parts(config, text)
    if unknown := sorted((config.keys() | text.keys()) - READ - HARMLESS - REFUSED.keys()):
        warnings.warn(
            f"config.json: nothing is known about {', '.join(unknown)}: ignored.", stacklevel=3
        )


def _check_both_parts(config: Json, text: Json) -> None:
    """Where the two parts of a model that sees may say different things, implementations differ
    about which counts."""
    tied = "tie_word_embeddings"
    if tied in config and bool(config[tied]) != bool(text[tied]):
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
