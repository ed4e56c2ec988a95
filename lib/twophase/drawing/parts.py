"""Words, strips of tokens, matrices of tiles, and what puts parts beside or below each other."""

from collections.abc import Sequence
from dataclasses import dataclass

from .block import Block, Box, Mark, Part, Text, TooNarrow, stacked
from .states import STATES
from .text import ASCENT, LINE, SIZE, SMALL, text_width, wrapped

PAD, GAP = 6, 3  # pixels inside of a cell, and between two
CELL = 26  # height of a cell with text
Cell = tuple[str, str]  # what is written in it, and its state


@dataclass(frozen=True)
class Words:
    """A text, in as many lines as it takes."""

    text: str
    size: float = SIZE
    tone: str = "ink"
    bold: bool = False

    def lay(self, width: float) -> Block:
        lines = wrapped(self.text, width, self.size, self.bold)
        widest = max(text_width(line, self.size, self.bold) for line in lines)
        if widest > width:
            raise TooNarrow(f"{self.text!r} does not fit into {width:.0f} pixels.")
        step = LINE * self.size
        marks = [
            Text(0, i * step + ASCENT * self.size, line, self.size, "start", self.tone, self.bold)
            for i, line in enumerate(lines)
        ]
        return Block(widest, step * len(lines), tuple(marks))


@dataclass(frozen=True)
class Below:
    """Parts one below the other."""

    parts: Sequence[Part]
    gap: float = 12

    def lay(self, width: float) -> Block:
        return stacked([part.lay(width) for part in self.parts], self.gap)


@dataclass(frozen=True)
class Beside:
    """Parts side by side, where there is room for that; one below the other where there is not."""

    parts: Sequence[Part]
    gap: float = 28

    def lay(self, width: float) -> Block:
        share = (width - self.gap * (len(self.parts) - 1)) / len(self.parts)
        for room in (width, share):  # as wide as each likes to be, else equal shares
            try:
                blocks = [part.lay(room) for part in self.parts]
            except TooNarrow:
                continue
            if sum(b.width for b in blocks) + self.gap * (len(blocks) - 1) <= width:
                return self._in_a_row(blocks)
        return Below(self.parts, self.gap * 0.7).lay(width)

    def _in_a_row(self, blocks: Sequence[Block]) -> Block:
        marks: list[Mark] = []
        x = 0.0
        for block in blocks:
            marks += block.moved(x, 0)
            x += block.width + self.gap
        return Block(x - self.gap, max(block.height for block in blocks), tuple(marks))


@dataclass(frozen=True)
class Titled:
    """A part under its name."""

    title: str
    part: Part

    def lay(self, width: float) -> Block:
        return stacked([Words(self.title, bold=True).lay(width), self.part.lay(width)], 5)


@dataclass(frozen=True)
class Strip:
    """Cells in a row, each as wide as its text and at least `least` wide; as many rows as it
    takes."""

    cells: Sequence[Cell]
    least: float = CELL

    def lay(self, width: float) -> Block:
        marks: list[Mark] = []
        x = y = widest = 0.0
        for text, state in self.cells:
            wide = max(self.least, text_width(text) + 2 * PAD)
            if wide > width:
                raise TooNarrow(f"a cell with {text!r} does not fit into {width:.0f} pixels.")
            if x and x + wide > width:
                x, y = 0.0, y + CELL + GAP
            marks += cell(x, y, wide, CELL, text, state)
            widest, x = max(widest, x + wide), x + wide + GAP
        return Block(widest, y + CELL if self.cells else 0.0, tuple(marks))


@dataclass(frozen=True)
class Tiles:
    """A matrix of tiles, each a state or a text with its state; labels at the left of rows and
    above columns. Tiles are `side` pixels wide, less where there is no room, but never narrower
    than what is written in them or `LEAST`."""

    rows: Sequence[Sequence[str | Cell]]
    row_labels: Sequence[str] = ()
    column_labels: Sequence[str] = ()
    side: float = 22

    LEAST = 7

    def __post_init__(self) -> None:
        wide = {len(row) for row in self.rows}
        if len(wide) != 1:
            raise ValueError(f"the rows of a matrix are equally long; got {sorted(wide)}.")
        if len(self.row_labels) not in (0, len(self.rows)):
            raise ValueError(f"{len(self.rows)} rows need as many labels, or none.")
        if len(self.column_labels) not in (0, *wide):
            raise ValueError(f"{wide.pop()} columns need as many labels, or none.")

    def lay(self, width: float) -> Block:
        texts = [[("", c) if isinstance(c, str) else c for c in row] for row in self.rows]
        n, gap = len(texts[0]), 2
        left = max((text_width(t, SMALL) + 8 for t in self.row_labels), default=0.0)
        inside = max(text_width(text, SMALL) + 4 if text else 0 for row in texts for text, _ in row)
        above = max((text_width(t, SMALL) + 2 for t in self.column_labels), default=0.0)
        side = min(max(self.side, inside, above), (width - left + gap) / n - gap)
        if side < max(self.LEAST, inside, above):
            raise TooNarrow(f"a matrix of {n} columns does not fit into {width:.0f} pixels.")
        top = LINE * SMALL + 2 if self.column_labels else 0.0
        tall = max(side if side < self.side else self.side, SMALL * LINE if inside else 0)
        if self.row_labels:
            tall = max(tall, SMALL * LINE)
        marks: list[Mark] = [
            Text(left + i * (side + gap) + side / 2, ASCENT * SMALL, t, SMALL, "middle", "quiet")
            for i, t in enumerate(self.column_labels)
        ]
        for r, row in enumerate(texts):
            y = top + r * (tall + gap)
            if self.row_labels:
                base = y + tall / 2 + SMALL * 0.36
                marks.append(Text(left - 8, base, self.row_labels[r], SMALL, "end", "quiet"))
            for i, (text, state) in enumerate(row):
                marks += cell(left + i * (side + gap), y, side, tall, text, state, SMALL)
        height = top + len(texts) * (tall + gap) - gap
        return Block(left + n * (side + gap) - gap, height, tuple(marks))


def cell(
    x: float, y: float, width: float, height: float, text: str, state: str, size: float = SIZE
) -> list[Mark]:
    """A box in a state, with its text in the middle."""
    box = Box(x, y, width, height, state)
    if not text:
        return [box]
    tone = STATES[state].label
    return [
        box,
        Text(x + width / 2, y + height / 2 + size * 0.36, text, size, "middle", tone),
    ]
