"""Options of `twophase plan`, as the fields of one record."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from twophase.theory.architecture import Architecture
from twophase.theory.draft_heads import HEADS, draft_head
from twophase.theory.grid import Grid
from twophase.theory.sharded_layouts import LAYOUTS

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


@dataclass(frozen=True)
class Asked:
    """What was typed."""

    model: Annotated[
        str | None, typer.Option(help="A model of the catalog, such as llama-2-13b.")
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(help="A Hugging Face config.json (or its folder), instead of --model."),
    ] = None
    hardware: Annotated[
        str,
        typer.Option(
            "--hardware", "--chip", help="A chip of the catalog, such as h100, or a card: my.yaml."
        ),
    ] = "h100"
    batch: Annotated[int, typer.Option(parser=whole, help="Sequences decoded together.")] = 1
    context: Annotated[
        int | None,
        typer.Option(parser=whole, help="Cached positions per sequence. Default: prompt + output."),
    ] = None
    prompt: Annotated[
        int | None, typer.Option(parser=whole, help="Prompt tokens. Default: context - output.")
    ] = None
    output: Annotated[
        int | None,
        typer.Option(
            parser=whole, help="Output tokens, for requests per second, latency and cost."
        ),
    ] = None
    chips: Annotated[
        int,
        typer.Option(
            parser=chips_or_auto,
            help="Chips that share the model, or auto: the fewest on which an engine is expected to"
            " hold it.",
            metavar="N|auto",
        ),
    ] = 1
    layout: Annotated[
        str | None,
        typer.Option(
            help=f"How they share it, messages counted: {', '.join(LAYOUTS)}. Default: tensor,"
            " messages not counted."
        ),
    ] = None
    link: Annotated[
        str | None,
        typer.Option(help="What joins them, such as infiniband. Default: the chip's usual link."),
    ] = None
    tp: Annotated[
        int | None, typer.Option("--tp", help="Chips that share each layer (tensor parallel).")
    ] = None
    dp: Annotated[
        int | None, typer.Option("--dp", help="Copies of attention, sequences dealt out to them.")
    ] = None
    ep: Annotated[
        int | None,
        typer.Option(
            "--ep", help="Groups that whole experts are dealt out to; alone: as many copies."
        ),
    ] = None
    pp: Annotated[int | None, typer.Option("--pp", help="Stages of layers (a pipeline).")] = None
    between: Annotated[
        str | None,
        typer.Option(help="What joins machines under --tp, --ep and --pp. Default: infiniband."),
    ] = None
    skew: Annotated[
        float,
        typer.Option(help="Visits of the busiest chips' experts over an even share, 1 or more."),
    ] = 1.0
    dispatch: Annotated[
        str,
        typer.Option(help="Format of tokens on their way to experts: bf16, or fp8 (back in bf16)."),
    ] = "bf16"
    weights: Annotated[
        str | None,
        typer.Option(
            help="Format of the weights: bf16, int8, int4, q4_k, ... Default: config's, or bf16."
        ),
    ] = None
    embeddings: Annotated[
        str | None,
        typer.Option(help="Format of embedding and head. Default: bf16 beside narrower weights."),
    ] = None
    attention: Annotated[
        str | None,
        typer.Option(help="Format of attention's matrices. Default: the config's, or --weights."),
    ] = None
    group: Annotated[
        int | None,
        typer.Option(help="Weights that share a scale. Default: the config's, or 128 below int8."),
    ] = None
    zero_bits: Annotated[
        int | None, typer.Option(help="Bits of a group's zero point. Default: the config's, or 0.")
    ] = None
    kv: Annotated[str, typer.Option(help="Format of the cache.")] = "bf16"
    compute: Annotated[
        str | None,
        typer.Option(
            help="Format the products run in. Default: that of fp8 or fp4 weights where the chip"
            " can, else bf16."
        ),
    ] = None
    split_cache: Annotated[
        str, typer.Option(help="Cache over chips: by KV 'heads', or 'evenly' by position.")
    ] = "heads"
    activations_gb: Annotated[float, typer.Option(help="Activations on each chip, GB.")] = 0.0
    overhead_gb: Annotated[float, typer.Option(help="The runtime on each chip, GB.")] = 0.0
    overhead: Annotated[
        float, typer.Option(help="Overhead as a fraction of everything else, such as 0.1.")
    ] = 0.0
    usable: Annotated[
        float, typer.Option(help="Fraction of a chip's memory that the engine may use.")
    ] = 0.9
    prefix_hits: Annotated[
        float, typer.Option(help="Share of a prompt's tokens whose keys are in the cache already.")
    ] = 0.0
    draft: Annotated[
        str | None,
        typer.Option(
            help="What drafts: a smaller model of the catalog, or its config.json; or a head of"
            " the model itself, eagle or mtp."
        ),
    ] = None
    draft_length: Annotated[
        int | None, typer.Option(help="Tokens that it drafts for each step of the model.")
    ] = None
    acceptance: Annotated[
        float | None,
        typer.Option(help="Chance that a drafted token is kept, given those before it."),
    ] = None
    price_per_hour: Annotated[float | None, typer.Option(help="Price of one chip for an hour.")] = (
        None
    )
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in SI units.")] = False
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a report to attach to a proposal.")
    ] = False
    picture: Annotated[
        Path | None,
        typer.Option(
            help="Draw memory, and times and rates over the batch, into this file (.svg, .png,"
            " .pdf); a report of --markdown shows it."
        ),
    ] = None


def command(run: Callable[[Asked], None]) -> Callable[..., None]:
    """A function for typer whose options are the fields of `Asked`, and which calls `run`."""

    def called(**given: Any) -> None:
        run(Asked(**given))

    kinds = get_type_hints(Asked, include_extras=True)
    options = [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=one.default,
            annotation=kinds[one.name],
        )
        for one in fields(Asked)
    ]
    called.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    called.__annotations__ = kinds
    called.__name__, called.__doc__ = run.__name__, run.__doc__
    return called


def grid(tp: int | None, dp: int | None, ep: int | None, pp: int | None) -> Grid | None:
    """The grid that these options ask for; None without any."""
    given = any(value is not None for value in (tp, dp, ep, pp))
    return Grid.completed(tp, dp, ep, pp) if given else None


def draft(
    name: str | None,
    length: int | None,
    acceptance: float | None,
    architecture: Callable[[str | None, Path | None, str | None], tuple[Architecture, Any, Any]],
    target: Architecture,
) -> Architecture | None:
    """The model that drafts, or the head of `target` that does; None without any of these options.
    ValueError if one is missing."""
    if name is None and length is None and acceptance is None:
        return None
    if name is None or length is None or acceptance is None:
        raise ValueError(
            "Speculation needs --draft, --draft-length and --acceptance (twophase generate --draft"
            " prints what it measured)."
        )
    if name in HEADS:
        return draft_head(target, name)
    path = Path(name) if "/" in name or name.endswith(".json") else None
    return architecture(None if path else name, path, "bf16")[0]
