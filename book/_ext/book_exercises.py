"""``{exercises} kv_cache``: the table of a topic's exercises, or of those that ``:only:`` names.
``{kill-matrix}``: which check rejects which wrong answer."""

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from book_chapter import page_link
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)
Cell = nodes.Node | str
SIGNS, LONG = "_.(/=", 11  # after which a name may be broken, from so many letters on


def table(
    header: Sequence[str], rows: Sequence[Sequence[Cell]], classes: Sequence[str] = ()
) -> nodes.table:
    """A docutils table with one header row; a cell is text or an inline node. The last cell of a
    row that has fewer goes on to the table's end."""
    group = nodes.tgroup(cols=len(header))
    for _ in header:
        group += nodes.colspec(colwidth=1)
    group += nodes.thead("", _row(header))
    body = nodes.tbody()
    for row in rows:
        body += _row(row)
        if len(row) < len(header):
            body[-1][-1]["morecols"] = len(header) - len(row)
    group += body
    return nodes.table("", group, classes=["tp-table", *classes])


def _row(cells: Sequence[Cell]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        paragraph = nodes.paragraph()
        paragraph += nodes.Text(cell) if isinstance(cell, str) else cell
        row += nodes.entry("", paragraph)
    return row


def said(text: str) -> nodes.inline:
    """A sentence with its `code` as code. Long names in it may go on in the next line after a
    sign: a column is narrow on a phone."""
    words = nodes.inline()
    for number, part in enumerate(re.split(r"`([^`]+)`", text)):
        if part and number % 2:
            words += in_parts(nodes.literal(), part, SIGNS)
        elif part:
            in_parts(words, part, SIGNS)
    return words


def breakable(name: str) -> nodes.TextElement:
    """A name that may go on in the next line after each underscore, and nowhere else."""
    return in_parts(nodes.inline(), name, "_")


def in_parts(words: nodes.TextElement, text: str, signs: str) -> nodes.TextElement:
    """The words with the text behind them, which may go on in the next line after each of these
    signs inside of a long word, but for the point of a number."""
    within = re.compile(f"(?<=[^\\s(\\[][{signs}])(?<!\\d\\.)(?![{signs}\\s]|$)")
    for number, part in enumerate(re.split(f"(\\S{{{LONG},}})", text)):
        for piece, name in enumerate(within.split(part) if number % 2 else [part]):
            if piece:
                words += nodes.raw("", "<wbr>", format="html")
            if name:
                words += nodes.Text(name)
    return words


def load_topic(topic: str, location: Any) -> list[Any]:
    """The topic's exercises; a warning and nothing where one of them cannot be loaded, so that all
    pages are still checked."""
    from twophase.checks import registry

    try:
        return registry.load_topic(topic)
    except Exception as error:
        logger.warning(
            "the exercises of %s cannot be loaded: %s: %s",
            topic,
            type(error).__name__,
            error,
            location=location,
        )
        return []


class Exercises(SphinxDirective):
    """The argument is a topic; ``:only: kv_bytes, max_batch`` names those of one sitting. Number in
    the notebook, title, kind, minutes, points, id; a line above leads to the notebook's page."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {"only": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        from twophase.checks import registry

        topic = self.arguments[0]
        if topic not in registry.CHAPTERS:
            logger.warning(
                "exercises: no topic %r; known: %s",
                topic,
                ", ".join(registry.CHAPTERS),
                location=self.get_location(),
            )
            return []
        if topic not in registry.topics():
            return [nodes.paragraph("", "The exercises of this chapter are not written yet.")]
        exercises = load_topic(topic, self.get_location())
        numbers = {exercise.id: number for number, exercise in enumerate(exercises, 1)}
        if "only" in self.options:
            exercises = self.chosen(topic, exercises)
        notebook = f"exercises/{registry.stem(topic)}"
        rows = []
        for exercise in exercises:
            rows.append(
                [
                    str(numbers[exercise.id]),
                    exercise.title,
                    exercise.kind,
                    f"{exercise.minutes} min",
                    str(exercise.points),
                    nodes.literal(exercise.id, exercise.id),
                ]
            )
        minutes = sum(exercise.minutes for exercise in exercises)
        points = sum(exercise.points for exercise in exercises)
        lead = nodes.paragraph(
            "",
            f"{len(exercises)} exercise{'s' * (len(exercises) != 1)}, {points} points, about"
            f" {minutes} minutes (estimated): ",
        )
        if notebook in self.env.found_docs:
            lead += page_link(notebook, f"{registry.stem(topic)}.ipynb")
        else:
            lead += nodes.literal(notebook, f"{notebook}.ipynb")
        lead += [
            nodes.Text(". "),
            nodes.literal("", "make lab", classes=["tp-whole"]),
            nodes.Text(" opens your copy."),
        ]
        return [
            lead,
            table(["No.", "Exercise", "Kind", "Time", "Points", "Id"], rows, ["tp-exercises"]),
        ]

    def chosen(self, topic: str, exercises: list[Any]) -> list[Any]:
        """Those that ``:only:`` names, in its order; a warning for one that does not exist."""
        by_id = {exercise.id: exercise for exercise in exercises}
        wanted = [f"{topic}-{slug.strip()}" for slug in self.options["only"].split(",")]
        for name in wanted:
            if exercises and name not in by_id:
                logger.warning("exercises: there is no %r", name, location=self.get_location())
        return [by_id[name] for name in wanted if name in by_id]


class KillMatrix(SphinxDirective):
    """For every exercise: the wrong answers its check knows, what the person is told, and where
    each was seen."""

    def run(self) -> list[nodes.Node]:
        from twophase.checks import registry

        made: list[nodes.Node] = []
        for topic in registry.topics():
            exercises = load_topic(topic, self.get_location())
            if not exercises:
                continue
            made.append(nodes.rubric("", f"{registry.stem(topic)}"))
            rows: list[list[Cell]] = []
            for exercise in exercises:
                rows.append([nodes.literal("", exercise.id)])
                for wrong in exercise.misconceptions:
                    rows.append([breakable(wrong.slug), said(wrong.says), said(wrong.seen)])
            heads = ["Wrong answer", "What the person is told", "Where it was seen"]
            made.append(table(heads, rows, ["tp-kill-matrix"]))
        return made or [nodes.paragraph("", "There are no exercises yet.")]


class NestSittings(SphinxTransform):
    """A notebook may write each sitting as ``#``; on its page they become sections of the one
    title, exercises below them."""

    default_priority = 300

    def apply(self, **kwargs: Any) -> None:
        if not self.env.docname.startswith("exercises/"):
            return
        top = [child for child in self.document.children if isinstance(child, nodes.section)]
        for section in top[1:]:
            self.document.remove(section)
            top[0] += section


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("exercises", Exercises)
    app.add_directive("kill-matrix", KillMatrix)
    app.add_transform(NestSittings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
