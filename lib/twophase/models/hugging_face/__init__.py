"""Hugging Face directories (config.json, safetensors, tokenizer.json) as models of ours.

`load(folder)` is the Transformer, `read_config` the Config alone.
"""

import warnings
from pathlib import Path

import torch

from twophase.models.hugging_face.config import read_config
from twophase.models.hugging_face.names import EMBEDDING, places
from twophase.models.hugging_face.shards import DTYPES, Stored, read_headers, read_json
from twophase.models.hugging_face.weights import Progress, blank, fill, make_plan, select, without_second_head
from twophase.models.transformer import Config, Transformer

__all__ = ["load", "read_config", "read_folder_config"]


def load(
    folder: Path | str,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> Transformer:
    """The model in a Hugging Face directory, ready to run (`eval`, no gradients).

    dtype: None keeps the weights as they are stored; on the CPU they then are views of the mapped files, and take no
    memory that the kernel could not take back (stacked experts are copies). progress: called with bytes read and bytes
    in all; every page is then read before this returns. Warns of what is left aside. Raises ValueError, in one
    sentence, for whatever is missing, damaged or unsupported, before any weight is read.
    """
    folder = Path(folder)
    config = read_folder_config(folder)
    headers, notes = select(read_headers(folder), config)
    headers = without_second_head(headers, config, folder)
    model = blank(config)
    plan = make_plan(headers, model, folder)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    fill(model, plan, dtype or stored_dtype(headers), torch.device(device), progress)
    return model


def read_folder_config(folder: Path | str) -> Config:
    """The Config of a Hugging Face directory; ValueError if there is none or it cannot be had."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"there is no directory {folder}.")
    return read_config(read_json(folder / "config.json"))


def stored_dtype(headers: dict[str, Stored]) -> torch.dtype:
    """The dtype of a checkpoint: that of its embedding. What is stored in another one is converted to it."""
    return next(DTYPES[stored.dtype] for key, stored in headers.items() if places(key)[0].name == EMBEDDING)
