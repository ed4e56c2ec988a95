"""report.html: a class on a few printed pages. No student's name, no script, no outside request."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from markupsafe import Markup

from twophase.grading.reports.class_stats import (
    AssignmentStats,
    ExerciseStats,
    MisconceptionStats,
    class_stats,
    histogram,
    spread,
)
from twophase.grading.reports.pages import render, short, table
from twophase.grading.reports.printable import printable
from twophase.grading.scores.gradebook import Gradebook
from twophase.grading.scores.rounding import percent_text, points_text

MOST_BARS, MOST_ROWS = 12, 20
NAMED = Markup("{}{}<br><span class=soft>{}</span>")
EXTRA = Markup(" <span class=soft>(extra)</span>")


def page(book: Gradebook) -> str:
    """The report of a class, as one HTML file."""
    stats = class_stats(book)
    handed_in = [e for e in stats.exercises if e.n]
    several = stats.assignments if len(stats.assignments) > 1 else ()
    return render(
        "reports/class_report.html",
        book=book,
        stats=stats,
        spread=spread(stats.percents),
        percent=percent_text,
        told=_told,
        most_rows=MOST_ROWS,
        totals=histogram(stats.percents) if stats.percents else [],
        table=table,
        assignments=[_assignment(a) for a in stats.assignments],
        plots=[(a.rubric.assignment.title, histogram(a.percents)) for a in several if a.percents],
        exercises=handed_in,
        dear=_dear(handed_in),
        exercise_rows=[_exercise(e) for e in handed_in[:MOST_ROWS]],
        named=[_bar(m) for m in stats.misconceptions[:MOST_BARS]],
        misconception_rows=[_misconception(m) for m in stats.misconceptions[:MOST_ROWS]],
    )


def _told(bars: Iterable[tuple[str, float]]) -> str:
    """A figure's numbers, for those who cannot see it."""
    return ", ".join(f"{label}: {short(n)}" for label, n in bars if n)


def _assignment(a: AssignmentStats) -> list[object]:
    found = spread(a.percents)
    return [
        a.rubric.assignment.title,
        points_text(a.rubric.worth),
        a.statuses["graded"] or "",
        *([percent_text(found.mean), percent_text(found.median)] if found else ["", ""]),
        a.late or "",
        points_text(a.cost) if a.cost else "",
        *(a.statuses[s] or "" for s in ("missing", "pending", "excused", "open")),
    ]


def _dear(handed_in: Iterable[ExerciseStats]) -> list[tuple[str, float]]:
    costly = [e for e in handed_in if e.lost > 0][:MOST_BARS]
    costly.sort(key=lambda e: (-e.lost / e.n, e.item.id))
    return [(e.item.title, float(e.lost / e.n)) for e in costly]


def _exercise(e: ExerciseStats) -> list[object]:
    extra = EXTRA if e.item.rule.extra else ""
    return [
        NAMED.format(printable(e.item.title), extra, printable(e.item.id)),
        e.n,
        percent_text(Fraction(100 * e.full, e.n)),
        *(e.statuses[s] or "" for s in ("wrong", "not_yet", "missing", "failed")),
        points_text(e.lost),
        percent_text(100 * e.lost_share),
    ]


def _bar(m: MisconceptionStats) -> tuple[str, float]:
    where = m.item.id.partition("-")[2] or m.item.id
    return f"{m.name.replace('_', ' ')} ({where})", float(m.lost)


def _misconception(m: MisconceptionStats) -> list[object]:
    name = m.name.replace("_", " ")
    said = NAMED.format(printable(name), "", printable(m.says)) if m.says else name
    return [said, m.item.title, m.n, points_text(m.lost)]
