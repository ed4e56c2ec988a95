"""Drawings for chapters: short Python makes an SVG in the site's colors that is right in the dark,
on a phone and on paper.

A part (`Strip`, `Tiles`, `Bar`, ...) is laid out for the width there is; `Drawing(part, alt=...)`
lays it out for a page and for a phone. Whatever is filled is in one of the `STATES`.
`Mechanism` is a drawing that the reader steps through, `Clicked` one that the reader leads. The
standard library is all it needs.
"""

from .block import TooNarrow
from .clicked import Clicked, Moment, reach
from .diagrams import BlockTable, Mesh, Stack, Wiring
from .drawing import Drawing
from .mechanism import Frame, Mechanism
from .parts import Below, Beside, Strip, Tiles, Titled, Words
from .plane import Plane
from .quantities import Bar, Timeline
from .states import STATES, State

__all__ = [
    "STATES",
    "Bar",
    "Below",
    "Beside",
    "BlockTable",
    "Clicked",
    "Drawing",
    "Frame",
    "Mechanism",
    "Mesh",
    "Moment",
    "Plane",
    "Stack",
    "State",
    "Strip",
    "Tiles",
    "Timeline",
    "Titled",
    "TooNarrow",
    "Wiring",
    "Words",
    "reach",
]
