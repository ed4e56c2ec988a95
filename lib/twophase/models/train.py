"""Train a model of the family on the corpus: `python -m twophase.models.train gqa`.

One recipe and one budget for all, so that models differ in what they are, not in how they were
trained. A killed run picks up where it was, at most half a minute back, and ends, on the same
processor and number of threads, with the very same weights: the order of the data is a function of
the seed and the step. (A GPU adds some gradients in any order: there they are nearly the same.)
"""

import argparse
import math
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from twophase.models import checkpoints, corpus
from twophase.models.bf16_products import products_in_fp32
from twophase.models.evaluate import bits_per_byte, curve
from twophase.models.family import BYTES, STORED_IN_INT8, TRAINED
from twophase.models.file_format import as_saved
from twophase.models.mixture_of_experts import run_every_expert
from twophase.models.recipe import Recipe
from twophase.models.trainer import Trainer


@products_in_fp32()
def train(trainer: Trainer, state_path: Path, every_s: float = 30.0) -> None:
    """Run to the end of the budget, saved every half minute; without a terminal, a line a save."""
    if state_path.is_file():
        trainer.resume(state_path)
    tokens_per_step = trainer.recipe.B * trainer.config.context
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as bar:
        task = bar.add_task("starting", total=trainer.total_steps, completed=trainer.step_count)
        first, before, losses, loss = trainer.step_count, trainer.seconds, 0, 0.0
        begun = saved = time.monotonic()
        while trainer.step_count < trainer.total_steps:
            loss += trainer.steps()
            losses += 1
            trainer.seconds = before + time.monotonic() - begun
            rate = (trainer.step_count - first) * tokens_per_step / (trainer.seconds - before)
            text = f"loss {loss / losses / math.log(2):.3f} bits/byte, {rate:,.0f} tokens/s"
            bar.update(task, completed=trainer.step_count, description=text)
            if time.monotonic() - saved > every_s:
                trainer.save(state_path)
                left_s = (trainer.total_steps - trainer.step_count) * tokens_per_step / rate
                if not bar.console.is_terminal:
                    print(
                        f"step {trainer.step_count}/{trainer.total_steps}: {text}, {left_s:.0f} s"
                        " left",
                        flush=True,
                    )
                saved, losses, loss = time.monotonic(), 0, 0.0
    trainer.save(state_path)


# a quarter of the held-out windows, the same for all, tells models apart as well as all of them
EVERY = 4


def device_name(device: str) -> str:
    """What the training ran on, for the card."""
    n = torch.get_num_threads()
    return (
        torch.cuda.get_device_name()
        if device == "cuda"
        else f"CPU, {n} thread{'s' if n > 1 else ''}"
    )


def finish(trainer: Trainer, name: str, out: Path) -> Path:
    """Save the weights, measure exactly what was saved on the held-out packages, and write the
    card."""
    held_out = corpus.load("held_out")
    int8 = name in STORED_IN_INT8
    saved = as_saved(trainer.model, int8)
    run_every_expert(saved, False)  # it is measured as its users run it
    details: dict[str, Any] = {
        "stored": "int8" if int8 else "bf16",
        "held_out_bits_per_byte": round(bits_per_byte(saved, held_out, every=EVERY), 4),
        "held_out_is_upper_bound": not saved.config.causal,
        "held_out_bytes": (
            -(-((len(held_out) - 1) // saved.config.context) // EVERY) * saved.config.context
        ),
        "train_bits_per_byte": curve(trainer.losses),
        "n_tokens": trainer.step_count * trainer.recipe.B * trainer.config.context,
        "training_s": round(trainer.seconds),
        "device": device_name(trainer.device),
        "compiled": trainer.compiled,
        "torch": torch.__version__,
        "recipe": asdict(trainer.recipe),
        "corpus_sha256": corpus.digest(),
        "trained_on": {
            f"{p.name} {p.version}": p.licence for p in corpus.packages() if p.split == "train"
        },
        "held_out": {
            f"{p.name} {p.version}": p.licence for p in corpus.packages() if p.split == "held_out"
        },
    }
    path = checkpoints.save(trainer.model, name, details, out, int8)
    print(f"{path}: {details['held_out_bits_per_byte']} bits per byte on held-out packages")
    return path


def _count(text: str) -> int:
    """A whole number from 1 to 2³¹ − 1, for argparse."""
    value = int(text)
    if not 0 < value < 2**31:
        raise argparse.ArgumentTypeError(f"needs a whole number from 1 to 2147483647; got {text}")
    return value


def main() -> None:
    """The command line of this module."""
    parser = argparse.ArgumentParser(description="Train a model of the family on the corpus.")
    parser.add_argument("name", choices=sorted(TRAINED), help="which model")
    parser.add_argument(
        "--out", type=Path, default=Path("scratch/train"), help="where the run and its result go"
    )
    parser.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"]
    )
    parser.add_argument(
        "--threads", type=_count, help="CPU threads; two runs on one thread each outdo one on two"
    )
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        help="steps in compiled C++, after a minute or two of compiling (the default on a CPU that"
        " has a C++ compiler; states never are, experts on a GPU only)",
    )
    parser.add_argument("--seed", type=_count, default=Recipe.seed)
    parser.add_argument(
        "--tokens", type=_count, help="the budget (default: that of the committed weights)"
    )
    args = parser.parse_args()
    try:
        if args.device == "cuda" and not torch.cuda.is_available():
            raise ValueError(
                "there is no CUDA device here: leave --device out, or say --device cpu."
            )
        if args.threads:
            torch.set_num_threads(args.threads)
        out = args.out / f"seed{args.seed}"
        out.mkdir(parents=True, exist_ok=True)
        n_tokens = args.tokens or BYTES.get(args.name, Recipe.n_tokens)
        recipe = Recipe(seed=args.seed, n_tokens=n_tokens)
        trainer = Trainer(
            TRAINED[args.name], recipe, corpus.load("train"), args.device, corpus.digest()
        )
        if args.device == "cpu" if args.compile is None else args.compile:
            print("compiling" if trainer.compile() else "not compiled", flush=True)
        train(trainer, out / f"{args.name}.run.pt")
        finish(trainer, args.name, out)
    except KeyboardInterrupt:
        sys.exit(
            "interrupted: the same command goes on from the last save, at most half a minute back"
        )
    except (ValueError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
