"""How wide a text is, without a font at hand: the advances of DejaVu Sans, the widest of the site's
fonts, in hundredths of an em. A page with a narrower font has room to spare."""

_BY_ADVANCE = {
    20: "\u202f",
    28: "'ijl",
    30: "IJ",
    32: " ,.·‘’\xa0",
    34: "/:;\\|",
    36: "f",
    37: "-",
    40: "()[]tⁿ",
    41: "!²³₀₁₂₃",
    42: "r",
    46: '"',
    50: "*_`–°",
    52: "“”",
    53: "sz",
    54: "?",
    55: "c",
    56: "L",
    58: "Fk",
    60: "vxy",
    61: "P",
    62: "TYaeo",
    64: "$0123456789ESbdghnpqu{}µ␣√",
    66: "K",
    69: "ABVXZ",
    70: "CR",
    74: "U",
    75: "N",
    76: "H",
    77: "D",
    78: "&G",
    79: "OQ",
    82: "w",
    84: "#+<=>^~×−→←↑↓↔≤≥≈⏎∞✓",
    87: "M",
    96: "%",
    97: "½",
    98: "m",
    99: "W",
    100: "@—…",
}
ADVANCE = {char: hundredths / 100 for hundredths, chars in _BY_ADVANCE.items() for char in chars}
BOLD = 1.27  # no character of the bold face is wider than this many regular ones
UNKNOWN = 1.2  # of an em, for what is not in the table

SIZE, SMALL, SMALLEST = 13, 12, 11  # pixels; nothing is written smaller than the last
ASCENT, LINE = 0.95, 1.35  # of the size: from the top of a line to its baseline, and to the next


def text_width(text: str, size: float = SIZE, bold: bool = False) -> float:
    """Pixels that a text takes at most."""
    wide = sum(ADVANCE.get(char, UNKNOWN) for char in text)
    return size * wide * (BOLD if bold else 1)


def wrapped(text: str, width: float, size: float = SIZE, bold: bool = False) -> list[str]:
    """The text in lines no wider than `width`, broken at spaces. A single word that is wider stands
    alone; whoever lays it out finds it too wide."""
    lines: list[str] = []
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size, bold) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines
