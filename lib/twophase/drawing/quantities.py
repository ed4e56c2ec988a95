"""Lengths that stand for numbers: bars of memory and axes of time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .block import Block, Box, Line, Mark, Text, TooNarrow
from .drawing import SWATCH
from .text import ASCENT, LINE, SIZE, SMALL, text_width

TALL = 30  # pixels of a bar
LANE = 22  # of a lane of time, and of a bracket


@dataclass(frozen=True)
class Bar:
    """What fills something up to its capacity: (name, amount, state) each, drawn to scale, then a
    line for each with its amount in words, which `say` makes. What does not fit stands beyond the
    wall, and `over` says how much that is."""

    parts: Sequence[tuple[str, float, str]]
    capacity: float
    say: Callable[[float], str]
    full: str = "capacity"  # what the wall is called
    free: str = "free"
    over: str = "does not fit: {} too much"  # of a time: "{} longer"

    def __post_init__(self) -> None:
        if self.capacity <= 0 or any(amount < 0 for _, amount, _ in self.parts):
            raise ValueError("a bar needs a positive capacity and amounts of at least 0.")

    @property
    def total(self) -> float:
        """All amounts together."""
        return sum(amount for _, amount, _ in self.parts)

    @property
    def fits(self) -> bool:
        """Whether the amounts stay within the capacity."""
        return self.total <= self.capacity

    def lay(self, width: float) -> Block:
        scale = (width - 1) / max(self.total, self.capacity)
        marks: list[Mark] = []
        x = 0.0
        rows = list(self.parts)
        if self.total < self.capacity:
            rows.append((self.free, self.capacity - self.total, "empty"))
        for _, amount, state in rows:
            if amount:
                marks.append(Box(x, 0, amount * scale, TALL, state, named=True))
            x += amount * scale
        wall = self.capacity * scale
        marks.append(Line(((wall, -1), (wall, TALL + 8)), "ink", 2.2))
        said = f"{self.full}: {self.say(self.capacity)}"
        wide = check_width(said, width, SMALL)
        marks.append(Text(max(wall, wide), TALL + 10 + SMALL, said, SMALL, "end", bold=True))
        return self._with_lines(marks, rows, width)

    def _with_lines(
        self, marks: list[Mark], rows: Sequence[tuple[str, float, str]], width: float
    ) -> Block:
        """A line for each part: swatch, name, amount."""
        y = TALL + 16 + LINE * SMALL
        amounts = [self.say(amount) for _, amount, _ in rows]
        names = SWATCH + 8 + max(text_width(name) for name, _, _ in rows) + 18
        end = names + max(text_width(amount) for amount in amounts)
        if end > width:
            raise TooNarrow(f"the names of a bar do not fit into {width:.0f} pixels.")
        for (name, _, state), amount in zip(rows, amounts, strict=True):
            marks.append(Box(0, y + 2, SWATCH, SIZE, state, named=True))
            marks.append(Text(SWATCH + 8, y + ASCENT * SIZE, name))
            marks.append(Text(end, y + ASCENT * SIZE, amount, anchor="end"))
            y += LINE * SIZE + 3
        if not self.fits:
            over = self.over.format(self.say(self.total - self.capacity))
            check_width(over, width, SIZE)
            marks.append(Text(0, y + ASCENT * SIZE, over, bold=True))
            y += LINE * SIZE
        return Block(width, y, tuple(marks))


@dataclass(frozen=True)
class Timeline:
    """Lanes of spans (start, end, state) along one axis of time, and below them brackets (name,
    start, end), each on a line of its own with its name and its length, which `say` makes."""

    lanes: Mapping[str, Sequence[tuple[float, float, str]]]
    brackets: Sequence[tuple[str, float, float]]
    say: Callable[[float], str]

    def __post_init__(self) -> None:
        spans = [span[:2] for lane in self.lanes.values() for span in lane]
        spans += [(start, end) for _, start, end in self.brackets]
        if not spans or any(end < start for start, end in spans):
            raise ValueError("a timeline needs spans that end after they start.")

    def lay(self, width: float) -> Block:
        ends = [s[:2] for lane in self.lanes.values() for s in lane]
        ends += [(a, b) for _, a, b in self.brackets]
        first, last = min(a for a, _ in ends), max(b for _, b in ends)
        left = max((text_width(name, SMALL) + 10 for name in self.lanes), default=0.0)
        if left > width / 2:
            raise TooNarrow(f"the names of lanes do not fit into {width:.0f} pixels.")
        scale = (width - left - 1) / ((last - first) or 1.0)
        marks: list[Mark] = []
        y = 0.0
        for name, lane in self.lanes.items():
            marks.append(Text(left - 10, y + LANE / 2 + SMALL * 0.36, name, SMALL, "end", "quiet"))
            marks += [
                Box(left + (a - first) * scale, y, max(1.2, (b - a) * scale), LANE, state)
                for a, b, state in lane
            ]
            y += LANE + 6
        for name, start, end in self.brackets:
            at = left + (start - first) * scale, left + (end - first) * scale
            marks += _bracket(f"{name} {self.say(end - start)}", *at, y + 4, width)
            y += LINE * SMALL + 15
        return Block(width, y, tuple(marks))


def _bracket(said: str, start: float, end: float, y: float, width: float) -> list[Mark]:
    """A bracket from start to end, open at the top, its text below it and within the drawing."""
    wide = text_width(said, SMALL)
    if wide > width:
        raise TooNarrow(f"{said!r} does not fit into {width:.0f} pixels.")
    left = min(max(0.0, (start + end - wide) / 2), width - wide)
    line = Line(((start, y - 4), (start, y + 2), (end, y + 2), (end, y - 4)), "ink")
    return [line, Text(left, y + 5 + SMALL, said, SMALL)]


def check_width(said: str, width: float, size: float) -> float:
    """Pixels of a bold text. TooNarrow if it is wider than `width`."""
    wide = text_width(said, size, bold=True)
    if wide > width:
        raise TooNarrow(f"{said!r} does not fit into {width:.0f} pixels.")
    return wide
