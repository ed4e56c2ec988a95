"""The picture that closes chapter 7 and grows in later ones shows what the cards say."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_hex

from twophase.models.front import front
from twophase.models.quality import quality


def test_each_member_stands_at_its_mean_with_its_seeds_and_its_bar() -> None:
    members = quality(["mha", "gqa", "sliding"])
    fig = front(members, 256, {"gqa": {256: 1e-3, 1024: 2e-3}}, labels_left={"gqa"})
    losses, times = fig.axes
    for m, bar, text in zip(members.values(), losses.containers, losses.texts, strict=True):
        (x,), (y,) = bar.lines[0].get_data()
        assert (x, y) == (m.cache_bytes_per_token(256), pytest.approx(m.mean))
        ends = bar.lines[2][0].get_segments()[0][:, 1]
        assert tuple(ends) == pytest.approx(m.ends)
        assert text.get_text() == f"{m.name} ({len(m.bits)})"
        assert losses.get_xlim()[0] < x < losses.get_xlim()[1]
    assert [*times.lines[0].get_xdata()] == [256, 1024]
    assert [*times.lines[0].get_ydata()] == [1e-3, 2e-3]
    plt.close(fig)


def test_what_a_logarithmic_axis_cannot_show_is_refused() -> None:
    members = quality(["gqa"])
    with pytest.raises(ValueError, match="logarithmic"):
        front(members, 256, {"gqa": {0: 1.0}})
    with pytest.raises(ValueError, match="got none"):
        front({}, 256, {})


def test_a_member_has_one_color_on_both_sides() -> None:
    members = quality(["mha", "gqa", "sliding", "local_global"])
    fig = front(members, 256, {name: {256: 1.0} for name in ("local_global", "mha", "sliding")})
    losses, times = fig.axes
    left = {
        m: to_hex(bar.lines[0].get_color())
        for m, bar in zip(members, losses.containers, strict=True)
    }
    assert len(set(left.values())) == 4
    for line in times.lines:
        assert to_hex(line.get_color()) == left[str(line.get_label())]
    plt.close(fig)


def test_a_loss_that_is_an_upper_bound_says_so() -> None:
    fig = front(quality(["gqa", "diffusion"]), 256, {})
    assert [text.get_text()[:2] for text in fig.axes[0].texts] == ["gq", "≤ "]
    plt.close(fig)


def test_names_stand_to_the_right_to_the_left_or_lower() -> None:
    members = quality(["mha", "gqa", "sliding"])
    fig = front(members, 256, {}, labels_left={"gqa"}, labels_below={"sliding"})
    right, left, below = fig.axes[0].texts
    assert right.xyann[0] > 0 > left.xyann[0]
    assert right.xyann[1] > 0 > below.xyann[1]
    assert below.xyann[0] > 0
    assert [text.get_ha() for text in (right, left, below)] == ["left", "right", "left"]
    plt.close(fig)


def test_a_name_of_no_member_is_refused() -> None:
    members = quality(["gqa"])
    with pytest.raises(ValueError, match="no member is called mha; these are: gqa"):
        front(members, 256, {"mha": {1: 1.0}})
    with pytest.raises(ValueError, match="no member is called gqq"):
        front(members, 256, {}, labels_left={"gqq"})
    with pytest.raises(ValueError, match="no member is called gqq"):
        front(members, 256, {}, labels_below={"gqq"})
