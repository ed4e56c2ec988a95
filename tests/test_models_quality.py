"""What is said of quality follows from the cards: the mean over seeds, their spread, and whether a
difference is larger than that."""

import json
import math

import pytest

from twophase.models.checkpoints import FOLDER, available
from twophase.models.family import SEEDS, TRAINED
from twophase.models.quality import Quality, apart, deviation, quality, seeds_overlap, verdict
from twophase.theory.catalog import model

ARCH = model("llama-2-7b")


def member(*bits: float) -> Quality:
    return Quality("m", ARCH, bits)


def test_every_member_has_the_bits_that_its_card_names_for_each_seed():
    found = quality(available())
    assert set(found) == set(TRAINED)
    for name, one in found.items():
        card = json.loads((FOLDER / f"{name}.json").read_text())
        assert len(one.bits) == len(card["seeds"]) == len(SEEDS[name])
        assert card["held_out_bits_per_byte"] in one.bits
        assert one.ends[0] <= one.mean <= one.ends[1]


def test_cache_bytes_per_token_share_windows_out():
    found = quality(["gqa", "sliding"])
    gqa, sliding = found["gqa"], found["sliding"]
    assert gqa.cache_bytes_per_token(10) == gqa.cache_bytes_per_token(1000)
    assert sliding.cache_bytes_per_token(320) * 10 == sliding.cache_bytes_per_token(32)
    assert sliding.cache_bytes_per_token(32) == gqa.cache_bytes_per_token(32)


def test_the_deviation_is_pooled_over_members_with_several_seeds():
    assert deviation([member(1.0, 2.0), member(5.0)]) == pytest.approx(math.sqrt(0.5))
    pooled = deviation([member(1.0, 2.0), member(3.0, 3.0, 3.0)])
    assert pooled == pytest.approx(math.sqrt(0.5 / 3))
    with pytest.raises(ValueError, match="more than one seed"):
        deviation([member(1.0), member(2.0)])


def test_a_difference_is_clear_from_three_standard_errors_on():
    one, three = member(1.0), member(1.9, 2.0, 2.1)
    assert apart(one, three, 0.5) == pytest.approx(1 / (0.5 * math.sqrt(1 + 1 / 3)))
    assert apart(three, one, 0.5) == -apart(one, three, 0.5)
    assert verdict(one, three, 0.1) == "better"
    assert verdict(three, one, 0.1) == "worse"
    assert verdict(one, three, 0.5) == verdict(three, one, 0.5) == "no clear difference"


def test_seeds_that_do_not_overlap_may_still_show_no_clear_difference():
    low, high = member(1.0, 1.01, 1.02), member(1.03, 1.04, 1.05)
    assert not seeds_overlap(low, high)
    assert not seeds_overlap(high, low)
    assert verdict(low, high, 0.02) == "no clear difference"
    wide = member(1.0, 1.5, 2.0)
    assert seeds_overlap(wide, member(1.0, 1.0, 1.0))  # and the other way round
    assert verdict(wide, member(1.0, 1.0, 1.0), 0.02) == "worse"


def test_a_loss_that_is_an_upper_bound_may_be_better_and_is_never_worse():
    bound = Quality("bound", ARCH, (1.0,), is_upper_bound=True)
    assert verdict(bound, member(2.0), 0.1) == "better"
    assert verdict(member(2.0), bound, 0.1) == "worse"
    for other in (member(0.1), Quality("other", ARCH, (0.1,), is_upper_bound=True)):
        assert verdict(bound, other, 0.1) == verdict(other, bound, 0.1) == "no clear difference"
