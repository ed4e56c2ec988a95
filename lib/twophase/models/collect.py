"""Put finished runs where the package finds them: `python -m twophase.models.collect`.

Of each model the run of seed 1 is taken, weights and card; the losses of its other seeds are
written into that card.
"""

import argparse
import json
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from twophase.models import checkpoints, corpus
from twophase.models.family import FAMILY, SEEDS
from twophase.models.recipe import Recipe


def collect(runs: Path, out: Path) -> list[str]:
    """Copy every finished model below `runs` (seed1/gqa.safetensors …) to `out`; return what is
    still missing.

    Raises ValueError if a run is not the family's (a trial on fewer tokens, say); nothing of that
    model is copied then.
    """
    missing = []
    for name in FAMILY:
        folders = {seed: runs / f"seed{seed}" for seed in SEEDS[name]}
        unfinished = [
            seed for seed, folder in folders.items() if name not in checkpoints.available(folder)
        ]
        missing += [f"{name}, seed {seed}" for seed in unfinished]
        if 1 in unfinished:
            continue
        cards = {
            s: checkpoints.card(name, folder)
            for s, folder in folders.items()
            if s not in unfinished
        }
        for seed, card in cards.items():
            _check(name, seed, card)
        keep = ("held_out_bits_per_byte", "train_bits_per_byte", "training_s", "device")
        seeds = [{"seed": seed, **{key: card[key] for key in keep}} for seed, card in cards.items()]
        out.mkdir(parents=True, exist_ok=True)
        copy = out / f"{name}.tmp"
        shutil.copyfile(folders[1] / f"{name}.safetensors", copy)
        checkpoints.publish(copy, out / f"{name}.safetensors", {**cards[1], "seeds": seeds})
    return missing


def _check(name: str, seed: int, card: dict[str, Any]) -> None:
    """Raise ValueError unless the card is of a whole run of this model, by the recipe, on the
    corpus."""
    wanted = {
        "config": FAMILY[name].to_dict(),
        "recipe": asdict(Recipe(seed=seed)),
        "corpus_sha256": corpus.digest(),
    }
    for key, value in wanted.items():
        if card[key] != json.loads(json.dumps(value)):
            raise ValueError(
                f"{name}, seed {seed}, was trained with another {key} than the family's: train it"
                " again."
            )


def main() -> None:
    """The command line of this module."""
    parser = argparse.ArgumentParser(
        description="Copy finished runs into the package, with the losses of all seeds."
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("scratch/train"), help="where the runs are"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=checkpoints.FOLDER,
        help="where the package looks for checkpoints",
    )
    args = parser.parse_args()
    try:
        missing = collect(args.runs, args.out)
    except ValueError as error:
        sys.exit(str(error))
    print(f"{', '.join(checkpoints.available(args.out))} in {args.out}")
    if missing:
        print(f"not finished: {'; '.join(missing)}")


if __name__ == "__main__":
    main()
