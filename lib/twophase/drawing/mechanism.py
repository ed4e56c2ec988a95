"""A drawing that the reader steps through. Without script, and on paper, all its frames stand side
by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from .block import Block, Part
from .drawing import NARROW, WIDE, both, check_alt, states_of, with_key
from .parts import Below

MOST = 24  # frames: more make a page heavy, and no reader presses a key so often


@dataclass(frozen=True)
class Frame:
    """One moment: what is drawn, and what happens in it, in a sentence."""

    part: Part
    says: str


@dataclass(frozen=True)
class Mechanism:
    """Frames in their order, under a title. Every frame has the same size and the same key.

    Raises ValueError if there are fewer than 2 frames or more than MOST, one says nothing, or a
    drawing's rule is broken (`Drawing`).
    """

    title: str
    frames: Sequence[Frame]
    alt: str = field(kw_only=True)
    key: Mapping[str, str] = field(kw_only=True, default_factory=dict)

    def __post_init__(self) -> None:
        check_alt(self.alt)
        if not 2 <= len(self.frames) <= MOST:
            raise ValueError(f"a mechanism has 2 to {MOST} frames; got {len(self.frames)}.")
        if not all(frame.says.strip() for frame in self.frames):
            raise ValueError("every frame says in words what happens in it.")
        self.blocks()

    def blocks(self) -> list[tuple[Block, Block]]:
        """Every frame laid out for a page, and for a phone."""
        made = [self._laid(width) for width in (WIDE, NARROW)]
        return list(zip(*made, strict=True))

    def _laid(self, width: float) -> list[Block]:
        states = states_of([frame.part.lay(width) for frame in self.frames])
        made = [with_key(Below([f.part]), width, self.key, states) for f in self.frames]
        wide, high = max(b.width for b in made), max(b.height for b in made)
        return [Block(wide, high, block.marks) for block in made]

    def _repr_html_(self) -> str:
        n = len(self.frames)
        frames = "".join(
            f'<li><p class="tp-says"><span class="tp-step">{i} of {n}.</span>'
            f" {escape(frame.says)}</p>{both(*blocks, f'{self.alt} {i} of {n}: {frame.says}')}</li>"
            for i, (frame, blocks) in enumerate(zip(self.frames, self.blocks(), strict=True), 1)
        )
        return (
            f'<section class="tp-mechanism" aria-label="{escape(self.title)}">'
            f'<p class="tp-mechanism-title"><span class="tp-kicker">Step through</span>'
            f" {escape(self.title)}</p><ol>{frames}</ol></section>"
        )

    def __repr__(self) -> str:
        return f"{self.title}: {self.alt} " + " ".join(frame.says for frame in self.frames)
