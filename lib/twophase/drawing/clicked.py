"""A drawing that the reader leads: what happens next is clicked, and the drawing shows what came of
it. Every moment that can be reached was computed before, by the code that the page is about; the
page's script looks them up, and knows no rule. Without script, and on paper, one story of clicks
stands side by side, as the frames of a mechanism do.
"""

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, TypeVar

from .block import Block, Box, Part, Text, stacked
from .drawing import NARROW, WIDE, Key, both, check_alt, with_key
from .parts import Cell
from .states import STATES, VARIABLES
from .svg import boxes_and_patterns

# A letter for each look of a cell: none that JSON or HTML would write otherwise.
LETTERS = "".join(chr(c) for c in (*range(35, 127), *range(192, 592)) if chr(c) not in "&<>\\")
LESS = "\\u003c"  # in JSON, where a script must not end
_State = TypeVar("_State")
Reached = tuple[list[_State], list[dict[str, int]]]


@dataclass(frozen=True)
class Moment:
    """What stands in the boxes of a drawing, what has just happened, in a sentence, and which
    moment follows each deed (its place in the list). A deed that is missing cannot be done."""

    cells: Sequence[Cell]
    says: str
    then: Mapping[str, int]


@dataclass(frozen=True)
class Clicked:
    """Moments, the first of which the reader starts at, under a title.

    `draw` makes the drawing of a moment's cells: boxes in the same order and places whatever is in
    them, a character each. `deeds`: the names of what can be clicked, in rows. `story`: the deeds
    that paper shows. `key`: what states mean, as in `Drawing`. Raises ValueError if a deed is not
    known or leads nowhere, or a drawing's rule is broken.
    """

    title: str
    draw: Callable[[Sequence[Cell]], Part]
    moments: Sequence[Moment]
    deeds: Sequence[Sequence[str]] = field(kw_only=True)
    story: Sequence[str] = field(kw_only=True)
    alt: str = field(kw_only=True)
    key: Mapping[str, str] = field(kw_only=True)

    def __post_init__(self) -> None:
        check_alt(self.alt)
        known = {deed for row in self.deeds for deed in row}
        for moment in self.moments:
            if strange := set(moment.then) - known:
                raise ValueError(f"{strange.pop()!r} is none of the deeds.")
            if any(not 0 <= to < len(self.moments) for to in moment.then.values()):
                raise ValueError(f"a deed leads to one of the {len(self.moments)} moments.")
            if not moment.says.strip() or len(moment.cells) != len(self.moments[0].cells):
                raise ValueError("every moment says what happens, and has cells as the first has.")
            if any(len(text) > 1 or not self.key.get(state) for text, state in moment.cells):
                raise ValueError("a cell holds one character at most, in a state that is named.")
        self.path()

    def path(self) -> list[Moment]:
        """The moments of the story, the first included. ValueError if a deed cannot be done."""
        found = [self.moments[0]]
        for deed in self.story:
            if deed not in found[-1].then:
                raise ValueError(f"the story's deed {deed!r} cannot be done then.")
            found.append(self.moments[found[-1].then[deed]])
        return found

    def _repr_html_(self) -> str:
        path = self.path()
        frames = "".join(
            f'<li><p class="tp-says"><span class="tp-step">{i} of {len(path)}.</span>'
            f" {escape(one.says)}</p>{self._frame(one, f'{i} of {len(path)}: {one.says}')}</li>"
            for i, one in enumerate(path, 1)
        )
        data = json.dumps(self._data(), ensure_ascii=False, separators=(",", ":"))
        return (
            f'<section class="tp-mechanism tp-clicked" aria-label="{escape(self.title)}">'
            f'<p class="tp-mechanism-title"><span class="tp-kicker">Click through</span>'
            f" {escape(self.title)}</p><ol>{frames}</ol>"
            f'<script type="application/json">{data.replace("<", LESS)}</script></section>'
        )

    def _frame(self, moment: Moment, says: str) -> str:
        """A moment of the story."""
        part, states = self.draw(moment.cells), [s for s in STATES if self.key.get(s)]
        wide, narrow = (with_key(part, width, self.key, states) for width in (WIDE, NARROW))
        return both(wide, narrow, f"{self.alt} {says}")

    def _data(self) -> dict[str, Any]:
        """What the script looks up. `faces`: what a cell can look like, a state's place in the
        list and a text. Of each moment: the faces of its cells, a letter of `letters` each, the
        place of its sentence, and for each deed the moment behind it or -1. Of each layout: where
        its cells are, and how each state looks there."""
        cells = self.moments[0].cells
        layouts = [_Layout(self.draw, cells, self.key, width) for width in (WIDE, NARROW)]
        still = both(layouts[0].still, layouts[1].still, self.alt)
        names = ["tp-any"] if 'class="tp-any"' in still else ["tp-wide", "tp-narrow"]
        words = list(dict.fromkeys(moment.says for moment in self.moments))
        sentence = {text: i for i, text in enumerate(words)}
        faces = list(dict.fromkeys(face for moment in self.moments for face in moment.cells))
        letter = dict(zip(faces, LETTERS, strict=False))
        flat = [deed for row in self.deeds for deed in row]
        return {
            "alt": self.alt,
            "deeds": self.deeds,
            "words": words,
            "says": [sentence[m.says] for m in self.moments],
            "letters": LETTERS[: len(faces)],
            "faces": [[list(STATES).index(state), escape(text)] for text, state in faces],
            "cells": ["".join(letter[face] for face in m.cells) for m in self.moments],
            "then": [[m.then.get(deed, -1) for deed in flat if m.then] for m in self.moments],
            "still": still.replace("</svg>", '<g class="tp-cells"></g></svg>'),
            "layouts": {
                name: {"places": one.places, "looks": one.looks}
                for name, one in zip(names, layouts, strict=False)
            },
        }

    def __repr__(self) -> str:
        return f"{self.title}: {self.alt} " + " ".join(moment.says for moment in self.path())


class _Layout:
    """The drawing at one width: what stays, where the boxes are that change, and how each state
    looks there."""

    def __init__(
        self,
        draw: Callable[[Sequence[Cell]], Part],
        cells: Sequence[Cell],
        key: Mapping[str, str],
        width: float,
    ) -> None:
        block = draw([("0", state) for _, state in cells]).lay(width)
        boxes = [mark for mark in block.marks if isinstance(mark, Box)]
        if [box.state for box in boxes] != [state for _, state in cells]:
            raise ValueError("draw makes a box for each cell, in their order.")
        sizes = {(box.width, box.height) for box in boxes}
        if len(sizes) != 1:
            raise ValueError(f"the boxes that change are of one size; got {sorted(sizes)}.")
        inside = [mark for mark in block.marks if isinstance(mark, Text) and _in(mark, boxes)]
        still = Block(
            block.width,
            block.height,
            tuple(mark for mark in block.marks if mark not in boxes and mark not in inside),
        )
        words = {state: key[state] for state in STATES if key.get(state)}
        self.still = stacked([still, Key(words).lay(width)], 14)
        self.places = [[round(box.x, 1), round(box.y, 1)] for box in boxes]
        size = sizes.pop()
        self.looks = [_look(state, *size, inside[0].size) for state in STATES]


def _look(state: str, width: float, height: float, size: float) -> str:
    """A box in a state at the origin, @ in place of its text."""
    return boxes_and_patterns([Box(0, 0, width, height, state)]) + (
        f'<text x="{width / 2:.1f}" y="{height / 2 + size * 0.36:.1f}" font-size="{size:g}"'
        f' text-anchor="middle" fill="{VARIABLES[STATES[state].label]}">@</text>'
    )


def _in(text: Text, boxes: Sequence[Box]) -> bool:
    return any(b.x <= text.x <= b.x + b.width and b.y <= text.y <= b.y + b.height for b in boxes)


def reach(
    first: _State,
    after: Callable[[_State], Iterable[tuple[str, _State]]],
    same: Callable[[_State], Hashable],
    depth: int,
) -> Reached[_State]:
    """All states within `depth` deeds of the first, and for each, which state each of its deeds
    leads to; those at the end have none. `after` gives a state's deeds and what comes of them, all
    new; states with the same `same` are one."""
    states, thens = [first], []
    known = {same(first): 0}
    behind = 0
    for level in range(depth + 1):
        begin, behind = behind, len(states)
        for state in states[begin:behind]:
            then = {}
            for deed, following in after(state) if level < depth else ():
                number = known.setdefault(same(following), len(states))
                if number == len(states):
                    states.append(following)
                then[deed] = number
            thens.append(then)
    return states, thens
