"""Models that `twophase quantize` wrote, as `twophase generate` speaks with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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
    """What speaks for a directory: a quantized model, by bytes or by its tokenizer, or a Hugging
    Face model. ValueError for a directory that cannot be read."""
    from twophase.models.quantize.directory import is_quantized

    if not is_quantized(folder):
        return HuggingFaceModel(folder, device, dtype, stop, token_ids)
    if token_ids or (folder / "tokenizer.json").is_file():
        return QuantizedDirectory(folder, device, dtype, stop, token_ids)
    return QuantizedCourseModel(folder, device, dtype, stop)


class QuantizedCourseModel(CourseModel):
    """A quantized checkpoint of the course: its tokens are bytes."""

    def __init__(self, folder: Path, device: str, dtype: str, stop: list[str]) -> None:
        super().__init__(str(folder), device, dtype, stop)
        self.folder = folder

    def load(self, n_tokens: int) -> Transformer:
        """The model, its other weights in the dtype they are stored in, unless one is asked for."""
        from twophase.models.quantize.directory import load

        return load(self.folder, self.dtype, self.device)


class QuantizedDirectory(HuggingFaceModel):
    """A quantized Hugging Face model, beside its tokenizer."""

    def __init__(
        self, folder: Path, device: str, dtype: str, stop: list[str], token_ids: bool
    ) -> None:
        from twophase.models import hugging_face
        from twophase.models.quantize.directory import card

        self.name, self.folder, self.stop_texts = str(folder), folder, stop
        self.device, self.dtype = find_device(device), find_dtype(dtype)
        self.V, self.context = (card(folder)["config"][key] for key in ("V", "context"))
        self.tokenizer = None if token_ids else hugging_face.Tokenizer(folder, self.V)
        note(*(self.tokenizer.notes if self.tokenizer else ()))
        has_ends = (folder / "config.json").is_file()
        ends = hugging_face.stop_tokens(folder) if has_ends else []
        self.stops = [[token] for token in ends]

    def load(self, n_tokens: int) -> Transformer:
        """The model, after a word if so many tokens are more than it was made for."""
        from twophase.models.quantize.directory import load

        if n_tokens > self.context:
            note(
                f"prompt and new tokens are {n_tokens:,}, but this model was made for"
                f" {self.context:,} positions."
            )
        return load(self.folder, self.dtype, self.device)
