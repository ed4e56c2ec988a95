"""Make `book/_static/math.woff2`, the font of the formulas: STIX Two Math, cut to the characters
that `book/_ext/book_math.py` names, with their larger forms, and with smaller forms of the root.

    pip install brotli
    npm pack @fontsource/stix-two-math@5.3.0 && tar xzf fontsource-stix-two-math-5.3.0.tgz
    python tools/math_font.py package/files/stix-two-math-latin-400-normal.woff2

Its license is the SIL Open Font License 1.1 (`book/_static/math-font-license.txt`).
"""

import sys
from copy import deepcopy
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont
from fontTools.ttLib.tables import otTables

sys.path.insert(0, str(Path(__file__).parent.parent / "book" / "_ext"))
from book_math import CHARACTERS, FONT

# The heights of small roots, of that of the font's smallest: for √n, and for √3.
SMALL_ROOTS = (0.61, 0.77)
WIDEST_ROOT = 900  # units


def scale_glyph(font: TTFont, name: str, x: float, y: float, copy: str = "") -> None:
    """Make a glyph, or a new copy of it, `x` times as wide and `y` times as high."""
    glyphs, (advance, left) = font["glyf"], font["hmtx"][name]
    glyph = deepcopy(glyphs[name])
    glyph.coordinates.scale((x, y))
    glyph.coordinates.toInt()
    glyph.recalcBounds(glyphs)
    if copy:
        font.setGlyphOrder([*font.getGlyphOrder(), copy])
    glyphs.glyphs[copy or name] = glyph
    font["hmtx"][copy or name] = (round(advance * x), round(left * x))


def add_small_roots(font: TTFont) -> None:
    """Give the root sign smaller forms, and its large ones about the width of the small.

    A browser lets hang down what a root is higher than its letters, and some keep the room of the
    widest form behind each: with the font's own, 1/√n sinks below its line, and a gap follows it.
    """
    root = font.getBestCmap()[ord("√")]
    math = font["MATH"].table.MathVariants
    forms = math.VertGlyphConstruction[math.VertGlyphCoverage.glyphs.index(root)]
    larger = [form for form in forms.MathGlyphVariantRecord if form.VariantGlyph != root]
    parts = [part.glyph for part in forms.GlyphAssembly.PartRecords]
    for name in {form.VariantGlyph for form in larger} | set(parts):
        scale_glyph(font, name, min(1, WIDEST_ROOT / font["hmtx"][name][0]), 1)
    least, medium = SMALL_ROOTS
    scale_glyph(font, root, 1, medium, "root.medium")
    scale_glyph(font, root, 1, 1, "root.whole")
    scale_glyph(font, root, 1, least)  # last: what a browser tries first, the others are of it
    smaller = []
    for name in (root, "root.medium", "root.whole"):
        form = otTables.MathGlyphVariantRecord()
        glyph = font["glyf"][name]
        form.VariantGlyph, form.AdvanceMeasurement = name, glyph.yMax - glyph.yMin + 1
        smaller.append(form)
    forms.MathGlyphVariantRecord = smaller + larger
    forms.VariantCount = len(smaller + larger)


def make(source: Path, target: Path) -> int:
    """Write the cut font; how many bytes it has."""
    options = subset.Options(
        flavor="woff2",
        hinting=False,
        layout_features=["ccmp", "mark", "mkmk", "kern"],
        notdef_outline=True,
        name_IDs=[0, 1, 2, 3, 4, 5, 6, 13, 14],
    )
    font = subset.load_font(str(source), options)
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=sorted(map(ord, CHARACTERS)))
    cutter.subset(font)
    missing = {chr(code) for code in map(ord, CHARACTERS)} - set(map(chr, font.getBestCmap()))
    if missing:
        raise ValueError(f"the font has no {sorted(missing)}.")
    add_small_roots(font)
    subset.save_font(font, str(target), options)
    return target.stat().st_size


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("which font? see the head of tools/math_font.py")
    print(f"{FONT}: {make(Path(sys.argv[1]), FONT):,} bytes")
