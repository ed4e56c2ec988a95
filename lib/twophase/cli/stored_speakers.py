"""Models that `twophase quantize` and `twophase prune` wrote, and those published in fewer bits, as
`twophase generate` speaks with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from twophase.cli.speakers import (
    CourseModel,
    HuggingFaceModel,
    Speaker,
    find_device,
    find_dtype,
    note,
)

if TYPE_CHECKING:
    from twophase.models.transformer import Transformer


def open_directory(
    folder: Path, device: str, dtype: str, stop: list[str], token_ids: bool
) -> Speaker:
    """What speaks for a directory: a model that was written here, by bytes or by its tokenizer, or
    a Hugging Face model. ValueError for a directory that cannot be read."""
    if _written_by(folder) is None:
        from twophase.models.hugging_face.quantized import is_published

        if (folder / "config.json").is_file() and is_published(folder):
            return PublishedDirectory(folder, device, dtype, stop, token_ids)
        return HuggingFaceModel(folder, device, dtype, stop, token_ids)
    if token_ids or (folder / "tokenizer.json").is_file():
        return StoredDirectory(folder, device, dtype, stop, token_ids)
    return StoredCourseModel(folder, device, dtype, stop)


def _written_by(folder: Path) -> Any:
    """The module whose `card` and `load` know this directory; None if none of ours does."""
    from twophase.models.pruning import directory as pruning
    from twophase.models.quantize import directory as quantize

    if quantize.is_quantized(folder):
        return quantize
    return pruning if pruning.is_pruned(folder) else None


class StoredCourseModel(CourseModel):
    """A checkpoint of the course in fewer bits or with parts cut: its tokens are bytes."""

    def __init__(self, folder: Path, device: str, dtype: str, stop: list[str]) -> None:
        super().__init__(str(folder), device, dtype, stop)
        self.folder = folder

    def load(self, n_tokens: int) -> Transformer:
        """The model, in the dtype it is stored in, unless one is asked for."""
        model: Transformer = _written_by(self.folder).load(self.folder, self.dtype, self.device)
        return model


class StoredDirectory(HuggingFaceModel):
    """The same of a Hugging Face model, beside its tokenizer."""

    def __init__(
        self, folder: Path, device: str, dtype: str, stop: list[str], token_ids: bool
    ) -> None:
        from twophase.models import hugging_face

        self.name, self.folder, self.stop_texts = str(folder), folder, stop
        self.device, self.dtype = find_device(device), find_dtype(dtype)
        self.V, self.context = self._sizes()
        self.tokenizer = None if token_ids else hugging_face.Tokenizer(folder, self.V)
        note(*(self.tokenizer.notes if self.tokenizer else ()))
        has_ends = (folder / "config.json").is_file()
        ends = hugging_face.stop_tokens(folder) if has_ends else []
        self.stops = [[token] for token in ends]

    def _sizes(self) -> tuple[int, int]:
        """Tokens that there are, and positions that the model was made for."""
        sizes = _written_by(self.folder).card(self.folder)["config"]
        return sizes["V"], sizes["context"]

    def _read(self) -> Transformer:
        model: Transformer = _written_by(self.folder).load(self.folder, self.dtype, self.device)
        return model

    def load(self, n_tokens: int) -> Transformer:
        """The model, after a word if so many tokens are more than it was made for."""
        if n_tokens > self.context:
            note(
                f"prompt and new tokens are {n_tokens:,}, but this model was made for"
                f" {self.context:,} positions."
            )
        return self._read()


class PublishedDirectory(StoredDirectory):
    """A Hugging Face directory in GPTQ, AWQ or int8."""

    def _sizes(self) -> tuple[int, int]:
        from twophase.models.hugging_face.quantized import published_config

        config = published_config(self.folder)
        return config.V, config.context

    def _read(self) -> Transformer:
        from twophase.models import hugging_face

        return hugging_face.load(self.folder, self.dtype, self.device)
