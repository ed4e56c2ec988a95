"""Make `book/_static/math.woff2`, the font of the formulas: STIX Two Math, cut to the characters
that `book/_ext/book_math.py` names, with their larger forms.

    pip install brotli
    npm pack @fontsource/stix-two-math@5.3.0 && tar xzf fontsource-stix-two-math-5.3.0.tgz
    python tools/math_font.py package/files/stix-two-math-latin-400-normal.woff2

Its license is the SIL Open Font License 1.1 (`book/_static/math-font-license.txt`).
"""

import sys
from pathlib import Path

from fontTools import subset

sys.path.insert(0, str(Path(__file__).parent.parent / "book" / "_ext"))
from book_math import CHARACTERS, FONT


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
    subset.save_font(font, str(target), options)
    return target.stat().st_size


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("which font? see the head of tools/math_font.py")
    print(f"{FONT}: {make(Path(sys.argv[1]), FONT):,} bytes")
