"""What helps after a failed check, folded: each hint inside the one before, the author's answer
last."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from twophase.lab import course
from twophase.lab.shown import CODE

if TYPE_CHECKING:
    from twophase.checks.exercise import Exercise


def help_of(exercise: Exercise, attempted: bool) -> str:
    """HTML: the three hints, each inside the fold of the one before; after an attempt the author's
    answer, too, where the model solutions are at hand."""
    source = course.author_source(exercise.id, course.COURSE) if attempted else None
    inner = "" if source is None else fold("The author's answer", _code(source))
    total = len(exercise.hints)
    for n, hint in reversed(list(enumerate(exercise.hints, start=1))):
        inner = fold(f"Hint {n} of {total}", f"<p>{html.escape(hint)}</p>{inner}")
    return inner


def fold(title: str, content: str) -> str:
    """A title that opens what belongs to it."""
    return f"<details><summary>{html.escape(title)}</summary>{content}</details>"


def _code(source: str) -> str:
    return f'<pre style="{CODE}">{html.escape(source)}</pre>'
