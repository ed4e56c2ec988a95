"""Formulas are MathML, in the font that the book brings along, and read as their TeX."""

import re
import sys
from pathlib import Path

import pytest
from docutils.utils.math import MathError
from fontTools.fontBuilder import FontBuilder
from fontTools.otlLib.builder import buildMathTable
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.ttLib import TTFont

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "book" / "_ext"), str(ROOT / "tools")]
import book_math  # noqa: E402
import math_font  # noqa: E402

BLOCK = re.compile(r"^```\{math\}\n((?:.|\n)*?)^```", re.M)


def text(tex: str, block: bool = False) -> str:
    return re.sub(r"<[^>]*>", "", book_math.mathml(tex, block))


def blocks() -> list[str]:
    found = [m for p in (ROOT / "book").glob("*.md") for m in BLOCK.findall(p.read_text("utf8"))]
    return [re.sub(r"^:label:.*\n", "", tex) for tex in found]


def test_every_display_formula_of_the_chapters_can_be_shown() -> None:
    assert len(blocks()) > 30
    for tex in blocks():
        assert book_math.mathml(tex, True).startswith('<math display="block">')


CELL = re.compile(r"^```(?!\{math\})[^\n]*\n.*?^```|`[^`\n]*`", re.M | re.S)


def formulas() -> list[tuple[str, bool]]:
    """Every formula of the pages, and whether it stands on lines of its own."""
    pages = [path.read_text("utf8") for path in sorted((ROOT / "book").glob("*.md"))]
    rest = [CELL.sub("", BLOCK.sub("", text)) for text in pages]
    apart = [tex for text in rest for tex in re.findall(r"\$\$(.+?)\$\$", text, re.S)]
    inline = [
        tex
        for text in rest
        for tex in re.findall(r"(?<![\\$])\$([^$\n]+?)(?<!\\)\$", text.replace("$$", ""))
    ]
    return [(tex, True) for tex in [*blocks(), *apart]] + [(tex, False) for tex in inline]


def test_every_formula_of_the_pages_is_mathml_core() -> None:
    assert len(formulas()) > 900
    for tex, block in formulas():
        assert book_math.mathml(tex, block).startswith("<math")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("<menclose></menclose>", "MathML Core has no <menclose>"),
        ('<mi mathvariant="bold">x</mi>', "MathML Core has no <mi mathvariant=bold>"),
        ("<mtable frame='solid'></mtable>", "MathML Core has no <mtable frame=solid>"),
    ],
)
def test_what_not_every_browser_knows_is_refused(
    made: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_math, "tex2mathml", lambda *a, **k: f"<math>{made}</math>")
    with pytest.raises(MathError, match=said):
        book_math.mathml("x")


def test_what_a_table_says_beyond_mathml_core_is_left_to_the_style_sheet() -> None:
    made = book_math.mathml(r"\begin{cases} a & b \\\\ c & d \end{cases}")
    assert '<mtable class="cases">' in made
    assert "mtable.cases > mtr > mtd { text-align: left" in (
        ROOT / "book" / "_static" / "house.css"
    ).read_text("utf8")


def test_safari_is_not_told_the_prefixed_words_that_move_a_cell_over_its_neighbor() -> None:
    sheet = (ROOT / "book" / "_static" / "house.css").read_text("utf8")
    guarded = sheet.index("@supports (math-shift: compact) {")  # which Safari does not know
    assert guarded < sheet.index("text-align: -webkit-") < sheet.rindex("text-align: -webkit-")
    assert sheet.rindex("text-align: -webkit-") < sheet.index("\n}", guarded)


def test_a_formula_that_cannot_be_shown_says_what_is_wrong() -> None:
    with pytest.raises(MathError, match=r"\\nosuch"):
        book_math.mathml(r"\nosuch x")
    with pytest.raises(MathError, match="HIRAGANA LETTER A"):
        book_math.mathml("あ")
    with pytest.raises(MathError, match="closes in another"):
        book_math.mathml(r"\begin{aligned} a \Bigl( & b \\ & c \Bigr) \end{aligned}", True)


@pytest.mark.parametrize(
    ("tex", "means"),
    [
        (r"500{,}500", "500,500"),
        (r"\tfrac12", "12"),
        (r"1 + \dots", "1+…"),
        (r"a \iff b", "a⟺b"),
        (r"m'", "m′"),
        (r"a \\[.4em] b", "ab"),
    ],
)
def test_what_docutils_writes_otherwise_reads_as_tex_does(tex: str, means: str) -> None:
    assert text(tex, r"\\" in tex) == means


def test_a_number_with_thousands_is_one_number() -> None:
    assert "<mn>24,576</mn>" in book_math.mathml("F = 24{,}576")


def test_the_words_at_a_brace_stand_below_it() -> None:
    made = book_math.mathml(r"\underbrace{a + b}_{\text{read}}")
    assert re.search(r"<munder><munder>.*</munder><mtext>read</mtext></munder>", made)


@pytest.mark.parametrize(
    ("tex", "left", "right"), [(r"x\max(a, b)", "0.1667em", "0"), (r"=\max_i a", "0", "0.1667em")]
)
def test_a_function_has_room_on_the_side_of_its_neighbor_only(
    tex: str, left: str, right: str
) -> None:
    assert f'lspace="{left}" rspace="{right}">max<' in book_math.mathml(tex)


def test_lines_of_a_numbered_block_stand_in_rows() -> None:
    tex = "\\begin{align}\na &= b \\\\\nc &= d\n\\end{align}"
    assert book_math.mathml(tex, True).count("<mtr>") == 2


def test_the_font_is_a_small_woff2_with_its_license_beside_it() -> None:
    assert book_math.FONT.read_bytes()[:4] == b"wOF2"
    assert book_math.FONT.stat().st_size < 60_000
    license_text = (book_math.FONT.parent / "math-font-license.txt").read_text("utf8")
    assert "STIX Fonts Project" in license_text
    assert "SIL OPEN FONT LICENSE" in license_text.upper()


def font_with_a_root() -> TTFont:
    """Boxes for a root 1,200 units high, a larger one, and a part of the largest."""
    sizes = {".notdef": (500, 500), "root": (800, 1200), "large": (1200, 1854), "part": (1200, 640)}
    glyphs = {}
    for name, (width, height) in sizes.items():
        pen = TTGlyphPen(None)
        corners = [(0, 0), (0, height), (width, height), (width, 0)]
        pen.moveTo(corners[0])
        for corner in corners[1:]:
            pen.lineTo(corner)
        pen.closePath()
        glyphs[name] = pen.glyph()
    made = FontBuilder(1000)
    made.setupGlyphOrder(list(sizes))
    made.setupCharacterMap({ord("√"): "root"})
    made.setupGlyf(glyphs)
    made.setupHorizontalMetrics({name: (width, 0) for name, (width, _) in sizes.items()})
    buildMathTable(
        made.font,
        vertGlyphVariants={"root": [("root", 1201), ("large", 1855)]},
        vertGlyphAssembly={"root": ([("part", 0, 0, 0, 640)], 0)},
    )
    return made.font


def test_the_root_has_small_forms_in_order_and_all_about_as_wide() -> None:
    font = font_with_a_root()
    math_font.add_small_roots(font)
    math = font["MATH"].table.MathVariants
    forms = math.VertGlyphConstruction[0]
    assert forms.VariantCount == len(forms.MathGlyphVariantRecord) == 4
    heights = [form.AdvanceMeasurement for form in forms.MathGlyphVariantRecord]
    assert heights == [733, 925, 1201, 1855]
    names = [form.VariantGlyph for form in forms.MathGlyphVariantRecord]
    assert names[0] == "root"  # a browser tries it first
    assert {font["hmtx"][name][0] for name in (*names, "part")} == {800, 900}
    assert [font["glyf"][name].yMax - font["glyf"][name].yMin for name in names[:3]] == [
        732,
        924,
        1200,
    ]


def test_a_formula_stays_on_one_line_with_the_sign_beside_it() -> None:
    formula = '<span class="math notranslate nohighlight"><math><mi>t</mi></math></span>'
    assert book_math.glued(f"a {formula} b") == f"a {formula} b"
    for text in (f"{formula},", f"({formula}", f"({formula})."):
        assert book_math.glued(f"a {text} b") == f'a <span class="tp-glued">{text}</span> b'


def test_the_index_of_a_letter_with_a_bar_stands_beside_it() -> None:
    made = book_math.mathml(r"\bar t_\text{latency}")
    assert re.search(r"<msub><mover><mi>t</mi>.*</mover><mtext>latency</mtext></msub>", made)


def test_a_sign_between_words_has_room_on_both_sides() -> None:
    made = book_math.mathml(r"\text{memory} - \text{weights} + -x")
    assert '<mo form="infix">−</mo><mtext>weights</mtext><mo form="infix">+</mo><mo>−</mo>' in made
    assert '<mo form="infix">=</mo>' in book_math.mathml(r"\text{price} = \text{hours}")


@pytest.mark.parametrize("tex", [r"\text{all} - \text{weights}", r"\text{cache} = {}"])
def test_a_sign_with_words_alone_beside_it_keeps_its_room(tex: str) -> None:
    assert '<mi mathvariant="normal">' in book_math.mathml(tex)
    assert "<mi mathvariant" not in book_math.mathml("b" + tex)


def test_bars_have_no_room_beside_them_and_are_alike() -> None:
    for tex, bars in ((r"\max |w| \cdot |x|", 4), (r"\lVert X \rVert^2", 2), (r"\|x\|", 2)):
        made = book_math.mathml(tex)
        assert len(re.findall(r'lspace="0" rspace="0"[^>]*>[|‖]', made)) == bars
        assert made.count('stretchy="false"') == bars
    assert "stretchy" not in book_math.mathml(r"\left\lVert x \right\rVert")


def test_a_sign_after_a_bracket_is_a_prefix() -> None:
    assert '<mo form="prefix">−</mo>' in book_math.mathml(r"q \in \{-1, 1\}")


@pytest.mark.parametrize(
    ("tex", "rooms"), [(r"t \ln \frac{a}{b}", 2), (r"= \log(x)", 0), (r"2 \log_2(x)", 1)]
)
def test_a_logarithm_has_room_beside_letters(tex: str, rooms: int) -> None:
    assert book_math.mathml(tex).count('<mspace width="0.1667em">') == rooms
