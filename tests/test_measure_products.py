"""Products by format: bytes are those of the format, and a slower format stops paying."""

from __future__ import annotations

import pytest

from twophase.measure.products import FORMATS, Product, product_times, stops_paying
from twophase.theory.quantization import integer_bytes


def test_each_format_reads_its_own_bytes() -> None:
    found = product_times(256, 128, batches=(1, 2), budget_s=0.01)
    assert [(p.form, p.B) for p in found] == [(form, B) for B in (1, 2) for form in FORMATS]
    n_bytes = {p.form: p.n_bytes for p in found}
    weights = 256 * 128
    assert (n_bytes["fp32"], n_bytes["bf16"]) == (4 * weights, 2 * weights)
    for bits in (4, 8):
        assert n_bytes[f"int{bits}"] == integer_bytes(256, 128, bits, 32)
    assert all(p.median_s > 0 and p.share > 0 for p in found)
    assert all(p.bytes_per_s == p.n_bytes / p.median_s for p in found)


def test_fewer_bytes_stop_paying_at_the_first_batch_that_is_no_faster() -> None:
    def product(form: str, B: int, median_s: float) -> Product:
        return Product(form, B, 1, median_s, 1.0)

    beside = [product("bf16", B, 4.0) for B in (1, 2, 4)]
    found = [product("int4", B, 2.0 * B) for B in (4, 2, 1)]
    assert stops_paying([*beside, *found], "int4") == 2
    assert stops_paying([*beside, product("int4", 1, 2.0)], "int4") is None
    with pytest.raises(ValueError, match="same numbers of tokens"):
        stops_paying(found, "int4")


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="formats are fp32"):
        product_times(8, 8, formats=["int3"])
