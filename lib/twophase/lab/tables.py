"""Progress as tables: the exercises of this notebook, and the topics of the course."""

from __future__ import annotations

import html
from dataclasses import dataclass

from twophase.lab import course, record
from twophase.lab.shown import number

Row = tuple[str, ...]
TOPIC_HEAD: Row = ("exercise", "state", "points", "minutes")
COURSE_HEAD: Row = ("chapter", "exercises done", "points", "minutes left")


def finished(exercise_id: str, standings: dict[str, record.Standing]) -> bool:
    """Whether nothing is left to do here: it is right, or written where only the instructor's
    grader can tell."""
    from twophase.checks import registry

    state = standings.get(exercise_id, record.Standing()).state
    return state == "done" or (state == "tried" and registry.held_back(exercise_id) is not None)


def topic_rows(topic: str, standings: dict[str, record.Standing]) -> list[Row]:
    """One row for each exercise of a topic."""
    from twophase.checks import registry

    rows: list[Row] = []
    for e in registry.listed(topic):
        s = standings.get(e.id, record.Standing())
        state = "judged later" if registry.held_back(e.id) and s.state == "tried" else s.state
        rows.append((e.id, state, f"{number(s.points)} of {number(e.points)}", str(e.minutes)))
    return rows


def course_rows(standings: dict[str, record.Standing]) -> list[Row]:
    """One row for each topic, and their sum."""
    from twophase.checks import registry

    rows: list[Row] = []
    sums = [0, 0, 0.0, 0, 0]
    for topic in registry.topics():
        exercises = registry.listed(topic)
        done = [e for e in exercises if finished(e.id, standings)]
        earned = sum(standings[e.id].points for e in done)
        left = sum(e.minutes for e in exercises if e not in done)
        figures = [len(done), len(exercises), earned, sum(e.points for e in exercises), left]
        sums = [a + b for a, b in zip(sums, figures, strict=True)]
        rows.append(_course_row(registry.stem(topic), figures))
    return [*rows, _course_row("all", sums)]


def _course_row(name: str, figures: list[float]) -> Row:
    done, n, earned, out_of, left = figures
    return (name, f"{done:g} of {n:g}", f"{number(earned)} of {number(out_of)}", f"{left:g}")


@dataclass(frozen=True)
class Progress:
    """Two tables; the first is None where we cannot tell which notebook this is."""

    topic: str | None
    exercises: list[Row]
    chapters: list[Row]

    @classmethod
    def now(cls) -> Progress:
        standings = record.standings(record.read())
        topic = course.topic_here()
        return cls(topic, topic_rows(topic, standings) if topic else [], course_rows(standings))

    def tables(self) -> list[tuple[Row, list[Row]]]:
        """The tables to show, each with its head."""
        first = [(TOPIC_HEAD, self.exercises)] if self.topic else []
        return [*first, (COURSE_HEAD, self.chapters)]

    def __repr__(self) -> str:
        return "\n\n".join(_text([head, *rows]) for head, rows in self.tables())

    def _repr_html_(self) -> str:
        return "".join(_html(head, rows) for head, rows in self.tables())


def _text(rows: list[Row]) -> str:
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows
    )


def _html(head: Row, rows: list[Row]) -> str:
    top = "".join(f'<th scope="col" style="text-align:left">{html.escape(c)}</th>' for c in head)
    body = "".join(
        "<tr>"
        + "".join(f'<td style="text-align:left">{html.escape(c)}</td>' for c in row)
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
