"""`twophase size`: so many requests a second, with so much patience: which chips, and how many?"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from twophase.cli import card
from twophase.cli.plan import architecture
from twophase.cli.quantities import duration
from twophase.theory.expected import fitted
from twophase.theory.hardware import Hardware
from twophase.theory.sizing import USED, Choice, Demand, choices
from twophase.theory.workload import Workload

EXIT_NONE = 1


def size(
    model: Annotated[
        str | None, typer.Option(help="A model of the catalog, such as llama-3.1-70b.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="A Hugging Face config.json (or its folder), instead of --model."),
    ] = None,
    prompt: Annotated[int, typer.Option(help="Prompt tokens of a request.")] = 1000,
    output: Annotated[int, typer.Option(help="Output tokens of a request.")] = 200,
    rate: Annotated[float, typer.Option(help="Requests per second, of all users.")] = 1.0,
    ttft: Annotated[
        float | None, typer.Option(help="The first token within so many seconds.")
    ] = None,
    tpot: Annotated[
        float | None, typer.Option(help="Each further token within so many seconds.")
    ] = None,
    hardware: Annotated[
        str,
        typer.Option(help="Chips to choose from, commas between: names, or cards (my.yaml)."),
    ] = "h100,h200,b200",
    price: Annotated[
        str,
        typer.Option(
            help="Price of a chip and hour, such as h100=2.5,h200=3.8: then money decides."
        ),
    ] = "",
    used: Annotated[
        float, typer.Option(help="Share of what the machines can do that is to be used.")
    ] = USED,
    weights: Annotated[
        str | None, typer.Option(help="Format of the weights. Default: the config's, or bf16.")
    ] = None,
    kv: Annotated[str, typer.Option(help="Format of the cache.")] = "bf16",
    picture: Annotated[
        Path | None, typer.Option(help="Draw price over time per token into this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in SI units.")] = False,
) -> None:
    """Which chips, how many and which batch keep a promise, and at what price.

    Exit code 0 if something does, 1 if nothing does, 2 for a question that cannot be asked.

    Example: twophase size --model llama-3.1-70b --weights fp8 --prompt 2000 --output 300 --rate 5
    --ttft 2 --tpot 0.05 --price h100=2.5,h200=3.8
    """
    try:
        arch, weights, stored = architecture(model, config, weights)
        chips = _chips(hardware)
        demand = Demand(prompt, output, rate, ttft, tpot, used)
        group, zero_bits, attention = stored
        asked = Workload(
            weights=weights, kv=kv, group=group, zero_bits=zero_bits, attention=attention
        )
        found = choices(arch, chips, demand, asked, _prices(price, chips))
    except ValueError as error:
        typer.echo(f"twophase size: {error}", err=True)
        raise typer.Exit(2) from None
    if as_json:
        plain = [{"all_chips": one.all_chips} | asdict(one) for one in found]
        typer.echo(json.dumps({"schema": 1, "choices": plain}, indent=2, allow_nan=False))
    else:
        _show(arch.name, demand, found, Console())
    if picture is not None and found:
        _draw(found, picture)
    raise typer.Exit(0 if found else EXIT_NONE)


def _chips(text: str) -> list[Hardware]:
    """h100,my.yaml as chips, each once."""
    found: dict[str, Hardware] = {}
    for name in filter(None, (one.strip() for one in text.split(","))):
        chip = card.chip(name)
        if found.setdefault(chip.name, chip) != chip:
            raise ValueError(f"Two chips of --hardware have the name {chip.name!r}.")
    if not found:
        raise ValueError("--hardware must name a chip, such as h100, or more, with commas between.")
    return list(found.values())


def _prices(text: str, chips: Sequence[Hardware]) -> dict[str, float]:
    """h100=2.5,h200=3.8 as prices by the chip's name."""
    prices = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, _, value = part.partition("=")
        try:
            prices[card.chip(name.strip()).name] = float(value)
        except ValueError as error:
            sentence = str(error) if "Unknown" in str(error) else "such as h100=2.5,h200=3.8"
            raise ValueError(
                f"A price must be a chip = a number, but it is {part!r}: {sentence}"
            ) from None
        if not 0 <= prices[card.chip(name.strip()).name] < 1e9:
            raise ValueError(f"A price must be from 0 to 1e9, but it is {part!r}.")
    unused = sorted(prices.keys() - {chip.name for chip in chips})
    if unused:
        raise ValueError(f"A price is given for {unused[0]}, which --hardware does not name.")
    return prices


def _show(name: str, demand: Demand, found: list[Choice], console: Console) -> None:
    limits = [
        f"{what} within {duration(limit)}"
        for what, limit in (("TTFT", demand.ttft_s), ("TPOT", demand.tpot_s))
        if limit is not None
    ]
    console.print(
        f"[bold]{escape(name)}[/bold], {demand.requests_per_s:g} requests/s of"
        f" {demand.n_prompt:,} + {demand.n_output:,} tokens" + "".join(f", {one}" for one in limits)
    )
    if not found:
        console.print(
            "Nothing keeps this promise: ask for more time, narrower formats (--weights, --kv) or"
            " other chips (--hardware)."
        )
        return
    console.print(_table(found))
    for line in dict.fromkeys(line for one in found for line in one.minds):
        console.print(f"[yellow]Mind[/yellow]  {escape(line)}.")
    misses = fitted().held_out
    console.print(
        "* no other choice is better in both price (without prices: chips of its kind) and time"
        " per token. Times are what to expect; limits are held at what nine of ten measured runs"
        f" kept. Machines are used for {demand.used:.0%} of what they are expected to do (--used)."
        f" Tensor parallel. TTFT is rough: missed by {misses['first token']['dense']:.0%} in the"
        f" median (experts {misses['first token']['experts']:.0%}). twophase plan says what each"
        " number rests on.",
        style="dim",
    )


def _table(found: list[Choice]) -> Table:
    table = Table(box=None, pad_edge=False)
    priced = any(one.price_per_hour is not None for one in found)
    money = ("an hour", "1M tokens") if priced else ()
    for heading in ("", "chips", "copies", "batch", "TPOT", "9 of 10", "TTFT", *money):
        left = heading in ("", "chips")
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    for one in found:
        e = one.expected
        times = (e.expected_tpot_s, e.expected_tpot_range_s[1], e.expected_ttft_s)
        amounts = (one.price_per_hour, one.cost_per_million_tokens) if priced else ()
        table.add_row(
            "*" if one.best else "",
            f"{one.all_chips:,} {one.hardware}",
            f"{one.n_replicas:,} x {one.n_chips}",
            f"{one.batch:,}",
            *map(_short, times),
            *("" if amount is None else f"{amount:,.4g}" for amount in amounts),
        )
    return table


def _short(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _draw(found: list[Choice], path: Path) -> None:
    """Price, or chips, over time per token: a mark for each kind of chip."""
    from twophase.measure.plots import COLORS, MARKERS, figure

    fig, ax = figure(figsize=(6.4, 4))
    priced = all(one.price_per_hour is not None for one in found)
    kinds = list(dict.fromkeys(one.hardware for one in found))
    for kind, color, marker in zip(kinds, COLORS, MARKERS, strict=False):
        own = [one for one in found if one.hardware == kind]
        x = [one.expected.expected_tpot_s * 1e3 for one in own]
        y = [float(one.price_per_hour or 0) if priced else float(one.all_chips) for one in own]
        ax.scatter(x, y, color=color, marker=marker, label=kind)
        for one, a, b in zip(own, x, y, strict=True):
            if one.best:
                ax.annotate(f"  {one.n_replicas} x {one.n_chips}, batch {one.batch}", (a, b))
    ax.margins(x=0.15)
    ax.set_xlabel("expected time per token [ms]")
    ax.set_ylabel("price [an hour]" if priced else "chips")
    ax.legend()
    try:
        fig.savefig(path)
    except (OSError, ValueError) as error:
        typer.echo(f"twophase size: cannot draw into {path}: {error}", err=True)
        raise typer.Exit(2) from None
