"""`twophase quantize`: a checkpoint in fewer bits, and what that changed."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twophase.cli.interrupt_while_loading import loading
from twophase.cli.smaller import (
    BESIDE,
    FORCE,
    LONGEST_WINDOW,
    Bar,
    Source,
    check_out,
    copy_beside,
    open_source,
    read_text,
)

if TYPE_CHECKING:
    from twophase.kernels.quantization.integers import IntegerFormat


def quantize(
    checkpoint: Annotated[
        str, typer.Argument(help="A checkpoint of the course, or a Hugging Face directory.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the quantized model goes.")],
    method: Annotated[
        str | None, typer.Option(help="nearest, gptq or awq. Default: gptq; of --format nearest.")
    ] = None,
    bits: Annotated[int | None, typer.Option(help="Bits of a weight: 2 to 8. Default: 4.")] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Inputs that share a scale; or channel: all of a row. Default: 64."),
    ] = None,
    affine: Annotated[
        bool | None,
        typer.Option("--affine/--absmax", help="With or without zero points. Default: without."),
    ] = None,
    clip: Annotated[
        bool,
        typer.Option("--clip", help="With awq: cut off a group's largest weights where it pays."),
    ] = False,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="In the place of bits and group, a format that has a name: q8_0, q6_k, q5_0, q4_k,"
            " q4_0, mxfp8, e4m3, mxfp4, nvfp4, nf4, nf4-double.",
        ),
    ] = None,
    text: Annotated[
        Path | None, typer.Option(help="A text to calibrate on. Default: the course's corpus.")
    ] = None,
    held_out: Annotated[
        Path | None, typer.Option(help="A text to be judged by. Default: what the corpus keeps.")
    ] = None,
    windows: Annotated[int, typer.Option(help="Windows of text to calibrate on.")] = 32,
    seed: Annotated[int, typer.Option(help="Which windows.")] = 0,
    force: Annotated[bool, FORCE] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")] = False,
) -> None:
    """Put the linear layers of CHECKPOINT into few bits, embedding, output matrix and experts left
    as they are, and say what that changed: bytes, bits per byte of unseen text. `twophase generate
    --checkpoint DIR` runs it.

    Example: twophase quantize gqa --method awq --bits 4 --group 64 --out gqa-awq
    """
    try:
        with loading():
            from twophase.models.quantize.directory import is_quantized
        how = _format(bits, group, affine) if form is None else _named(form, bits, group, affine)
        method = method or ("gptq" if form is None else "nearest")
        check_out(out, is_quantized, force)
        with loading():
            source = open_source(checkpoint)
        texts = read_text(text, "train"), read_text(held_out, "held_out")
        facts = _run(source, how, method, clip, texts, windows, seed, out)
    except ValueError as error:
        typer.echo(f"twophase quantize: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(json.dumps(facts, indent=2) if as_json else _sentence(facts, out))


def _format(bits: int | None, group: str | None, affine: bool | None) -> IntegerFormat:
    import torch

    from twophase.kernels.quantization.integers import IntegerFormat

    group = "64" if group is None else group
    if group != "channel" and not (group.isdecimal() and int(group) > 0):
        raise ValueError(f"--group is a number of inputs, or channel; got {group}.")
    size = int(group) if group != "channel" else group
    return IntegerFormat(4 if bits is None else bits, size, bool(affine), torch.bfloat16)


def _named(form: str, *integers: object) -> str:
    """The name. ValueError for an unknown one, or beside options of integers."""
    from twophase.kernels.quantization.named import layout_of

    layout_of(form, 1, 1)
    if any(option is not None for option in integers):
        raise ValueError(
            f"{form} has its bits and groups: leave --bits, --group and --affine out, or --format."
        )
    return form


def _run(
    source: Source,
    how: IntegerFormat | str,
    method: str,
    clip: bool,
    texts: tuple[bytes, bytes],
    n_windows: int,
    seed: int,
    out: Path,
) -> dict[str, Any]:
    """Calibrate, quantize, judge, save; what was seen, as plain data."""
    from twophase.models.quantize import quantize as run
    from twophase.models.quantize import weight_bytes
    from twophase.models.quantize.calibration import body_linears
    from twophase.models.quantize.directory import save
    from twophase.models.quantize.linear import few_bits_share, matrices_by_format
    from twophase.models.quantize.texts import (
        calibration_windows,
        check_judging,
        text_bits_per_byte,
    )

    if isinstance(how, str) and method != "nearest":
        raise ValueError(f"{how} is rounded to nearest; --method {method} is for integers.")
    if clip and method != "awq":
        raise ValueError(f"--clip is a part of awq; the method is {method}.")
    T = min(source.model.config.context, LONGEST_WINDOW)
    check_judging(source.model, texts[1], source.encode, T)  # before the work, not after it
    calibration = None
    if method != "nearest":
        calibration = calibration_windows(texts[0], source.encode, n_windows, T, seed)
    started = time.perf_counter()
    with Bar("quantizing") as bar:
        made = run(source.model, method, how, calibration, partial(bar, "layers"), clip)
    took_s = time.perf_counter() - started
    before, after = (
        text_bits_per_byte(model, texts[1], source.encode, T) for model in (source.model, made)
    )
    facts = {
        "source": source.name,
        "method": f"{method}{', clipped' * clip}",
        "calibration": None if calibration is None else [*calibration.shape, seed],
        "weight_bytes": [weight_bytes(source.model), weight_bytes(made)],
        "few_bits_share": few_bits_share(made),
        "matrices": matrices_by_format(made),
        "matrices_left": len(body_linears(made)),
        "bits_per_byte": [before, after],
        "quantizing_s": took_s,
    }
    save(made, out, facts)
    copy_beside(source, out, ("config.json", *BESIDE))
    return facts


def _sentence(facts: dict[str, Any], out: Path) -> str:
    (large, small), (before, after) = facts["weight_bytes"], facts["bits_per_byte"]
    kinds = "; ".join(f"{n} matrices in {name}" for name, n in facts["matrices"].items())
    if facts["matrices_left"]:  # blocks that do not divide their rows
        kinds += f"; {facts['matrices_left']} as they were"
    return (
        f"{facts['source']} by {facts['method']}: {large / 1e6:,.2f} MB as it runs are"
        f" {small / 1e6:,.2f} MB now ({large / small:.1f} times less;"
        f" {facts['few_bits_share']:.0%} of its weights in few bits: {kinds});"
        f" {before:.4f} bits per byte of unseen text are {after:.4f} ({after - before:+.4f});"
        f" {facts['quantizing_s']:.1f} s. Try it: twophase generate --checkpoint {out}"
        ' "def read_lines(path):"'
    )
