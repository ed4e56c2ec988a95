"""What a part becomes once it is laid out: marks with places, in pixels from the top left."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Protocol

from .states import STATES
from .text import ASCENT, LINE, SIZE, text_width


class TooNarrow(ValueError):
    """A part does not fit into the width there is."""


@dataclass(frozen=True)
class Text:
    """A line of text; x is its start, middle or end, as `anchor` says, y its baseline."""

    x: float
    y: float
    text: str
    size: float = SIZE
    anchor: str = "start"
    tone: str = "ink"
    bold: bool = False

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom."""
        wide = text_width(self.text, self.size, self.bold)
        left = self.x - wide * {"start": 0, "middle": 0.5, "end": 1}[self.anchor]
        top = self.y - ASCENT * self.size
        return left, top, left + wide, top + LINE * self.size


@dataclass(frozen=True)
class Box:
    """A rectangle in one of the STATES; `named` if its part says itself what it stands for."""

    x: float
    y: float
    width: float
    height: float
    state: str
    named: bool = False

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"there is no state {self.state!r}: take one of {', '.join(STATES)}.")

    def meets(self, other: "Box") -> bool:
        """Whether the two share more than an edge."""
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )


@dataclass(frozen=True)
class Line:
    """Straight lines from point to point; an arrow if it has a `head`."""

    points: tuple[tuple[float, float], ...]
    tone: str = "quiet"
    width: float = 1.4
    head: bool = False
    dashed: bool = False


Mark = Text | Box | Line


@dataclass(frozen=True)
class Block:
    """Marks and the room they take."""

    width: float
    height: float
    marks: tuple[Mark, ...] = ()

    def moved(self, dx: float, dy: float) -> tuple[Mark, ...]:
        """The marks, further right and down."""
        return tuple(_moved(mark, dx, dy) for mark in self.marks)

    def check(self) -> None:
        """ValueError if two texts overlap, or one stands out of the block."""
        texts = [mark for mark in self.marks if isinstance(mark, Text)]
        for text in texts:
            left, top, right, bottom = text.bounds
            if left < -0.5 or top < -0.5 or right > self.width + 0.5 or bottom > self.height + 0.5:
                raise ValueError(f"{text.text!r} stands out of its drawing.")
        for one, two in combinations(texts, 2):
            a, b = one.bounds, two.bounds
            if min(a[2], b[2]) - max(a[0], b[0]) > 0.5 and min(a[3], b[3]) - max(a[1], b[1]) > 0.5:
                raise ValueError(f"{one.text!r} and {two.text!r} overlap.")


class Part(Protocol):
    """What can be drawn."""

    def lay(self, width: float) -> Block:
        """The part, no wider than `width`. Raises TooNarrow if it cannot be."""


def _moved(mark: Mark, dx: float, dy: float) -> Mark:
    if isinstance(mark, Line):
        return replace(mark, points=tuple((x + dx, y + dy) for x, y in mark.points))
    return replace(mark, x=mark.x + dx, y=mark.y + dy)


def stacked(blocks: Sequence[Block], gap: float) -> Block:
    """The blocks one below the other."""
    marks: list[Mark] = []
    y = 0.0
    for block in blocks:
        marks += block.moved(0, y)
        y += block.height + gap
    return Block(max((b.width for b in blocks), default=0), max(0.0, y - gap), tuple(marks))
