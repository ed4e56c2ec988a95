"""What evens out a router, and what it costs: small mixtures trained on the same text with nothing,
with the auxiliary loss, and with DeepSeek-V3's bias.

`python -m twophase.models.balance` trains all of them, a minute or two on one core, and writes
`balance.json`. The bias: after each step, that of an expert with more visits than the mean falls by
a fixed amount, and that of one with fewer rises (arXiv 2408.15664).
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from twophase.models import corpus
from twophase.models.bf16_products import products_in_fp32
from twophase.models.evaluate import bits_per_byte
from twophase.models.expert_loads import expert_choices, fullest, load_shares
from twophase.models.findings import Findings, arguments, write
from twophase.models.mixture_of_experts import MixtureOfExperts
from twophase.models.recipe import Recipe
from twophase.models.train import device_name
from twophase.models.trainer import Trainer
from twophase.models.transformer import Config, Transformer
from twophase.theory.sizes import MixtureOfExperts as Sizes

RESULT = Path(__file__).with_name("balance.json")
SIZES = Sizes(E=8, k=2, F=64)
CONFIG = Config(L=2, D=64, F=128, N=2, K=1, H=32, V=256, context=128, moe=SIZES)
RECIPE = Recipe(n_tokens=200_000, aux_weight=0.0)
BIAS_STEP = 0.001  # as DeepSeek-V3 moved it for most of its training
WAYS = ("nothing", "loss, 0.01", "bias")
POINTS = 8  # of a curve
EVERY = 64  # so-manieth held-out window


def recipe(way: str, seed: int) -> Recipe:
    """The same for all, but for the weight of the auxiliary loss."""
    weight = float(way.removeprefix("loss, ")) if way.startswith("loss") else 0.0
    return replace(RECIPE, aux_weight=weight, seed=seed)


def move_bias(layer: MixtureOfExperts, shares: torch.Tensor, step: float = BIAS_STEP) -> None:
    """Lower the bias of experts with more than the mean share, raise that of those with less."""
    bias = layer.gate.e_score_correction_bias
    if bias is None:
        raise ValueError("this router has no bias: its config needs router_bias=True.")
    bias.data += step * torch.sign(shares.mean() - shares).to(bias.dtype)


@products_in_fp32()
def train(way: str, seed: int, data: np.ndarray) -> tuple[Transformer, list[list[float]]]:
    """A trained mixture; and over the run, for each of POINTS stretches, how full the fullest
    expert of each layer was."""
    config = replace(CONFIG, moe=replace(SIZES, router_bias=way == "bias"))
    trainer = Trainer(config, recipe(way, seed), data, "cpu")
    E, stretch = SIZES.E, -(-trainer.total_steps // POINTS)
    curve, visits = [], torch.zeros(config.L, E, dtype=torch.float64)
    while trainer.step_count < trainer.total_steps:
        with expert_choices(trainer.model) as chosen:
            trainer.step()
        for i, passes in chosen.items():
            shares = load_shares(passes[0], E)  # [E]
            visits[i] += shares
            if way == "bias":
                move_bias(trainer.model.layers[i].get_submodule("mlp"), shares)  # type: ignore[arg-type]
        if trainer.step_count % stretch == 0 or trainer.step_count == trainer.total_steps:
            curve.append([round(fullest(row), 3) for row in visits])
            visits.zero_()
    return trainer.model.eval(), curve


def held_out_shares(model: Transformer, text: np.ndarray, n_windows: int = 48) -> torch.Tensor:
    """Shares of visits on held-out text, [L, E]."""
    T, E = model.config.context, SIZES.E
    starts = np.linspace(0, len(text) - T, n_windows).astype(int)
    tokens = torch.from_numpy(
        np.stack([text[s : s + T] for s in starts]).astype(np.int64)
    )  # [n, T]
    with expert_choices(model) as chosen, torch.inference_mode():
        model(tokens)
    return torch.stack([load_shares(passes[0], E) for passes in chosen.values()])


def run(seeds: int, path: Path = RESULT) -> None:
    """Train every way with every seed and write what was found, after each run."""
    data, held_out = corpus.load("train"), corpus.load("held_out")
    found: Findings = {
        "command": f"python -m twophase.models.balance --seeds {seeds}",
        "config": CONFIG.to_dict(),
        "recipe": {**asdict(RECIPE), "aux_weight": "by way", "seed": "by run"},
        "bias_step": BIAS_STEP,
        "corpus_sha256": corpus.digest(),
        "device": device_name("cpu"),
        "torch": torch.__version__,
        "runs": [],
    }
    for seed in range(1, seeds + 1):
        for way in WAYS:
            model, curve = train(way, seed, data)
            shares = held_out_shares(model, held_out)
            bits = round(bits_per_byte(model, held_out, every=EVERY), 4)
            found["runs"].append(
                {
                    "way": way,
                    "seed": seed,
                    "bits_per_byte": bits,
                    "fullest_in_training": curve,
                    "held_out_shares": [[round(x, 4) for x in row] for row in shares.tolist()],
                }
            )
            write(found, path)
            full = ", ".join(f"{fullest(row):.2f}" for row in shares)
            print(f"{way}, seed {seed}: {bits} bits per byte; fullest expert {full}", flush=True)


def result(path: Path = RESULT) -> dict[str, Any]:
    """What was written last."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def main() -> None:
    """The command line of this module."""
    args = arguments("Train small mixtures with and without balancing.", RESULT, seeds=2)
    run(args.seeds, args.out)


if __name__ == "__main__":
    main()
