"""What is connected: stacks of operations, heads and their keys, chips, tables of blocks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .block import Block, Line, Mark, Text, TooNarrow
from .parts import CELL, PAD, Below, Cell, Strip, Tiles, Titled, cell
from .text import SMALL, text_width


@dataclass(frozen=True)
class Stack:
    """Operations one after the other, from the top: (name, shape of what it puts out, state).
    `around` are the pairs (from, to) of steps that a stream runs past: it leaves the arrow above
    `from` and joins the one below `to`, as what a block adds to its stream does."""

    steps: Sequence[tuple[str, str, str]]
    around: Sequence[tuple[int, int]] = ()
    start: str = ""  # shape of what comes in

    def lay(self, width: float) -> Block:
        left = 26.0 if self.around else 0.0
        wide = max(text_width(name) for name, _, _ in self.steps) + 2 * PAD
        shapes = [self.start, *(shape for _, shape, _ in self.steps)]
        total = (
            left
            + wide
            + max(0.0, max(text_width(shape, SMALL) for shape in shapes) + 12 - wide / 2)
        )
        if total > width:
            raise TooNarrow(f"a stack {total:.0f} pixels wide does not fit into {width:.0f}.")
        gap, middle = 25.0, left + wide / 2
        marks: list[Mark] = []
        for i, (name, _, state) in enumerate(self.steps):
            marks += cell(left, gap + i * (CELL + gap), wide, CELL, name, state)
        for i, shape in enumerate(shapes):
            y = i * (CELL + gap)
            last = i == len(self.steps)
            marks.append(Line(((middle, y + 1), (middle, y + gap - (5 if last else 1))), head=True))
            if shape:
                marks.append(Text(middle + 10, y + 17, shape, SMALL, tone="quiet"))
        for first, last_step in self.around:
            top = first * (CELL + gap) + 16
            bottom = (last_step + 1) * (CELL + gap) + 5
            path = ((middle, top), (8.0, top), (8.0, bottom), (middle - 2, bottom))
            marks.append(Line(path, head=True))
        return Block(total, gap + len(self.steps) * (CELL + gap), tuple(marks))


@dataclass(frozen=True)
class Wiring:
    """Two rows of cells, and lines from those above to those below: `edges` are pairs (above,
    below), counted from 0."""

    above: Sequence[Cell]
    below: Sequence[Cell]
    edges: Sequence[tuple[int, int]]

    def lay(self, width: float) -> Block:
        rows = (self.above, self.below)
        widest = max(text_width(text, SMALL) for row in rows for text, _ in row) + 2 * PAD
        width = min(width, max(len(row) for row in rows) * (max(widest, 40) + 30))
        marks: list[Mark] = []
        middles: list[list[float]] = []
        drop = 40.0
        for row, y in zip(rows, (0.0, CELL + drop), strict=True):
            share = width / len(row)
            wide = min(max(40.0, widest), share - 4)
            if any(text_width(text, SMALL) + 4 > wide for text, _ in row):
                raise TooNarrow(f"{len(row)} cells do not fit into {width:.0f} pixels.")
            middles.append([(i + 0.5) * share for i in range(len(row))])
            for x, (text, state) in zip(middles[-1], row, strict=True):
                marks += cell(x - wide / 2, y, wide, CELL, text, state, SMALL)
        for a, b in self.edges:
            marks.append(Line(((middles[0][a], CELL + 1), (middles[1][b], CELL + drop - 1))))
        return Block(width, 2 * CELL + drop, tuple(marks))


@dataclass(frozen=True)
class Mesh:
    """Chips in rows, each linked with its neighbors; `ring` closes each row and column."""

    chips: Sequence[Sequence[Cell]]
    ring: bool = False
    side: float = 44

    def lay(self, width: float) -> Block:
        n, gap = max(len(row) for row in self.chips), 16.0
        margin = 14.0 if self.ring else 0.0
        inside = max(text_width(text, SMALL) + 10 for row in self.chips for text, _ in row)
        side = min(max(self.side, inside), (width - 2 * margin + gap) / n - gap)
        if side < inside:
            raise TooNarrow(f"{n} chips in a row do not fit into {width:.0f} pixels.")
        step, tall = side + gap, min(side, 44.0)
        down = tall + gap
        boxes: list[Mark] = []
        links: list[Mark] = []
        for r, row in enumerate(self.chips):
            for i, (text, state) in enumerate(row):
                x, y = margin + i * step, margin + r * down
                boxes += cell(x, y, side, tall, text, state, SMALL)
                if i + 1 < len(row) or self.ring:
                    links.append(_link(x + side, y + tall / 2, gap - 1, 0))
                if r + 1 < len(self.chips) or self.ring:
                    links.append(_link(x + side / 2, y + tall, 0, gap - 1))
                if self.ring and i == 0:
                    links.append(_link(x - margin, y + tall / 2, margin, 0))
                if self.ring and r == 0:
                    links.append(_link(x + side / 2, y - margin, 0, margin))
        wide = 2 * margin + n * step - gap
        high = 2 * margin + len(self.chips) * down - gap
        return Block(wide, high, (*links, *boxes))


def _link(x: float, y: float, dx: float, dy: float) -> Line:
    return Line(((x, y), (x + dx, y + dy)), "quiet", 2)


@dataclass(frozen=True)
class BlockTable:
    """The blocks of each sequence, by the numbers of the pool's blocks, and the pool, (text,
    state) each, `per_row` in a row at most."""

    tables: Mapping[str, Sequence[int]]
    pool: Sequence[Cell]
    per_row: int = 8

    def __post_init__(self) -> None:
        for name, blocks in self.tables.items():
            if any(not 0 <= block < len(self.pool) for block in blocks):
                raise ValueError(f"{name} names a block that a pool of {len(self.pool)} lacks.")

    def lay(self, width: float) -> Block:
        tables = [
            Titled(name, Strip([(f"→ {b}", self.pool[b][1]) for b in blocks]))
            for name, blocks in self.tables.items()
        ]
        return Below([*tables, Titled("pool", self._numbered(width))]).lay(width)

    def _numbered(self, width: float) -> Tiles:
        """The pool in equal rows, the number of each row's first block before it."""
        inside = max(text_width(text, SMALL) for text, _ in self.pool) + 8
        most = max(1, min(self.per_row, int((width - 40) / max(24.0, inside))))
        n = next(n for n in range(most, 0, -1) if len(self.pool) % n == 0)
        rows = [list(self.pool[i : i + n]) for i in range(0, len(self.pool), n)]
        return Tiles(rows, [str(i * n) for i in range(len(rows))], side=24)
