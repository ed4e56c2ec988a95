"""`twophase nbgrader`: results into the gradebook and the feedback folder of a course that lives in
nbgrader."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from twophase.cli.grading_shown import listed
from twophase.cli.interrupt_while_loading import loading
from twophase.grading.errors import Unreadable, writing
from twophase.grading.nbgrader.course import NbCourse, load_nbgrader_course
from twophase.grading.nbgrader.result_of_notebook import GradedNotebook, Notices, match_records
from twophase.grading.results import reader

DONE, SOME_WAIT = 0, 1
MOST_LINES = 40


ABOUT = """Scores and feedback back into an nbgrader course.

Example: twophase nbgrader record grades/ --course-dir .
"""
app = typer.Typer(no_args_is_help=True, help=ABOUT)

Results = Annotated[
    Path, typer.Argument(help="The folder that `twophase grade` wrote, or its results.jsonl.")
]
CourseDir = Annotated[Path, typer.Option(help="The nbgrader course: the folder with submitted/.")]
Assignment = Annotated[
    str, typer.Option(help="Only this assignment; without it, all that were graded.")
]


@app.command()
def record(
    results: Results, course_dir: CourseDir = Path("."), assignment: Assignment = ""
) -> None:
    """Put scores into the gradebook, instead of `nbgrader autograde`: grade what `nbgrader collect`
    brought with `twophase grade`, then record it here.

    It sets the automatic score of every check cell through nbgrader's own API, in one
    transaction, and writes autograded/, so that formgrader, `nbgrader export` and
    `generate_feedback` show it. Scores and comments by hand, extra credit and cells that are graded
    by hand stay. What could not be judged is not written as zero. The course's own rule for
    lateness (LateSubmissionPlugin) is applied, not course.yml's: repeat this after grading by
    hand. The same results again change nothing.

    Exit code: 0 done; 1 done, but some work waits for a person (unreadable, not collected, changed
    since it was graded); 2 bad usage, or the gradebook is missing, locked, or of another nbgrader
    or assignment: then it was not changed.

    Example: twophase grade submitted/ --out grades/ && twophase nbgrader record grades/
    --course-dir .
    """
    with loading():
        from twophase.grading.nbgrader import files, scores

    course, works, told = _matched(results, course_dir, assignment)
    done = scores.record(course, works, told)
    try:
        files.write_autograded(course, done.works, done.masters)
    except (OSError, Unreadable) as e:
        raise ValueError(
            f"the gradebook has the scores, but autograded/ cannot be written ({e}): repeat"
            " this when it can"
        ) from None
    _tell(f"{len(done.works):,} recorded, {done.changed:,} of them new or changed", told)


@app.command()
def feedback(
    results: Results, course_dir: CourseDir = Path("."), assignment: Assignment = ""
) -> None:
    """Write feedback/STUDENT/ASSIGNMENT/NOTEBOOK.html, which `nbgrader release_feedback` hands out.

    If cells are graded by hand, use `nbgrader generate_feedback` instead: it has those scores too.

    Exit code: 0 done; 1 done, but some work waits for a person; 2 bad usage, or no such course; 3
    feedback/ cannot be written.

    Example: twophase nbgrader feedback grades/ --course-dir .
    """
    with loading():
        from twophase.grading.nbgrader import files

    course, works, told = _matched(results, course_dir, assignment)
    with writing("feedback/"):
        count = files.write_feedback(course, works, told)
    _tell(f"{count:,} pages in feedback/; hand them out with `nbgrader release_feedback`", told)


def _matched(
    results: Path, course_dir: Path, assignment: str
) -> tuple[NbCourse, list[GradedNotebook], Notices]:
    """The course, the results that belong to it, and what a person should hear of the others.
    Raises ValueError if none does, or if there is no course."""
    path = reader.results_path(results)
    course, told = load_nbgrader_course(course_dir), Notices()
    _require_course(course, course_dir)
    works = match_records(course, reader.latest_records(path), told, assignment)
    if not works and not told.waiting:
        raise ValueError(
            f"{path} has no result of {assignment or 'an nbgrader course'}; grade its submitted/"
            " folder first"
        )
    return course, works, told


def _require_course(course: NbCourse, folder: Path) -> None:
    """Raise ValueError for a folder in which nbgrader has neither a gradebook nor submissions."""
    url, submitted = course.url, course.directory.submitted_directory
    gradebook = url.get_backend_name() != "sqlite" or Path(url.database or "").is_file()
    if not gradebook and not Path(course.directory.root, submitted).is_dir():
        raise ValueError(
            f"{folder} is no nbgrader course: it has no gradebook and no {submitted}/; give the"
            " course's folder to --course-dir"
        )


def _tell(said: str, told: Notices) -> NoReturn:
    """Print what was done and what needs a person, and exit."""
    console = Console()
    for lines, style in ((told.waiting, "yellow"), (told.notes, "dim")):
        for line in listed(lines, MOST_LINES, style):
            console.print(line)
    console.print(Text(said))
    raise typer.Exit(SOME_WAIT if told.waiting else DONE)
