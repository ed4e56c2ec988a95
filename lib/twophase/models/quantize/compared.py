"""What each method loses on trained models, against the bytes that are left: the table behind
`compared.json`.

`python -m twophase.models.quantize.compared` makes it anew: two members of the family, every method
at every format, judged on each 64th window of the held-out text (two minutes of one core). Weights
that are quantized are counted: embedding and norms stay as they are, in bf16.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from twophase.kernels.quantization.integers import IntegerFormat
from twophase.models import checkpoints, corpus
from twophase.models.checkpoints import write_card
from twophase.models.evaluate import bits_per_byte
from twophase.models.quantize.calibration import corpus_windows
from twophase.models.quantize.linear import QuantizedLinear
from twophase.models.quantize.methods import METHODS, quantize
from twophase.models.transformer import Transformer

TABLE = Path(__file__).with_name("compared.json")
MEMBERS = ("gqa", "mha")
FORMATS = tuple(IntegerFormat(*form, affine=True) for form in ((4, 64), (3, 64), (2, 32)))
WINDOWS, EVERY = 32, 64


def bits_per_weight(model: Transformer) -> float:
    """Bits of a weight of the quantized layers, scales and zero points included."""
    layers = [m for m in model.modules() if isinstance(m, QuantizedLinear)]
    n = sum(m.in_features * m.out_features for m in layers)
    return 8 * sum(m.stored.nbytes for m in layers) / n


def rows(member: str, held_out: np.ndarray) -> Iterator[dict[str, Any]]:
    """The losses of one trained model, as it is and with each method at each format."""
    model = checkpoints.load(member)
    calibration = corpus_windows(WINDOWS, model.config.context)
    plain = {"member": member, "method": "none", "bits_per_weight": 16.0}
    yield {**plain, "bits_per_byte": bits_per_byte(model, held_out, every=EVERY)}
    for how in FORMATS:
        for method in METHODS:
            made = quantize(model, method, how, calibration)
            yield {
                "member": member,
                "method": method,
                "bits": how.bits,
                "group": how.group,
                "bits_per_weight": bits_per_weight(made),
                "bits_per_byte": bits_per_byte(made, held_out, every=EVERY),
            }


def table() -> list[dict[str, Any]]:
    """The rows of `compared.json`."""
    return json.loads(TABLE.read_text(encoding="utf-8"))["rows"]  # type: ignore[no-any-return]


def main() -> None:
    """Make the table anew, and print it."""
    held_out, found = corpus.load("held_out"), []
    for member in MEMBERS:
        for row in rows(member, held_out):
            found.append(row)
            print(json.dumps(row), flush=True)
    facts = {"every": EVERY, "windows": WINDOWS, "torch": torch.__version__}
    write_card(
        TABLE, {"command": "python -m twophase.models.quantize.compared", **facts, "rows": found}
    )


if __name__ == "__main__":
    main()
