"""Read the sizes of a model out of a Hugging Face config.json, with the old and the new names of
its keys."""

from collections.abc import Callable, Mapping
from typing import Any

from twophase.theory.hugging_face import (
    compressed,
    counted,
    dense,
    experts,
    gemma,
    hybrid,
    mixed,
)
from twophase.theory.hugging_face.defaults import LEFT_OUT
from twophase.theory.hugging_face.values import Config


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


# Model types whose layers are known.
_READERS: dict[str, Callable[[Config], dict[str, Any]]] = {
    "llama": dense.llama,
    "mistral": dense.mistral,
    "mixtral": experts.mixtral,
    "qwen2": dense.qwen2,
    "qwen3": dense.qwen3,
    "qwen3_moe": experts.qwen3_moe,
    "gemma": dense.gemma,
    "gemma2": dense.gemma2,
    "gemma3_text": dense.gemma3,
    "gemma3n_text": gemma.gemma3n,
    "gemma4_text": gemma.gemma4,
    "deepseek_v2": experts.deepseek,
    "deepseek_v3": experts.deepseek,
    "glm4_moe": experts.glm4_moe,
    "stablelm": dense.stablelm,
    "starcoder2": dense.starcoder2,
    "gpt2": dense.gpt2,
    "gpt_oss": counted.gpt_oss,
    "deepseek_v32": counted.chosen_keys,
    "glm_moe_dsa": counted.chosen_keys,
    "kimi_k2": counted.as_deepseek,
    "glm4_moe_lite": counted.as_deepseek,
    "glm4v_moe_text": counted.as_glm4_moe,
    "minimax_m2": counted.minimax_m2,
    "llama4_text": counted.llama4,
    "qwen3_vl_text": dense.qwen3,
    "qwen3_vl_moe_text": counted.as_qwen3_moe,
    "qwen3_next": counted.qwen3_5_moe,
    "qwen3_5_text": counted.qwen3_5,
    "qwen3_5_moe_text": counted.qwen3_5_moe,
    "nemotron_h": hybrid.nemotron_h,
    "nemotron-nas": hybrid.nemotron_nas,
    "kimi_linear": hybrid.kimi_linear,
    "mimo": mixed.mimo,
    "mimo_v2_flash": mixed.mimo_v2_flash,
    "minimax_m3": mixed.minimax_m3,
    "minimax_m3_vl_text": mixed.minimax_m3,
    "step3p5": mixed.step3,
    "step3p7": mixed.step3,
    "step3p7_text": mixed.step3,
    "deepseek_v4": compressed.deepseek_v4,
    "deepseek_ref": compressed.deepseek_v4,  # as some conversions of it are called
}
