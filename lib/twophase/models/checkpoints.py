"""Trained checkpoints: weights as safetensors, beside a JSON card that says what they are and how
they came about."""

import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from twophase.models.config import Config
from twophase.models.file_format import from_file, to_file
from twophase.models.transformer import Transformer

FOLDER = Path(__file__).with_name("checkpoints")


def available(folder: Path = FOLDER) -> list[str]:
    """The names that `load` knows: those with weights and a card in `folder`."""
    return sorted(p.stem for p in folder.glob("*.safetensors") if p.with_suffix(".json").is_file())


def card(name: str, folder: Path = FOLDER) -> dict[str, Any]:
    """What is known about a checkpoint: its config, recipe, seed, loss, corpus, licences.

    Raises ValueError if the name is unknown or the card unreadable.
    """
    path = _find(name, folder).with_suffix(".json")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        Config(**found["config"])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"the card {path} of checkpoint {name} cannot be read ({error}): restore the file."
        ) from None
    return found  # type: ignore[no-any-return]


def load(
    name: str = "gqa",
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    folder: Path = FOLDER,
) -> Transformer:
    """A trained model, ready to run (`eval`, no gradients), its weights cast from bf16 to `dtype`.
    (One whose file holds 8-bit integers has been rounded to them; it, too, is cast from bf16.)

    Raises ValueError, in one sentence, if the name is unknown or a file is damaged; nothing is half
    loaded.
    """
    known = card(name, folder)
    config = Config(**known["config"])
    path = _find(name, folder)
    try:
        weights = from_file(load_file(path))
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(
            f"the weights {path} are damaged ({error}): restore the file, or train {name} again."
        ) from None
    model = Transformer(config)
    if config.tied:
        weights["lm_head.weight"] = weights.get("embed_tokens.weight", torch.empty(0))
    expected = {key: list(value.shape) for key, value in model.state_dict().items()}
    found = {key: list(value.shape) for key, value in weights.items()}
    if wrong := sorted(
        key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key)
    ):
        raise ValueError(
            f"the weights {path} do not fit their card: {wrong[0]} is {found.get(wrong[0])} and"
            f" should be {expected.get(wrong[0])}."
        )
    if known.get("weights_sha256") not in (None, _sha256(path)):
        raise ValueError(
            f"the weights {path} are not those that their card was written for: restore both files."
        )
    model.load_state_dict(weights)
    return model.to(device=device, dtype=dtype).eval().requires_grad_(False)


def save(
    model: Transformer, name: str, details: dict[str, Any], folder: Path, int8: bool = False
) -> Path:
    """Write `<name>.safetensors` (`file_format.to_file`) and `<name>.json`; return the path of the
    weights."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.safetensors"
    made = write_weights(to_file(model, int8), path)
    sizes = {"name": name, "config": model.config.to_dict(), "n_params": model.n_params}
    card = {**sizes, "weights_sha256": _sha256(made), **details}
    publish(made, path, {path.with_suffix(".json"): card})
    return path


def write_weights(
    state: dict[str, torch.Tensor], path: Path, metadata: dict[str, str] | None = None
) -> Path:
    """Write what shall be the weights `path` to a file beside it, for `publish`, and return where
    that is. OSError if it cannot be written; then nothing is left of it."""
    made = path.with_suffix(".tmp")
    try:
        save_file(state, made, metadata)
    except SafetensorError as error:  # the disk is full, say
        made.unlink(missing_ok=True)
        told = re.search(r"os error (\d+)", str(error))
        number = int(told[1]) if told else errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from None
    made.chmod(0o644)  # safetensors lets nobody else read it
    return made


def publish(weights: Path, path: Path, cards: Mapping[Path, dict[str, Any] | None]) -> None:
    """Move weights to `path` and put cards beside them; None: that card goes. At no moment do
    weights stand beside another's card, and what stood there before stays until all is written."""
    written: dict[Path, Path] = {}
    try:
        for target, card in cards.items():
            if card is not None:
                written[target] = target.with_suffix(".json.tmp")
                _write(written[target], card)
    except OSError:
        for made in (weights, *written.values()):
            made.unlink(missing_ok=True)
        raise
    for target in cards:
        target.unlink(missing_ok=True)
    os.replace(weights, path)
    for target, made in written.items():
        os.replace(made, target)


def write_card(path: Path, card: dict[str, Any]) -> None:
    """Write a card, whole or not at all."""
    _write(path.with_suffix(".json.tmp"), card)
    os.replace(path.with_suffix(".json.tmp"), path)


def _write(path: Path, card: dict[str, Any]) -> None:
    path.write_text(json.dumps(card, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _find(name: str, folder: Path) -> Path:
    if name not in available(folder):
        known = ", ".join(available(folder)) or f"none; there are no checkpoints in {folder}"
        raise ValueError(f'unknown model "{name}"; known: {known}.')
    return folder / f"{name}.safetensors"
