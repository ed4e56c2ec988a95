"""`twophase plan`: size a deployment on paper before renting it."""

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from twophase.cli import card
from twophase.cli import plan_options as options
from twophase.cli.plan_picture import draw, words
from twophase.cli.plan_table import markdown, show
from twophase.theory import catalog
from twophase.theory.architecture import Architecture
from twophase.theory.deployment import Deployment
from twophase.theory.engine_memory import chips_for_engine
from twophase.theory.hardware import Hardware, usual_compute
from twophase.theory.plan import Plan, deployment, plan_deployment
from twophase.theory.sharded_layouts import LAYOUTS
from twophase.theory.weight_format import read_attention, read_dtype, read_groups
from twophase.theory.workload import Workload

EXIT_DOES_NOT_FIT = 1
AUTO = -(2**63)  # no number of chips that anybody types


def whole(text: str) -> int:
    """A whole number as typed."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a whole number; write all its digits, as in 128000."
        ) from None


def chips_or_auto(text: str) -> int:
    """A number of chips as typed, or AUTO."""
    return AUTO if text == "auto" else whole(text)


def plan(
    model: Annotated[
        str | None, typer.Option(help="A model of the catalog, such as llama-2-13b.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="A Hugging Face config.json (or its folder), instead of --model."),
    ] = None,
    hardware: Annotated[
        str,
        typer.Option(
            "--hardware", "--chip", help="A chip of the catalog, such as h100, or a card: my.yaml."
        ),
    ] = "h100",
    batch: Annotated[int, typer.Option(parser=whole, help="Sequences decoded together.")] = 1,
    context: Annotated[
        int | None,
        typer.Option(parser=whole, help="Cached positions per sequence. Default: prompt + output."),
    ] = None,
    prompt: Annotated[
        int | None, typer.Option(parser=whole, help="Prompt tokens. Default: context - output.")
    ] = None,
    output: Annotated[
        int | None,
        typer.Option(
            parser=whole, help="Output tokens, for requests per second, latency and cost."
        ),
    ] = None,
    chips: Annotated[
        int,
        typer.Option(
            parser=chips_or_auto,
            help="Chips that share the model, or auto: the fewest on which it fits.",
            metavar="N|auto",
        ),
    ] = 1,
    layout: Annotated[
        str | None,
        typer.Option(
            help=f"How they share it, messages counted: {', '.join(LAYOUTS)}. Default: tensor,"
            " messages not counted."
        ),
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(help="What joins them, such as infiniband. Default: the chip's usual link."),
    ] = None,
    tp: options.Tensor = None,
    dp: options.Data = None,
    ep: options.Experts = None,
    pp: options.Pipeline = None,
    between: options.Between = None,
    skew: options.Skew = 1.0,
    dispatch: options.Dispatch = "bf16",
    weights: Annotated[
        str | None,
        typer.Option(
            help="Format of the weights: bf16, int8, int4, q4_k, ... Default: config's, or bf16."
        ),
    ] = None,
    embeddings: Annotated[
        str | None,
        typer.Option(help="Format of embedding and head. Default: bf16 beside narrower weights."),
    ] = None,
    attention: Annotated[
        str | None,
        typer.Option(help="Format of attention's matrices. Default: the config's, or --weights."),
    ] = None,
    group: Annotated[
        int | None,
        typer.Option(help="Weights that share a scale. Default: the config's, or 128 below int8."),
    ] = None,
    zero_bits: Annotated[
        int | None, typer.Option(help="Bits of a group's zero point. Default: the config's, or 0.")
    ] = None,
    kv: Annotated[str, typer.Option(help="Format of the cache.")] = "bf16",
    compute: Annotated[
        str | None,
        typer.Option(
            help="Format the products run in. Default: that of fp8 or fp4 weights where the chip"
            " can, else bf16."
        ),
    ] = None,
    split_cache: Annotated[
        str, typer.Option(help="Cache over chips: by KV 'heads', or 'evenly' by position.")
    ] = "heads",
    activations_gb: Annotated[float, typer.Option(help="Activations on each chip, GB.")] = 0.0,
    overhead_gb: Annotated[float, typer.Option(help="The runtime on each chip, GB.")] = 0.0,
    overhead: Annotated[
        float, typer.Option(help="Overhead as a fraction of everything else, such as 0.1.")
    ] = 0.0,
    usable: Annotated[
        float, typer.Option(help="Fraction of a chip's memory that the engine may use.")
    ] = 0.9,
    prefix_hits: options.PrefixHits = 0.0,
    draft: options.Draft = None,
    draft_length: options.DraftLength = None,
    acceptance: options.Acceptance = None,
    price_per_hour: Annotated[
        float | None, typer.Option(help="Price of one chip for an hour.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in SI units.")] = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a report to attach to a proposal.")
    ] = False,
    picture: Annotated[
        Path | None,
        typer.Option(
            help="Draw memory, and times and rates over the batch, into this file (.svg, .png,"
            " .pdf); a report of --markdown shows it."
        ),
    ] = None,
) -> None:
    """Memory, critical batch, step time, latency, throughput and what binds, for a model on a chip.

    Exit code 0 if it fits, 1 if it does not, 2 for a question that cannot be asked.

    Example: twophase plan --model llama-2-13b --hardware h100 --batch 32 --prompt 924 --output 100
    """
    try:
        if as_json and as_markdown:
            raise ValueError("Give either --json or --markdown.")
        if chips == AUTO and tp is not None:
            raise ValueError("--chips auto finds the chips of a copy: leave --tp or it away.")
        arch, weights, stored = architecture(model, config, weights)
        chip = card.chip(hardware)
        grid = options.grid(tp, dp, ep, pp)
        beside = options.draft(draft, draft_length, acceptance, architecture, arch)
        workload = Workload(
            batch=batch,
            context=_context(context, prompt, output),
            n_prompt=prompt,
            n_output=output,
            n_chips=grid.n_chips if grid and chips in (1, AUTO) else 1 if chips == AUTO else chips,
            weights=weights,
            kv=kv,
            compute=compute or usual_compute(chip, weights),
            embeddings=embeddings,
            attention=attention or stored[2],
            group=stored[0] if group is None else group,
            zero_bits=stored[1] if zero_bits is None else zero_bits,
            split_cache=split_cache,
            activation_bytes=_bytes(activations_gb),
            overhead_bytes=_bytes(overhead_gb),
            overhead_fraction=overhead,
            usable_fraction=usable,
            price_per_chip_hour=price_per_hour,
            layout=layout,
            link=link,
            grid=grid,
            between=between,
            skew=skew,
            dispatch=dispatch,
            found_share=prefix_hits,
            draft_length=draft_length,
            acceptance=acceptance,
        )
        if chips == AUTO:
            workload = _on_fewest(deployment(arch, chip, workload, beside))
        result = plan_deployment(arch, chip, workload, beside)
    except ValueError as error:
        typer.echo(f"twophase plan: {error}", err=True)
        raise typer.Exit(2) from None
    if picture is not None:
        _draw(arch, chip, result, picture, beside)
    if as_json:
        typer.echo(json.dumps(result.as_dict(), indent=2, allow_nan=False))
    elif as_markdown:
        shown = None if picture is None else (words(result), picture.name)
        typer.echo(markdown(result, shown))
    else:
        show(result, Console())
    raise typer.Exit(0 if result.memory.fits else EXIT_DOES_NOT_FIT)


def _draw(
    arch: Architecture, chip: Hardware, result: Plan, path: Path, beside: Architecture | None
) -> None:
    try:
        draw(arch, chip, result, path, beside)
    except (OSError, ValueError) as error:
        typer.echo(f"twophase plan: cannot draw into {path}: {error}", err=True)
        raise typer.Exit(2) from None


def _on_fewest(d: Deployment) -> Workload:
    """The workload on as many chips as an engine is expected to need. ValueError if no number is
    enough."""
    needed = chips_for_engine(d, d.w.batch, d.w.context)
    if needed is None:
        raise ValueError(
            "No number of chips is enough: what every chip keeps a copy of is too much for one."
            " Take another --layout or --split-cache, a smaller batch or narrower formats."
        )
    return d.on(needed).w


def _bytes(gigabytes: float) -> float:
    """Of a decimal number of GB, to the byte."""
    if not math.isfinite(gigabytes):
        return gigabytes  # the workload says what is wrong with it
    return float(Fraction(repr(gigabytes)) * 10**9)


def _context(context: int | None, prompt: int | None, output: int | None) -> int:
    """Positions per sequence: as given, else prompt + output, else 1,024 in which the output has
    its place."""
    if context is not None:
        return context
    return prompt + (output or 0) if prompt else 1024


def architecture(
    model: str | None, config: Path | None, weights: str | None
) -> tuple[Architecture, str, tuple[int | None, int, str | None]]:
    """The sizes that --model or --config gives, the format of the weights (`weights`, else the
    config's, else bf16), and, if it is the config's, its group, bits of a zero point and format of
    attention."""
    if (model is None) == (config is None):
        raise ValueError(
            f"Give either --model or --config. Known models: {', '.join(catalog.MODELS)}."
        )
    if model is not None:
        return catalog.model(model), weights or "bf16", (None, 0, None)
    assert config is not None
    content = _read_json(config / "config.json" if config.is_dir() else config)
    beside = config / "hf_quant_config.json"
    if beside.is_file() and not content.get("quantization_config"):  # of NVIDIA's Model Optimizer
        said = _read_json(beside).get("quantization")
        said = said if isinstance(said, dict) else {}
        content["quantization_config"] = {"quant_method": "modelopt"} | said
    name = str(content.get("_name_or_path") or config)
    arch = Architecture.from_hf(content, name="".join(c if c.isprintable() else "�" for c in name))
    try:
        if weights is not None:
            return arch, weights, (None, 0, None)
        return arch, read_dtype(content), (*read_groups(content), read_attention(content))
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
