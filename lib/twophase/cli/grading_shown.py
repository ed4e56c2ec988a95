"""What the grading commands show: a bar meanwhile, a line for each trouble, tables at the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import mean, median

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from twophase.grading.reports.printable import one_line
from twophase.grading.results import run_summary
from twophase.grading.results.records import Record
from twophase.grading.results.run_summary import Counts, TopicCounts

TROUBLED = ("unreadable", "protocol", "partial", "internal")
STATUS_WORDS = {
    "ok": "graded",
    "partial": "graded in part: something broke",
    "protocol": "graded: spoke out of turn",
    "unreadable": "unreadable",
    "internal": "not graded: the grader failed",
}
COLORS = {"partial": "yellow", "protocol": "magenta", "unreadable": "yellow", "internal": "red"}
MOST_EXERCISES = 40
MOST_MISCONCEPTIONS = 3
MOST_NAMED = 8
LINE = 200  # characters of one trouble


class Watch:
    """Called after each submission: a bar with count, rate and time left, below the troubles."""

    def __init__(
        self,
        console: Console,
        total: int,
        clock: Callable[[], float] = time.monotonic,
        says: str = "grading",
    ) -> None:
        what, pace = TextColumn(says), TextColumn("{task.fields[pace]}")
        columns = (what, BarColumn(), MofNCompleteColumn(), pace)
        self._bar = Progress(*columns, console=console, transient=True)
        self._task = self._bar.add_task(says, total=total, pace="")
        self._console, self._total, self._clock = console, total, clock
        self._began = clock()
        self.skipped = self.graded = 0
        self.statuses: Counter[str] = Counter()

    def __enter__(self) -> Watch:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    @property
    def done(self) -> int:
        return self.skipped + self.graded

    def __call__(self, record: Record | None) -> None:
        """One more is done: this record, or None if it was there."""
        if record is None:
            self.skipped += 1
            self._began = self._clock()
        else:
            self.statuses[record["status"]] += 1
        # counted before it is told: a Ctrl-C may come in between
        self.step(graded=record is not None)
        if record is not None and record["status"] in TROUBLED:
            line(self._console, trouble(record))

    def step(self, graded: bool = True) -> None:
        """Move the bar on by one."""
        self.graded += graded
        self._bar.update(self._task, completed=self.done, pace=self.pace())

    def pace(self) -> str:
        """`34.1 per s, 0:00:26 left, 3 troubled`."""
        took = self._clock() - self._began
        if not self.graded or took <= 0:
            return ""
        rate = self.graded / took
        left = int((self._total - self.done) / rate)
        said = f"{rate:.1f} per s" if rate >= 1 else f"{60 * rate:.1f} per min"
        said += f", {left // 3600}:{left // 60 % 60:02}:{left % 60:02} left"
        troubled = sum(self.statuses[s] for s in TROUBLED)
        return f"{said}, {troubled} troubled" if troubled else said


def line(console: Console, text: Text) -> None:
    """Print one line: cut at the edge of a terminal, whole where it goes to a file."""
    console.print(
        text,
        no_wrap=True,
        overflow="ellipsis" if console.is_terminal else "ignore",
        crop=console.is_terminal,
    )


def listed(
    lines: Sequence[str], most: int, style: str, more: str = "... and {:,} more"
) -> Iterator[Text]:
    """The first `most` of these lines, and how many `more` there are."""
    yield from (Text(one_line(said), style=style) for said in lines[:most])
    if len(lines) > most:
        yield Text(more.format(len(lines) - most), style=style)


def trouble(record: Record) -> Text:
    """One line: whose, what, why."""
    status = record["status"]
    said = one_line(f"{record['file']}: {STATUS_WORDS[status]}: {run_summary.why(record)}")
    return Text(said if len(said) <= LINE else said[: LINE - 1] + "…", style=COLORS[status])


def summary(console: Console, counted: Counts) -> None:
    """Tables that stay readable for a thousand submissions."""
    if counted.topics:
        console.print(_topics(counted))
    for topic, found in counted.topics.items():
        console.print(_exercises(topic, found))
    there = [s for s in STATUS_WORDS if counted.statuses[s]]
    said = ", ".join(f"{counted.statuses[s]:,} {STATUS_WORDS[s]}" for s in there)
    many = f"{counted.n:,} submission{'' if counted.n == 1 else 's'}"
    console.print(Text(f"{many}: {said}" if said else many))
    if counted.not_asked:
        named = counted.not_asked.most_common(MOST_NAMED)
        said = "Asked by notebooks and not graded, so --release, --checks or --variants may be"
        said += " missing: " + ", ".join(f"{one_line(i)} in {n:,}" for i, n in named)
        console.print(Text(said, style="bold red"))
    if counted.other_topics:
        console.print(Text(_two_topics(counted.other_topics), style="bold red"))
    if counted.alone:
        files = ", ".join(one_line(f) for f in sorted(counted.alone)[:MOST_NAMED])
        more = ", …" if len(counted.alone) > MOST_NAMED else ""
        said = "Right only by itself, without the notebook's other cells, so worth a look"
        said += f": {counted.alone.total():,} answers in {files}{more}"
        console.print(Text(said, style="yellow"))
    if counted.labels["practice"]:
        said = "Practice, not an official result: this system cannot confine a submission."
        console.print(Text(said, style="bold yellow"))
    if counted.labels["unsafe"]:
        said = f"Not official, {counted.labels['unsafe']:,} of them: graded without what should"
        said += " confine them (--unsafe)."
        console.print(Text(said, style="bold yellow"))


def _two_topics(other_topics: Mapping[str, Sequence[str]]) -> str:
    """One line about notebooks of two topics."""
    named = [f"{', '.join(topics)} in {one_line(f)}" for f, topics in sorted(other_topics.items())]
    more = ", …" if len(named) > MOST_NAMED else ""
    said = "Two topics in one notebook, so that the one with fewer cells was not graded"
    return f"{said}: {', '.join(named[:MOST_NAMED])}{more}"


def _topics(counted: Counts) -> Table:
    table = Table("topic", title="Points")
    for name in ("graded", "mean", "median", "of"):
        table.add_column(name, justify="right")
    for topic, t in counted.topics.items():
        middle = f"{mean(t.points):.2f}", f"{median(t.points):g}"
        table.add_row(topic, f"{len(t.points):,}", *middle, f"{t.out_of:g}")
    return table


def _exercises(topic: str, found: TopicCounts) -> Table:
    """What cost most, if there are too many to show all."""
    rows = list(found.exercises.items())
    if len(rows) > MOST_EXERCISES:
        rows = sorted(rows, key=lambda row: row[1].right / row[1].judged)[:MOST_EXERCISES]
    table = Table("exercise", title=Text(one_line(topic)))
    table.add_column("right", justify="right")
    table.add_column("most frequent misconceptions")
    for exercise_id, e in rows:
        most = e.misconceptions.most_common(MOST_MISCONCEPTIONS)
        named = ", ".join(f"{one_line(name)} {n}" for name, n in most)
        right = f"{e.right:,} ({100 * e.right / e.judged:.0f}%)"
        table.add_row(one_line(exercise_id), right, named)
    return table
