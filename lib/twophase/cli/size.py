"""`twophase size`: so many requests a second, with so much patience: which chips, and how many?"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from twophase.cli import card
from twophase.cli.plan import architecture
from twophase.cli.size_table import as_dict, draw, markdown, show
from twophase.theory.hardware import Hardware
from twophase.theory.sizing import USED, Demand, search
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
    ttft_p: Annotated[
        float | None,
        typer.Option("--ttft-p", help="Hold --ttft for so many of 100 requests, such as 95."),
    ] = None,
    tpot_p: Annotated[
        float | None,
        typer.Option("--tpot-p", help="Hold --tpot for so many of 100 moments, such as 99."),
    ] = None,
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
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a report to attach to a proposal.")
    ] = False,
) -> None:
    """Which chips, how many, in which layout, with which batch keep a promise, at what price.

    Exit code 0 if something does, 1 if nothing does, 2 for a question that cannot be asked.

    Example: twophase size --model llama-3.1-70b --weights fp8 --prompt 2000 --output 300 --rate 5
    --ttft 2 --tpot 0.05 --price h100=2.5,h200=3.8
    """
    try:
        arch, weights, stored = architecture(model, config, weights)
        chips = _chips(hardware)
        if as_json and as_markdown:
            raise ValueError("Give either --json or --markdown.")
        demand = Demand(prompt, output, rate, ttft, tpot, used, ttft_p, tpot_p)
        group, zero_bits, attention = stored
        asked = Workload(
            weights=weights, kv=kv, group=group, zero_bits=zero_bits, attention=attention
        )
        found = search(arch, chips, demand, asked, _prices(price, chips))
    except ValueError as error:
        typer.echo(f"twophase size: {error}", err=True)
        raise typer.Exit(2) from None
    if as_json:
        typer.echo(json.dumps(as_dict(found), indent=2, allow_nan=False))
    elif as_markdown:
        typer.echo(markdown(arch.name, demand, found))
    else:
        show(arch.name, demand, found, Console())
    if picture is not None and found.choices:
        try:
            draw(found.choices, picture)
        except (OSError, ValueError) as error:
            typer.echo(f"twophase size: cannot draw into {picture}: {error}", err=True)
            raise typer.Exit(2) from None
    raise typer.Exit(0 if found.choices else EXIT_NONE)


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
