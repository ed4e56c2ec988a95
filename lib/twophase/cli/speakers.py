"""Models that speak, each with its way from text to tokens and back: those of the course, and
Hugging Face directories."""

from __future__ import annotations

import codecs
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import typer

from twophase.cli.progress_bars import LoadingBar

if TYPE_CHECKING:
    import torch

    from twophase.models.hugging_face import Checkpoint
    from twophase.models.transformer import Transformer

DTYPES = {"auto": None, "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


class Speaker(Protocol):
    """What `twophase generate` needs of a model, whatever its tokens are."""

    name: str

    @property
    def stops(self) -> Sequence[Sequence[int]]:
        """Token sequences that end a generation."""

    def encode(self, text: str) -> list[int]:
        """The tokens of a prompt."""

    def load(self, n_tokens: int) -> Transformer:
        """The model, after a word of warning if it and a cache of so many tokens are more than
        memory has room for."""

    def pieces(self, prompt: Sequence[int], tokens: Iterable[int]) -> Iterator[str]:
        """The text of new tokens as it comes, without what ended it."""


class CourseModel:
    """A checkpoint of the course: its tokens are bytes."""

    def __init__(self, name: str, device: str, dtype: str, stop: list[str]) -> None:
        from twophase.models.corpus import END

        self.name, self.device, self.dtype = name, find_device(device), find_dtype(dtype)
        self.stops = [
            bytes([END]),
            *(s.encode(errors="surrogateescape") for s in stop),
        ]  # END: the end of a file

    def encode(self, text: str) -> list[int]:
        from twophase.models.generate import encode

        return encode(text)

    def load(self, n_tokens: int) -> Transformer:
        import torch

        from twophase.models import checkpoints

        return checkpoints.load(self.name, dtype=self.dtype or torch.float32, device=self.device)

    def pieces(self, prompt: Sequence[int], tokens: Iterable[int]) -> Iterator[str]:
        return decode(hold_back(tokens, self.stops))


class HuggingFaceModel:
    """A Hugging Face directory: its tokenizer makes tokens of text, or the prompt is tokens
    already."""

    def __init__(
        self, folder: Path, device: str, dtype: str, stop: list[str], token_ids: bool
    ) -> None:
        from twophase.models import hugging_face

        self.name, self.device, self.dtype, self.stop_texts = (
            str(folder),
            find_device(device),
            find_dtype(dtype),
            stop,
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            self.checkpoint: Checkpoint = hugging_face.open_checkpoint(folder)
        note(*(str(w.message) for w in caught), *self.checkpoint.notes)
        V = self.checkpoint.config.V
        self.tokenizer = None if token_ids else hugging_face.Tokenizer(folder, V)
        note(*(self.tokenizer.notes if self.tokenizer else ()))
        self.stops = [[token] for token in hugging_face.stop_tokens(folder)]

    def encode(self, text: str) -> list[int]:
        if self.tokenizer is not None:
            return self.tokenizer.encode(text)
        try:
            return [int(word) for word in text.replace(",", " ").split()]
        except ValueError:
            raise ValueError(
                f'with --token-ids the prompt is whole numbers, as in "1 15043"; got "{text}".'
            ) from None

    def load(self, n_tokens: int) -> Transformer:
        config = self.checkpoint.config
        if n_tokens > config.context:
            note(
                f"prompt and new tokens are {n_tokens:,}, but this model was made for"
                f" {config.context:,} positions."
            )
        weights, cache = self.checkpoint.weight_bytes(self.dtype), self._cache_bytes(n_tokens)
        free = free_bytes(self.device)
        if weights + cache > free:
            note(
                f"the weights ({_gb(weights)}) and the cache for {n_tokens:,} tokens ({_gb(cache)})"
                f" are more than the {_gb(free)} of memory that are free: this may be very slow, or"
                " end for lack of memory."
            )
        with LoadingBar() as bar:
            return self.checkpoint.load(self.dtype, self.device, progress=bar)

    def _cache_bytes(self, n_tokens: int) -> int:
        dtype = self.dtype or self.checkpoint.dtype
        return int(self.checkpoint.config.architecture().cache_bytes(n_tokens, dtype.itemsize))

    def pieces(self, prompt: Sequence[int], tokens: Iterable[int]) -> Iterator[str]:
        if self.tokenizer is None:
            return (f" {token}" for token in tokens)
        ends = {stop[0] for stop in self.stops}
        return until(self.tokenizer.stream(prompt, _before(tokens, ends)), self.stop_texts)


def find_device(name: str) -> str:
    """The device, if it is there."""
    import torch

    if name not in ("cpu", "cuda"):
        raise ValueError(f"--device is cpu or cuda; got {name}.")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: torch finds no CUDA device here; use --device cpu.")
    return name


def find_dtype(name: str) -> torch.dtype | None:
    """The dtype of this name; None for auto."""
    import torch

    if name not in DTYPES:
        raise ValueError(f"--dtype is one of {', '.join(DTYPES)}; got {name}.")
    found = DTYPES[name]
    return None if found is None else getattr(torch, found)


def free_bytes(device: str) -> int:
    """Memory that a model may have on this device."""
    import torch

    from twophase.measure.system import available_bytes

    return int(torch.cuda.mem_get_info()[0]) if device == "cuda" else available_bytes()


def note(*sentences: str) -> None:
    """Sentences for the reader, apart from the text."""
    for sentence in sentences:
        typer.echo(f"note: {sentence}", err=True)


def hold_back(stream: Iterable[int], stops: list[bytes]) -> Iterator[int]:
    """The tokens of a stream without the stop text at its end: what may be its beginning waits
    until that is decided."""
    held = b""
    for token in stream:
        held += bytes([token])
        if held in stops or any(held.endswith(s) for s in stops):
            held = held[: -max(len(s) for s in stops if held.endswith(s))]
            break
        keep = max((n for s in stops for n in range(1, len(s)) if held.endswith(s[:n])), default=0)
        yield from held[: len(held) - keep]
        held = held[len(held) - keep :]
    yield from held


def until(pieces: Iterable[str], stops: Sequence[str]) -> Iterator[str]:
    """The pieces of a text up to the first of the stop texts; what may be the beginning of one
    waits."""
    held = ""
    for piece in pieces:
        held += piece
        if found := [held.index(s) for s in stops if s in held]:
            held = held[: min(found)]
            break
        keep = max((n for s in stops for n in range(1, len(s)) if held.endswith(s[:n])), default=0)
        if shown := held[: len(held) - keep]:
            yield shown
        held = held[len(held) - keep :]
    if held:
        yield held


def decode(tokens: Iterable[int]) -> Iterator[str]:
    """UTF-8 as it arrives: a character is shown when its last byte is there, a byte that fits
    nowhere as U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for token in tokens:
        if piece := decoder.decode(bytes([token])):
            yield piece
    if piece := decoder.decode(b"", final=True):
        yield piece


def _before(tokens: Iterable[int], ends: set[int]) -> Iterator[int]:
    for token in tokens:
        if token in ends:
            return
        yield token


def _gb(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:,.1f} GB"
