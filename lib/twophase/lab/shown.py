"""What a learner sees: points, a note, an error of a few lines. Each has a plain form and one for
the notebook."""

from __future__ import annotations

import html

CARD = (
    "border-left:4px solid {edge};background:{fill};padding:.5em"
    " .9em;border-radius:3px;max-width:46em"
)
GREEN = CARD.format(edge="#2e8b57", fill="rgba(46,139,87,.12)")
BLUE = CARD.format(edge="#4a7fb5", fill="rgba(74,127,181,.10)")


def number(points: float) -> str:
    """Points as a person writes them: 2, not 2.0."""
    return f"{points:g}"


class Points(float):
    """The points of a right answer. Prints as a bare number, which nbgrader reads; shows as a green
    card."""

    out_of: float

    def __new__(cls, points: float, out_of: float) -> Points:
        made = super().__new__(cls, points)
        made.out_of = out_of
        return made

    def _repr_html_(self) -> str:
        unit = "point" if self.out_of == 1 else "points"
        return (
            f'<div style="{GREEN}"><strong>Right.</strong> {number(self)} of {number(self.out_of)}'
            f" {unit}</div>"
        )


class Later(float):
    """The value of a check cell whose exercise is judged after handing in: no error, and no points
    to be had yet.

    It prints as 0.0, since nbgrader takes a check cell that neither raises nor shows a number for
    one that has passed.
    """

    out_of: float

    def __new__(cls, out_of: float) -> Later:
        made = super().__new__(cls, 0.0)
        made.out_of = out_of
        return made

    def _repr_html_(self) -> str:
        unit = "point" if self.out_of == 1 else "points"
        return (
            f'<div style="{BLUE}"><strong>Judged after you hand in.</strong> Worth'
            f" {number(self.out_of)} {unit}</div>"
        )


class Note:
    """A few lines of text."""

    def __init__(self, title: str, text: str) -> None:
        self.title = title
        self.text = text

    def __repr__(self) -> str:
        return f"{self.title}: {self.text}"

    def _repr_html_(self) -> str:
        return (
            f'<div style="{BLUE}"><strong>{html.escape(self.title)}.</strong>'
            f" {html.escape(self.text)}</div>"
        )


class Source:
    """Python source, with a line of explanation above it."""

    def __init__(self, title: str, source: str) -> None:
        self.title = title
        self.source = source

    def __repr__(self) -> str:
        return f"# {self.title}\n{self.source}"

    def _repr_markdown_(self) -> str:
        return f"**{self.title}**\n\n```python\n{self.source}\n```"


class CheckFailed(Exception):
    """An answer that is wrong, or not there yet. Its lines are all that the notebook shows: no
    stack."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines

    def _render_traceback_(self) -> list[str]:
        return list(self.lines)


class LabError(ValueError):
    """A call that cannot be served: an unknown exercise, no notebook around. One sentence."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]
