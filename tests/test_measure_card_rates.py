"""Rates that a recorded card holds up are those of its long products, not of its best moments."""

import pytest

from twophase.measure.card_rates import SQUARES, steady
from twophase.measure.card_runs import Recorded, recorded_card


def test_steady_rates_are_those_of_the_square_products_with_the_bandwidth_of_the_calibration():
    found = recorded_card()
    chip = steady(found, "the card")
    assert chip.name == "the card"
    assert steady(found).name == found.card.name
    assert chip.hbm_bytes_per_s == found.hardware().hbm_bytes_per_s
    assert chip.measured
    for of, (part, way) in SQUARES.items():
        run = found.one(part, "square product", way)
        assert chip.flops_per_s[of] == pytest.approx(2 * run.sizes["D"] ** 3 / run.median_s)


def test_a_second_of_products_is_slower_than_a_burst_of_them():
    found = recorded_card()
    assert steady(found).flops_per_s["bf16"] < found.hardware().flops_per_s["bf16"]


def test_a_file_without_such_products_is_refused():
    found = recorded_card()
    with pytest.raises(ValueError, match="no run of calibration"):
        steady(Recorded(found.card))
