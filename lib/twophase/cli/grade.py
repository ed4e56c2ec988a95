"""`twophase check` and `twophase grade`: one saved notebook, or a class of them, scored."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from twophase.cli import auditing
from twophase.cli import grading_options as options
from twophase.cli.grading_shown import Watch, summary
from twophase.grading.course import secret
from twophase.grading.errors import GraderFault, writing
from twophase.grading.intake import submissions
from twophase.grading.intake.submissions import Submission
from twophase.grading.judge.judge import DEFAULT_SEED, Course, Task
from twophase.grading.release.release import Source
from twophase.grading.reports import feedback
from twophase.grading.reports.printable import one_line
from twophase.grading.results import reader, run_summary
from twophase.grading.results.records import Record
from twophase.grading.results.writer import Results
from twophase.grading.run import shards
from twophase.grading.run.folder import grade_alone, grade_folder, selected

ALL_RIGHT, NOT_ALL_RIGHT, OUR_FAULT = 0, 1, 3
GRADED, SOME_UNREADABLE = 0, 1
MARKS = {
    "right": ("✓", "green"),
    "wrong": ("✗", "red"),
    "not_yet": ("·", "yellow"),
    "missing": ("–", "red"),
    "failed": ("!", "red"),
}


def check(
    notebook: Annotated[
        Path, typer.Argument(help="A saved notebook, such as my/03_kv_cache.ipynb.")
    ],
    release: options.Release = None,
    checks: options.Checks = None,
    variants: options.Variants = None,
    seed: options.Seed = DEFAULT_SEED,
    time_limit: options.TimeLimit = options.USUAL.submission_s,
    cell_time_limit: options.CellTimeLimit = options.USUAL.cell_s,
    memory_limit: options.MemoryLimit = options.USUAL_MEMORY,
) -> None:
    """Score one saved notebook as the official grader does: run from top to bottom, in a process
    without the checks.

    Exit code: 0 everything is right; 1 something is not; 2 there is no such notebook, or it cannot
    be read; 3 the grader failed.

    Example: twophase check my/03_kv_cache.ipynb
    """
    options.require_confinement(unsafe=True)  # it is your own
    options.require_notebook(notebook)
    source = Source(release, tuple(checks or ()), variants)
    course = options.course(seed, options.limits(time_limit, cell_time_limit, memory_limit), source)
    submission = Submission(notebook, str(notebook))
    record = grade_alone(Task(submission, course.seed_for(submission)), course)
    if record["status"] == "unreadable":
        raise ValueError(f"{notebook}: {run_summary.why(record)}")
    if record["status"] == "internal":
        raise GraderFault(record["message"])
    console = Console()
    console.print(_verdicts(record))
    for exercise_id in course.source.load(record["topic"]).held_back:
        console.print(Text(f"{exercise_id} is judged after handing in: its check is not here"))
    for flag in record["flags"]:
        if flag["name"] != "missing_cell":  # the table says that one
            said = one_line(f"noticed, {flag['where']}: {flag['says']}")
            console.print(Text(said, style="yellow"))
    if not record["official"]:
        console.print(Text(feedback.unofficial(record), style="yellow"))
    raise typer.Exit(ALL_RIGHT if record["points"] == record["out_of"] else NOT_ALL_RIGHT)


def grade(
    folder: Annotated[
        Path, typer.Argument(help="The submissions: a folder or a zip, as downloaded.")
    ],
    out: options.Out = options.GRADES,
    layout: Annotated[
        str, typer.Option(help=f"How they lie there: {', '.join(submissions.LAYOUTS)}.")
    ] = "auto",
    release: options.Release = None,
    checks: options.Checks = None,
    variants: options.Variants = None,
    seed: options.Seed = DEFAULT_SEED,
    secret_file: options.Secret = None,
    case_sets: options.CaseSets = secret.SETS,
    workers: Annotated[
        int, typer.Option(min=0, help="Submissions graded at a time; 0: one per processor.")
    ] = 0,
    time_limit: options.TimeLimit = options.USUAL.submission_s,
    cell_time_limit: options.CellTimeLimit = options.USUAL.cell_s,
    memory_limit: options.MemoryLimit = options.USUAL_MEMORY,
    shard: Annotated[
        str,
        typer.Option(
            help="Grade one part of the class, such as 3/16; `twophase merge` joins them."
        ),
    ] = "",
    regrade: Annotated[
        list[str] | None,
        typer.Option(
            help="Grade again: a file's name, a student, or a digest. May be given several times."
        ),
    ] = None,
    audit: Annotated[
        bool,
        typer.Option(
            "--audit", help="Grade again what was graded, change nothing, and say what differs."
        ),
    ] = False,
    sample: Annotated[
        float, typer.Option(min=0, max=1, help="With --audit: the share of submissions to take.")
    ] = 1.0,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Grade even if submissions cannot be confined here.")
    ] = False,
    scheme: Annotated[
        Path | None,
        typer.Option(
            "--course", help="A course file: its grades are written too, as by `twophase score`."
        ),
    ] = None,
) -> None:
    """Score every notebook in a folder. What was graded before, unchanged, is skipped: an
    interrupted run goes on where it was.

    Exit code: 0 all graded; 1 some files cannot be read, or (with --course) a grade waits for a
    person, or (with --audit) something differs; 2 bad usage; 3 the grader failed on some, which
    were not graded, or cannot write.

    Example: twophase grade submissions/ --out grades/ --layout canvas
    """
    options.require_confinement(unsafe)
    options.require_folder(out)
    # the next run would take it for a student's
    if folder.is_dir() and out.resolve().is_relative_to(folder.resolve()):
        raise ValueError(
            f"--out {out} lies in {folder}, among the submissions; give a folder beside it"
        )
    if sample != 1.0 and not audit:
        raise ValueError("--sample says how many an audit takes; give --audit too, or leave it out")
    part = shards.parse_shard(shard) if shard else None
    if scheme is not None:
        from twophase.grading.scores import gradebook  # loads what others need not wait for

        # a mistake in it is told before the hours of grading, not after
        gradebook.load_course(scheme)
    limits = options.limits(time_limit, cell_time_limit, memory_limit)
    source = Source(release, tuple(checks or ()), variants)
    if source == Source():
        # the course may be a release whose held-back exercises cannot be graded without --variants
        source.validate()
    found = submissions.find(folder, layout)
    course = options.course(
        seed, limits, source, secret_file, case_sets, hidden=(folder, out, scheme)
    )
    console = Console()
    console.print(Text(one_line(submissions.describe(found))))
    if secret_file is None:
        console.print(Text(options.NO_SECRET, style="yellow"))
    mine, note, at_once = found, None, workers or os.cpu_count() or 1
    if part:
        names = tuple(sorted(s.name for s in found))
        mine = shards.submissions_of(found, part)
        note = shards.ShardNote(part, names, shards.conditions(course))
    if audit:
        raise typer.Exit(auditing.audit(mine, course, out, at_once, sample, console))
    run = Run(mine, course, out, at_once, console, note)
    raise typer.Exit(run.grade(regrade or [], scheme))


@dataclass(frozen=True)
class Run:
    """One `twophase grade`: these submissions, graded and shown. `note`: if they are one part of a
    class."""

    submissions: list[Submission]
    course: Course
    out: Path
    workers: int
    console: Console
    note: shards.ShardNote | None

    def grade(self, regrade: list[str], scheme: Path | None) -> int:
        """Returns the exit code. Raises KeyboardInterrupt, CannotWrite, GraderFault."""
        with Results(self.out) as results:
            if results.index.secret and not self.course.secret:
                raise ValueError(
                    f"{results.path} was graded with a secret; give the same --secret, or another"
                    " --out"
                )
            again = selected(regrade, self.submissions, results.index)
            self._write_note(complete=False)
            with Watch(self.console, len(self.submissions)) as watch:
                try:
                    grade_folder(
                        self.submissions, self.course, results, self.workers, watch, again=again
                    )
                except KeyboardInterrupt:
                    watch.__exit__()
                    done = f"{watch.done:,} of {len(self.submissions):,} are done and stay"
                    said = f"Stopped. {done}; the same command goes on from there."
                    self.console.print(Text(said, style="yellow"))
                    raise
            self._write_note(complete=True)
            names = {s.name for s in self.submissions}
            counted = run_summary.count(r for r in results.index.latest() if r["file"] in names)
            code = finish(self.console, self.out, results.index, counted)
            if watch.skipped:
                self.console.print(Text(f"Graded before: {watch.skipped:,}"))
            if scheme is not None:
                from twophase.cli.score import write_grades

                records = list(results.index.latest())
                code = max(code, write_grades(scheme, records, self.out, self.console))
        return code

    def _write_note(self, complete: bool) -> None:
        if self.note is not None:
            with writing(self.out / shards.NOTE):
                shards.write_note(self.out, replace(self.note, complete=complete))


def finish(console: Console, out: Path, index: reader.Index, counted: run_summary.Counts) -> int:
    """Write the feedback, show the summary. Returns the exit code. Raises CannotWrite."""
    with writing(out / "feedback"):
        page = feedback.write(out, index.latest())
    summary(console, counted)
    console.print(Text(f"Results: {index.path}"))
    console.print(Text(f"Feedback: {page}"))
    if counted.statuses["internal"]:
        return OUR_FAULT
    return SOME_UNREADABLE if counted.statuses["unreadable"] else GRADED


def _verdicts(record: Record) -> Table:
    title, caption = Text(one_line(record["file"])), f"{feedback.points(record)} points"
    table = Table("exercise", "points", "verdict", title=title, caption=caption)
    for q in record["questions"]:
        mark, color = MARKS[q["status"]]
        says = "right" if q["status"] == "right" else one_line(q["message"])
        points = f"{q['points']:g} of {q['out_of']:g}"
        table.add_row(one_line(q["title"]), points, Text(f"{mark} {says}", style=color))
    return table
