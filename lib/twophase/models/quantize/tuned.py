"""Training and few bits: adapters on NF4 weights (QLoRA), and rounding during training (QAT)
against rounding after it (PTQ), each beside the same training without rounding.

`python -m twophase.models.quantize.tuned` trains all of them from the committed `gqa`, a few
minutes of one core, and writes `tuned.json`. Without the control one would take for repaired what
is only trained longer.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from twophase.kernels.quantization.integers import IntegerFormat
from twophase.models import checkpoints, corpus
from twophase.models.bf16_products import products_in_fp32
from twophase.models.evaluate import bits_per_byte
from twophase.models.findings import Findings, arguments, came_from, read, write
from twophase.models.objective import training_loss
from twophase.models.quantize.adapters import (
    adapter_parameters,
    round_while_training,
    with_adapters,
)
from twophase.models.quantize.calibration import corpus_windows
from twophase.models.quantize.methods import quantize
from twophase.models.recipe import Recipe, batch
from twophase.models.trainer import Trainer
from twophase.models.transformer import Transformer

RESULT = Path(__file__).with_name("tuned.json")
SOURCE = "gqa"
EVERY = 64  # so-manieth held-out window
RANK, ADAPTER_LR = 4, 2e-3
FORMATS = {
    "int3": IntegerFormat(3, 64, affine=True),
    "int2": IntegerFormat(2, 32, affine=True),
}
RECIPE = Recipe(n_tokens=120_000, lr_matrices=1e-3, lr_others=5e-4, warmup_steps=10)
Row = dict[str, Any]


def train_adapters(model: Transformer, recipe: Recipe, data: np.ndarray) -> None:
    """Train a model's adapters, and nothing else, by the recipe's order of data and its cosine."""
    parameters = adapter_parameters(model)
    optimizer, T = torch.optim.AdamW(parameters, ADAPTER_LR, weight_decay=0.0), model.config.context
    for step in range(recipe.steps(T)):
        loss, _ = training_loss(model, batch(data, step, recipe.B, T, recipe.seed), step)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(parameters, recipe.clip)
        for group in optimizer.param_groups:
            group["lr"] = ADAPTER_LR * recipe.lr_share(step, T)
        optimizer.step()


@products_in_fp32()
def train_on(
    model: Transformer, recipe: Recipe, data: np.ndarray, how: IntegerFormat | None
) -> Transformer:
    """A copy trained on by the recipe, rounded to `how` in each pass (None: not rounded)."""
    trainer = Trainer(model.config, recipe, data, "cpu")
    trainer.model.load_state_dict(model.state_dict())
    if how is not None:
        round_while_training(trainer.model, how)
    while trainer.step_count < trainer.total_steps:
        trainer.step()
    made = Transformer(model.config)
    made.load_state_dict(trainer.model.state_dict())
    return made.eval().requires_grad_(False)


def one_seed(
    model: Transformer, seed: int, data: np.ndarray, loss: Callable[[Transformer], float]
) -> list[Row]:
    """What every way ends at with one order of the data."""
    recipe, rows = replace(RECIPE, seed=1000 + seed), []
    for nf4 in (False, True):
        torch.manual_seed(seed)
        made = with_adapters(model, RANK, nf4)
        rows.append({"weights": "nf4" if nf4 else "bf16", "way": "before", "loss": loss(made)})
        train_adapters(made, recipe, data)
        rows.append({"weights": "nf4" if nf4 else "bf16", "way": "adapters", "loss": loss(made)})
    calibration = corpus_windows(32, model.config.context)
    longer = train_on(model, recipe, data, None)
    rows.append({"weights": "bf16", "way": "trained on", "loss": loss(longer)})
    for name, how in FORMATS.items():
        for method in ("nearest", "gptq"):
            before = quantize(model, method, how, calibration)
            after = quantize(longer, method, how, calibration)
            rows.append({"weights": name, "way": method, "loss": loss(before)})
            rows.append({"weights": name, "way": f"trained on, {method}", "loss": loss(after)})
        aware = quantize(train_on(model, recipe, data, how), "nearest", how)
        rows.append({"weights": name, "way": "qat", "loss": loss(aware)})
    return [{"seed": seed, **row} for row in rows]


def run(seeds: int, path: Path = RESULT) -> None:
    """Train every way with every seed and write what was found, after each seed."""
    data, held_out = corpus.load("train"), corpus.load("held_out")
    model = checkpoints.load(SOURCE)
    found: Findings = {
        "command": f"python -m twophase.models.quantize.tuned --seeds {seeds}",
        **came_from(SOURCE),
        "recipe": {**asdict(RECIPE), "seed": "1000 + seed"},
        "rank": RANK,
        "adapter_lr": ADAPTER_LR,
        "every": EVERY,
        "torch": torch.__version__,
        "rows": [],
    }

    def loss(of: Transformer) -> float:
        return round(bits_per_byte(of, held_out, every=EVERY), 4)

    for seed in range(1, seeds + 1):
        for row in one_seed(model, seed, data, loss):
            found["rows"].append(row)
            print(json.dumps(row), flush=True)
        write(found, path)


def result(path: Path = RESULT) -> Findings:
    """What was written last. ValueError if it came from other weights than the committed ones."""
    return read(path, "python -m twophase.models.quantize.tuned")


def main() -> None:
    """The command line of this module."""
    args = arguments("Train with few bits.", RESULT, seeds=2)
    run(args.seeds, args.out)


if __name__ == "__main__":
    main()
