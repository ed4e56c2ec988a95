"""Put finished runs where the package finds them: `python -m twophase.models.collect`.

Of each model the run of seed 1 is taken, weights and card; the losses of its other seeds are written into that card.
"""

import argparse
import shutil
import sys
from pathlib import Path

from twophase.models import checkpoints
from twophase.models.family import FAMILY, SEEDS

COMPARED = ("recipe", "corpus_sha256", "config")  # what the seeds of one model must agree in, the seed itself aside


def collect(runs: Path, out: Path) -> list[str]:
    """Copy every finished model below `runs` (seed1/gqa.safetensors …) to `out`; return what is still missing.

    Raises ValueError if the seeds of a model were not trained alike; nothing of that model is copied then.
    """
    missing = []
    for name in FAMILY:
        folders = {seed: runs / f"seed{seed}" for seed in SEEDS[name]}
        unfinished = [seed for seed, folder in folders.items() if name not in checkpoints.available(folder)]
        missing += [f"{name}, seed {seed}" for seed in unfinished]
        if 1 in unfinished:
            continue
        cards = {s: checkpoints.card(name, folder) for s, folder in folders.items() if s not in unfinished}
        for seed, card in cards.items():
            for key in COMPARED:
                ours, theirs = ({**c[key], "seed": 0} if key == "recipe" else c[key] for c in (cards[1], card))
                if ours != theirs:
                    raise ValueError(f"{name}: seeds 1 and {seed} differ in {key}; train both with the same code.")
        keep = ("held_out_bits_per_byte", "train_bits_per_byte", "training_s", "device")
        seeds = [{"seed": seed, **{key: card[key] for key in keep}} for seed, card in cards.items()]
        out.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folders[1] / f"{name}.safetensors", out / f"{name}.safetensors")
        checkpoints.write_card(out / f"{name}.json", {**cards[1], "seeds": seeds})
    return missing


def main() -> None:
    """The command line of this module."""
    parser = argparse.ArgumentParser(description="Copy finished runs into the package, with the losses of all seeds.")
    parser.add_argument("--runs", type=Path, default=Path("scratch/train"), help="where the runs are")
    parser.add_argument("--out", type=Path, default=checkpoints.FOLDER, help="where the package looks for checkpoints")
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
