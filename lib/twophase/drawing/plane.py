"""A point that moves along a curve: where something stands between two quantities."""

from collections.abc import Sequence
from dataclasses import dataclass

from .block import Block, Box, Line, Mark, Text
from .quantities import check_width
from .text import ASCENT, LINE, SMALL

DOT = 11  # pixels


@dataclass(frozen=True)
class Plane:
    """A curve through points (x, y), both axes from 0, and one point on it, in a state. `most` is a
    height that the curve never reaches, with its name; `x_name` and `y_name` say what the axes are,
    units included. Of the curve's points the first `solid` are, the others dashed."""

    curve: Sequence[tuple[float, float]]
    at: tuple[float, float]
    state: str
    x_name: str
    y_name: str
    most: tuple[float, str] | None = None
    solid: int | None = None
    tall: float = 150

    def __post_init__(self) -> None:
        points = [*self.curve, self.at]
        if len(self.curve) < 2 or any(x < 0 or y < 0 for x, y in points):
            raise ValueError("a plane needs a curve of at least two points, none below 0.")

    def lay(self, width: float) -> Block:
        texts = (self.x_name, self.y_name, *((self.most[1],) if self.most else ()))
        for text in texts:
            check_width(text, width, SMALL)
        top = 2 * LINE * SMALL + 4
        high = max(y for _, y in [*self.curve, self.at]) if self.most is None else self.most[0]
        across = (width - DOT) / max(x for x, _ in [*self.curve, self.at])
        bottom = top + self.tall

        def place(x: float, y: float) -> tuple[float, float]:
            return 1 + x * across, bottom - y * self.tall / high

        marks: list[Mark] = [
            Text(0, ASCENT * SMALL, self.y_name, SMALL, tone="quiet"),
            Text(width, bottom + 4 + SMALL, self.x_name, SMALL, "end", "quiet"),
            Line(((1, top - 4), (1, bottom), (width, bottom)), "quiet"),
        ]
        points = tuple(place(*point) for point in self.curve)
        cut = len(points) if self.solid is None else self.solid
        marks += [Line(points[:cut], "decode", 2.2)]
        if cut < len(points):
            marks.append(Line(points[cut - 1 :], "decode", 2.2, dashed=True))
        if self.most is not None:
            marks.append(Line(((1, top), (width, top)), "quiet", dashed=True))
            marks.append(Text(width, top - 5, self.most[1], SMALL, "end", "quiet"))
        x, y = place(*self.at)
        marks.append(Box(x - DOT / 2, y - DOT / 2, DOT, DOT, self.state))
        return Block(width, bottom + LINE * SMALL + 4, tuple(marks))
