"""A Hugging Face directory, checked as a whole when it is opened, and loaded afterwards or not at
all."""

from dataclasses import dataclass
from pathlib import Path

import torch

from twophase.models.config import Config
from twophase.models.hugging_face.config import read_config
from twophase.models.hugging_face.names import EMBEDDING, places
from twophase.models.hugging_face.shards import DTYPES, read_headers, read_json
from twophase.models.hugging_face.weights import (
    Plan,
    Progress,
    blank,
    fill,
    make_plan,
    select,
    without_second_head,
)
from twophase.models.transformer import Transformer


@dataclass(frozen=True)
class Checkpoint:
    """What a directory holds, after all of it has been checked by its headers."""

    folder: Path
    config: Config
    plan: Plan  # which tensor goes where
    dtype: (
        torch.dtype
    )  # of the embedding, as it is stored; a tensor stored in another one is converted to it
    notes: tuple[str, ...]  # about tensors that are left aside

    def load(
        self,
        dtype: torch.dtype | None = None,
        device: torch.device | str = "cpu",
        progress: Progress | None = None,
    ) -> Transformer:
        """The model, ready to run (`eval`, no gradients).

        dtype: None keeps the weights as they are stored. On the CPU they then are views of the
        mapped files: the first step reads them, and they take no memory that the system could not
        take back. Stacked experts, and what changes its dtype or goes to a GPU, are copied, a piece
        of a file at a time. progress: called with bytes read and bytes in all; then every page is
        read before this returns.
        """
        model = blank(self.config)
        fill(model, self.plan, dtype or self.dtype, torch.device(device), progress)
        return model

    def weight_bytes(self, dtype: torch.dtype | None = None) -> int:
        """Bytes of the weights in memory, a tied output matrix counted once."""
        return self.config.architecture().n_params() * (dtype or self.dtype).itemsize


def open_checkpoint(folder: Path | str) -> Checkpoint:
    """Check a directory: config.json, headers of all weight files, name and shape of every tensor.

    Raises ValueError, in one sentence, for whatever is missing, damaged, contradictory or not
    supported.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"there is no directory {folder}.")
    config = read_config(read_json(folder / "config.json"))
    headers, notes = select(read_headers(folder), config)
    headers = without_second_head(headers, config, folder)
    plan = make_plan(headers, blank(config), folder)
    dtype = next(
        DTYPES[stored.dtype] for key, stored in headers.items() if places(key)[0].name == EMBEDDING
    )
    return Checkpoint(folder, config, plan, dtype, tuple(notes))
