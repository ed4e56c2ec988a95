"""`twophase generate`: stream a completion from a trained model, then say how long it took."""

import codecs
import json
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from twophase.cli.interrupt import loading

if TYPE_CHECKING:
    from twophase.models.generate import Generation

SEEDS = range(-(2**63), 2**63)
MOST_TOKENS = 100_000  # beyond that a cache, or one's patience, runs out
SMALL = 5_000_000  # parameters: a model of fewer runs faster on one thread


def generate(
    prompt: Annotated[str, typer.Argument(help="The text to continue.")],
    model: Annotated[str, typer.Option(help="A checkpoint of the course.")] = "gqa",
    tokens: Annotated[int, typer.Option(help="New tokens at most (a token is a byte).")] = 200,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token each time.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(help="Draw among the k likeliest tokens only.")] = None,
    top_p: Annotated[float, typer.Option(help="Draw among the likeliest tokens that hold this mass.")] = 0.9,
    seed: Annotated[int, typer.Option(help="Same seed, same text on the same machine.")] = 0,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text; may be given several times.")] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Run the whole sequence for every token.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end instead of a stream.")
    ] = False,
) -> None:
    """Continue PROMPT with a model trained here; print TTFT, TPOT and tokens/s."""
    try:
        if not 1 <= tokens <= MOST_TOKENS:
            raise ValueError(f"--tokens needs at least 1 new token and at most {MOST_TOKENS:,}; got {tokens}.")
        if seed not in SEEDS:
            raise ValueError(f"--seed needs a whole number of at most 63 bits; got {seed}.")
        if not prompt:
            raise ValueError("the prompt is empty: give the model some text to continue.")
        if any(not s for s in stop or []):
            raise ValueError("--stop needs some text; an empty one would end every generation at once.")
        _generate(prompt, model, tokens, temperature, top_k, top_p, seed, stop or [], not no_cache, as_json)
    except ValueError as error:
        typer.echo(f"twophase generate: {error}", err=True)
        raise typer.Exit(2) from None


def _generate(
    prompt: str,
    name: str,
    n_new: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int,
    stop: list[str],
    cache: bool,
    as_json: bool,
) -> None:
    with loading():
        import torch  # takes a second, and `twophase --help` should not

        from twophase.models import checkpoints
        from twophase.models.corpus import END
        from twophase.models.generate import Generation, encode
        from twophase.models.generate import generate as run

    stops = [bytes([END]), *(s.encode(errors="surrogateescape") for s in stop)]  # the end of a file ends the text, too
    record = Generation()
    network = checkpoints.load(name)
    if network.n_params < SMALL:
        torch.set_num_threads(1)  # its products are over before a second thread wakes, and a busy machine stalls both
    list(run(network, [END, END], 2))  # torch's first call sets up threads and buffers; TTFT should not pay for that
    stream = run(
        network,
        encode(prompt),
        n_new,
        cache=cache,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        stop=stops,
        generator=torch.Generator().manual_seed(seed),
        record=record,
    )
    pieces = decode(hold_back(stream, stops))
    if as_json:
        made = "".join(pieces)
        typer.echo(json.dumps({"model": name, "prompt": prompt, "text": made, **_facts(record, cache)}))
        return
    typer.echo(prompt.encode(errors="surrogateescape").decode(errors="replace"), nl=False)
    for piece in pieces:
        typer.echo(piece, nl=False)
    facts = _facts(record, cache)
    typer.echo("\n")
    tokens = f"{facts['n_tokens']} token{'' if facts['n_tokens'] == 1 else 's'}"
    typer.echo(
        f"{tokens} after a prompt of {facts['n_prompt_tokens']} ({facts['finish_reason']}); "
        f"TTFT {_ms(facts['ttft_s'])}, TPOT {_ms(facts['tpot_s'])}, {facts['tokens_per_s']:,.0f} tokens/s"
    )


def hold_back(stream: Iterable[int], stops: list[bytes]) -> Iterator[int]:
    """The tokens of a stream without the stop text at its end: what may be its beginning waits until that is decided."""
    held = b""
    for token in stream:
        held += bytes([token])
        if held in stops or any(held.endswith(s) for s in stops):
            held = held[: -max(len(s) for s in stops if held.endswith(s))]
            break
        keep = max((n for s in stops for n in range(1, len(s)) if held.endswith(s[:n])), default=0)
        yield from held[: len(held) - keep]
        held = held[len(held) - keep :]
    yield from held


def decode(tokens: Iterable[int]) -> Iterator[str]:
    """UTF-8 as it arrives: a character is shown when its last byte is there, a byte that fits nowhere as U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for token in tokens:
        if piece := decoder.decode(bytes([token])):
            yield piece
    if piece := decoder.decode(b"", final=True):
        yield piece


def _facts(record: "Generation", cache: bool) -> dict[str, int | float | str | bool | None]:
    """The measurements as plain data; a TPOT needs two tokens and is null otherwise."""
    return {
        "n_prompt_tokens": len(record.prompt),  # the bytes of the prompt and the newline before it
        "n_tokens": len(record.tokens),
        "finish_reason": record.finish_reason,
        "cache": cache,
        "ttft_s": record.ttft_s,
        "tpot_s": None if math.isnan(record.tpot_s) else record.tpot_s,
        "tokens_per_s": record.tokens_per_s,
    }


def _ms(seconds: object) -> str:
    return f"{seconds * 1e3:.2f} ms" if isinstance(seconds, float) else "n/a"
