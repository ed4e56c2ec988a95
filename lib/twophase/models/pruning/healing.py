"""What heals a model that was cut: half a trained model, trained on at equal tokens in several
ways, beside the same shape trained from new; cuts of other depths, and the model itself trained on
as long.

`python -m twophase.models.pruning.healing` does it for the committed `gqa`, three seeds of each
(about ten minutes of one core), and writes the curves to `healed.json`; what stands there already,
of the same weights, is not made again. All at the learning rates that the model itself was trained
with: a third and a tenth of them were tried (one seed), and worse for every way of the half model,
though the whole model loses less at lower rates.
"""

import copy
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from twophase.models import checkpoints, corpus
from twophase.models.evaluate import bits_per_byte
from twophase.models.findings import Findings, arguments, came_from, made_before, read, write
from twophase.models.pruning.cut import cut
from twophase.models.pruning.importance import importance
from twophase.models.pruning.select import keep_best
from twophase.models.pruning.teaching import BOTH, LOGITS, TEXT, teach
from twophase.models.quantize.calibration import corpus_windows
from twophase.models.recipe import Recipe
from twophase.models.train import device_name
from twophase.models.transformer import Transformer

RESULT = Path(__file__).with_name("healed.json")
COMMAND = "python -m twophase.models.pruning.healing"
SOURCE = "gqa"
LAYERS, CHANNELS = 3, 128  # that stay, of 4 and 256
OTHER_CUTS = ((4, 160), (2, 64))  # less of it gone, and more
RECIPE = Recipe(n_tokens=150_000, warmup_steps=10)
CUT, NEW = "cut", "new"
WAYS = ((CUT, TEXT), (CUT, LOGITS), (CUT, BOTH), (NEW, TEXT), (NEW, LOGITS))
EVERY = 64  # so-manieth held-out window
LISTS = ("runs", "other_cuts", "whole")
Curve = list[tuple[int, float]]


def cut_to(model: Transformer, layers: int, channels: int) -> tuple[Transformer, list[int]]:
    """A model of so many layers with so many channels, and which layers stayed: those that leaving
    one out misses most, then the channels that the gradient finds in what is left."""
    calibration = corpus_windows(4, model.config.context + 1)
    stayed = list(range(model.config.L))
    if layers < model.config.L:
        scores = importance(model, calibration, "layers", "leave_one_out")
        kept = keep_best(model, scores, "layers", layers)
        model, stayed = cut(model, kept), list(kept.layers or ())
    found = importance(model, calibration, "channels", "gradient")
    return cut(model, keep_best(model, found, "channels", channels)), stayed


class Classroom:
    """A teacher and what its students need: half of it, the text, the held-out text."""

    def __init__(self, source: str = SOURCE) -> None:
        self.teacher = checkpoints.load(source)
        self.half, self.kept = cut_to(self.teacher, LAYERS, CHANNELS)
        self.data, self.held_out = corpus.load("train"), corpus.load("held_out")

    def measured(self, model: Transformer) -> float:
        """Bits per held-out byte."""
        was = model.training
        found = bits_per_byte(model.eval(), self.held_out, every=EVERY)
        model.train(was)
        return round(found, 4)

    def run(self, start: str, way: str, seed: int) -> Curve:
        """The curve of a student of half the size."""
        torch.manual_seed(seed)
        new = Transformer(self.half.config) if start == NEW else self.half
        return self.taught(new, way, seed, self.kept)

    def taught(self, start: Transformer, way: str, seed: int, kept: list[int]) -> Curve:
        """The curve of a student that starts as this model, on other windows than its teacher was
        trained on."""
        student, recipe = copy.deepcopy(start), replace(RECIPE, seed=1000 + seed)
        return teach(student, self.teacher, kept, way, recipe, self.data, self.measured)


def facts(room: Classroom, seeds: int) -> Findings:
    """What the curves came from."""
    return {
        "command": f"{COMMAND} --seeds {seeds}",
        **came_from(SOURCE),
        "source_bits_per_byte": room.measured(room.teacher),
        "source_params": room.teacher.n_params,
        "layers": room.kept,
        "config": room.half.config.to_dict(),
        "params": room.half.n_params,
        "recipe": {**asdict(RECIPE), "seed": "1000 + seed"},
        "every": EVERY,
        "device": device_name("cpu"),
        "torch": torch.__version__,
    }


def run(seeds: int, path: Path = RESULT) -> None:
    """Write all the curves to `path`, after each one, and what they came from."""
    room = Classroom()
    found = facts(room, seeds)
    found |= made_before(path, found, LISTS)

    def add(name: str, entry: dict[str, Any], curve: Callable[[], Curve]) -> None:
        if not any(entry.items() <= made.items() for made in found[name]):
            found[name].append({**entry, "curve": curve()})
            write(found, path)
            print(name, found[name][-1], flush=True)

    for start, way in WAYS:
        for seed in range(1, seeds + 1):
            entry = {"start": start, "way": way, "seed": seed}
            add("runs", entry, partial(room.run, start, way, seed))
    for layers, channels in OTHER_CUTS:
        less, kept = cut_to(room.teacher, layers, channels)
        sizes = {"layers": kept, "channels": channels, "params": less.n_params}
        for seed in range(1, seeds + 1):
            entry = {**sizes, "way": LOGITS, "seed": seed}
            add("other_cuts", entry, partial(room.taught, less, LOGITS, seed, kept))
    for seed in range(1, seeds + 1):
        entry = {"way": TEXT, "seed": seed}
        add("whole", entry, partial(room.taught, room.teacher, TEXT, seed, []))


def result(path: Path = RESULT) -> Findings:
    """What was written last. ValueError if it came from other weights than the committed ones."""
    return read(path, COMMAND)


def main() -> None:
    """The command line of this module."""
    args = arguments("Heal parts of a model in several ways.", RESULT, seeds=3)
    run(args.seeds, args.out)


if __name__ == "__main__":
    main()
