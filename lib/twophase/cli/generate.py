"""`twophase generate`: stream a completion from a model, then say how long it took."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twophase.cli.drafting import (
    check_draft,
    flat,
    load_drafter,
    speculation_facts,
    speculation_sentence,
    tpot_without_drafts,
)
from twophase.cli.interrupt_while_loading import loading
from twophase.cli.speakers import CourseModel, Speaker
from twophase.cli.stored_speakers import open_directory

if TYPE_CHECKING:
    from twophase.models.generate import Generation
    from twophase.models.speculative_decoding import Drafter, Speculation
    from twophase.models.transformer import Transformer

SEEDS = range(-(2**63), 2**63)
MOST_TOKENS = 100_000  # beyond that a cache, or one's patience, runs out
SMALL = 5_000_000  # parameters: a model of fewer runs faster on one thread
DEFAULT = "gqa"
PATHS = ("plain", "compiled")  # as `models.generate` has them

From = Annotated[
    str | None, typer.Option(help=f"A checkpoint of the course; {DEFAULT} if none is named.")
]
Directory = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="A Hugging Face directory: config.json, safetensors, tokenizer.json."
    ),
]


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn."""

    n_new: int
    temperature: float
    top_k: int | None
    top_p: float
    seed: int
    cache: bool
    path: str
    gamma: int


def generate(
    prompt: Annotated[str, typer.Argument(help="The text to continue.")],
    model: From = None,
    checkpoint: Directory = None,
    tokens: Annotated[
        int, typer.Option(help="New tokens at most (for models of the course a token is a byte).")
    ] = 200,
    temperature: Annotated[
        float, typer.Option(help="0 takes the likeliest token each time.")
    ] = 0.8,
    top_k: Annotated[
        int | None, typer.Option(help="Draw among the k likeliest tokens only.")
    ] = None,
    top_p: Annotated[
        float, typer.Option(help="Draw among the likeliest tokens that hold this mass.")
    ] = 0.9,
    seed: Annotated[int, typer.Option(help="Same seed, same text on the same machine.")] = 0,
    stop: Annotated[
        list[str] | None, typer.Option(help="End before this text; may be given several times.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    dtype: Annotated[
        str, typer.Option(help="bf16, fp16, fp32, or auto: as a checkpoint is stored.")
    ] = "auto",
    token_ids: Annotated[
        bool,
        typer.Option("--token-ids", help="PROMPT is tokens, as numbers; so is what is printed."),
    ] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Run the whole sequence for every token.")
    ] = False,
    path: Annotated[
        str,
        typer.Option(
            help="plain: in torch. compiled: decode steps, and verifications of drafts, in compiled"
            " loops, on a CPU."
        ),
    ] = "plain",
    draft: Annotated[
        str | None,
        typer.Option(
            help="Who drafts: a checkpoint of the course, a directory, lookup (the text itself),"
            " quantized (the model itself in 4 bits), or, for --model target, trained heads: heads"
            " (Medusa's), eagle, mtp."
        ),
    ] = None,
    drafted: Annotated[int, typer.Option(help="Tokens drafted at a time.")] = 4,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end instead of a stream.")
    ] = False,
) -> None:
    """Continue PROMPT with a model of the course or of a Hugging Face directory; print TTFT, TPOT
    and tokens/s.

    Example: twophase generate "def read_lines(path):"

    Example: twophase generate --checkpoint models/Llama-3.2-1B "The capital of France is"

    Example: twophase generate --model target --draft draft "def read_lines(path):"
    """
    try:
        _check(prompt, model, checkpoint, tokens, seed, stop or [], token_ids)
        _check_path(path, no_cache)
        check_draft(draft, drafted, not no_cache)
        with loading():
            import twophase.models.generate  # noqa: F401  torch takes a second, and `twophase --help` should not

        speaker: Speaker
        if checkpoint is None:
            speaker = CourseModel(model or DEFAULT, device, dtype, stop or [])
        else:
            speaker = open_directory(checkpoint, device, dtype, stop or [], token_ids)
        cache = not no_cache
        sampling = Sampling(tokens, temperature, top_k, top_p, seed, cache, path, drafted)
        n_tokens = len(speaker.encode(prompt)) + tokens
        drafter = draft and load_drafter(draft, speaker, device, dtype, path, n_tokens)
        _generate(speaker, prompt, sampling, as_json, drafter or None)
    except ValueError as error:
        typer.echo(f"twophase generate: {error}", err=True)
        raise typer.Exit(2) from None


def _check(
    prompt: str,
    model: str | None,
    checkpoint: Path | None,
    n_new: int,
    seed: int,
    stop: list[str],
    token_ids: bool,
) -> None:
    if model is not None and checkpoint is not None:
        raise ValueError(
            "--model names a model of the course, --checkpoint a directory: give one of the two."
        )
    if token_ids and (checkpoint is None or stop):
        raise ValueError("--token-ids goes with --checkpoint, and without --stop.")
    if not 1 <= n_new <= MOST_TOKENS:
        raise ValueError(
            f"--tokens needs at least 1 new token and at most {MOST_TOKENS:,}; got {n_new}."
        )
    if seed not in SEEDS:
        raise ValueError(f"--seed needs a whole number of at most 63 bits; got {seed}.")
    if not prompt:
        raise ValueError("the prompt is empty: give the model some text to continue.")
    if any(not s for s in stop):
        raise ValueError("--stop needs some text; an empty one would end every generation at once.")


def _check_path(path: str, no_cache: bool) -> None:
    if path not in PATHS:
        raise ValueError(f"--path is one of {', '.join(PATHS)}; got {path}.")
    if path == "compiled" and no_cache:
        raise ValueError(
            "--path compiled is for decode steps, which need a cache: leave out --no-cache."
        )


def _generate(
    speaker: Speaker, prompt: str, sampling: Sampling, as_json: bool, drafter: Drafter | None
) -> None:
    """Load, warm up, stream, report."""
    import torch

    from twophase.models.generate import on_path
    from twophase.models.speculative_decoding import Speculation

    tokens, record = speaker.encode(prompt), Speculation()
    network = speaker.load(len(tokens) + sampling.n_new)
    if network.n_params < SMALL:
        torch.set_num_threads(
            1
        )  # its products are over before a second thread wakes, and a busy machine stalls both
    if sampling.path != "plain":
        typer.echo(on_path(network, sampling.path).report, err=True)
    # torch's first call sets up threads and buffers, and a first verification finds or compiles its
    # loops: no time that is told should pay for that
    few = min(sampling.n_new, 2 if drafter is None else sampling.gamma + 2)
    list(_stream(network, drafter, tokens[:2], replace(sampling, n_new=few), (), Speculation()))
    stream = _stream(network, drafter, tokens, sampling, speaker.stops, record)
    pieces = speaker.pieces(tokens, stream)
    if as_json:
        made = "".join(pieces)
        facts = _facts(record, sampling) | {"draft": _worth(network, drafter, record, sampling)}
        typer.echo(json.dumps({"model": speaker.name, "prompt": prompt, "text": made, **facts}))
        return
    typer.echo(prompt.encode(errors="surrogateescape").decode(errors="replace"), nl=False)
    for piece in pieces:
        typer.echo(piece, nl=False)
    typer.echo("\n")
    typer.echo(_sentence(_facts(record, sampling)))
    if worth := _worth(network, drafter, record, sampling):
        typer.echo(speculation_sentence(worth))


def _stream(
    network: Transformer,
    drafter: Drafter | None,
    tokens: Sequence[int],
    sampling: Sampling,
    stops: Sequence[Sequence[int]],
    record: Speculation,
) -> Iterator[int]:
    """The new tokens as they come, with drafts or without."""
    import torch

    from twophase.models.generate import generate as run
    from twophase.models.speculative_decoding import Law, speculate

    law = Law(sampling.temperature, sampling.top_k, sampling.top_p)
    shared: dict[str, Any] = {
        "path": sampling.path,
        "stop": stops,
        "generator": torch.Generator().manual_seed(sampling.seed),
        "record": record,
    }
    if drafter is None:
        return run(network, tokens, sampling.n_new, cache=sampling.cache, **asdict(law), **shared)
    shared |= {"gamma": sampling.gamma, "law": law}
    return flat(speculate(network, drafter, tokens, sampling.n_new, **shared))


def _worth(
    network: Transformer, drafter: Drafter | None, record: Speculation, sampling: Sampling
) -> dict[str, Any] | None:
    """What the drafts were worth; None if nobody drafted."""
    if drafter is None:
        return None
    without_s = tpot_without_drafts(network, record, path=sampling.path)
    return speculation_facts(record, drafter.name, sampling.gamma, without_s)


def _sentence(facts: dict[str, int | float | str | bool | None]) -> str:
    tokens = f"{facts['n_tokens']} token{'' if facts['n_tokens'] == 1 else 's'}"
    return (
        f"{tokens} after a prompt of {facts['n_prompt_tokens']} ({facts['finish_reason']}); TTFT"
        f" {_ms(facts['ttft_s'])}, TPOT {_ms(facts['tpot_s'])}, {facts['tokens_per_s']:,.0f}"
        f" tokens/s, {facts['path']} path"
    )


def _facts(record: Generation, sampling: Sampling) -> dict[str, int | float | str | bool | None]:
    """The measurements as plain data; a TPOT needs two tokens and is null otherwise."""
    return {
        "n_prompt_tokens": len(
            record.prompt
        ),  # for models of the course its bytes and the newline before it
        "n_tokens": len(record.tokens),
        "finish_reason": (
            record.finish_reason or "stop"
        ),  # a stop text ends the stream before its end
        "cache": sampling.cache,
        "path": sampling.path,
        "ttft_s": record.ttft_s,
        "tpot_s": None if math.isnan(record.tpot_s) else record.tpot_s,
        "tokens_per_s": record.tokens_per_s,
    }


def _ms(seconds: object) -> str:
    return f"{seconds * 1e3:.2f} ms" if isinstance(seconds, float) else "n/a"
