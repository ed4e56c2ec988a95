"""report.html: a class on a few pages that an instructor would print. No name of a student, no
script, no outside request."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from twophase.grading.reports import class_plots, class_stats
from twophase.grading.reports.class_stats import (
    AssignmentStats,
    ClassStats,
    ExerciseStats,
    MisconceptionStats,
)
from twophase.grading.reports.feedback import standalone, text
from twophase.grading.scores.gradebook import Gradebook
from twophase.grading.scores.rubric import points_text

MOST_BARS, MOST_ROWS = 12, 20
PRINT = """
figure { margin: 1rem 0; break-inside: avoid; } svg { width: 100%; height: auto; border-radius: 6px; display: block; }
caption { text-align: left; color: var(--soft); padding-bottom: .3rem; } th.n { text-align: right; }
.wide { overflow-x: auto; } th { overflow-wrap: normal; } td:first-child { min-width: 9rem; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)); gap: 0 1rem; }
.pair figure { margin: .5rem 0; }
@media print { .pair { grid-template-columns: 1fr 1fr; }
  :root { color-scheme: light; --ink: #000; --paper: #fff; --soft: #444; --line: #999; --box: #fff; --good: #000; --bad: #000;
  --note: #000; } body { max-width: none; margin: 0; font-size: 10.5pt; } h2 { break-after: avoid; } tr { break-inside: avoid; }
  thead { display: table-header-group; } .wide { overflow: visible; } }
@page { margin: 16mm; }
"""


def page(book: Gradebook) -> str:
    """The report of a class, as one HTML file."""
    stats = class_stats.class_stats(book)
    parts = [
        f"<h1>{text(book.scheme.title)}</h1>",
        _summary(book, stats),
        _scores(stats),
        _assignments(stats),
    ]
    parts += [_exercises(stats), _misconceptions(stats), _notes(book)]
    return standalone(f"{book.scheme.title}: class report", "\n".join(p for p in parts if p), PRINT)


def _percent(value: Fraction) -> str:
    return f"{float(value):.0f}%"


def _summary(book: Gradebook, stats: ClassStats) -> str:
    n = len(book.totals)
    waiting = sum(t.status == "pending" for t in book.totals)
    said = [f"{n} student{'s' * (n != 1)}, {len(stats.percents)} with a final total so far"]
    said += [f"{waiting} waiting for a pending score"] if waiting else []
    found = class_stats.spread(stats.percents)
    if found:
        said.append(f"mean {_percent(found.mean)}, median {_percent(found.median)}")
        said += (
            [f"the middle half from {_percent(found.lower)} to {_percent(found.upper)}"]
            if found.n >= 4
            else []
        )
    return f"<p>{text('; '.join(said))}.</p>"


def _scores(stats: ClassStats) -> str:
    if not stats.percents:
        return "<h2>Totals</h2><p>Nobody has a final total yet.</p>"
    bars = class_stats.histogram(stats.percents)
    alt = "Students by total in percent: " + ", ".join(f"{label}: {n}" for label, n in bars if n)
    return "<h2>Totals</h2>" + class_plots.columns(
        bars, "totals", "total [% of what counts]", "students", alt
    )


def _assignments(stats: ClassStats) -> str:
    heads = (
        "assignment",
        "points",
        "graded",
        "mean",
        "median",
        "late",
        "lost to lateness",
        "missing",
        "pending",
        "excused",
        "open",
    )
    rows = [_assignment(a) for a in stats.assignments]
    plots = "".join(
        _assignment_plot(a, n)
        for n, a in enumerate(stats.assignments)
        if len(stats.assignments) > 1
    )
    caption = "Mean and median are of work that was handed in, after lateness."
    return (
        f"<h2>Assignments</h2>{_table(heads, rows, caption, numbers_from=1)}<div"
        f" class=pair>{plots}</div>"
    )


def _assignment(a: AssignmentStats) -> list[str]:
    found = class_stats.spread(a.percents)
    counts = [str(a.statuses[s] or "") for s in ("missing", "pending", "excused", "open")]
    middle = [_percent(found.mean), _percent(found.median)] if found else ["", ""]
    cells = [
        points_text(a.rubric.worth),
        str(a.statuses["graded"] or ""),
        *middle,
        str(a.late or ""),
        points_text(a.cost) if a.cost else "",
        *counts,
    ]
    return [text(a.rubric.assignment.title), *cells]


def _assignment_plot(a: AssignmentStats, n: int) -> str:
    if not a.percents:
        return ""
    title = a.rubric.assignment.title
    bars = class_stats.histogram(a.percents)
    alt = f"{title}, students by score in percent: " + ", ".join(
        f"{label}: {c}" for label, c in bars if c
    )
    return class_plots.columns(bars, f"scores-{n}", f"{title}: score [%]", "students", alt)


def _exercises(stats: ClassStats) -> str:
    there = [e for e in stats.exercises if e.n]
    if not there:
        return ""
    costly = [e for e in there if e.lost > 0][:MOST_BARS]
    bars = [
        (e.item.title, float(e.lost / e.n))
        for e in sorted(costly, key=lambda e: (-e.lost / e.n, e.item.id))
    ]
    alt = "Points lost per student by exercise: " + ", ".join(
        f"{label}: {v:.3g}" for label, v in bars
    )
    plot = (
        class_plots.rows(bars, "exercises", "points lost per student who handed it in", alt)
        if bars
        else ""
    )
    heads = (
        "exercise",
        "handed in",
        "full points",
        "wrong",
        "not written",
        "cell missing",
        "broke",
        "lost, all together",
        "of its points",
    )
    rows = [_exercise(e) for e in there[:MOST_ROWS]]
    caption = (
        "Dearest first. Points are the course's, before lateness and before anything is dropped."
    )
    return (
        "<h2>Which exercises cost"
        f" most</h2>{plot}{_table(heads, rows, caption, numbers_from=1)}{_more(there)}"
    )


def _exercise(e: ExerciseStats) -> list[str]:
    counts = [str(e.statuses[s] or "") for s in ("wrong", "not_yet", "missing", "failed")]
    cells = [
        str(e.n),
        _percent(Fraction(100 * e.full, e.n)),
        *counts,
        points_text(e.lost),
        _percent(100 * e.lost_share),
    ]
    extra = " <span class=soft>(extra)</span>" if e.item.rule.extra else ""
    return [f"{text(e.item.title)}{extra}<br><span class=soft>{text(e.item.id)}</span>", *cells]


def _misconceptions(stats: ClassStats) -> str:
    there = list(stats.misconceptions)
    if not there:
        return (
            "<h2>Which misconceptions cost most</h2><p>No wrong answer was one of the known"
            " misconceptions.</p>"
        )
    bars = [
        (f"{_words(m.name)} ({m.item.id.partition('-')[2] or m.item.id})", float(m.lost))
        for m in there[:MOST_BARS]
    ]
    alt = "Points lost by misconception, all students together: " + ", ".join(
        f"{label}: {v:.3g}" for label, v in bars
    )
    plot = class_plots.rows(
        bars, "misconceptions", "points lost, all students together", alt, class_plots.BLUE
    )
    rows = [_misconception(m) for m in there[:MOST_ROWS]]
    heads = ("misconception", "exercise", "students", "lost, all together")
    caption = (
        "An answer is named when it behaves like exactly one known misconception in every case."
    )
    return (
        "<h2>Which misconceptions cost"
        f" most</h2>{plot}{_table(heads, rows, caption, numbers_from=2)}{_more(there)}"
    )


def _misconception(m: MisconceptionStats) -> list[str]:
    says = f"<br><span class=soft>{text(m.says)}</span>" if m.says else ""
    return [f"{text(_words(m.name))}{says}", text(m.item.title), str(m.n), points_text(m.lost)]


def _more(there: Sequence[object]) -> str:
    n = len(there) - MOST_ROWS
    return f"<p class=soft>And {n} more that cost less.</p>" if n > 0 else ""


def _words(slug: str) -> str:
    return slug.replace("_", " ")


def _notes(book: Gradebook) -> str:
    said = (
        [f"{len(book.strangers)} files belong to nobody in the course."] if book.strangers else []
    )
    said += list(book.notes)
    said += ["The grader failed on some work; grade it again."] if book.faults else []
    return (
        "<h2>Noticed</h2><ul>" + "".join(f"<li>{text(n)}" for n in said) + "</ul>" if said else ""
    )


def _table(heads: tuple[str, ...], rows: list[list[str]], caption: str, numbers_from: int) -> str:
    """A table of cells that are HTML already; a column without any entry is left out."""
    shown = [n for n in range(len(heads)) if any(row[n] for row in rows)]
    kind = {n: " class=n" if n >= numbers_from else "" for n in shown}
    head = "".join(f'<th scope="col"{kind[n]}>{heads[n]}' for n in shown)
    body = "".join("<tr>" + "".join(f"<td{kind[n]}>{row[n]}" for n in shown) for row in rows)
    table = f"<table><caption>{text(caption)}</caption><thead><tr>{head}</thead><tbody>{body}</tbody></table>"
    return f'<div class=wide tabindex=0 role=region aria-label="{text(caption)}">{table}</div>'
