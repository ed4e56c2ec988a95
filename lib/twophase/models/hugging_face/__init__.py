"""Hugging Face directories (config.json, safetensors, tokenizer.json) as models of ours.

`load(folder)` is the Transformer, `load(folder, layers=range(8, 16))` one of these layers only.
`open_checkpoint(folder)` checks everything and reads no weight; its `read` reads a parameter of
ours or a slice of one, `read_tensors(folder, ...)` tensors or slices by their names in the files.
`read_config` turns the content of a config.json into a Config; `Tokenizer(folder)` reads
tokenizer.json. Supported: Llama 2 and 3, Mistral, Mixtral, Qwen2, Qwen3 and its mixture of experts,
Gemma 1 to 3 (of those that see, the text part), DeepSeek-V2 and V3, GLM-4.5, StableLM, StarCoder2.
Directories in GPTQ, AWQ or int8 (`quantized.py`) are read by `load` alone. What changes a result
and is not built here is refused with a sentence that names it (`keys.py` says how).
"""

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from twophase.models.hugging_face.checkpoint import Checkpoint, open_checkpoint
from twophase.models.hugging_face.config import read_config
from twophase.models.hugging_face.quantized import is_published, load_published
from twophase.models.hugging_face.reader import read_tensors
from twophase.models.hugging_face.tokenizer import Tokenizer, stop_tokens
from twophase.models.hugging_face.weights import Progress
from twophase.models.transformer import Transformer

__all__ = [
    "Checkpoint",
    "Tokenizer",
    "load",
    "open_checkpoint",
    "read_config",
    "read_tensors",
    "stop_tokens",
]


def load(
    folder: Path | str,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
    layers: Sequence[int] | None = None,
) -> Transformer:
    """The model in a Hugging Face directory: `open_checkpoint`, then `Checkpoint.load`; their notes
    become warnings. Of weights that are quantized (GPTQ, AWQ, int8 of bitsandbytes) linear layers
    keep their packed codes; these are loaded whole, without `progress`.

    Raises ValueError, in one sentence: for whatever is missing, contradictory or unsupported before
    any weight is read; for NaN or infinity among the weights when they are.
    """
    folder = Path(folder)
    if folder.is_dir() and is_published(folder):
        if layers is not None:
            raise ValueError(f"{folder}: of quantized weights all layers are loaded, or none.")
        return load_published(folder, dtype, device)
    checkpoint = open_checkpoint(folder, layers)
    for note in checkpoint.notes:
        warnings.warn(note, stacklevel=2)
    return checkpoint.load(dtype, device, progress)
