"""The heads that were trained on a model of the course: where they lie, how they are loaded.

Each is stored in fp16, beside a card that names the target and its weights: heads that were trained
on other weights still leave the target's law as it is, and are believed less.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from twophase.models import checkpoints
from twophase.models.checkpoints import publish, write_weights
from twophase.models.speculative_decoding.drafts import Drafter
from twophase.models.speculative_decoding.features import FeatureDrafter, FeatureHead, head_config
from twophase.models.speculative_decoding.medusa import MedusaDrafter, MedusaHeads
from twophase.models.transformer import Transformer

FOLDER = Path(__file__).with_name("heads")
NAMES = ("heads", "eagle", "mtp")
N_HEADS, HEAD_F = 4, 256  # of Medusa; width of the MLP of a feature head

Head = MedusaHeads | FeatureHead


def make(name: str, target: Transformer) -> Head:
    """A head of this kind for a target, not trained."""
    if name == "heads":
        heads = MedusaHeads(N_HEADS, target.config.D, target.config.V)
        heads.begin_as(target.lm_head)
        return heads
    return FeatureHead(head_config(target.config, HEAD_F), normalized=name == "mtp")


def drafter(name: str, target: Transformer, target_name: str, folder: Path = FOLDER) -> Drafter:
    """The trained head of this kind as a drafter for a model of the course. ValueError if there is
    none."""
    known = card(name, folder)
    if known["target"] != target_name:
        raise ValueError(
            f"{name} was trained on {known['target']}, not on {target_name}: take --model"
            f" {known['target']}, or another draft."
        )
    head = make(name, target)
    head.load_state_dict({k: v.float() for k, v in load_file(_weights(name, folder)).items()})
    head = head.to(target.device, target.embed_tokens.weight.dtype).eval().requires_grad_(False)
    if isinstance(head, MedusaHeads):
        return MedusaDrafter(head)
    return FeatureDrafter(head, target, name)


def card(name: str, folder: Path = FOLDER) -> dict[str, Any]:
    """What is known about a trained head. ValueError for a name that there is not."""
    if name not in NAMES or not _weights(name, folder).is_file():
        raise ValueError(f"there is no trained {name!r}; there are {', '.join(NAMES)}.")
    return json.loads(_weights(name, folder).with_suffix(".json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def fits(name: str, folder: Path = FOLDER) -> bool:
    """Whether a head was trained on the weights that its target has today."""
    known = card(name, folder)
    return bool(known["target_sha256"] == checkpoints.card(known["target"]).get("weights_sha256"))


def save(head: Head, name: str, details: dict[str, Any], folder: Path = FOLDER) -> Path:
    """Write a head, in fp16, and its card."""
    folder.mkdir(parents=True, exist_ok=True)
    path = _weights(name, folder)
    state = {
        k: v.detach().to("cpu", torch.float16).contiguous() for k, v in head.state_dict().items()
    }
    card = {path.with_suffix(".json"): {"name": name, **details}}
    publish(write_weights(state, path), path, card)
    return path


def _weights(name: str, folder: Path) -> Path:
    return folder / f"{name}.safetensors"
