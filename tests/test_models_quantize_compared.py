"""The committed table of methods is what the command makes of the models that are committed."""

from __future__ import annotations

import pytest
import torch

from twophase.models import checkpoints, corpus
from twophase.models.evaluate import bits_per_byte
from twophase.models.quantize.compared import (
    DRAWS,
    EVERY,
    FORMATS,
    MEMBERS,
    OF_FORMATS,
    OF_NARROW,
    OF_WIDE,
    WIDE,
    bits_per_weight,
    quantized,
    table,
    with_random_scales,
)
from twophase.models.quantize.formats import FORMATS as NUMBER_FORMATS
from twophase.theory.quantization import integer_bits_per_weight


def test_the_table_has_every_draw_of_every_method_and_every_format() -> None:
    rows = {(r["member"], r["method"], r["format"], r["draw"]): r for r in table()}
    draws = sum(DRAWS.values()) * len(FORMATS)
    n_formats = len(OF_NARROW) + 1 + len(OF_WIDE)
    assert len(rows) == len(table()) == len(MEMBERS) * (1 + draws) + n_formats
    assert {*OF_NARROW, *OF_WIDE} == set(NUMBER_FORMATS)
    for name in OF_NARROW:
        assert (OF_FORMATS, "format", name, 0) in rows
    for name in OF_WIDE:
        assert (WIDE, "format", name, 0) in rows
    for member in MEMBERS:
        for how in FORMATS:
            assert isinstance(how.group, int)
            losses = {
                m: [rows[member, m, str(how), d]["bits_per_byte"] for d in range(DRAWS[m])]
                for m in DRAWS
            }
            assert max(losses["gptq"]) < min(losses["nearest"])  # every draw below every other
            bits = rows[member, "gptq", str(how), 0]["bits_per_weight"]
            # widths that groups do not divide (213) take a little more
            least = integer_bits_per_weight(how.bits, how.group, 2, how.bits)
            assert least <= bits < 1.1 * least


def test_a_row_of_the_table_is_computed_again() -> None:
    how = FORMATS[1]
    row = next(
        r for r in table() if (r["method"], r["format"], r["draw"]) == ("nearest", str(how), 2)
    )
    made = quantized(checkpoints.load(row["member"]), "nearest", how, 2)
    assert bits_per_weight(made) == pytest.approx(row["bits_per_weight"])
    # sums of another machine: in the fourth digit after the point nothing
    found = bits_per_byte(made, corpus.load("held_out"), every=EVERY)
    assert found == pytest.approx(row["bits_per_byte"], abs=2e-4)


def test_random_scales_change_no_output() -> None:
    model = checkpoints.load("mha")
    ids = torch.randint(0, 256, (2, 40), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(with_random_scales(model, 3)(ids), model(ids), rtol=1e-3, atol=1e-3)
    other = dict(with_random_scales(model, 3).named_parameters())
    assert any(not torch.equal(p, other[n]) for n, p in model.named_parameters())
