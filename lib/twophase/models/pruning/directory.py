"""A pruned model in a directory: `pruned.json` says what it is and what was kept,
`model.safetensors` holds its weights under Hugging Face's names, and where its shapes allow it,
`config.json` makes it a directory that transformers reads, too."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from twophase.models.blank import blank
from twophase.models.checkpoints import publish, write_weights
from twophase.models.config import ALWAYS, Config
from twophase.models.hugging_face.config import read_config
from twophase.models.transformer import Transformer

CARD, WEIGHTS, CONFIG = "pruned.json", "model.safetensors", "config.json"
LIKE_LLAMA = ("llama", "mistral", "qwen2", "qwen3", "gemma")  # parameters called as Llama's are
HEAD = "lm_head.weight"


def save(
    model: Transformer, folder: Path, details: dict[str, Any], source: dict[str, Any] | None = None
) -> bool:
    """Write a pruned model and its card, with `details` of how it came about. `source`: the
    config.json of the model that it was cut from; None for one of the course, whose kind is Llama.

    Returns whether transformers can read the directory: with one width for all layers, in the
    families of `LIKE_LLAMA`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = {
        (name if name == HEAD else f"model.{name}"): weight.detach().to("cpu").contiguous()
        for name, weight in model.state_dict().items()
    }
    if model.config.tied:
        del state[HEAD]
    config = hugging_face_config(model.config, model.embed_tokens.weight.dtype, source)
    card = {"config": model.config.to_dict(), **details}
    made = write_weights(state, folder / WEIGHTS, {"format": "pt"})
    publish(made, folder / WEIGHTS, {folder / CONFIG: config, folder / CARD: card})
    return config is not None


def hugging_face_config(
    c: Config, dtype: torch.dtype, source: dict[str, Any] | None
) -> dict[str, Any] | None:
    """A config.json for these sizes, or None where none says the same: layers of different widths,
    families that call their parameters otherwise, numbers that follow from a size that was cut, a
    Llama whose width its heads do not divide (transformers refuses it, whatever head_dim says)."""
    family = (source or {}).get("model_type", "llama")
    if c.widths is not None or family not in LIKE_LLAMA or (family == "llama" and c.D % c.N):
        return None
    if source is None:
        others = [f.name for f in fields(Config) if f.name not in ALWAYS]
        if c.attention != "gqa" or any(getattr(c, n) != getattr(Config, n) for n in others):
            return None
        source = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": c.V,
            "max_position_embeddings": c.context,
            "rope_theta": c.rope_theta,
            "rms_norm_eps": c.norm_eps,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": c.tied,
            "bos_token_id": None,
            "eos_token_id": 0,
        }
    sizes = {
        "num_hidden_layers": c.L,
        "hidden_size": c.D,
        "intermediate_size": c.F,
        "num_attention_heads": c.N,
        "num_key_value_heads": c.K,
        "head_dim": c.H,
        "torch_dtype": str(dtype).removeprefix("torch."),
    }
    made = {k: v for k, v in source.items() if k not in ("dtype", "quantization_config")} | sizes
    if isinstance(made.get("layer_types"), list):
        words = {"gqa": "full_attention", "sliding": "sliding_attention"}
        made["layer_types"] = [words[kind] for kind in c.mixers]
    try:
        return made if read_config(made) == c else None
    except ValueError:
        return None


def is_pruned(folder: Path) -> bool:
    """Whether a directory holds a pruned model of ours."""
    return (folder / CARD).is_file()


def card(folder: Path) -> dict[str, Any]:
    """What `pruned.json` says. ValueError if it cannot be read."""
    try:
        found = json.loads((folder / CARD).read_text(encoding="utf-8"))
        Config(**found["config"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{folder / CARD} cannot be read ({error}): prune again.") from None
    return found  # type: ignore[no-any-return]


def load(
    folder: Path, dtype: torch.dtype | None = None, device: torch.device | str = "cpu"
) -> Transformer:
    """The model in a directory, ready to run; dtype None: as stored.

    ValueError, in one sentence, for a file that is missing, damaged, or does not fit its card.
    """
    config = Config(**card(folder)["config"])
    try:
        stored = load_file(folder / WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{folder / WEIGHTS} cannot be read ({error}): prune again.") from None
    state = {name.removeprefix("model."): weight for name, weight in stored.items()}
    model = blank(config)
    if config.tied:
        state[HEAD] = state.get("embed_tokens.weight", torch.empty(0))
    expected = {name: list(weight.shape) for name, weight in model.state_dict().items()}
    found = {name: list(weight.shape) for name, weight in state.items()}
    if wrong := sorted(
        n for n in expected.keys() | found.keys() if expected.get(n) != found.get(n)
    ):
        raise ValueError(f"{folder / WEIGHTS} does not fit its card at {wrong[0]}: prune again.")
    model.load_state_dict(state, assign=True)
    if config.tied:
        model.lm_head.weight = model.embed_tokens.weight
    model.to(device=device, dtype=dtype).requires_grad_(False)
    return model.eval()
