"""Figures of cells in the book: the site's colors instead of filters, and a form for a phone whose
texts can be read."""

from __future__ import annotations

import re
import sys
from base64 import b64decode
from itertools import combinations
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure
from test_drawing import CSS, THEMES, color, contrast, variables

from twophase.measure import plots
from twophase.measure.figure_forms import NARROW, SMALLEST, both_forms, narrowed

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import book_figures  # noqa: E402

ALT = "Two lines, of which one is twice the other."
PHONE_PX = 326  # the room on a phone 390 wide
PAGE_PX = 671  # and on a screen 1,280 wide


def drawn(columns: int = 1) -> Figure:
    """A figure with all that the chapters' have: legends, small texts, marks, a shared axis."""
    fig, axes = plots.figure(1, columns, figsize=(4.2 * columns, 3.6), sharey=True)
    x = np.arange(1, 50)
    for number, ax in enumerate(np.atleast_1d(axes)):
        for series, shade in enumerate(plots.COLORS):
            ax.loglog(x, x * (series + 1), color=shade, label=f"series {series}")
        ax.plot(x, x / 2, plots.MARKERS[0], markerfacecolor="white", label=f"panel {number}")
        ax.annotate("the wall", (3, 10), fontsize=7)
        plots.label(ax, "context [tokens]", "time of one step [s]", "A title that is " * 4)
        ax.legend(fontsize=8)
    return fig


@pytest.fixture(scope="module", params=[1, 2], ids=["one panel", "two panels"])
def fig(request: pytest.FixtureRequest) -> Figure:
    made = drawn(request.param)
    yield made
    plt.close(made)


@pytest.fixture(scope="module")
def svg(fig: Figure) -> str:
    """Drawn once for all tests: it takes most of a second."""
    return both_forms(fig)


def forms(svg: str) -> tuple[str, str]:
    """The figure as it is, and its narrow form."""
    hidden = book_figures.NARROW.search(svg)
    assert hidden
    return svg, b64decode(hidden[1]).decode()


def texts(svg: str) -> list[tuple[float, str]]:
    """Size in the SVG's units, and words, of every text."""
    style = r'style="font-size: ([\d.]+)px;[^"]*"[^>]*>([^<]*)<'
    return [
        (float(size), words) for size, words in re.findall("<(?:text|tspan)[^>]*?" + style, svg)
    ]


def width_of(svg: str) -> float:
    found = re.search(r'viewBox="0 0 ([\d.]+) ', svg)
    assert found
    return float(found[1])


@pytest.mark.parametrize("theme", THEMES)
def test_every_color_of_a_series_stands_out_from_the_paper_and_none_is_used_twice(theme):
    paper = color("var(--tp-paper)", theme)
    names = [book_figures.COLORS[shade.lower()] for shade in plots.COLORS]
    assert all(contrast(variables(theme)[name], paper) >= 3 for name in names)
    assert len(set(names)) == len(names)
    assert set(book_figures.COLORS.values()) <= set(variables(theme))
    for one, two in combinations(names[:4], 2):  # what a figure usually has
        apart = sum(
            abs(a - b) for a, b in zip(*(variables(theme)[n] for n in (one, two)), strict=True)
        )
        assert apart > 0.25, (one, two)


def test_no_color_and_no_id_of_its_own_is_left_in_a_page(svg):
    html = book_figures.figure(svg, ALT, "f0-")
    assert not re.findall(r"#[0-9a-fA-F]{6}\b", html)
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert all(name.startswith("f0-") for name in ids)
    used = re.findall(r'(?:href="#|url\(#)([^")]+)', html)
    assert used
    assert set(used) <= set(ids)
    assert "<style" not in html
    assert "metadata" not in html
    assert html.count(f'aria-label="{ALT}"') == 2


def text_contrasts(html: str, theme: str) -> dict[str, float]:
    """Contrast with the paper of every text in a figure of a page."""
    paper = color("var(--tp-paper)", theme)
    found = {}
    for style, said in re.findall(r'<text[^>]*?style="([^"]*)"[^>]*>(.*?)</text>', html, re.S):
        fill = re.search(r"fill: ?(var\(--tp-[\w-]+\))", style)
        words = re.sub(r"<.*?>", "", said).strip()
        found[words] = contrast(color(fill[1] if fill else "var(--tp-ink)", theme), paper)
    return found


@pytest.fixture(scope="module")
def colorful() -> str:
    """A figure of a page with a word in every color."""
    fig = drawn()
    for number, shade in enumerate(plots.COLORS):
        fig.axes[0].annotate(f"word {number}", (3, 10), color=shade)
    html = book_figures.figure(both_forms(fig), ALT, "f0-")
    plt.close(fig)
    return html


@pytest.mark.parametrize("theme", THEMES)
def test_every_text_of_a_figure_can_be_read_in_the_sites_colors(colorful, theme):
    found = text_contrasts(colorful, theme)
    assert {f"word {i}" for i in range(len(plots.COLORS))} <= set(found)
    assert min(found.values()) >= 4.5, min(found, key=found.__getitem__)
    pale = text_contrasts('<text style="fill: var(--tp-line)">pale</text>', theme)
    assert pale["pale"] < 4.5  # what such a test must find


@pytest.mark.parametrize("theme", THEMES)
def test_the_texts_of_what_can_be_played_with_can_be_read(theme):
    rules = dict(re.findall(r"(?:^|[}\s])([.\w -]+?) \{ ([^}]*) \}", CSS))
    assert "fill: var(--tp-ink)" in rules[".tp-plot text"]
    assert "fill: var(--tp-ink)" in rules[".tp-rows text"]
    for back in ("paper", "raised"):
        assert contrast(variables(theme)["ink"], variables(theme)[back]) >= 4.5
        for tone in ("right", "wrong", "quiet"):  # fits, does not fit, what has no number
            assert contrast(variables(theme)[tone], variables(theme)[back]) >= 4.5
    for name in (".tp-tick", ".tp-axis", ".tp-mark-label", ".tp-rows-name"):
        size = re.search(r"font-size: (\d+)px", rules[name])  # its SVG is never scaled down
        assert size
        assert int(size[1]) >= 11


def test_a_color_that_the_site_does_not_have_is_named():
    with pytest.raises(KeyError, match="#123456"):
        book_figures.inline(
            '<svg width="9pt" height="9pt"><path fill="#123456"/></svg>', "", "", ""
        )


def test_on_a_phone_every_text_is_at_least_eleven_pixels(svg):
    _, narrow = forms(svg)
    shown = min(1.0, PHONE_PX / (width_of(narrow) * 4 / 3))  # an SVG's unit is a point
    assert shown > 0.94  # tight boxes are a little wider than asked for
    assert len(texts(narrow)) > 8
    assert min(size for size, _ in texts(narrow)) * 4 / 3 * shown >= 10.99
    assert NARROW * 96 <= PHONE_PX + 1
    assert SMALLEST * 4 / 3 * 0.94 >= 11


def test_on_a_page_every_text_is_at_least_eleven_pixels_but_for_exponents(svg):
    wide, _ = forms(svg)
    shown = min(1.0, PAGE_PX / (width_of(wide) * 4 / 3))
    assert min(size for size, _ in texts(wide)) * 4 / 3 * shown >= 10.99


def test_labels_of_ticks_that_would_touch_on_a_phone_are_left_out() -> None:
    fig, ax = plots.figure(figsize=(7, 3))
    ticks = [512, 2048, 4096, 16384, 32768]
    ax.plot(ticks, ticks)
    ax.set_xscale("log")
    ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    ax.minorticks_off()
    wide, narrow = forms(both_forms(fig))
    plt.close(fig)
    shown = [{words for _, words in texts(form)} for form in (wide, narrow)]
    assert {"512", "2,048", "4,096", "16,384", "32,768"} <= shown[0]
    assert {"512", "2,048", "16,384"} <= shown[1]
    assert not {"4,096", "32,768"} & shown[1]


def test_names_of_points_do_not_stand_on_each_other_on_a_phone() -> None:
    fig, ax = plots.figure(figsize=(9, 4))
    ax.plot([1, 2, 9], [1.0, 1.01, 2], "o")
    for name, at in (("one name", (1, 1.0)), ("another one", (2, 1.01))):
        ax.annotate(name, at, xytext=(5, 4), textcoords="offset points", fontsize=9)
    boxes = [text.get_window_extent() for text in narrowed(fig).axes[0].texts]
    plt.close(fig)
    assert len(boxes) == 2
    assert not boxes[0].overlaps(boxes[1])


def test_no_tick_of_a_logarithmic_axis_has_an_exponent() -> None:
    fig, (tall, short) = plots.figure(1, 2, figsize=(8, 3))
    tall.loglog([1, 1e9], [1e-3, 1e3])
    short.loglog([10, 60], [10, 60])  # less than a decade: ticks between powers have labels
    said = {words for form in forms(both_forms(fig)) for _, words in texts(form)}
    plt.close(fig)
    assert {"1 M", "100", "0.1", "20"} <= said
    assert not any("×" in words for words in said)
    assert "10" in said  # of the short one, and of no power


def test_small_ticks_are_all_written_with_their_power() -> None:
    fig, ax = plots.figure()
    ax.semilogy([2, 9], [1e-6, 1e-2])
    said = [words for form in forms(both_forms(fig)) for _, words in texts(form)]
    plt.close(fig)
    assert {"1e-6", "1e-5", "1e-4", "0.001", "0.01"} <= set(said)
    assert not any(words.startswith(("0.000", "1.0")) for words in said)


def test_the_narrow_form_says_what_the_wide_one_says(svg):
    def words(form: str) -> set[str]:
        return {word.rstrip(":") for _, said in texts(form) for word in said.split()}

    wide, narrow = map(words, forms(svg))
    numbers = re.compile(r"[\d.]+|k")  # ticks may differ
    assert {w for w in wide if not numbers.fullmatch(w)} == {
        w for w in narrow if not numbers.fullmatch(w)
    }


def test_in_one_legend_of_two_panels_an_entry_says_of_which_it_is():
    fig, (left, right) = plots.figure(1, 2)
    for ax, name in ((left, "small"), (right, "large")):
        ax.plot([1, 2], label="both")
        ax.errorbar([1, 2], [1, 2], [0.1, 0.2], fmt="o", label=f"points of the {name}")
        plots.label(ax, "x", "y", f"{name} stack")
        ax.legend()
    _, narrow = forms(both_forms(fig))
    plt.close(fig)
    said = [words for _, words in texts(narrow)]
    assert said.count("both") == 1
    assert {"small stack: points of the small", "large stack: points of the large"} <= set(said)


def test_drawing_both_forms_changes_nothing(fig, svg):
    open_figures = plt.get_fignums()
    size = tuple(fig.get_size_inches())
    fixed = re.compile(r"<dc:date>.*?</dc:date>|twophase-narrow.*?</metadata>", re.S)
    assert fixed.sub("", both_forms(fig)) == fixed.sub("", svg)
    assert tuple(fig.get_size_inches()) == size
    assert plt.get_fignums() == open_figures


def test_a_legend_of_the_whole_figure_goes_below_the_narrow_form_too() -> None:
    fig, ax = plots.figure()
    ax.plot([1, 2], [1, 2], label="a line")
    plots.label(ax, "x", "y")
    fig.legend(loc="outside upper left")
    narrow = narrowed(fig)
    assert [text.get_text() for legend in narrow.legends for text in legend.get_texts()] == [
        "a line"
    ]
    assert len(fig.legends) == 1
    assert "twophase-narrow" in both_forms(fig)


def test_an_axis_whose_ticks_carry_their_unit_has_none_in_its_label() -> None:
    _, ax = plots.figure()
    ax.plot([1, 2], [0.001, 0.002])
    plots.label(ax, "context [tokens]", "time of a step [s]")
    plots.unit_axis(ax, "y", "s")
    assert ax.get_ylabel() == "time of a step"
    assert ax.get_xlabel() == "context [tokens]"
    plots.unit_axis(ax, "x", "")  # prefixes without a unit: the label keeps it
    assert ax.get_xlabel() == "context [tokens]"


def test_on_paper_no_text_of_a_figure_is_below_seven_points() -> None:
    paper = CSS[CSS.index("@media print {\n  html {") :]
    shrunk = re.search(r"\.tp-figure \{ zoom: ([\d.]+);", paper)
    assert shrunk is not None
    assert float(shrunk[1]) * SMALLEST >= 7


def test_no_line_of_a_label_ends_within_its_unit() -> None:
    fig, ax = plots.figure()
    ax.plot([1, 2], [1, 2], label="what a step of the trained member takes [ms per token]")
    plots.label(ax, "context [tokens]", "rise of the loss without it [bits per byte]")
    ax.legend()
    narrow = narrowed(fig)
    texts = [narrow.axes[0].yaxis.label, *narrow.legends[0].get_texts()]
    assert [text.get_text() for text in texts] == [
        "rise of the loss without it\n[bits per byte]",
        "what a step of the trained member takes\n[ms per token]",
    ]
    plt.close(fig)
