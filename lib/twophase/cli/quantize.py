"""`twophase quantize`: a checkpoint in fewer bits, and what that changed."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from twophase.cli.interrupt import loading

if TYPE_CHECKING:
    from twophase.kernels.quantization.integers import IntegerFormat
    from twophase.models.quantize.texts import Encode
    from twophase.models.transformer import Transformer

BESIDE = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
LONGEST_WINDOW = 512


def quantize(
    checkpoint: Annotated[
        str, typer.Argument(help="A checkpoint of the course, or a Hugging Face directory.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the quantized model goes.")],
    method: Annotated[str, typer.Option(help="nearest, gptq or awq.")] = "gptq",
    bits: Annotated[int, typer.Option(help="Bits of a weight: 2 to 8.")] = 4,
    group: Annotated[
        str, typer.Option(help="Inputs that share a scale; or channel: all of a row.")
    ] = "64",
    affine: Annotated[
        bool, typer.Option("--affine/--absmax", help="With or without zero points.")
    ] = False,
    text: Annotated[
        Path | None, typer.Option(help="A text to calibrate on. Default: the course's corpus.")
    ] = None,
    held_out: Annotated[
        Path | None, typer.Option(help="A text to be judged by. Default: what the corpus keeps.")
    ] = None,
    windows: Annotated[int, typer.Option(help="Windows of text to calibrate on.")] = 32,
    seed: Annotated[int, typer.Option(help="Which windows.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")] = False,
) -> None:
    """Put the linear layers of CHECKPOINT into few bits, embedding, output matrix and experts left
    as they are, and say what that changed: bytes, bits per byte of unseen text. `twophase generate
    --checkpoint DIR` runs it.

    Example: twophase quantize gqa --method awq --bits 4 --group 64 --out gqa-awq
    """
    try:
        how = _format(bits, group, affine)
        check_out(out)
        with loading():
            source = open_source(checkpoint)
        texts = read_text(text, "train"), read_text(held_out, "held_out")
        facts = _run(source, how, method, texts, windows, seed, out)
    except ValueError as error:
        typer.echo(f"twophase quantize: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(json.dumps(facts, indent=2) if as_json else _sentence(facts, out))


@dataclass(frozen=True)
class Source:
    """A model to quantize, how its text becomes tokens, and the files that go with it."""

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


def check_out(out: Path) -> None:
    """ValueError unless a quantized model may go to this directory."""
    from twophase.models.quantize.directory import is_quantized

    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file: name a directory.")
    if out.is_dir() and any(out.iterdir()) and not is_quantized(out):
        raise ValueError(f"--out {out} holds other files: name a new directory.")


def _format(bits: int, group: str, affine: bool) -> IntegerFormat:
    import torch

    from twophase.kernels.quantization.integers import IntegerFormat

    if group != "channel" and not (group.isdecimal() and int(group) > 0):
        raise ValueError(f"--group is a number of inputs, or channel; got {group}.")
    size = int(group) if group != "channel" else group
    return IntegerFormat(bits, size, affine, torch.bfloat16)


def read_text(path: Path | None, split: str) -> bytes:
    """The bytes of a file, or of a split of the corpus. ValueError if it cannot be read."""
    from twophase.models import corpus

    if path is None:
        return corpus.load(split).tobytes()
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from None


def _run(
    source: Source,
    how: IntegerFormat,
    method: str,
    texts: tuple[bytes, bytes],
    n_windows: int,
    seed: int,
    out: Path,
) -> dict[str, Any]:
    """Calibrate, quantize, judge, save; what was seen, as plain data."""
    from twophase.models.quantize import quantize as run
    from twophase.models.quantize import weight_bytes
    from twophase.models.quantize.directory import save
    from twophase.models.quantize.linear import few_bits_share
    from twophase.models.quantize.texts import (
        calibration_windows,
        check_judging,
        text_bits_per_byte,
    )

    T = min(source.model.config.context, LONGEST_WINDOW)
    check_judging(source.model, texts[1], source.encode, T)  # before the work, not after it
    calibration = None
    if method != "nearest":
        calibration = calibration_windows(texts[0], source.encode, n_windows, T, seed)
    started = time.perf_counter()
    with Bar() as bar:
        made = run(source.model, method, how, calibration, bar)
    took_s = time.perf_counter() - started
    before, after = (
        text_bits_per_byte(model, texts[1], source.encode, T) for model in (source.model, made)
    )
    facts = {
        "source": source.name,
        "method": method,
        "calibration": None if calibration is None else [*calibration.shape, seed],
        "weight_bytes": [weight_bytes(source.model), weight_bytes(made)],
        "few_bits_share": few_bits_share(made),
        "bits_per_byte": [before, after],
        "quantizing_s": took_s,
    }
    save(made, out, facts)
    for name in BESIDE if source.folder else ():
        if source.folder and (source.folder / name).is_file():
            shutil.copy(source.folder / name, out / name)
    return facts


class Bar:
    """Layers done, on stderr, gone at the end."""

    def __init__(self) -> None:
        columns = TextColumn("quantizing layers"), BarColumn(), MofNCompleteColumn()
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=None)

    def __call__(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()


def _sentence(facts: dict[str, Any], out: Path) -> str:
    (large, small), (before, after) = facts["weight_bytes"], facts["bits_per_byte"]
    return (
        f"{facts['source']} by {facts['method']}: {large / 1e6:,.2f} MB as it runs are"
        f" {small / 1e6:,.2f} MB now ({large / small:.1f} times less;"
        f" {facts['few_bits_share']:.0%} of its weights in few bits); {before:.4f} bits per byte of"
        f" unseen text are {after:.4f} ({after - before:+.4f}); {facts['quantizing_s']:.1f} s. Try"
        f' it: twophase generate --checkpoint {out} "def read_lines(path):"'
    )
