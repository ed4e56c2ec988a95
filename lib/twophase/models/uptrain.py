"""Up-training: a multi-head model becomes one with fewer KV heads, and is trained on for a
twentieth of its budget (Ainslie et al., 2023, section 2).

`python -m twophase.models.uptrain` does it for the committed `mha`, to K = 2 and K = 1, each three
ways (heads pooled by their mean, the first of each group kept, new heads drawn), beside the model
itself trained on as long, and writes the curves to `uptrained.json`.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from twophase.kernels.grouped_query_attention import POOLINGS, pool_heads
from twophase.models import checkpoints, corpus
from twophase.models.bf16_products import products_in_fp32
from twophase.models.evaluate import bits_per_byte
from twophase.models.family import FAMILY
from twophase.models.findings import Findings, arguments, came_from, made_before, read, write
from twophase.models.recipe import Recipe
from twophase.models.train import device_name
from twophase.models.trainer import Trainer
from twophase.models.transformer import Transformer

RESULT = Path(__file__).with_name("uptrained.json")
SHARE = 1 / 20  # of the budget that the model was trained on
POINTS = 4  # of a curve, after the one at the start
EVERY = 32  # so-manieth held-out window: an eighth of those that the cards are measured on
WAYS = (*POOLINGS, "new")
AS_IT_IS = "as it is"


def with_fewer_kv_heads(model: Transformer, K: int, how: str = "mean") -> Transformer:
    """A copy of a model whose layers all have N KV heads, with K of them: pooled ("mean", "first"),
    or "new" ones as before any training. Its MLPs stay as they are, so it has fewer parameters."""
    c = model.config
    if c.K != c.N or c.widths is not None or set(c.mixers) != {"gqa"} or c.qkv_bias:
        raise ValueError("heads are pooled of a plain multi-head model: K = N in every layer.")
    smaller = Transformer(replace(c, K=K))
    fresh = smaller.state_dict()
    state = dict(model.state_dict())
    for name, weight in state.items():
        if name.endswith(("k_proj.weight", "v_proj.weight")):
            state[name] = fresh[name] if how == "new" else pool_heads(weight, c.N, K, how)
    smaller.load_state_dict(state)
    return smaller


@products_in_fp32()
def train_on(
    model: Transformer,
    recipe: Recipe,
    data: np.ndarray,
    measure: Callable[[Transformer], float],
    points: int = POINTS,
) -> list[tuple[int, float]]:
    """Train a copy of the model by the recipe; (tokens, what `measure` finds) at the start and at
    `points` places, the last at the end."""
    trainer = Trainer(model.config, recipe, data, "cpu")
    trainer.model.load_state_dict(model.state_dict())
    stops = {round(i * trainer.total_steps / points) for i in range(1, points + 1)}
    curve = [(0, measure(trainer.model))]
    while trainer.step_count < trainer.total_steps:
        trainer.step()
        if trainer.step_count in stops:
            tokens = trainer.step_count * recipe.B * model.config.context
            curve.append((tokens, measure(trainer.model)))
    return curve


def uptraining_recipe(card: dict[str, Any], seed: int) -> Recipe:
    """A twentieth of a checkpoint's budget, at its rates from the peak down, on other windows of
    the same text."""
    whole = Recipe(**card["recipe"])
    return replace(
        whole,
        n_tokens=int(whole.n_tokens * SHARE),
        warmup_steps=10,
        seed=1000 + seed,
    )


def measured(model: Transformer, held_out: np.ndarray) -> float:
    """Bits per held-out byte."""
    was_training = model.training
    model.eval()
    found = bits_per_byte(model, held_out, every=EVERY)
    model.train(was_training)
    return round(found, 4)


def run(seeds: int, path: Path = RESULT, source: str = "mha") -> None:
    """Write all the curves to `path`, one after the other, and what they came from. Those that
    stand there already, of the same weights, are not made again."""
    card, data, held_out = checkpoints.card(source), corpus.load("train"), corpus.load("held_out")
    found: Findings = {
        **came_from(source),
        "recipe": {**asdict(uptraining_recipe(card, 1)), "seed": "1000 + seed"},
        "every": EVERY,
        "device": device_name("cpu"),
        "torch": torch.__version__,
    }
    found |= made_before(path, found, ("runs",))
    runs = found["runs"]
    for seed in range(1, seeds + 1):
        for K, how in kinds():
            if any((r["K"], r["how"], r["seed"]) == (K, how, seed) for r in runs):
                continue
            torch.manual_seed(seed)
            model = checkpoints.load(source)
            start = model if how == AS_IT_IS else with_fewer_kv_heads(model, K, how)
            start.requires_grad_(True).train()
            recipe = uptraining_recipe(card, seed)
            curve = train_on(start, recipe, data, lambda m: measured(m, held_out))
            runs.append({"K": K, "how": how, "seed": seed, "curve": curve})
            write(found, path)
            print(f"K = {K}, {how}, seed {seed}: {curve[0][1]} to {curve[-1][1]}", flush=True)


def kinds() -> list[tuple[int, str]]:
    """What is trained on: the model as it is, and each number of KV heads made in each way."""
    return [(FAMILY["mha"].K, AS_IT_IS), *((K, how) for how in WAYS for K in (2, 1))]


def result(path: Path = RESULT) -> Findings:
    """What was written last. ValueError if it came from other weights than the committed ones."""
    return read(path, "python -m twophase.models.uptrain")


def main() -> None:
    """The command line of this module."""
    args = arguments("Up-train the committed multi-head model.", RESULT, seeds=3)
    run(args.seeds, args.out)


if __name__ == "__main__":
    main()
