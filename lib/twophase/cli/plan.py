"""`twophase plan`: size a deployment on paper before renting it."""

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from twophase.cli import card
from twophase.cli import plan_options as options
from twophase.cli.plan_options import AUTO, Asked
from twophase.cli.plan_picture import draw, words
from twophase.cli.plan_table import markdown, show
from twophase.theory import catalog
from twophase.theory.architecture import Architecture
from twophase.theory.deployment import Deployment
from twophase.theory.engine_memory import chips_for_engine
from twophase.theory.hardware import Hardware, usual_compute
from twophase.theory.plan import Plan, deployment, plan_deployment
from twophase.theory.weight_format import read_attention, read_dtype, read_groups
from twophase.theory.workload import Workload

EXIT_DOES_NOT_FIT = 1


@options.command
def plan(asked: Asked) -> None:
    """Memory, critical batch, step time, latency, throughput and what binds, for a model on a chip.

    Exit code 0 if it fits, 1 if it does not, 2 for a question that cannot be asked.

    Example: twophase plan --model llama-2-13b --hardware h100 --batch 32 --prompt 924 --output 100
    """
    try:
        if asked.as_json and asked.as_markdown:
            raise ValueError("Give either --json or --markdown.")
        arch, chip, workload, beside = _deployed(asked)
        result = plan_deployment(arch, chip, workload, beside)
    except ValueError as error:
        typer.echo(f"twophase plan: {error}", err=True)
        raise typer.Exit(2) from None
    if asked.picture is not None:
        _draw(arch, chip, result, asked.picture, beside)
    if asked.as_json:
        typer.echo(json.dumps(result.as_dict(), indent=2, allow_nan=False))
    elif asked.as_markdown:
        shown = None if asked.picture is None else (words(result), asked.picture.name)
        typer.echo(markdown(result, shown))
    else:
        show(result, Console())
    raise typer.Exit(0 if result.memory.fits else EXIT_DOES_NOT_FIT)


def _deployed(a: Asked) -> tuple[Architecture, Hardware, Workload, Architecture | None]:
    """The model, its chip, what is asked of them, and what drafts, if something does."""
    if a.chips == AUTO and a.tp is not None:
        raise ValueError("--chips auto finds the chips of a copy: leave --tp or it away.")
    arch, weights, stored = architecture(a.model, a.config, a.weights)
    chip = card.chip(a.hardware)
    beside = options.draft(a.draft, a.draft_length, a.acceptance, architecture, arch)
    workload = _workload(a, weights, stored, usual_compute(chip, weights))
    if a.chips == AUTO:
        workload = _on_fewest(deployment(arch, chip, workload, beside))
    return arch, chip, workload, beside


def _workload(
    a: Asked, weights: str, stored: tuple[int | None, int, str | None], compute: str
) -> Workload:
    """What is asked, in the formats that the config says where nothing else is said."""
    grid = options.grid(a.tp, a.dp, a.ep, a.pp)
    chips = 1 if a.chips == AUTO else a.chips
    return Workload(
        batch=a.batch,
        context=_context(a.context, a.prompt, a.output),
        n_prompt=a.prompt,
        n_output=a.output,
        n_chips=grid.n_chips if grid and chips == 1 else chips,
        weights=weights,
        kv=a.kv,
        compute=a.compute or compute,
        embeddings=a.embeddings,
        attention=a.attention or stored[2],
        group=stored[0] if a.group is None else a.group,
        zero_bits=stored[1] if a.zero_bits is None else a.zero_bits,
        split_cache=a.split_cache,
        activation_bytes=_bytes(a.activations_gb),
        overhead_bytes=_bytes(a.overhead_gb),
        overhead_fraction=a.overhead,
        usable_fraction=a.usable,
        price_per_chip_hour=a.price_per_hour,
        layout=a.layout,
        link=a.link,
        grid=grid,
        between=a.between,
        skew=a.skew,
        dispatch=a.dispatch,
        found_share=a.prefix_hits,
        draft_length=a.draft_length,
        acceptance=a.acceptance,
    )


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
