"""Where a rank's weights come from: a model in memory, a checkpoint of the course, or a Hugging
Face directory. Each reads boxes of parameters, by their names in our Transformer, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import torch
from safetensors import safe_open

from twophase.models import checkpoints
from twophase.models.config import Config
from twophase.models.file_format import SCALES, decoded
from twophase.models.hugging_face import open_checkpoint
from twophase.models.hugging_face.names import EMBEDDING, HEAD
from twophase.models.hugging_face.reader import Slice, box_of
from twophase.models.transformer import Transformer

# The box of a parameter that a rank holds: (axis, start, stop), one for an axis that is cut. None:
# another rank has it, and here it is zero, since the two are added.
Box = Sequence[Slice]
Cut = Callable[[str], Box | None]


class Source(Protocol):
    """Parameters of a whole model, read in boxes."""

    @property
    def config(self) -> Config:
        """The shape of the whole model."""

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights, as they are stored."""

    def read(self, name: str, *parts: Slice | None) -> torch.Tensor:
        """A parameter, or `(axis, start, stop)` of it, one for an axis."""


@dataclass(frozen=True)
class InMemory:
    """A model that is there already, as a source."""

    model: Transformer

    @property
    def config(self) -> Config:
        """The shape of the model."""
        return self.model.config

    @property
    def dtype(self) -> torch.dtype:
        """Of its embedding."""
        return self.model.embed_tokens.weight.dtype

    def read(self, name: str, *parts: Slice | None) -> torch.Tensor:
        """A copy of a parameter's box."""
        whole = self.model.state_dict()[name]
        box: torch.Tensor = whole[_slices(whole.shape, parts)]
        return box.detach().clone()


@dataclass(frozen=True)
class CourseFile:
    """A checkpoint of the course, by its name. ValueError if there is none."""

    name: str
    folder: Path = checkpoints.FOLDER

    def __post_init__(self) -> None:
        _ = self.config

    @cached_property
    def config(self) -> Config:
        """The shape of the model."""
        return Config(**checkpoints.card(self.name, self.folder)["config"])

    dtype = torch.float32  # what a file holds stands for bf16 and runs as fp32

    def read(self, name: str, *parts: Slice | None) -> torch.Tensor:
        """A box of a parameter, read from the file."""
        if self.config.tied and name == HEAD:
            name = EMBEDDING
        with safe_open(self.folder / f"{self.name}.safetensors", framework="pt") as file:
            stored = file.get_slice(name)
            box = _slices(tuple(stored.get_shape()), parts)
            if name + SCALES not in set(file.keys()):
                part: torch.Tensor = stored[box]
                if not part.is_floating_point():
                    raise ValueError(f"{name} in {self.name} holds integers without scales.")
                return part.to(self.dtype)
            scales = file.get_slice(name + SCALES)[box[:1]]  # of these rows
            return decoded(stored[box], scales).to(self.dtype)


@dataclass(frozen=True)
class Renamed:
    """Another source whose parameters have other names here, such as those of a stage's layers."""

    source: Source
    config: Config
    rename: Callable[[str], str]

    @property
    def dtype(self) -> torch.dtype:
        """As the other stores them."""
        return self.source.dtype

    def read(self, name: str, *parts: Slice | None) -> torch.Tensor:
        """A box of a parameter."""
        return self.source.read(self.rename(name), *parts)


def source_of(checkpoint: str) -> Source:
    """A Hugging Face directory, if there is one of that name, or a checkpoint of the course.
    ValueError if it is neither."""
    if Path(checkpoint).is_dir():
        return open_checkpoint(checkpoint)
    if checkpoint in checkpoints.available():
        return CourseFile(checkpoint)
    known = ", ".join(checkpoints.available())
    raise ValueError(
        f"there is no directory {checkpoint!r}, and no checkpoint of that name; known: {known}."
    )


def fill(
    model: torch.nn.Module,
    source: Source,
    cut: Cut,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> None:
    """Give a blank model the boxes of its parameters that `cut` says; `eval`, no gradients. Zeros
    take no reading."""
    state: dict[str, torch.Tensor] = {}
    for name, blank_value in model.state_dict().items():
        box = cut(name)
        if box is None:
            state[name] = torch.zeros(blank_value.shape, dtype=dtype or source.dtype, device=device)
            continue
        value = source.read(name, *box)
        kept = torch.float32 if name.endswith("e_score_correction_bias") else dtype or source.dtype
        state[name] = value.to(device=device, dtype=kept)
    model.load_state_dict(state, assign=True)
    model.eval().requires_grad_(False)


def _slices(shape: Sequence[int], parts: Sequence[Slice | None]) -> tuple[slice, ...]:
    return tuple(slice(*bounds) for bounds in box_of(tuple(shape), *parts))
