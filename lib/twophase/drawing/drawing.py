"""A drawing as a cell shows it: laid out for a page and, where that differs, for a phone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .block import Block, Box, Mark, Part, Text, stacked
from .parts import PAD
from .states import STATES
from .svg import svg
from .text import ASCENT, LINE, SMALL, text_width

WIDE, NARROW = 620, 326  # pixels of a page, and of a phone 390 wide
SWATCH = 16


@dataclass(frozen=True)
class Key:
    """What the states mean: a swatch and a word for each, in as many lines as it takes."""

    words: Mapping[str, str]  # state -> word

    def lay(self, width: float) -> Block:
        marks: list[Mark] = []
        x = y = widest = 0.0
        for state, word in self.words.items():
            wide = SWATCH + PAD + text_width(word, SMALL)
            if x and x + wide > width:
                x, y = 0.0, y + SMALL * LINE + 5
            marks.append(Box(x, y + 1, SWATCH, SMALL * LINE - 2, state))
            marks.append(Text(x + SWATCH + PAD, y + ASCENT * SMALL, word, SMALL, tone="quiet"))
            widest, x = max(widest, x + wide), x + wide + 16
        return Block(widest, y + SMALL * LINE, tuple(marks))


@dataclass(frozen=True)
class Drawing:
    """A part with its key and a description for those who cannot see it.

    `key`: what a state means here, where its own word will not do; an empty word leaves it out of
    the key. Raises ValueError if `alt` says nothing, two texts would overlap, or there is no room
    on a phone (TooNarrow).
    """

    part: Part
    alt: str = field(kw_only=True)
    key: Mapping[str, str] = field(kw_only=True, default_factory=dict)

    def __post_init__(self) -> None:
        check_alt(self.alt)
        if unknown := set(self.key) - set(STATES):
            raise ValueError(f"there is no state {unknown.pop()!r}: take of {', '.join(STATES)}.")
        self.blocks()

    def blocks(self) -> tuple[Block, Block]:
        """Laid out for a page, and for a phone."""
        return with_key(self.part, WIDE, self.key), with_key(self.part, NARROW, self.key)

    def _repr_html_(self) -> str:
        return f'<div class="tp-drawing">{both(*self.blocks(), self.alt)}</div>'

    def __repr__(self) -> str:
        return f"Drawing: {self.alt}"


def check_alt(alt: str) -> None:
    """ValueError for a description that says nothing."""
    if len(alt.split()) < 4:
        raise ValueError(
            f"alt says what the drawing shows, in a sentence, to a reader who cannot see it; got"
            f" {alt!r}."
        )


def states_of(blocks: Sequence[Block]) -> list[str]:
    """The states that a key must explain, in the order of STATES."""
    boxes = [mark for block in blocks for mark in block.marks if isinstance(mark, Box)]
    drawn = {box.state for box in boxes if not box.named}
    return [state for state in STATES if state in drawn]


def with_key(
    part: Part, width: float, words: Mapping[str, str], states: Sequence[str] = ()
) -> Block:
    """The part laid out, checked, and the key of its states (or of `states`) below it."""
    block = part.lay(width)
    said = {s: words.get(s, STATES[s].word) for s in states or states_of([block])}
    said = {state: word for state, word in said.items() if word}
    if said:
        block = stacked([block, Key(said).lay(width)], 14)
    block.check()
    return block


def both(wide: Block, narrow: Block, alt: str) -> str:
    """The SVG for a page and the one for a phone, of which the style sheet shows one; without it,
    in a notebook, the first is shown. If they are the same there is one only."""
    if wide == narrow:
        return svg(wide, alt, "tp-any")
    hidden = svg(narrow, alt, "tp-narrow").replace('style="', 'style="display:none;', 1)
    return svg(wide, alt, "tp-wide") + hidden
