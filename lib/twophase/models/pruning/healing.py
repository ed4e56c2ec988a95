"""What heals a model that was cut: half a trained model, trained on at equal tokens in several
ways, beside the same shape trained from new.

`python -m twophase.models.pruning.healing` does it for the committed `gqa`, three seeds of each way
(about five minutes of one core), and writes the curves to `healed.json`. All at the learning rates
that the model itself was trained with; a third and a tenth of them were tried, and worse for every
way.
"""

import argparse
import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from twophase.kernels.pruning import hidden_loss, logits_loss
from twophase.models import checkpoints, corpus
from twophase.models.evaluate import bits_per_byte
from twophase.models.optimizer import MuonAdamW
from twophase.models.pruning.cut import cut
from twophase.models.pruning.importance import importance
from twophase.models.pruning.select import keep_best
from twophase.models.quantize.calibration import corpus_windows
from twophase.models.recipe import Recipe, batch
from twophase.models.train import device_name
from twophase.models.transformer import Transformer

RESULT = Path(__file__).with_name("healed.json")
SOURCE = "gqa"
LAYERS, CHANNELS = 3, 128  # that stay, of 4 and 256
RECIPE = Recipe(n_tokens=150_000, warmup_steps=10)
CUT, NEW = "cut", "new"
TEXT, LOGITS, BOTH = "text", "logits", "logits and streams"
WAYS = ((CUT, TEXT), (CUT, LOGITS), (CUT, BOTH), (NEW, TEXT), (NEW, LOGITS))
POINTS = 4  # of a curve, after the one at the start
EVERY = 64  # so-manieth held-out window


def cut_in_half(model: Transformer) -> tuple[Transformer, list[int]]:
    """A model of `LAYERS` layers with `CHANNELS` channels, and which layers stayed: those that
    leaving one out misses most, then the channels that the gradient finds in what is left."""
    calibration = corpus_windows(4, model.config.context + 1)
    scores = importance(model, calibration, "layers", "leave_one_out")
    kept = keep_best(model, scores, "layers", LAYERS)
    shallow = cut(model, kept)
    channels = importance(shallow, calibration, "channels", "gradient")
    assert kept.layers is not None
    return cut(shallow, keep_best(shallow, channels, "channels", CHANNELS)), list(kept.layers)


@contextmanager
def streams(model: Transformer, layers: list[int]) -> Iterator[list[torch.Tensor]]:
    """The stream after each of these layers, [B, T, D], of the pass that runs in the block."""
    caught: list[torch.Tensor] = []
    hooks = [
        model.layers[layer].register_forward_hook(lambda module, args, out: caught.append(out))
        for layer in layers
    ]
    try:
        yield caught
    finally:
        for hook in hooks:
            hook.remove()


def lesson(
    student: Transformer, teacher: Transformer, kept: list[int], tokens: torch.Tensor, way: str
) -> torch.Tensor:
    """The loss of a batch, int64 [B, T + 1]: of the text itself, of the teacher's logits at each
    byte, or of these and the streams after the layers that stayed."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    own_layers = list(range(len(kept))) if way == BOTH else []
    with streams(student, own_layers) as own:
        logits = student(inputs)  # [B, T, V]
    if way == TEXT:
        return functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
    with torch.no_grad(), streams(teacher, kept if way == BOTH else []) as taught:
        told = teacher(inputs)  # [B, T, V]
    loss = logits_loss(logits, told)
    return loss + hidden_loss(own, taught) if way == BOTH else loss


def teach(
    student: Transformer,
    teacher: Transformer,
    kept: list[int],
    way: str,
    recipe: Recipe,
    data: np.ndarray,
    measure: Callable[[Transformer], float],
) -> list[tuple[int, float]]:
    """Train the student in place; (tokens, what `measure` finds) at the start and at POINTS
    places, the last at the end."""
    student.requires_grad_(True).train()
    T, steps = student.config.context, recipe.steps(student.config.context)
    optimizer = MuonAdamW(student, recipe.lr_matrices, recipe.lr_others, recipe.weight_decay)
    stops = {round(i * steps / POINTS) for i in range(1, POINTS + 1)}
    curve = [(0, measure(student))]
    for step in range(steps):
        tokens = batch(data, step, recipe.B, T, recipe.seed)
        with torch.autocast("cpu", torch.bfloat16, enabled=recipe.autocast):
            loss = lesson(student, teacher, kept, tokens, way)
        optimizer.zero_grad(student)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(student.parameters(), recipe.clip)
        optimizer.step(recipe.lr_share(step, T))
        if step + 1 in stops:
            curve.append(((step + 1) * recipe.B * T, measure(student)))
    return curve


class Classroom:
    """A teacher and what its students need: half of it, the text, the held-out text."""

    def __init__(self, source: str = SOURCE) -> None:
        self.teacher = checkpoints.load(source)
        self.half, self.kept = cut_in_half(self.teacher)
        self.data, self.held_out = corpus.load("train"), corpus.load("held_out")

    def measured(self, model: Transformer) -> float:
        """Bits per held-out byte."""
        was = model.training
        found = bits_per_byte(model.eval(), self.held_out, every=EVERY)
        model.train(was)
        return round(found, 4)

    def run(self, start: str, way: str, seed: int) -> list[tuple[int, float]]:
        """The curve of one student."""
        torch.manual_seed(seed)
        student = Transformer(self.half.config) if start == NEW else copy.deepcopy(self.half)
        recipe = replace(RECIPE, seed=1000 + seed)  # other windows than the source was trained on
        return teach(student, self.teacher, self.kept, way, recipe, self.data, self.measured)


def run(seeds: int, path: Path = RESULT) -> None:
    """Write all the curves to `path`, after each one, and what they came from."""
    room = Classroom()
    found: dict[str, Any] = {
        "command": f"python -m twophase.models.pruning.healing --seeds {seeds}",
        "source": SOURCE,
        "source_sha256": checkpoints.card(SOURCE)["weights_sha256"],
        "source_bits_per_byte": room.measured(room.teacher),
        "source_params": room.teacher.n_params,
        "layers": room.kept,
        "config": room.half.config.to_dict(),
        "params": room.half.n_params,
        "recipe": {**asdict(RECIPE), "seed": "1000 + seed"},
        "every": EVERY,
        "device": device_name("cpu"),
        "torch": torch.__version__,
        "runs": [],
    }
    for start, way in WAYS:
        for seed in range(1, seeds + 1):
            curve = room.run(start, way, seed)
            found["runs"].append({"start": start, "way": way, "seed": seed, "curve": curve})
            path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(f"{start}, {way}, seed {seed}: {curve[0][1]} to {curve[-1][1]}", flush=True)


def result(path: Path = RESULT) -> dict[str, Any]:
    """What was written last. ValueError if the weights it came from are not those that are
    committed."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if found["source_sha256"] != checkpoints.card(found["source"])["weights_sha256"]:
        raise ValueError(
            f"{path.name} was made from other weights of {found['source']}: run"
            f" `{found['command']}` again."
        )
    return found


def main() -> None:
    """The command line of this module."""
    parser = argparse.ArgumentParser(description="Heal half of a model in several ways.")
    parser.add_argument("--out", type=Path, default=RESULT, help="where the curves go")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each way")
    args = parser.parse_args()
    torch.set_num_threads(1)
    run(args.seeds, args.out)


if __name__ == "__main__":
    main()
