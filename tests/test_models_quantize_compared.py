"""The committed table of methods is what the command makes of the models that are committed."""

from __future__ import annotations

import pytest

from twophase.kernels.quantization.integers import IntegerFormat
from twophase.models import checkpoints, corpus
from twophase.models.evaluate import bits_per_byte
from twophase.models.quantize import METHODS, quantize
from twophase.models.quantize.compared import EVERY, FORMATS, MEMBERS, bits_per_weight, table
from twophase.theory.quantization import integer_bits_per_weight


def test_the_table_has_every_method_at_every_format_of_every_member() -> None:
    rows = {(r["member"], r["method"], r.get("bits"), r.get("group")): r for r in table()}
    assert len(rows) == len(table()) == len(MEMBERS) * (1 + len(METHODS) * len(FORMATS))
    for member in MEMBERS:
        for how in FORMATS:
            group = how.group
            assert isinstance(group, int)
            losses = [rows[member, m, how.bits, group]["bits_per_byte"] for m in METHODS]
            assert losses[1] < losses[0]  # GPTQ below rounding to nearest, everywhere
            bits = rows[member, "gptq", how.bits, group]["bits_per_weight"]
            # widths that groups do not divide (213) take a little more
            least = integer_bits_per_weight(how.bits, group, 2, how.bits)
            assert least <= bits < 1.1 * least


def test_a_row_of_the_table_is_computed_again() -> None:
    row = next(r for r in table() if r["method"] == "nearest" and r["bits"] == 3)
    how = IntegerFormat(row["bits"], row["group"], affine=True)
    made = quantize(checkpoints.load(row["member"]), "nearest", how)
    assert bits_per_weight(made) == pytest.approx(row["bits_per_weight"])
    # sums of another machine: in the fourth digit after the point nothing
    found = bits_per_byte(made, corpus.load("held_out"), every=EVERY)
    assert found == pytest.approx(row["bits_per_byte"], abs=1e-4)
