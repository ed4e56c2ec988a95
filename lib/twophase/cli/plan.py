"""`twophase plan`: size a deployment on paper before renting it."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from twophase.theory import catalog
from twophase.theory.architecture import Architecture
from twophase.theory.plan import Plan, Workload, plan_deployment
from twophase.theory.weight_format import read_dtype

BINDS = {
    "memory": "memory: it does not fit",
    "bandwidth": "memory bandwidth: reading takes longer than computing",
    "compute": "compute: the products take longer than the reading",
}


def plan(
    model: Annotated[
        str | None, typer.Option(help="A model of the catalog, such as llama-2-13b.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="A Hugging Face config.json (or its folder), instead of --model."),
    ] = None,
    hardware: Annotated[str, typer.Option(help="A chip of the catalog, such as h100.")] = "h100",
    batch: Annotated[int, typer.Option(help="Sequences decoded together.")] = 1,
    context: Annotated[
        int | None, typer.Option(help="Cached positions per sequence. Default: prompt + output.")
    ] = None,
    prompt: Annotated[
        int | None, typer.Option(help="Prompt tokens, for TTFT. Default: context - output.")
    ] = None,
    output: Annotated[
        int | None, typer.Option(help="Output tokens, for the latency of a request.")
    ] = None,
    chips: Annotated[
        int, typer.Option(help="Chips that share weights, cache and work evenly.")
    ] = 1,
    weights: Annotated[
        str | None,
        typer.Option(
            help="Format of the weights: bf16, int8, int4, ... Default: the config's, or bf16."
        ),
    ] = None,
    kv: Annotated[str, typer.Option(help="Format of the cache.")] = "bf16",
    compute: Annotated[str, typer.Option(help="Format the products run in.")] = "bf16",
    activations_gb: Annotated[float, typer.Option(help="Memory for activations, GB.")] = 0.0,
    overhead_gb: Annotated[float, typer.Option(help="Memory for the runtime, GB.")] = 0.0,
    overhead: Annotated[
        float, typer.Option(help="Overhead as a fraction of everything else, such as 0.1.")
    ] = 0.0,
    price_per_hour: Annotated[
        float | None, typer.Option(help="Price of one chip for an hour.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in SI units.")] = False,
) -> None:
    """Memory, critical batch, step time, latency, throughput and what binds, for a model on a chip.

    Example: twophase plan --model llama-2-13b --hardware h100 --batch 64 --context 1024
    """
    try:
        arch, weights = _architecture(model, config, weights)
        if context is None:
            context = (prompt or 0) + (output or 0) or 1024
        workload = Workload(
            batch=batch,
            context=context,
            n_prompt=prompt,
            n_output=output,
            n_chips=chips,
            weights=weights,
            kv=kv,
            compute=compute,
            activation_bytes=activations_gb * 1e9,
            overhead_bytes=overhead_gb * 1e9,
            overhead_fraction=overhead,
            price_per_chip_hour=price_per_hour,
        )
        result = plan_deployment(arch, catalog.hardware(hardware), workload)
    except ValueError as error:
        typer.echo(f"twophase plan: {error}", err=True)
        raise typer.Exit(2) from None
    if as_json:
        typer.echo(json.dumps(result.as_dict(), indent=2, allow_nan=False))
    else:
        show(result, Console())


def _architecture(
    model: str | None, config: Path | None, weights: str | None
) -> tuple[Architecture, str]:
    """The sizes that --model or --config gives, and the format of the weights: `weights`, else the
    config's, else bf16."""
    if (model is None) == (config is None):
        raise ValueError(
            f"Give either --model or --config. Known models: {', '.join(catalog.MODELS)}."
        )
    if model is not None:
        return catalog.model(model), weights or "bf16"
    assert config is not None
    content = _read_json(config / "config.json" if config.is_dir() else config)
    name = str(content.get("_name_or_path") or config)
    arch = Architecture.from_hf(content, name="".join(c if c.isprintable() else "�" for c in name))
    try:
        return arch, weights or read_dtype(content)
    except ValueError as error:
        raise ValueError(f"{error} Give the format of the weights with --weights.") from None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ValueError(f"Cannot read {path}: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {str(error).splitlines()[0]}.") from None
    if not isinstance(content, dict):
        raise ValueError(
            f"{path} must hold a JSON object, but it holds a {type(content).__name__}."
        )
    return content


def show(result: Plan, console: Console) -> None:
    """Print a plan as a table, its warnings and its assumptions."""
    w = result.workload
    chips = f"{w.n_chips} x {result.hardware}" if w.n_chips > 1 else result.hardware
    console.print(
        f"[bold]{escape(result.model)}[/bold] on [bold]{chips}[/bold], batch {w.batch:,}, context"
        f" {w.context:,}"
    )
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    for section in (_memory_rows(result), _step_rows(result), _service_rows(result)):
        for row in section:
            table.add_row(*row)
        table.add_section()
        table.add_row()
    console.print(table)
    notes = Table.grid(padding=(0, 2))
    notes.add_row("[bold]What binds[/bold]", BINDS[result.binds] + ".")
    for line in result.warnings:
        notes.add_row("[yellow]Mind[/yellow]", line + ".")
    for number, line in enumerate(result.assumptions):
        notes.add_row("" if number else "[dim]Assumed[/dim]", line + ".")
    console.print(notes)


def _memory_rows(p: Plan) -> list[tuple[str, str, str]]:
    active = (
        "" if p.n_active_params == p.n_params else f", {p.n_active_params / 1e9:.2f} billion active"
    )
    longest = "no limit: every window is full" if p.max_context is None else f"{p.max_context:,}"
    return [
        (
            "Weights",
            gigabytes(p.weight_bytes),
            f"{p.n_params / 1e9:.2f} billion parameters{active}",
        ),
        (
            "KV cache",
            gigabytes(p.cache_bytes),
            f"{gigabytes(p.cache_bytes_per_sequence)} per sequence",
        ),
        ("Activations", gigabytes(p.activation_bytes), ""),
        ("Overhead", gigabytes(p.overhead_bytes), ""),
        (
            "Memory",
            gigabytes(p.total_bytes),
            f"{'fits' if p.fits else 'does not fit'} {gigabytes(p.capacity_bytes)}",
        ),
        ("Largest batch that fits", f"{p.max_batch:,}", "at this context"),
        ("Longest context that fits", longest, "at this batch"),
    ]


def _step_rows(p: Plan) -> list[tuple[str, str, str]]:
    return [
        (
            "Critical batch",
            f"{p.critical_batch:,.0f}",
            "tokens per step above which weight products are compute bound",
        ),
        ("Step-time floor", duration(p.step_time_floor_s), "the weights read once"),
        ("Step, memory", duration(p.step_memory_s), f"{gigabytes(p.step_bytes)} read"),
        ("Step, compute", duration(p.step_compute_s), f"{p.step_flops / 1e12:.3g} TFLOP"),
        ("Step time, max", duration(p.step_time_s), "perfect overlap: the TPOT below"),
        ("Step time, sum", duration(p.step_time_sum_s), "no overlap"),
    ]


def _service_rows(p: Plan) -> list[tuple[str, str, str]]:
    rows = [
        ("TTFT", duration(p.ttft_s), "one prompt, prefill only"),
        ("TPOT", duration(p.step_time_s), "time per output token of each sequence"),
    ]
    if p.request_latency_s is not None and p.requests_per_s is not None:
        rows.append(
            (
                "Latency of a request",
                duration(p.request_latency_s),
                f"{p.requests_per_s:.3g} requests/s",
            )
        )
    rows += [
        ("Throughput", f"{p.throughput_tokens_per_s:,.1f} tokens/s", "all sequences together"),
        ("Throughput, sum", f"{p.throughput_sum_tokens_per_s:,.1f} tokens/s", "without overlap"),
        (
            "Throughput ceiling",
            f"{p.throughput_ceiling_tokens_per_s:,.1f} tokens/s",
            "any batch, memory bound",
        ),
        ("Chip-hours per million tokens", f"{p.chip_hours_per_million_tokens:.4g}", ""),
    ]
    if p.cost_per_million_tokens is not None:
        rows.append(
            (
                "Cost per million tokens",
                f"{p.cost_per_million_tokens:.4g}",
                "in the price's currency",
            )
        )
    return rows


def gigabytes(n_bytes: float) -> str:
    """Bytes as GB (10^9), or MB where that reads better."""
    return (
        f"{n_bytes / 1e9:,.2f} GB" if n_bytes >= 1e8 or n_bytes == 0 else f"{n_bytes / 1e6:,.3g} MB"
    )


def duration(seconds: float) -> str:
    """Seconds as s, ms or us."""
    for size, unit in ((1, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds / 1e-6:.4g} us"
