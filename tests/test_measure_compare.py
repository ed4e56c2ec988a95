"""Tables, units and figures: what a reader sees of a measurement."""

from __future__ import annotations

import io
import math

import matplotlib as mpl
import numpy as np
import pytest

from twophase.measure import Table, binary, compare, plots, si
from twophase.measure.listings import COLUMNS, Listing
from twophase.theory.hardware import Hardware

mpl.use("Agg")
HERE = Hardware("a machine", {"bf16": 8e11}, 4e10, 16e9)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.2e9, "B/s", "3.2 GB/s"),
        (0.0042, "s", "4.2 ms"),
        (0.0000042, "s", "4.2 µs"),
        (999.9, "B", "1 kB"),
        (1_000_000, "tokens", "1 Mtokens"),
        (0.25, "FLOP/B", "0.25 FLOP/B"),
        (0, "s", "0 s"),
        (-2.5e-3, "s", "-2.5 ms"),
        (math.inf, "s", "inf s"),
        (123.0, "", "123"),
    ],
)
def test_numbers_carry_si_prefixes(value, unit, text):
    assert si(value, unit) == text


@pytest.mark.parametrize(
    ("n", "text"), [(2**30, "1 GiB"), (1536, "1.5 KiB"), (10, "10 B"), (2**60, "1,020 PiB")]
)
def test_binary_prefixes_are_powers_of_1024(n, text):
    assert binary(n) == text


def test_a_table_escapes_html_and_is_accessible():
    html = Table([["<b>", 1]], ["name & unit", "n"], "a < b")._repr_html_()
    assert "<caption>a &lt; b</caption>" in html
    assert '<th scope="col" style="text-align: left">name &amp; unit</th>' in html
    assert '<th scope="row" style="text-align: left; white-space: nowrap">&lt;b&gt;</th>' in html
    assert '<td style="text-align: right; white-space: nowrap">1</td>' in html


def test_no_line_of_a_heading_ends_within_a_unit():
    html = Table([[1, 2]], ["decode tokens/s", "an/address/of/many/parts"])._repr_html_()
    assert '>decode <span style="white-space: nowrap">tokens/s</span></th>' in html
    assert ">an/address/of/many/parts</th>" in html


def test_quantities_stand_at_the_right_on_one_line_and_addresses_may_break():
    address = "example.org/a/long/way/to/the/sheet"
    table = Table(
        [["A100", "1.07 GB", "≤ 2.851", "1.642 ± 0.040", address, "a word or two of text"],
         ["H100", "312 TFLOP/s", "–", "-5 m", "2021", "words"]],
        ["chip", "size", "loss", "spread", "source", "said"],
    )  # fmt: skip
    html = table._repr_html_()
    nowrap = "; white-space: nowrap"
    for cell in ("1.07 GB", "312 TFLOP/s", "≤ 2.851", "–", "1.642 ± 0.040", "-5 m"):
        assert f'<td style="text-align: right{nowrap}">{cell}</td>' in html
    assert f'<th scope="row" style="text-align: left{nowrap}">A100</th>' in html
    assert f'<td style="text-align: left">{address.replace("/", "/<wbr>")}</td>' in html
    assert '<td style="text-align: left">a word or two of text</td>' in html
    assert str(table).splitlines()[2].startswith("A100      1.07 GB  ")


def test_gains_and_a_first_column_of_nothing_but_quantities_stand_at_the_right():
    rows = [["4 tokens", "+0.001"], ["16 tokens", "1.6 to 1.7"]]
    assert Table(rows, ["blocks of", "lost"])._repr_html_().count("text-align: right") == 6
    missed = Table([["A100", "439"], ["H100", "none"], ["v5e", "none"]], ["chip", "batch"])
    assert missed._repr_html_().count("text-align: right") == 4
    named = Table([*rows, ["pages", "0"]], ["room", "lost"])._repr_html_()
    assert '<th scope="row" style="text-align: left; white-space: nowrap">4 tokens</th>' in named


def test_a_table_prints_aligned_text():
    table = Table(
        [{"what": "a", "n": 1234567, "x": 0.5, "ok": True}, {"what": "bc", "n": 1, "ok": False}],
        caption="C",
    )
    assert str(table).splitlines() == [
        "C",
        "",
        "what          n    x  ok",
        "----  ---------  ---  ---",
        "a     1,234,567  0.5  yes",
        "bc            1    –  no",
    ]
    assert table.column("n") == [1234567, 1]
    assert (
        str(Table([[np.float64(1.23456), np.int64(7)]], ["x", "n"])).splitlines()[-1] == "1.235  7"
    )


def test_a_table_refuses_rows_that_do_not_fit():
    with pytest.raises(ValueError, match="Row 1 has 1 values; the table has 2 columns"):
        Table([[1, 2], [1]], ["a", "b"])
    with pytest.raises(ValueError, match="needs columns"):
        Table([])
    with pytest.raises(ValueError, match="There is no column 'c'; the columns are a"):
        Table([[1]], ["a"]).column("c")


def test_a_comparison_knows_ratios_and_exactness():
    seen = compare({"a": 2.0, "b": 4.0}, {"b": 2.0, "a": 2.5}, unit="s", at="kernel")
    assert seen.ratios == [1.25, 0.5]
    assert (seen.worst, seen.median_ratio, seen.exact) == (0.5, 0.875, False)
    assert "measured / predicted" in str(seen)
    assert compare([1, 0], [1, 0]).exact
    assert compare(0, 0).ratios == [1.0]
    assert math.isnan(compare([0.0], [1.0]).ratios[0])


def test_a_comparison_refuses_what_does_not_match():
    with pytest.raises(ValueError, match="only one of them has b"):
        compare({"a": 1, "b": 2}, {"a": 1})
    with pytest.raises(ValueError, match="Lengths differ"):
        compare([1, 2], [1])
    with pytest.raises(ValueError, match="two mappings"):
        compare({"a": 1}, [1])


def test_a_comparison_draws_a_line_and_points_with_units():
    ax = compare(
        [1.0, 2.0, 4.0], [1.1, 2.0, 4.4], x=[1, 2, 4], what="time", unit="s", at="batch [sequences]"
    ).draw()
    line, points = ax.get_lines()
    assert (line.get_linestyle(), points.get_linestyle()) == ("-", "None")
    assert list(points.get_ydata()) == [1.1, 2.0, 4.4]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("batch [sequences]", "time [s]")


def test_no_axis_has_the_number_one_for_a_unit():
    _, ax = plots.figure()
    plots.label(ax, "rows B", "share of the peak")
    for x, y in (("rows B [1]", "time [s]"), ("time [s]", "share [1]")):
        with pytest.raises(ValueError, match=r"leave the \[1\] out"):
            plots.label(ax, x, y)


def test_an_axis_without_a_label_is_refused():
    _, ax = plots.figure()
    with pytest.raises(ValueError, match="unit"):
        plots.line_and_points(ax, [1], [1], [1], xlabel="", ylabel="time [s]")


def test_a_roofline_bends_at_the_ridge():
    _, ax = plots.figure()
    plots.roofline(ax, HERE, {"decode": (1.0, 3e10), "prefill": (500.0, 7e11)})
    roof = ax.get_lines()[0]
    x, y = np.asarray(roof.get_xdata()), np.asarray(roof.get_ydata())
    assert x[1] == HERE.critical_intensity("bf16") == 20
    assert y.tolist() == np.minimum(8e11, 4e10 * x).tolist()
    with pytest.raises(ValueError, match="positive intensity"):
        plots.roofline(ax, HERE, {"nothing": (0.0, 1.0)})


def _luminance(color: str) -> float:
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in mpl.colors.to_rgb(color)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_and_first_colors_stand_out_from_the_card_they_lie_on():
    def contrast(color: str) -> float:
        return 1.05 / (_luminance(color) + 0.05)

    assert contrast(plots.INK) > 7
    assert all(contrast(color) > 3 for color in plots.COLORS[:3])


def test_the_same_figure_is_the_same_svg_and_small():
    def svg() -> bytes:
        figure, ax = plots.figure()
        plots.roofline(ax, HERE, {"decode": (1.0, 3e10)})
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
        return out.getvalue()

    assert svg() == svg()
    assert len(svg()) < 100_000


def test_a_listing_is_the_source_and_what_a_page_would_cut_is_refused() -> None:
    class Short:
        def held(self) -> int:
            return 1

        def empty(self) -> None: ...

    def long() -> str:
        return "a line that is too long for a page, which shows no more than eighty of its columns"

    shown = Listing(Short.held, Short.empty)._repr_markdown_()
    both = "def held(self) -> int:\n    return 1\n\ndef empty(self) -> None: ...\n"
    assert shown == f"```python\n{both}```"
    with pytest.raises(ValueError, match=f"shows {COLUMNS} columns, and this line has 9"):
        Listing(long)


def test_what_stands_between_backticks_in_a_caption_is_code() -> None:
    shown = Table([[1]], ["a"], caption="Bits of `<gqa>`, and others")._repr_html_()
    assert "<caption>Bits of <code>&lt;gqa&gt;</code>, and others</caption>" in shown


def test_a_column_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="A table needs columns"):
        Table([[1, 2]], ["", "b"])
