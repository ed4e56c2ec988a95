"""`twophase measure`: what this machine can do."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from twophase.cli import card
from twophase.cli.interrupt_while_loading import loading
from twophase.theory.arithmetic_intensity import critical_batch
from twophase.theory.hardware import Hardware, bytes_per_value


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
        typer.Option(help="Write this machine as a card, for plan --chip FILE.yaml."),
    ] = None,
    engine: Annotated[
        bool | None,
        typer.Option(
            "--engine/--no-engine",
            help="Run the course's engine, too (another 40 s), and fit what it spends beyond the"
            " floor: the constants of plan's column expected. Default: if a card is written.",
        ),
    ] = None,
) -> None:
    """Calibrate this machine in about 20 s: memory bandwidth, FLOP/s by format, critical intensity
    and batch size; with --out or --engine in about a minute what an engine spends beyond them.

    Example: twophase measure --out mine.yaml
    """
    if out is not None and out.suffix.lower() not in card.SUFFIXES:
        typer.echo(f"twophase measure: a card ends in .yaml, but --out is {out}.", err=True)
        raise typer.Exit(2)
    calibration = _calibrate(fresh, quiet=as_json)
    own = (
        _run_engine(calibration.hardware, as_json) if (engine or (engine is None and out)) else None
    )
    facts = describe(calibration) | {"engine": own and describe_engine(own)}
    if out is not None:
        try:
            card.write(_with_engine(calibration.hardware, own), out)
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


def describe_engine(own: Any) -> dict[str, Any]:
    """What the course's engine spends beyond the floor, and how far that is from a run that was not
    in the fit, as plain data."""
    found: dict[str, Any] = own.overheads
    return found | {
        "runs": own.n_runs,
        "fit_miss": own.fit_miss,
        "held_out_measured_s": own.measured_s,
        "held_out_expected_s": own.expected_s,
        "held_out_miss": own.held_out_miss,
    }


def _with_engine(hardware: Hardware, own: Any) -> Hardware:
    """The machine with its engine's constants, which its source then speaks of."""
    if own is None:
        return hardware
    says = f"overheads from {own.n_runs} runs of the course's engine, another missed by"
    source = f"{hardware.source}; {says} {own.held_out_miss:.0%}"
    return replace(hardware, overheads=own.overheads, source=source)


def _calibrate(fresh: bool, quiet: bool) -> Any:
    """Calibrate behind a progress bar."""
    with _bar("measuring memory and matrix products", quiet) as advance:
        with loading():
            from twophase.measure.machine import (
                calibration,
            )  # torch takes seconds to import: the bar is up by then

        return calibration(fresh, progress=advance)


def _run_engine(hardware: Hardware, quiet: bool) -> Any:
    """Run the course's engine behind a progress bar."""
    with _bar("running the course's engine", quiet) as advance:
        with loading():
            from twophase.serving.own_overheads import own_overheads

        return own_overheads(hardware, progress=advance)


@contextmanager
def _bar(title: str, quiet: bool) -> Iterator[Callable[[float], None]]:
    """A progress bar on stderr, so that stdout holds the result alone; takes the share done."""
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
        task = progress.add_task(title, total=1.0)
        yield lambda share: progress.update(task, completed=share)


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
    if facts["engine"] is not None:
        _print_engine(console, facts["engine"])
    console.print(f"Kept in {facts['kept_in']}.", soft_wrap=True)


def _print_engine(console: Console, own: dict[str, Any]) -> None:
    from twophase.measure.tables import si

    console.print(
        f"\nThe course's engine spends [bold]{si(own['layer_s'], 's')}[/bold] a layer and step and"
        f" [bold]{si(own['layer_s_per_sequence'], 's')}[/bold] a layer and sequence beyond the"
        f" floor, and a prompt takes it {own['prompt_factor']:.1f} times as long as at the peak"
        f" rate: fitted to {own['runs']} runs, which these constants miss by {own['fit_miss']:.0%}"
        " (median). A run of another model and batch, not in the fit, took"
        f" {si(own['held_out_measured_s'], 's')} from token to token where they expect"
        f" {si(own['held_out_expected_s'], 's')}: missed by {own['held_out_miss']:.0%}."
    )
