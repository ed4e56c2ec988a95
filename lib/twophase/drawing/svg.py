"""From a block of marks to SVG. Patterns are drawn as lines, cut at the box: without ids, any
number of drawings live on one page."""

import math
import re
from collections.abc import Iterator, Sequence
from html import escape

from .block import Block, Box, Line, Mark, Text
from .states import STATES, VARIABLES

STEP = 6  # pixels between two lines of a pattern


def svg(block: Block, alt: str, css_class: str) -> str:
    """The drawing of a block, in its own size, named `alt` for those who cannot see it. ValueError
    for a block without a size, which no browser shows."""
    if not (0 <= block.width < math.inf and 0 <= block.height < math.inf):
        raise ValueError(
            f"a drawing has a width and a height; got {block.width} and {block.height}: lay it out"
            " in a finite width."
        )
    wide, high = f"{block.width + 2:.0f}", f"{block.height + 2:.0f}"
    order = sorted(block.marks, key=lambda mark: isinstance(mark, Text))  # nothing covers a text
    body, colors = _shortened("".join(_drawn(order)))
    return (
        f'<svg class="{css_class}" role="img" aria-label="{escape(alt)}" width="{wide}"'
        f' height="{high}" viewBox="-1 -1 {wide} {high}" style="{colors}'
        f'font-family:var(--tp-ui,var(--jp-ui-font-family,sans-serif))">{body}</svg>'
    )


def _shortened(body: str) -> tuple[str, str]:
    """The marks with a short name for each color, and the style that says what the names mean."""
    body = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(?<=\d)\.0(?!\d)", "", tag[0]), body)
    found = dict.fromkeys(re.findall(r'(?:fill|stroke)="((?:var|color-mix)\([^"]*)"', body))
    style = ""
    for number, color in enumerate(found):
        body = body.replace(f'"{color}"', f'"var(--c{number})"')
        style += f"--c{number}:{color};"
    return body, style


def _drawn(marks: Sequence[Mark]) -> Iterator[str]:
    """The marks in their order; boxes of one state that follow each other say once how they look,
    as long as none lies on another."""
    run: list[Box] = []
    for mark in marks:
        if isinstance(mark, Box):
            if run and (mark.state != run[0].state or any(map(mark.meets, run))):
                yield boxes_and_patterns(run)
                run = []
            run.append(mark)
            continue
        if run:
            yield boxes_and_patterns(run)
            run = []
        yield _text(mark) if isinstance(mark, Text) else _line(mark)
    if run:
        yield boxes_and_patterns(run)


def _text(mark: Text) -> str:
    anchor = "" if mark.anchor == "start" else f' text-anchor="{mark.anchor}"'
    weight = ' font-weight="600"' if mark.bold else ""
    return (
        f'<text x="{mark.x:.1f}" y="{mark.y:.1f}" font-size="{mark.size:g}"{anchor}{weight}'
        f' fill="{VARIABLES[mark.tone]}">{escape(mark.text)}</text>'
    )


def boxes_and_patterns(boxes: Sequence[Box]) -> str:
    """Boxes of one state, and over them their pattern."""
    state = STATES[boxes[0].state]
    dashes = ' stroke-dasharray="3 2"' if state.dashed else ""
    pattern = "".join(_pattern(box, state.pattern) for box in boxes)
    lines = (
        f'<path d="{pattern}" fill="none" stroke="{state.trace}" stroke-width="1.3"/>'
        if pattern
        else ""
    )
    look = f'fill="{state.fill}" stroke="{VARIABLES[state.hue]}"{dashes}'
    drawn = [
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}"'
        f' height="{box.height:.1f}" rx="2"/>'
        for box in boxes
    ]
    return f"<g {look}>{''.join(drawn)}</g>{lines}"


def _pattern(box: Box, pattern: str) -> str:
    """The lines of a pattern within a box, as the data of a path."""
    x, y, w, h = box.x + 1, box.y + 1, box.width - 2, box.height - 2
    if min(w, h) < 3:
        return ""
    if pattern == "diagonal":
        return _slanted(x, y, w, h)
    if pattern == "cross":
        return f"M{x:.1f} {y:.1f}l{w:.1f} {h:.1f}M{x:.1f} {y + h:.1f}l{w:.1f} {-h:.1f}"
    if pattern == "upright":
        return "".join(f"M{x + at:.1f} {y:.1f}v{h:.1f}" for at in _steps(w))
    if pattern == "dots":
        return "".join(
            f"M{x + across:.1f} {y + down:.1f}h1.4" for down in _steps(h) for across in _steps(w)
        )
    if pattern == "frame":
        inner = max(0.0, min(2.0, w / 6))
        return (
            f"M{x + inner:.1f} {y + inner:.1f}h{w - 2 * inner:.1f}v{h - 2 * inner:.1f}"
            f"h{-(w - 2 * inner):.1f}z"
        )
    return ""


def _steps(length: float) -> list[float]:
    return [STEP / 2 + i * STEP for i in range(max(1, int(length / STEP)))]


def _slanted(x: float, y: float, w: float, h: float) -> str:
    """Lines from the lower left to the upper right; each runs where across + down is constant."""
    lines = []
    for at in range(STEP, int(w + h), STEP):
        first, last = max(0.0, at - h), min(w, at)  # across, at its lower and its upper end
        lines.append(f"M{x + first:.1f} {y + at - first:.1f}L{x + last:.1f} {y + at - last:.1f}")
    return "".join(lines)


def _line(line: Line) -> str:
    (x, y), *further = line.points
    path = f"M{x:.1f} {y:.1f}" + "".join(f"L{px:.1f} {py:.1f}" for px, py in further)
    dashes = ' stroke-dasharray="4 3"' if line.dashed else ""
    drawn = (
        f'<path d="{path}" fill="none" stroke="{VARIABLES[line.tone]}"'
        f' stroke-width="{line.width:g}"{dashes}/>'
    )
    return drawn + (_head(line.points, line.tone) if line.head else "")


def _head(points: Sequence[tuple[float, float]], tone: str) -> str:
    """The head of an arrow, at the last point."""
    (fx, fy), (x, y) = points[-2:]
    length = max(1e-9, ((x - fx) ** 2 + (y - fy) ** 2) ** 0.5)
    ux, uy = (x - fx) / length * 6, (y - fy) / length * 6  # 6 pixels, in the arrow's direction
    return (
        f'<path d="M{x:.1f} {y:.1f}L{x - ux - uy / 2:.1f} {y - uy + ux / 2:.1f}'
        f'L{x - ux + uy / 2:.1f} {y - uy - ux / 2:.1f}z" fill="{VARIABLES[tone]}"/>'
    )
