"""Drawings: states that anybody can tell apart, texts that can be read and never overlap, at the
width of a page and of a phone."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import matplotlib as mpl
import pytest
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.ft2font import FT2Font, LoadFlags

from twophase.drawing import (
    STATES,
    Bar,
    Below,
    Beside,
    BlockTable,
    Drawing,
    Mesh,
    Plane,
    Stack,
    Strip,
    Tiles,
    Timeline,
    Titled,
    TooNarrow,
    Wiring,
    Words,
)
from twophase.drawing.block import Block, Box, Line, Text
from twophase.drawing.drawing import NARROW, WIDE
from twophase.drawing.states import PATTERNS, State
from twophase.drawing.svg import svg
from twophase.drawing.text import ADVANCE, BOLD, SMALLEST, text_width

ROOT = Path(__file__).resolve().parent.parent
CSS = (ROOT / "book" / "_static" / "house.css").read_text("utf8")
THEMES = {"light": "html", "dark": 'html[data-theme="dark"]'}
Color = tuple[float, float, float]
ALT = "A drawing made for a test."


def variables(theme: str) -> dict[str, Color]:
    """The colors of the site, each channel from 0 to 1."""
    rules = CSS.split(THEMES[theme] + " {\n", 1)[1].split("}", 1)[0]
    found = re.findall(r"--tp-([\w-]+): #([0-9a-f]{6})", rules)
    return {name: tuple(int(h[i : i + 2], 16) / 255 for i in (0, 2, 4)) for name, h in found}  # type: ignore[misc]


def color(css: str, theme: str) -> Color:
    """What a browser makes of one of our CSS colors."""
    known = variables(theme)
    if mix := re.fullmatch(r"color-mix\(in srgb, (var\(.+\)) (\d+)%, (var\(.+\))\)", css):
        one, two, share = color(mix[1], theme), color(mix[3], theme), int(mix[2]) / 100
        return tuple(share * a + (1 - share) * b for a, b in zip(one, two, strict=True))  # type: ignore[return-value]
    name = re.match(r"var\(--tp-([\w-]+)", css)
    assert name, css
    return known[name[1]]


def luminance(rgb: Color) -> float:
    """WCAG 2.2, relative luminance."""
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: Color, two: Color) -> float:
    """WCAG 2.2, contrast ratio."""
    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_paper_knows_no_dark_theme() -> None:
    assert variables("light") != variables("dark")
    papers = re.findall(r"--tp-paper: ([^;]+);", CSS)  # light, dark, and the white of a sheet
    assert len(papers) == 3
    assert papers[2] == "#fff !important"
    assert CSS.index("--tp-paper: #fff !important;") > CSS.index("@media print {\n  html {")
    assert "@media screen {\n  " + THEMES["dark"] + " {\n" in CSS


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", STATES)
def test_the_text_on_every_state_can_be_read_over_its_pattern_too(name: str, theme: str) -> None:
    state = STATES[name]
    label = color(f"var(--tp-{state.label})", theme)
    assert contrast(label, color(state.fill, theme)) >= 4.5
    if state.pattern not in ("plain", "frame"):  # a frame runs along the edge, not under the text
        assert contrast(label, color(state.trace, theme)) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
def test_every_outline_and_every_quiet_text_stands_out_from_the_paper(theme: str) -> None:
    paper = color("var(--tp-paper)", theme)
    for state in STATES.values():
        assert contrast(color(f"var(--tp-{state.hue})", theme), paper) >= 3
    assert contrast(color("var(--tp-quiet)", theme), paper) >= 4.5


def told_apart(one: State, two: State, theme: str) -> bool:
    """Whether two states differ in more than hue: in pattern, outline or darkness."""
    if (one.pattern, one.dashed) != (two.pattern, two.dashed):
        return True
    return contrast(color(one.fill, theme), color(two.fill, theme)) >= 3


@pytest.mark.parametrize("theme", THEMES)
def test_no_two_states_differ_by_hue_alone(theme: str) -> None:
    assert all(told_apart(a, b, theme) for a, b in combinations(STATES.values(), 2))
    assert {state.pattern for state in STATES.values()} <= set(PATTERNS)
    assert len({state.word for state in STATES.values()}) == len(STATES)


def test_the_table_of_advances_is_the_fonts_and_bold_is_never_wider_than_we_say() -> None:
    folder = Path(mpl.get_data_path()) / "fonts" / "ttf"
    regular, bold = (FT2Font(str(folder / f"DejaVuSans{b}.ttf")) for b in ("", "-Bold"))

    def advance(font: FT2Font, char: str) -> float:
        glyph = font.load_char(ord(char), flags=LoadFlags.NO_SCALE)
        return float(glyph.horiAdvance / font.units_per_EM)

    for char, ours in ADVANCE.items():
        assert abs(advance(regular, char) - ours) < 0.011, char  # a hundredth of an em
        assert advance(bold, char) <= advance(regular, char) * BOLD + 1e-9, char
    assert text_width("€") > text_width("m")  # what is not in the table is taken for wide


def gigabytes(amount: float) -> str:
    return f"{amount:.1f} GB"


FULL = Bar([("weights", 26, "fixed"), ("KV cache", 40, "stored")], 80, gigabytes)
BURST = Bar([("weights", 26, "fixed"), ("KV cache", 70, "stored")], 80, gigabytes)
REQUEST = Timeline(
    {"queue": [(0, 0.4, "empty")], "request": [(0.4, 0.7, "new"), (0.7, 0.8, "read")]},
    [("TTFT", 0, 0.7), ("TPOT", 0.7, 0.8), ("latency", 0, 0.8)],
    lambda seconds: f"{seconds * 1e3:.0f} ms",
)
BLOCK = Stack(
    [("norm", "[B, T, D]", "fixed"), ("attention", "[B, T, D]", "read")], [(0, 1)], "[B, T, D]"
)
FRONT = Plane(
    [(0, 0), (1, 60), (3, 80)], (1, 60), "new", "time of a step", "tokens/s", (100, "ceiling: 100")
)
PARTS = {
    "strip": Strip([(f"token {i}", state) for i, state in enumerate(STATES)]),
    "tiles": Tiles([["read", ("7", "new")]] * 2, ["row 0", "row 1"], ["0", "1"]),
    "bar": FULL,
    "bar that does not fit": BURST,
    "timeline": REQUEST,
    "stack": BLOCK,
    "wiring": Wiring([(f"q{i}", "new") for i in range(8)], [("k0", "stored")], [(7, 0)]),
    "mesh": Mesh([[(f"{r}{c}", "stored") for c in range(4)] for r in range(4)], ring=True),
    "blocks": BlockTable({"A": [2, 0], "B": [1]}, [("A1", "new"), ("B0", "stored")] * 6),
    "plane": FRONT,
    "words": Words("A sentence that is much longer than a phone is wide. " * 3),
    "all": Below([Beside([Titled("one", BLOCK), Titled("two", REQUEST)]), FULL]),
}


@pytest.mark.parametrize("name", PARTS)
def test_every_part_has_a_form_for_a_page_and_one_for_a_phone(name: str) -> None:
    for block, width in zip(Drawing(PARTS[name], alt=ALT).blocks(), (WIDE, NARROW), strict=True):
        assert 0 < block.width <= width + 0.5
        texts = [mark for mark in block.marks if isinstance(mark, Text)]
        assert texts
        assert min(text.size for text in texts) >= SMALLEST
        for mark in block.marks:
            if isinstance(mark, Box):
                assert mark.x >= -0.5
                assert mark.x + mark.width <= block.width + 0.5
                assert mark.y >= -0.5
                assert mark.y + mark.height <= block.height + 0.5


def test_an_svg_is_shown_in_its_own_size_so_that_its_text_keeps_its_own() -> None:
    html = Drawing(FULL, alt=ALT)._repr_html_()
    sizes = re.findall(r'width="(\d+)" height="(\d+)" viewBox="-1 -1 (\d+) (\d+)"', html)
    assert [s[:2] for s in sizes] == [s[2:] for s in sizes]
    assert len(sizes) == 2
    assert int(sizes[1][0]) <= 330
    assert "max-width: none" in CSS
    assert re.findall(r' id="', html) == []  # any number of drawings may stand on a page


def test_boxes_of_one_state_say_once_how_they_look_unless_one_lies_on_another() -> None:
    apart = [Box(30.0 * i, 0, 20, 20, "read") for i in range(4)]
    assert svg(Block(120, 20, tuple(apart)), ALT, "tp-any").count("<g ") == 1
    over = [*apart, Box(5, 5, 10, 10, "read")]
    assert svg(Block(120, 20, tuple(over)), ALT, "tp-any").count("<g ") == 2
    assert svg(Block(120, 20, tuple(over)), ALT, "tp-any").count("<rect ") == 5


def test_every_short_name_of_a_color_is_said_in_its_own_svg() -> None:
    for name, part in PARTS.items():
        for made in re.findall(r"<svg.*?</svg>", Drawing(part, alt=ALT)._repr_html_()):
            used = set(re.findall(r'"var\((--c\d+)\)"', made))
            said = set(re.findall(r"(--c\d+):(?:var|color-mix)\(", made))
            assert used == said, name
            assert used


WORD = st.text("abcdefgWM·→ 0123", min_size=0, max_size=12)
CELL = st.tuples(WORD, st.sampled_from(sorted(STATES)))


@given(st.lists(CELL, min_size=1, max_size=30), st.lists(WORD, min_size=1, max_size=5))
@draws(40)
def test_whatever_is_written_no_two_texts_overlap_and_none_stands_out(
    cells: list[tuple[str, str]], names: list[str]
) -> None:
    numbered = [f"{i} {name}".strip() for i, name in enumerate(names)]
    parts = [
        Strip(cells),
        Bar([(name, i + 1, "stored") for i, name in enumerate(numbered)], 9, gigabytes),
        Timeline({n: [(0, i, "read")] for i, n in enumerate(numbered)}, [("a", 0, 1)], gigabytes),
        Stack([(name, f"[{name}]", state) for name, (_, state) in zip(names, cells, strict=False)]),
    ]
    for part in parts:  # Drawing.__post_init__ checks
        Drawing(Below([part, Beside([part, Titled("the same", part)])]), alt=ALT)


def test_the_point_of_a_plane_lies_on_its_curve_and_below_what_is_never_reached() -> None:
    for width in (NARROW, WIDE):
        marks = FRONT.lay(width).marks
        (dot,) = [mark for mark in marks if isinstance(mark, Box)]
        lines = [mark.points for mark in marks if isinstance(mark, Line)]
        assert (dot.x + dot.width / 2, dot.y + dot.height / 2) == pytest.approx(lines[1][1])
        assert min(y for _, y in lines[1]) > lines[2][0][1]
    with pytest.raises(ValueError, match="at least two points"):
        Plane([(1, 1)], (1, 1), "new", "x", "y")


def test_a_drawing_says_what_is_wrong_with_it() -> None:
    with pytest.raises(ValueError, match="alt says what the drawing shows"):
        Drawing(FULL, alt=" ")
    with pytest.raises(TypeError):
        Drawing(FULL)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="no state 'lit'"):
        Drawing(Strip([("a", "lit")]), alt=ALT)
    with pytest.raises(ValueError, match="no state 'lit'"):
        Drawing(FULL, alt=ALT, key={"lit": "on"})
    with pytest.raises(TooNarrow, match="60 columns"):
        Drawing(Tiles([["read"] * 60]), alt=ALT)
    with pytest.raises(ValueError, match="equally long"):
        Tiles([["read"], ["read", "new"]])
    with pytest.raises(ValueError, match="lacks"):
        BlockTable({"A": [3]}, [("", "empty")])


def test_what_does_not_fit_says_so_and_by_how_much() -> None:
    def said(bar: Bar) -> str:
        block = Drawing(bar, alt=ALT).blocks()[0]
        return " | ".join(mark.text for mark in block.marks if isinstance(mark, Text))

    assert not BURST.fits
    assert "does not fit: 16.0 GB too much" in said(BURST)
    longer = Bar([("work", 3, "new")], 1, lambda x: f"{x:g} s", over="{} longer")
    assert "2 s longer" in said(longer)  # a time is no room to fit into
    assert FULL.fits
    assert "does not fit" not in said(FULL)
    assert "free | 14.0 GB" in said(FULL)
    just = Bar([("weights", 2e9, "fixed")], 2e9, FULL.say)
    assert "free" not in said(just)  # nothing is left, and nothing says so twice


def test_the_key_explains_each_state_once_and_in_the_drawings_own_words() -> None:
    drawing = Drawing(PARTS["strip"], alt=ALT, key={"new": "computed now", "masked": ""})
    texts = [mark.text for mark in drawing.blocks()[0].marks if isinstance(mark, Text)]
    assert texts.count("computed now") == 1
    assert "masked" not in texts
    assert "empty" in texts


def test_a_mechanisms_box_has_room_for_a_drawing_on_a_phone_of_360_pixels() -> None:
    small = re.search(r"max-width: 389px\) \{ article \.tp-mechanism \{ ([^}]*)\}", CSS)
    assert small is not None
    assert "padding-inline: 0; border-inline: 0;" in small[1]
    assert NARROW <= 360 - 2 * 16  # beside the article's own padding
