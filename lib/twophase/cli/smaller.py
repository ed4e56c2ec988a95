"""What the commands that make a smaller model have in common: where it comes from, where it may go,
texts, a bar."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

if TYPE_CHECKING:
    from twophase.models.quantize.texts import Encode
    from twophase.models.transformer import Transformer

BESIDE = ("generation_config.json", "tokenizer.json", "tokenizer_config.json")
LONGEST_WINDOW = 512
FORCE = typer.Option("--force", help="Write over what this command left in DIR before.")


@dataclass(frozen=True)
class Source:
    """A model to be made smaller, how its text becomes tokens, and the files that go with it."""

    name: str
    model: Transformer
    encode: Encode | None
    folder: Path | None


def open_source(checkpoint: str) -> Source:
    """A checkpoint of the course by its name, one that was pruned, or a Hugging Face directory.
    ValueError if it is none of these."""
    from twophase.models import checkpoints, hugging_face
    from twophase.models.pruning import directory as pruned
    from twophase.models.quantize.directory import is_quantized

    folder = Path(checkpoint)
    if checkpoint in checkpoints.available():
        return Source(checkpoint, checkpoints.load(checkpoint), None, None)
    if not folder.is_dir():
        known = ", ".join(checkpoints.available())
        raise ValueError(f"{checkpoint} is neither a directory nor one of {known}.")
    if is_quantized(folder):
        raise ValueError(f"{folder} is quantized already: take what it was made of.")
    if pruned.is_pruned(folder):
        model = pruned.load(folder)
        if not (folder / "tokenizer.json").is_file():  # of the course: its tokens are bytes
            return Source(checkpoint, model, None, None)
        tokenizer = hugging_face.Tokenizer(folder, model.config.V)
        return Source(checkpoint, model, tokenizer.encode, folder)
    opened = hugging_face.open_checkpoint(folder)
    tokenizer = hugging_face.Tokenizer(folder, opened.config.V)
    return Source(checkpoint, opened.load(), tokenizer.encode, folder)


def check_out(out: Path, is_ours: Callable[[Path], bool], force: bool) -> None:
    """ValueError unless a model may go to this directory: a new one that can be made or, with
    `force`, one that holds what this command wrote before, which may have taken hours."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file: name a directory.")
    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"--out {out}: nothing can be written to {there}. Name another directory.")
    if not out.is_dir() or not any(out.iterdir()):
        return
    if not is_ours(out):
        raise ValueError(f"--out {out} holds other files: name a new directory.")
    if not force:
        raise ValueError(
            f"--out {out} holds a model that this command made before: name a new directory, or add"
            " --force to write over it."
        )


def copy_beside(source: Source, out: Path, names: Collection[str] = BESIDE) -> None:
    """Copy the files that go with a model."""
    for name in names if source.folder else ():
        if source.folder and (source.folder / name).is_file():
            shutil.copy(source.folder / name, out / name)


def read_text(path: Path | None, split: str) -> bytes:
    """The bytes of a file, or of a split of the corpus. ValueError if it cannot be read."""
    from twophase.models import corpus

    if path is None:
        return corpus.load(split).tobytes()
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from None


class Bar:
    """What is being done and how far that is, on stderr, gone at the end."""

    def __init__(self, doing: str) -> None:
        columns = TextColumn(doing + " {task.description}"), BarColumn(), MofNCompleteColumn()
        self._bar = Progress(
            *columns, console=Console(stderr=True, force_jupyter=False), transient=True
        )
        self._task = self._bar.add_task("", total=None)

    def __call__(self, what: str, done: int, total: int) -> None:
        self._bar.update(self._task, description=what, completed=done, total=total)

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()
