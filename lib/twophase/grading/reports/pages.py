"""HTML pages from the templates beside: whatever is put into one is escaped and has no control
characters. A page needs nothing else and may run nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from twophase.grading.reports.printable import printable

TEMPLATES = Path(__file__).parents[1]


def prose(sentence: str) -> Markup:
    """A sentence with code between backticks, as HTML."""
    escaped = str(escape(printable(sentence)))  # Markup would escape the tags that come in
    return Markup(re.sub(r"`([^`\n]+)`", r"<code>\1</code>", escaped))


def _put(value: object) -> object:
    """What goes into a page, before it is escaped: HTML of ours as it is."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def counted(n: int, what: str) -> str:
    """`1 case`, `2 cases`."""
    return f"{n} {what}{'' if n == 1 else 's'}"


def short(number: float) -> str:
    """A number beside a bar: three digits, or all of a larger one's, and never 1e+03."""
    return f"{number:.3g}" if number < 999.5 else f"{number:.0f}"


@cache
def environment() -> Environment:
    """Where templates are named from the grader's folder, such as `reports/feedback.html`."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=_put,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"prose": prose, "counted": counted, "short": short}
    return made


def render(template: str, **values: object) -> str:
    """A page: this template with these values."""
    return environment().get_template(template).render(**values)


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> list[list[object]]:
    """The head and the rows without the columns in which no row has an entry."""
    there = [n for n in range(len(heads)) if any(row[n] for row in rows)]
    return [[row[n] for n in there] for row in (heads, *rows)]
