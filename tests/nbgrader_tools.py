"""A course that lives in nbgrader, in a folder of its own: nbgrader's own programs release, fetch,
submit, collect and hand out."""

from __future__ import annotations

import copy
import csv
import datetime
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from exercise_tools import right_answers
from grading_run_tools import Made, run
from hostile.worker import LIMITS
from nbformat import NotebookNode
from notebook_tools import exercise_cells, marked, small_solution

from twophase.checks import registry
from twophase.grading.files.notebook import parse
from twophase.grading.judge.judge import Course
from twophase.grading.release import exercise_notebook
from twophase.grading.release.release import Release, from_cells

COURSE, ASSIGNMENT, NAME = "inference", "ps1", "03_kv_cache"
BATCH, BYTES, ESSAY = "kv_cache-max_batch", "kv_cache-kv_bytes", "kv_cache-essay"
DUE = datetime.datetime(2030, 1, 1, 12)
ON_TIME, AGAIN, LATE = (
    "2030-01-01 10:00:00 UTC",
    "2030-01-01 11:00:00 UTC",
    "2030-01-02 13:00:00 UTC",
)
CONFIG = """
from nbgrader.plugins import BasePlugin

class OnePoint(BasePlugin):
    def late_submission_penalty(self, student_id, score, total_seconds_late):
        return 1

c = get_config()
c.AssignLatePenalties.plugin_class = OnePoint
c.CourseDirectory.course_id = "inference"
c.CourseDirectory.db_url = "sqlite:///gradebook.db?timeout=0.1"
"""


def right(exercise_id: str) -> str:
    """An answer that needs no import."""
    answers = (path.read_text(encoding="utf-8") for path in right_answers(exercise_id))
    return next(a for a in answers if "import" not in a and "torch" not in a and "np." not in a)


def misconceived() -> str:
    """An answer that has a name: the weights left out."""
    return (
        "def max_batch(memory_bytes, weight_bytes, kv_bytes_per_token, n_tokens):\n"
        "    return memory_bytes // (kv_bytes_per_token * n_tokens)"
    )


@cache
def solutions() -> NotebookNode:
    """Two exercises of the course, and a question that a person reads."""
    stub = right(BYTES).split("\n", 1)
    assert stub[0].startswith("def ")
    answer = (
        f'{stub[0]}\n    """Bytes."""\n    ### BEGIN SOLUTION\n{stub[1].rstrip()}\n    ### END'
        " SOLUTION\n"
    )
    nb = small_solution()
    nb.cells += exercise_cells(BYTES, answer, int(registry.load(BYTES).points))
    essay = marked("Why does the batch saturate?", ESSAY, solution=True, grade=True, points=3)
    nb.cells.append(nbformat.v4.new_markdown_cell(essay.source, metadata=essay.metadata))
    return exercise_notebook.normalize(nb, "kv_cache")


@cache
def released() -> Release:
    """What the grader grades against: the locked cells and the check cells of the same notebook."""
    cells = parse(nbformat.writes(solutions()).encode()).cells
    return from_cells("kv_cache", cells, {i: registry.load(i) for i in (BATCH, BYTES)}, "d" * 64)


def answered(fetched: NotebookNode, answers: dict[str, str]) -> NotebookNode:
    """The notebook that a student fetched, with answers."""
    nb = copy.deepcopy(fetched)
    for cell in nb.cells:
        if (own := cell.metadata.get("nbgrader", {}).get("grade_id")) in answers:
            cell.source = answers[own]
    return nb


@dataclass(frozen=True)
class Department:
    """A course folder, an exchange, and a home for every student."""

    root: Path

    @property
    def course(self) -> Path:
        return self.root / "course"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.course / 'gradebook.db'}"

    def config(self, student: str = "") -> Any:
        from traitlets.config import Config

        home = self.root / "home" / (student or "instructor")
        config = Config()
        config.CourseDirectory.root = str(self.course)
        config.CourseDirectory.course_id = COURSE
        config.CourseDirectory.assignment_id = ASSIGNMENT
        config.CourseDirectory.db_url = self.url
        config.Exchange.root = str(self.root / "exchange")
        config.Exchange.cache = str(home / "cache")
        config.Exchange.assignment_dir = str(home)
        config.Execute.timeout = 120
        if student:
            config.CourseDirectory.student_id = student
        return config

    def api(self, **options: Any) -> Any:
        from nbgrader.apps import NbGraderAPI
        from nbgrader.coursedir import CourseDirectory

        config = self.config()
        for name, value in options.items():
            setattr(config.GenerateAssignment, name, value)
        return NbGraderAPI(CourseDirectory(config=config), config=config)

    def exchange(self, action: str, student: str = "", at: str = "", **options: bool) -> None:
        """One of nbgrader's ways through the exchange: ReleaseAssignment, FetchAssignment, Submit,
        Collect, ..."""
        from nbgrader.auth import Authenticator
        from nbgrader.coursedir import CourseDirectory
        from nbgrader.exchange import ExchangeFactory

        config = self.config(student)
        make = getattr(ExchangeFactory(config=config), action)
        doing = make(
            coursedir=CourseDirectory(config=config),
            authenticator=Authenticator(config=config),
            config=config,
        )
        for name, value in options.items():
            setattr(doing, name, value)
        if at:
            doing.set_timestamp = lambda: setattr(doing, "timestamp", at)
        doing.start()

    def open(self, source: NotebookNode, **options: Any) -> Department:
        """Make the course, generate and release the assignment. `options` are
        GenerateAssignment's."""
        place = self.course / "source" / ASSIGNMENT
        place.mkdir(parents=True)
        nbformat.write(source, place / f"{NAME}.ipynb")
        (self.course / "nbgrader_config.py").write_text(CONFIG, encoding="utf-8")
        (self.root / "exchange").mkdir()
        (self.root / "exchange").chmod(0o777)
        done = self.api(**options).generate_assignment(ASSIGNMENT)
        assert done["success"], done.get("error") or done.get("log")
        with self.gradebook() as book:
            book.update_or_create_assignment(ASSIGNMENT, duedate=DUE, course_id=COURSE)
        self.exchange("ReleaseAssignment")
        return self

    def hand_in(self, student: str, answers: dict[str, str], at: str) -> None:
        """A student fetches the assignment (once), solves it, saves it and submits it."""
        mine = self.root / "home" / student / ASSIGNMENT / f"{NAME}.ipynb"
        if not mine.exists():
            mine.parent.parent.mkdir(parents=True, exist_ok=True)
            self.exchange("FetchAssignment", student)
        nbformat.write(answered(nbformat.read(mine, as_version=4), answers), mine)
        self.exchange("Submit", student, at)

    def grade(self, folder: Path | None = None, source: Any | None = None) -> None:
        """`twophase grade submitted/ --out grades/`, in this process."""
        run(
            folder or self.course / "submitted",
            self.course / "grades",
            Course(1, LIMITS, source or Made(released())),
        )

    def gradebook(self) -> Any:
        from nbgrader.api import Gradebook

        return Gradebook(self.url, COURSE)

    def scores(self, student: str) -> dict[str, tuple[float | None, bool]]:
        """Every cell's automatic score, and whether it waits for a person."""
        with self.gradebook() as book:
            grades = book.find_submission(ASSIGNMENT, student).notebooks[0].grades
            return {g.name: (g.auto_score, g.needs_manual_grade) for g in grades}

    def export(self) -> dict[str, dict[str, str]]:
        """What `nbgrader export` writes, by student."""
        from nbgrader.plugins import CsvExportPlugin

        to = self.course / "export.csv"
        plugin = CsvExportPlugin()
        plugin.to = str(to)
        with self.gradebook() as book:
            plugin.export(book)
        return {
            row["student_id"]: row
            for row in csv.DictReader(to.read_text(encoding="utf-8").splitlines())
        }
