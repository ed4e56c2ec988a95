"""A Hugging Face directory, checked as a whole when it is opened, and loaded afterwards or not at
all."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from twophase.models.blank import blank
from twophase.models.config import Config
from twophase.models.hugging_face.config import read_config
from twophase.models.hugging_face.names import EMBEDDING, HEAD, layer_of, places
from twophase.models.hugging_face.plan import Plan, layers_of, make_plan, select
from twophase.models.hugging_face.reader import Slice
from twophase.models.hugging_face.shards import DTYPES, read_headers, read_json
from twophase.models.hugging_face.weights import (
    Progress,
    fill,
    read_parameter,
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
        """The model, ready to run (`eval`, no gradients), its weights in memory of their own: files
        that change or go away afterwards change nothing.

        dtype: None keeps the weights as they are stored, whatever `torch_dtype` (or `dtype`) in
        config.json says of the training. progress: called with bytes read and bytes in all. Raises
        ValueError, in one sentence, if a file has changed since it was opened, and for a tensor
        that holds NaN or infinity.
        """
        model = blank(self.config)
        fill(model, self.plan, dtype or self.dtype, torch.device(device), progress)
        return model

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The parameters of our Transformer, and how large they are."""
        return {key: tuple(value.shape) for key, value in blank(self.config).state_dict().items()}

    def read(self, name: str, *parts: Slice | None) -> torch.Tensor:
        """A parameter by its name in our Transformer, or `(axis, start, stop)` of it, one for an
        axis, and nothing else of the files; in the dtype that its first tensor is stored in.

        Experts that are stored one by one are stacked here, as in the model: axis 0 counts them.
        """
        if self.config.tied and name == HEAD:
            name = EMBEDDING
        if name not in self.shapes:
            raise ValueError(f"the model in {self.folder} has no parameter {name!r}.")
        return read_parameter(self.plan, name, self.shapes[name], *parts)

    def weight_bytes(self, dtype: torch.dtype | None = None) -> int:
        """Bytes of the weights in memory, a tied output matrix counted once."""
        return self.config.architecture().n_params() * (dtype or self.dtype).itemsize


def open_checkpoint(folder: Path | str, layers: Sequence[int] | None = None) -> Checkpoint:
    """Check a directory: config.json, headers of all weight files, name and shape of every tensor.

    layers: the numbers of those that the model has, in their order, as `range(0, 16)`. What belongs
    to others is not read, and files that hold nothing else are not opened.

    Raises ValueError, in one sentence, for whatever is missing, damaged, contradictory or not
    supported.
    """
    folder = Path(folder)
    if not os.path.isdir(folder):  # false where Path.is_dir raises
        raise ValueError(f"there is no directory {folder}, or it may not be entered.")
    config = read_config(read_json(folder / "config.json"))
    part = config if layers is None else layers_of(config, layers)

    def wanted(key: str) -> bool:
        return layers is None or layer_of(key) is None or layer_of(key) in layers

    headers, notes = select(read_headers(folder, wanted), config)
    headers = without_second_head(headers, config, folder)
    plan = make_plan(headers, blank(part), folder, layers)
    dtype = next(
        DTYPES[stored.dtype] for key, stored in headers.items() if places(key)[0].name == EMBEDDING
    )
    return Checkpoint(folder, part, plan, dtype, tuple(notes))
