"""One accelerator, timed: how fast it reads and multiplies, when a product with one matrix leaves
its memory's limit, decode steps and prefills of Llama-2-13B and Llama-3-8B (random weights, our own
model), what launching kernels costs. About two minutes on an H100 with 80 GB; a smaller
card skips, with the reason, what does not fit.

Everything is written into one file at once, case by case; `twophase.measure.card_runs` reads it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import card_models
import card_products
import torch
from card_timing import Bench, say, sentence, this_card

from twophase.measure.card_runs import Recorded, recorded_card, write_card
from twophase.measure.yardsticks import default_device

PARTS: dict[str, Callable[[Bench], None]] = {
    "calibration": card_products.calibration,
    "memory": card_products.memory,
    "rows": card_products.rows,
    "step": card_models.step,
    "launches": card_models.launches,
    "prefill": card_models.prefill,
    "formats": card_products.formats,
    "attention": card_models.attention,
}
EXAMPLE = """examples:
  python bench/card.py --out card.json                      everything, on a CUDA card
  python bench/card.py --out card.json --only rows step     two parts again, in the same file
  python bench/card.py --out /tmp/try.json --device cpu --small   to see that it runs"""


def main() -> None:
    """Run the parts that were asked for; one that breaks off takes no other with it."""
    asked = _arguments()
    card = this_card(asked.device)
    recorded = _begun(asked.out, Recorded(card, small=asked.small))
    bench = Bench(asked.device, asked.small, asked.out, recorded)
    say(f"{card.name}, torch {card.torch}, CUDA {card.cuda}, {card.clock}")
    broken = []
    with torch.no_grad():
        parts = list(asked.only or PARTS)
        while parts:
            part = parts.pop(0)
            say(f"part {part}")
            try:
                PARTS[part](bench)
            except Exception as error:
                broken.append(part)
                say(f"part {part} broke off: {sentence(error)}")
            bench.free()
            if parts and not bench.is_well():
                say(f"the device is unwell: a new process goes on with {' '.join(parts)}")
                raise SystemExit(_go_on(asked, parts))
    failed = sum(run.error is not None for run in bench.recorded.runs)
    say(f"{asked.out}: {len(bench.recorded.runs)} runs, {failed} of them failed; broken: {broken}")
    raise SystemExit(1 if broken else 0)


def _go_on(asked: argparse.Namespace, parts: list[str]) -> int:
    """The rest in a process of its own: a capture or a kernel that failed may leave the device, or
    torch's generator, unusable in this one."""
    again = [__file__, "--out", str(asked.out), "--device", asked.device, "--only", *parts]
    small = ["--small"] if asked.small else []
    return subprocess.run([sys.executable, *again, *small], check=False).returncode


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="the JSON file to write or to add to"
    )
    parser.add_argument("--only", nargs="+", choices=list(PARTS), help="these parts, in this order")
    parser.add_argument("--small", action="store_true", help="tiny sizes: a try, no measurement")
    parser.add_argument("--device", choices=("cuda", "cpu"), default=default_device())
    asked = parser.parse_args()
    if not torch.cuda.is_available() and (asked.device == "cuda" or not asked.small):
        parser.error("this torch sees no CUDA card; `--device cpu --small` tries the script.")
    if asked.device == "cpu" and not asked.small:
        parser.error("all of this is too much for a CPU: `--device cpu` goes with `--small`.")
    return asked


def _begun(path: Path, new: Recorded) -> Recorded:
    """The file's runs, to add to, written once before anything runs; SystemExit where they are of
    another card, day or torch, and where the file can be neither read nor written."""
    try:
        old = recorded_card(path) if path.exists() else new
        _check_same(path, old, new)
        begun = Recorded(new.card, old.runs, old.small)
        write_card(begun, path)
    except OSError as error:
        raise SystemExit(f"{path} cannot be read or written: {error.strerror}") from None
    except ValueError as error:
        raise SystemExit(str(error)) from None
    return begun


def _check_same(path: Path, old: Recorded, new: Recorded) -> None:
    """ValueError unless runs of both may stand in one file."""
    same = ("name", "day", "torch")
    if old.small != new.small or any(
        getattr(old.card, key) != getattr(new.card, key) for key in same
    ):
        raise ValueError(
            f"{path} is of {old.card.name} on {old.card.day} with torch {old.card.torch}, small:"
            f" {old.small}; give another --out."
        )


if __name__ == "__main__":
    main()
