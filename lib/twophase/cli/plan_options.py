"""Options of `twophase plan` that say how chips share a model, and what saves them work."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from twophase.theory.architecture import Architecture
from twophase.theory.draft_heads import HEADS, draft_head
from twophase.theory.grid import Grid

Tensor = Annotated[
    int | None, typer.Option("--tp", help="Chips that share each layer (tensor parallel).")
]
Data = Annotated[
    int | None, typer.Option("--dp", help="Copies of attention, sequences dealt out to them.")
]
Experts = Annotated[
    int | None,
    typer.Option("--ep", help="Groups that whole experts are dealt out to; alone: as many copies."),
]
Pipeline = Annotated[int | None, typer.Option("--pp", help="Stages of layers (a pipeline).")]
Between = Annotated[
    str | None,
    typer.Option(help="What joins machines under --tp, --ep and --pp. Default: infiniband."),
]
Skew = Annotated[
    float,
    typer.Option(help="Visits of the busiest chips' experts over an even share, 1 or more."),
]
Dispatch = Annotated[
    str,
    typer.Option(help="Format of tokens on their way to experts: bf16, or fp8 (back in bf16)."),
]
PrefixHits = Annotated[
    float, typer.Option(help="Share of a prompt's tokens whose keys are in the cache already.")
]
Draft = Annotated[
    str | None,
    typer.Option(
        help="What drafts: a smaller model of the catalog, or its config.json; a head of the model"
        " itself, eagle or mtp."
    ),
]
DraftLength = Annotated[
    int | None, typer.Option(help="Tokens that it drafts for each step of the model.")
]
Acceptance = Annotated[
    float | None, typer.Option(help="Chance that a drafted token is kept, given those before it.")
]


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
