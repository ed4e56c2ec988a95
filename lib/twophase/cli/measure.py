"""`twophase measure`: what this machine can do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from twophase.cli import card
from twophase.cli.interrupt import loading
from twophase.theory.arithmetic_intensity import critical_batch
from twophase.theory.hardware import bytes_per_value


def measure(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")] = False,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh/--cached",
            help="Measure now, or show the last calibration of this set-up if there is one.",
        ),
    ] = True,
    out: Annotated[
        Path | None,
        typer.Option(help="Write this machine as a card, for plan --hardware FILE.yaml."),
    ] = None,
) -> None:
    """Calibrate this machine in about 20 s: memory bandwidth, FLOP/s by format, critical intensity
    and batch size."""
    if out is not None and out.suffix.lower() not in card.SUFFIXES:
        typer.echo(f"twophase measure: a card ends in .yaml, but --out is {out}.", err=True)
        raise typer.Exit(2)
    calibration = _calibrate(fresh, quiet=as_json)
    facts = describe(calibration)
    if out is not None:
        try:
            card.write(calibration.hardware, out)
        except OSError as error:
            typer.echo(f"twophase measure: cannot write {out}: {error.strerror}.", err=True)
            raise typer.Exit(2) from None
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    _print(facts)


def describe(calibration: Any) -> dict[str, Any]:
    """A calibration as plain data, with what follows from it: critical intensity and batch size for
    each format."""
    from twophase.measure.machine import cache_path

    hardware = calibration.hardware
    formats = {
        dtype: {
            "flops_per_s": rate,
            "spread": calibration.spread[dtype],
            "critical_intensity_flops_per_byte": hardware.critical_intensity(dtype),
            "critical_batch_tokens": critical_batch(
                rate, hardware.hbm_bytes_per_s, bytes_per_value(dtype)
            ),
        }
        for dtype, rate in hardware.flops_per_s.items()
    }
    return {
        "schema": 1,
        "name": hardware.name,
        "device": calibration.device,
        "date": hardware.date,
        "threads": calibration.threads,
        "memory_bytes": hardware.hbm_bytes,
        "read_bytes_per_s": hardware.hbm_bytes_per_s,
        "read_spread": calibration.spread["read"],
        "read_buffer_bytes": calibration.buffer_bytes,
        "formats": formats,
        "kept_in": str(cache_path()),
    }


def _calibrate(fresh: bool, quiet: bool) -> Any:
    """Calibrate behind a progress bar on stderr, so that stdout holds the result alone."""
    console = Console(stderr=True, quiet=quiet)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=quiet or not sys.stderr.isatty()
    ) as progress:
        task = progress.add_task("measuring memory and matrix products", total=1.0)
        with loading():
            from twophase.measure.machine import (
                calibration,
            )  # torch takes seconds to import: the bar is up by then

        return calibration(fresh, progress=lambda share: progress.update(task, completed=share))


def _print(facts: dict[str, Any]) -> None:
    from twophase.measure.tables import binary, si

    console = Console()
    console.print(
        f"[bold]{facts['name']}[/bold], {binary(facts['memory_bytes'])} of memory, measured"
        f" {facts['date']}"
    )
    console.print(
        f"reads memory at [bold]{si(facts['read_bytes_per_s'], 'B/s')}[/bold] (buffer of"
        f" {binary(facts['read_buffer_bytes'])}, quartiles {facts['read_spread']:.0%} apart)\n"
    )
    table = Table("format", title="Matrix products", title_justify="left")
    for heading in ("rate", "quartiles apart", "critical intensity", "critical batch"):
        table.add_column(heading, justify="right")
    for dtype, row in facts["formats"].items():
        table.add_row(
            dtype,
            si(row["flops_per_s"], "FLOP/s"),
            f"{row['spread']:.0%}",
            f"{si(row['critical_intensity_flops_per_byte'])} FLOP/B",
            f"{si(row['critical_batch_tokens'])} tokens",
        )
    console.print(table)
    console.print(
        "Rates are upper quartiles. Below its critical intensity a kernel waits for memory, above"
        " it for arithmetic. The critical batch is where a matrix product with weights in that"
        " format passes from one to the other. Shared machines drift: look at how far the quartiles"
        " are apart."
    )
    console.print(f"Kept in {facts['kept_in']}.", soft_wrap=True)
