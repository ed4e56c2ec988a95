"""What a learner sees: points, a note, an error of a few lines. Each has a plain form and one for
the notebook."""

from __future__ import annotations

import html
import os
import textwrap
from typing import Self

CARD = (
    "border-left:4px solid {edge};background:{fill};padding:.5em"
    " .9em;border-radius:3px;max-width:46em"
)
GREEN = CARD.format(edge="#2e8b57", fill="rgba(46,139,87,.12)")
BLUE = CARD.format(edge="#4a7fb5", fill="rgba(74,127,181,.10)")
RED = CARD.format(edge="#b4413c", fill="rgba(180,65,60,.10)")
CODE = (
    "margin:.4em 0;padding:.5em .7em;background:rgba(127,127,127,.12);white-space:pre-wrap;"
    "word-break:normal;overflow-wrap:anywhere"  # Jupyter's own is break-all
)
LINE_WIDTH = 78  # a notebook breaks longer lines of an error in the middle of a word


def number(points: float) -> str:
    """Points as a person writes them: 2, not 2.0."""
    return f"{points:g}"


class Worth(float):
    """Points, and how many there are to be had.

    Without the second it is a plain float, as a sum of points is: statistics.mean makes one of its
    values' class.
    """

    out_of: float

    def __new__(cls, points: float, out_of: float | None = None) -> Self:
        if out_of is None:
            return float(points)  # type: ignore[return-value]
        made = super().__new__(cls, points)
        made.out_of = out_of
        return made

    def __getnewargs__(self) -> tuple[float, float]:  # type: ignore[override]
        return float(self), self.out_of  # for a copy


class Points(Worth):
    """The points of a right answer, shown as a green card.

    It is displayed, not returned as a cell's value, since nbgrader reads partial points from a
    value's text: a check cell that neither raises nor has a value gets all its points.
    """

    def __repr__(self) -> str:
        return f"Right. {self._of()}"

    def _of(self) -> str:
        unit = "point" if self.out_of == 1 else "points"
        return f"{number(self)} of {number(self.out_of)} {unit}"

    def _repr_html_(self) -> str:
        return f'<div style="{GREEN}"><strong>Right.</strong> {self._of()}</div>'

    def _ipython_display_(self) -> None:
        from IPython.display import publish_display_data

        data = {"text/plain": repr(self), "text/html": self._repr_html_()}
        publish_display_data(data)


class Unjudged(Points):
    """What `check` returns where a notebook is graded: all points of the exercise, as in a kernel
    that let the cell go on, so that whoever adds, compares or prints them comes to what stands
    below. What an answer earns is found elsewhere."""

    def __repr__(self) -> str:
        return f"{super().__repr__()}, if the grader agrees"


class Later(Worth):
    """The value of a check cell whose exercise is judged after handing in: no error, and no points
    to be had yet.

    It prints as 0.0, since nbgrader takes a check cell that neither raises nor shows a number for
    one that has passed.
    """

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


class NotRight:
    """A red card: why an answer is not right, the call that shows it, and what helps, folded. In
    plain text the calls that help take the folds' place."""

    def __init__(self, exercise_id: str, lines: list[str], to_run: str, folded: str) -> None:
        self.lines = lines  # the headline, what is wrong, what to do
        self.to_run = to_run
        self.folded = folded
        self.help = f'Stuck? hint("{exercise_id}"), or after an attempt solution("{exercise_id}")'

    def plain(self) -> list[str]:
        """Its lines as text."""
        run = ["To see it yourself:", *(f"    {line}" for line in self.to_run.splitlines())]
        return [*self.lines, *(run if self.to_run else []), self.help]

    def __repr__(self) -> str:
        return "\n".join(self.plain())

    def _repr_html_(self) -> str:
        headline, *rest = (html.escape(line).replace("\n", "<br>") for line in self.lines)
        run = f'To see it yourself:<pre style="{CODE}">{html.escape(self.to_run)}</pre>'
        return (
            f'<div style="{RED}"><strong>{headline}</strong><br>{"<br>".join(rest)}'
            f"{'<br>' + run if self.to_run else ''}{self.folded}</div>"
        )


class CheckFailed(Exception):
    """An answer that is wrong, or not there yet. A notebook shows no stack.

    Where a person looks at the notebook the card above has said all, and the headline is enough;
    nbval and nbgrader print nothing but the error, so that it has all lines there.
    """

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines

    def _render_traceback_(self) -> list[str]:
        looked_at = "JPY_SESSION_NAME" in os.environ  # set by Jupyter's server for its kernels
        return self.lines[:1] if looked_at else list(self.lines)


class LabError(ValueError):
    """A call that cannot be served: an unknown exercise, no notebook around. One sentence."""

    def _render_traceback_(self) -> list[str]:
        return textwrap.wrap(str(self), LINE_WIDTH)
