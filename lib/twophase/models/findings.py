"""Findings that take minutes of training and are committed: written after every part, so that a run
that was broken off goes on where it was, and read only beside the weights they came from."""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from twophase.models import checkpoints

Findings = dict[str, Any]


def came_from(source: str) -> Findings:
    """The checkpoint that they start from, and which weights it had."""
    return {"source": source, "source_sha256": checkpoints.card(source)["weights_sha256"]}


def write(found: Findings, path: Path) -> None:
    """Write what was found by now."""
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def read(path: Path, command: str) -> Findings:
    """What was written last. ValueError if the weights it came from are not those that are
    committed; `command` makes it again."""
    found: Findings = json.loads(path.read_text(encoding="utf-8"))
    if found["source_sha256"] != checkpoints.card(found["source"])["weights_sha256"]:
        raise ValueError(
            f"{path.name} was made from other weights of {found['source']}: run `{command}` again."
        )
    return found


def made_before(path: Path, facts: Findings, lists: tuple[str, ...]) -> Findings:
    """The named lists of a file in which all else says the same as `facts`, to be gone on with;
    empty ones where there is no such file."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    made = {name: found.pop(name, []) for name in lists}
    return made if found == json.loads(json.dumps(facts)) else {name: [] for name in lists}


def arguments(description: str, path: Path, seeds: int) -> argparse.Namespace:
    """`--out` and `--seeds` of a command that makes findings, on one thread."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, default=path, help="where what is found goes")
    parser.add_argument("--seeds", type=int, default=seeds, help="runs of each kind")
    torch.set_num_threads(1)
    return parser.parse_args()
