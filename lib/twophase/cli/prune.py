"""`twophase prune`: a smaller checkpoint from a larger one, and what that changed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twophase.cli.healing import CORPUS, Lesson, healing_words
from twophase.cli.interrupt_while_loading import loading
from twophase.cli.smaller import (
    FORCE,
    LONGEST_WINDOW,
    Bar,
    Source,
    check_out,
    copy_beside,
    open_source,
    read_text,
)

if TYPE_CHECKING:
    from twophase.measure.stopwatch import Clock
    from twophase.models.transformer import Transformer

NAMES = {"layers": "layers", "kv_heads": "heads", "channels": "channels", "width": "width"}
SAID = {  # of one, of more
    "layers": ("layer", "layers"),
    "heads": ("KV head a layer", "KV heads a layer"),
    "channels": ("channel a layer", "channels a layer"),
    "width": ("number of the stream", "numbers of the stream"),
}
TIMED_TOKENS, TIMED_S = 16, 0.5  # of each model, at least; of all of them


def prune(
    checkpoint: Annotated[
        str, typer.Argument(help="A checkpoint of the course, or a Hugging Face directory.")
    ],
    keep: Annotated[
        str,
        typer.Option(
            help="How many stay, of every layer: layers=3,kv_heads=1,channels=50%,width=96."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the pruned model goes.")],
    measure: Annotated[
        str | None,
        typer.Option(
            help="activation, gradient, leave_one_out or random. Default: layers by"
            " leave_one_out, the rest by gradient."
        ),
    ] = None,
    calibrate: Annotated[
        Path | None, typer.Option(help="A text to measure on. Default: the course's corpus.")
    ] = None,
    held_out: Annotated[
        Path | None, typer.Option(help="A text to be judged by. Default: what the corpus keeps.")
    ] = None,
    windows: Annotated[int, typer.Option(help="Windows of text to measure on.")] = 8,
    heal: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Then train what is left on this text, taught by the whole model's logits;"
            f" {CORPUS}: the course's.",
        ),
    ] = None,
    tokens: Annotated[
        int, typer.Option(help="Tokens to heal on (bytes, for models of the course).")
    ] = 150_000,
    seed: Annotated[int, typer.Option(help="Which windows; what random draws.")] = 0,
    force: Annotated[bool, FORCE] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")] = False,
) -> None:
    """Cut the layers, KV heads (with the query heads that read them), MLP channels and numbers of
    the stream out of CHECKPOINT that matter least, and say what that changed: parameters, bytes,
    bits per byte of unseen text, time a token. `twophase generate --checkpoint DIR` runs it.

    Example: twophase prune gqa --keep layers=3,channels=50% --calibrate my.txt --out gqa-pruned
    """
    try:
        with loading():
            from twophase.models.pruning import MEASURES
            from twophase.models.pruning.directory import is_pruned
        if measure is not None and measure not in MEASURES:
            raise ValueError(f"--measure is one of {', '.join(MEASURES)}; got {measure}.")
        asked = _asked(keep)
        check_out(out, is_pruned, force)
        with loading():
            source = open_source(checkpoint)
        texts = read_text(calibrate, "train"), read_text(held_out, "held_out")
        lesson = None if heal is None else Lesson.on(heal, tokens, seed)
        facts = _run(source, asked, measure, texts, windows, seed, out, lesson)
    except ValueError as error:
        typer.echo(f"twophase prune: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(json.dumps(facts, indent=2) if as_json else _sentences(facts, out))


def _asked(keep: str) -> dict[str, tuple[float, bool]]:
    """By unit, how many stay, and whether that is percent. ValueError for what says nothing."""
    found: dict[str, tuple[float, bool]] = {}
    for part in keep.split(","):
        name, _, n = (word.strip() for word in part.partition("="))
        number = n.removesuffix("%").strip()
        if name not in NAMES or not number.isdecimal() or int(number) < 1 or NAMES[name] in found:
            raise ValueError(
                f"--keep names each of {', '.join(NAMES)} once at most, with a whole number or"
                f" percent from 1 on, as in layers=3,channels=50%; got {part.strip() or keep!r}."
            )
        found[NAMES[name]] = (int(number), n.endswith("%"))
    return found


def _numbers(model: Transformer, asked: dict[str, tuple[float, bool]]) -> dict[str, int]:
    """Percent as numbers of what the model has, rounded down, one at least. ValueError for more
    than there is."""
    c = model.config
    widest = [c.at(layer) for layer in range(c.L)]
    least = {
        "layers": c.L,
        "heads": min(own.K for own in widest),
        "channels": min(own.F for own in widest),
        "width": c.D,
    }
    found = {}
    for unit, (n, percent) in asked.items():
        found[unit] = max(1, int(least[unit] * n // 100)) if percent else int(n)
        if found[unit] > least[unit]:
            name = next(key for key, value in NAMES.items() if value == unit)
            raise ValueError(f"--keep {name}={found[unit]}: this model has {least[unit]}.")
    return found


def _run(
    source: Source,
    asked: dict[str, tuple[float, bool]],
    measure: str | None,
    texts: tuple[bytes, bytes],
    n_windows: int,
    seed: int,
    out: Path,
    lesson: Lesson | None,
) -> dict[str, Any]:
    """Measure, cut, heal, judge, save; what was seen, as plain data."""
    import torch

    from twophase.models import pruning
    from twophase.models.pruning.directory import save
    from twophase.models.quantize.texts import (
        calibration_windows,
        check_judging,
        text_bits_per_byte,
    )

    model = source.model
    keep, T = _numbers(model, asked), min(model.config.context, LONGEST_WINDOW)
    check_judging(model, texts[1], source.encode, T)  # before the work, not after it
    tokens = calibration_windows(texts[0], source.encode, n_windows, T + 1, seed)
    if lesson is not None:
        lesson.check(source, T)
    started = time.perf_counter()
    with Bar("leaving out") as bar:
        made, stages = pruning.prune(model, keep, measure, tokens, seed, bar)
    took_s = time.perf_counter() - started

    def judged(it: Transformer) -> float:
        return text_bits_per_byte(it, texts[1], source.encode, T)

    theirs = None
    if source.folder is not None and (source.folder / "config.json").is_file():
        theirs = json.loads((source.folder / "config.json").read_text(encoding="utf-8"))
    # a checkpoint of the course is stored in bf16, as whatever is cut from it
    stored = made.embed_tokens.weight.dtype if theirs else torch.bfloat16
    healed = None
    if lesson is not None:
        made, healed = lesson.heal(made, source, T, judged, stored)
    both = (model, made)
    facts = {
        "source": source.name,
        "calibration": [*tokens.shape, seed],
        "stages": [stage.facts() for stage in stages],
        "n_params": [it.n_params for it in both],
        "weight_bytes": [it.n_params * it.embed_tokens.weight.element_size() for it in both],
        "bits_per_byte": [judged(it) for it in both],
        "healed": healed,
        "tpot_s": _tpot_s(both, tokens[0, :16].tolist()),
        "pruning_s": took_s,
    }
    facts["transformers"] = save(made.to(stored), out, facts, theirs)
    copy_beside(source, out)
    return facts


def _tpot_s(
    models: Sequence[Transformer], prompt: list[int], clock: Clock = time.perf_counter
) -> list[float]:
    """Seconds of a decode step of one sequence behind the prompt, as each plain model runs here.

    They take turns, warmed alike, without Python's garbage collection: one pass of it, a tenth of a
    second, was once in the mean of one model's tokens and not of the other's. Medians.
    """
    import torch

    from twophase.measure import race

    with torch.inference_mode():
        steps = {str(i): _step(model, prompt) for i, model in enumerate(models)}
        timed = race(steps, budget_s=TIMED_S, min_rounds=TIMED_TOKENS, clock=clock)
    return [timing.median_s for timing in timed.values()]


def _step(model: Transformer, prompt: list[int]) -> Callable[[], object]:
    """The step that follows the prompt, again and again."""
    import torch

    cache = model.new_cache(1, len(prompt) + 1)
    token = model(torch.tensor([prompt]), cache, at=-1).argmax(-1, keepdim=True)  # [1, 1]
    return lambda: model(token, cache, at=-1, commit=False)


def _sentences(facts: dict[str, Any], out: Path) -> str:
    (whole, left), (before, after) = facts["n_params"], facts["bits_per_byte"]
    large, small = facts["weight_bytes"]
    slow, fast = facts["tpot_s"]
    stages = ", ".join(
        f"{s['n']} {SAID[s['unit']][s['n'] > 1]} by {s['measure']}" for s in facts["stages"]
    )
    reads = "transformers reads it, too" if facts["transformers"] else "only twophase reads it"
    return (
        f"{facts['source']}, keeping {stages}: {whole:,} parameters are {left:,} now"
        f" ({1 - left / whole:.0%} less; {large / 1e6:,.2f} MB are {small / 1e6:,.2f} MB as they"
        f" run), {before:.4f} bits per byte of unseen text are {after:.4f} ({after - before:+.4f}),"
        f" {slow * 1e3:.2f} ms a token are {fast * 1e3:.2f} ms;"
        f" {facts['pruning_s']:.1f} s; {healing_words(facts['healed'])}{reads}."
        f' Try it: twophase generate --checkpoint {out} "def read_lines(path):"'
    )
