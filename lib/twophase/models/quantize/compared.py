"""What each method and each format loses on trained models, against the bytes that are left: the
table behind `compared.json`.

`python -m twophase.models.quantize.compared` makes it anew (some minutes of one core). Two members
of the family, every method at three formats; one member, every number format whose blocks divide
its rows, rounded to nearest; and a wider one, most of whose rows hold super-blocks of 256, GGUF's
formats. Judged on each 64th window of the held-out text. Weights that are quantized are counted:
embedding and norms stay as they are.

One rounding is one draw: a method that happens to lose less may only have been lucky. So every row
says which draw it is. Draw 0 of `nearest` rounds the weights as they are; the others put random
scales of about 5 % into the layers before, which changes nothing but the luck. GPTQ and AWQ draw
other calibration windows. There is one set of weights per member.
"""

import copy
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
from twophase.models.linear import linears
from twophase.models.quantize.calibration import corpus_windows
from twophase.models.quantize.folding import folds, scale_inputs
from twophase.models.quantize.formats import FORMATS as NUMBER_FORMATS
from twophase.models.quantize.formats import with_rounded_weights
from twophase.models.quantize.linear import QuantizedLinear
from twophase.models.quantize.methods import quantize
from twophase.models.transformer import Transformer

TABLE = Path(__file__).with_name("compared.json")
MEMBERS = ("gqa", "mha")
OF_FORMATS = "gqa"  # its widths are multiples of 32, as blocks need
OF_NARROW = tuple(n for n in NUMBER_FORMATS if n not in ("q6_k", "q4_k"))  # rows of 256
WIDE = "target"  # most of its rows are of 256
OF_WIDE = ("q8_0", "q6_k", "q5_0", "q4_k", "q4_0")
FORMATS = tuple(IntegerFormat(*form, affine=True) for form in ((4, 64), (3, 64), (2, 32)))
DRAWS = {"nearest": 4, "gptq": 2, "awq": 2, "awq, clipped": 2}
WINDOWS, EVERY = 32, 64


def bits_per_weight(model: Transformer) -> float:
    """Bits of a weight of the quantized layers, scales and zero points included."""
    layers = [m for m in model.modules() if isinstance(m, QuantizedLinear)]
    n = sum(m.in_features * m.out_features for m in layers)
    return 8 * sum(m.stored.nbytes for m in layers) / n


@torch.no_grad()
def with_random_scales(model: Transformer, draw: int) -> Transformer:
    """A copy that computes the same: inputs scaled by about 5 %, each by its own factor, wherever
    scales can be put into the layer before. Draw 0 is the model as it is."""
    made = copy.deepcopy(model).requires_grad_(False)
    generator = torch.Generator().manual_seed(draw)
    layers = dict(linears(made))
    for fold in folds(made) if draw else ():
        drawn = torch.randn(layers[fold.readers[0]].in_features, generator=generator)
        scale_inputs(made, fold, torch.exp(0.05 * drawn))
    return made


def quantized(model: Transformer, method: str, how: IntegerFormat, draw: int) -> Transformer:
    """One draw of a method."""
    if method == "nearest":
        return quantize(with_random_scales(model, draw), method, how)
    calibration = corpus_windows(WINDOWS, model.config.context, draw)
    name, _, clipped = method.partition(", ")
    return quantize(model, name, how, calibration, clip=bool(clipped))


def rows(member: str, held_out: np.ndarray) -> Iterator[dict[str, Any]]:
    """The losses of one trained model: as it is, with each method at each format (WIDE: without),
    and in number formats."""
    model = checkpoints.load(member)

    def row(method: str, name: str, draw: int, bits: float, made: Transformer) -> dict[str, Any]:
        loss = bits_per_byte(made, held_out, every=EVERY)
        facts = {"member": member, "method": method, "format": name, "draw": draw}
        return {**facts, "bits_per_weight": bits, "bits_per_byte": round(loss, 5)}

    yield row("none", "bf16", 0, 16.0, model)
    for how in FORMATS if member != WIDE else ():
        for method, draws in DRAWS.items():
            for draw in range(draws):
                made = quantized(model, method, how, draw)
                yield row(method, str(how), draw, bits_per_weight(made), made)
    for name in {OF_FORMATS: OF_NARROW, WIDE: OF_WIDE}.get(member, ()):
        made, bits = with_rounded_weights(model, name)
        yield row("format", name, 0, bits, made)


def table() -> list[dict[str, Any]]:
    """The rows of `compared.json`. ValueError if they were made of other weights than those that
    are committed."""
    found = json.loads(TABLE.read_text(encoding="utf-8"))
    if found["weights_sha256"] != _digests():
        raise ValueError(f"{TABLE.name} is of other weights: run `{found['command']}` again.")
    return found["rows"]  # type: ignore[no-any-return]


def _digests() -> dict[str, str]:
    return {member: checkpoints.card(member)["weights_sha256"] for member in (*MEMBERS, WIDE)}


def main() -> None:
    """Make the table anew, and print it."""
    torch.set_num_threads(1)
    held_out, found = corpus.load("held_out"), []
    for member in (*MEMBERS, WIDE):
        for row in rows(member, held_out):
            found.append(row)
            print(json.dumps(row), flush=True)
    facts = {
        "command": "python -m twophase.models.quantize.compared",
        "every": EVERY,
        "windows": WINDOWS,
        "torch": torch.__version__,
        "weights_sha256": _digests(),
    }
    write_card(TABLE, {**facts, "rows": found})


if __name__ == "__main__":
    main()
