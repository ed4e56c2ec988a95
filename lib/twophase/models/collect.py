"""Put finished runs where the package finds them: `python -m twophase.models.collect`.

Of each model the run of seed 1 is taken, weights and card; the losses of its other seeds are
written into that card, and those on other budgets stay in it. `--losses-only` adds the losses of
runs on another budget and leaves the weights as they are.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from twophase.models import checkpoints, corpus
from twophase.models.config import Config
from twophase.models.family import BYTES, SEEDS, STORED_IN_INT8, TRAINED
from twophase.models.recipe import Recipe

# "n_tokens", "seed", "held_out_bits_per_byte" of a run, and the "device", where a card says it
Loss = dict[str, Any]


def losses(card: Mapping[str, Any]) -> list[Loss]:
    """What every run of a model came to that its card knows of, whatever its budget; the smallest
    budget first."""
    own = [{**run, "n_tokens": card["n_tokens"]} for run in card["seeds"]]
    keep = ("n_tokens", "seed", "held_out_bits_per_byte", "device")
    runs = [
        {key: run[key] for key in keep if key in run} for run in own + card.get("other_budgets", [])
    ]
    return sorted(runs, key=lambda run: (run["n_tokens"], run["seed"]))


def collect(runs: Path, out: Path) -> list[str]:
    """Copy every finished model below `runs` (seed1/gqa.safetensors …) to `out`; return what is
    still missing.

    Raises ValueError if a run is not the family's (a trial on fewer tokens, say); nothing of that
    model is copied then.
    """
    missing = []
    for name in TRAINED:
        cards = _finished(name, runs)
        missing += [f"{name}, seed {seed}" for seed in SEEDS[name] if seed not in cards]
        if 1 not in cards:
            continue
        for seed, card in cards.items():
            _check(name, seed, card, BYTES.get(name, Recipe.n_tokens))
        keep = ("held_out_bits_per_byte", "train_bits_per_byte", "training_s", "device")
        seeds = [{"seed": seed, **{key: card[key] for key in keep}} for seed, card in cards.items()]
        before = losses(checkpoints.card(name, out)) if name in checkpoints.available(out) else []
        others = [run for run in before if run["n_tokens"] != cards[1]["n_tokens"]]
        out.mkdir(parents=True, exist_ok=True)
        copy = out / f"{name}.tmp"
        shutil.copyfile(runs / "seed1" / f"{name}.safetensors", copy)
        card = {**cards[1], "seeds": seeds, "other_budgets": others}
        checkpoints.publish(copy, out / f"{name}.safetensors", {out / f"{name}.json": card})
    return missing


def add_losses(runs: Path, out: Path) -> list[str]:
    """Write the losses of the runs below `runs` into the cards in `out`, whose weights were trained
    on another budget; return the names of the models that have such a run.

    Raises ValueError if a run is not the family's in all else, or of the budget of the weights;
    nothing of that model is written then.
    """
    added = []
    for name in checkpoints.available(out):
        known = checkpoints.card(name, out)
        others = {(run["n_tokens"], run["seed"]): run for run in known.get("other_budgets", [])}
        cards = _finished(name, runs)
        for seed, card in cards.items():
            _check(name, seed, card, card["recipe"]["n_tokens"])
            if card["n_tokens"] == known["n_tokens"]:
                raise ValueError(
                    f"{name}, seed {seed}, read as many bytes as the weights in {out}: collect it"
                    " without --losses-only."
                )
            (run,) = losses({**card, "seeds": [{**card, "seed": seed}]})
            others[run["n_tokens"], seed] = run
        if cards:
            runs_known = [others[key] for key in sorted(others)]
            checkpoints.write_card(out / f"{name}.json", {**known, "other_budgets": runs_known})
            added.append(name)
    return added


def _finished(name: str, runs: Path) -> dict[int, dict[str, Any]]:
    """The cards of a model's finished runs, by seed."""
    folders = {seed: runs / f"seed{seed}" for seed in SEEDS.get(name, ())}
    return {
        seed: checkpoints.card(name, folder)
        for seed, folder in folders.items()
        if name in checkpoints.available(folder)
    }


def _check(name: str, seed: int, card: Mapping[str, Any], n_tokens: int) -> None:
    """Raise ValueError unless the card is of a whole run of this model, by the recipe, on the
    corpus and on that budget."""
    config = Config(**card["config"]).to_dict()  # later fields at their defaults
    found = {"stored": "bf16", **card, "config": config}  # runs of before did not say how
    card = json.loads(json.dumps(found))  # tuples as a card's lists
    wanted = {
        "config": TRAINED[name].to_dict(),
        "recipe": asdict(Recipe(seed=seed, n_tokens=n_tokens)),
        "corpus_sha256": corpus.digest(),
        "stored": "int8" if name in STORED_IN_INT8 else "bf16",
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
    parser.add_argument(
        "--losses-only",
        action="store_true",
        help="of runs on another budget than the weights in --out",
    )
    args = parser.parse_args()
    try:
        if args.losses_only:
            print(f"losses of {', '.join(add_losses(args.runs, args.out)) or 'nothing'} added")
            return
        missing = collect(args.runs, args.out)
    except (ValueError, OSError) as error:
        sys.exit(str(error))
    print(f"{', '.join(checkpoints.available(args.out))} in {args.out}")
    if missing:
        print(f"not finished: {'; '.join(missing)}")


if __name__ == "__main__":
    main()
