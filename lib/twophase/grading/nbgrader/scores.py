"""Scores into nbgrader's gradebook: check cells' automatic scores; a person's own stay."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from twophase.grading.nbgrader import course as nbgrader_course
from twophase.grading.nbgrader.course import NbCourse
from twophase.grading.nbgrader.files import Master, timestamp
from twophase.grading.nbgrader.result_of_notebook import GradedNotebook, NotebookPath, Notices
from twophase.grading.results import run_summary
from twophase.grading.results.records import Record

CHECK = "-check"  # what a check cell's grade_id has after the exercise's


@dataclass
class Recorded:
    """Works that are in the gradebook now, how many were changed there, and their notebooks."""

    works: list[GradedNotebook] = field(default_factory=list)
    changed: int = 0
    masters: dict[tuple[str, str], Master] = field(default_factory=dict)


@dataclass(frozen=True)
class Cells:
    """A notebook in the gradebook: our check cells' worth, and other cells scored by running."""

    worth: Mapping[str, float]
    others: tuple[str, ...]


def record(course: NbCourse, works: Iterable[GradedNotebook], told: Notices) -> Recorded:
    """Write the scores of all works, in one transaction; what was not judged is left and told.
    Raises ValueError, and writes nothing, if the gradebook and the results do not belong together.
    """
    rules = CoursePolicy(course)
    done = Recorded()
    with nbgrader_course.transaction(course) as book:
        known = _known(book, works, told)
        submissions: dict[tuple[str, str], list[GradedNotebook]] = defaultdict(list)
        for work in known:
            submissions[work.place.student, work.place.assignment].append(work)
        students = {student.id for student in book.students}
        for (student, assignment), theirs in submissions.items():
            if not rules.creates_students and student not in students:
                told.waiting.append(
                    f"{student}: not in the gradebook, and the course does not create students"
                )
                continue
            entry = GradebookEntry(book, course, student, assignment, told)
            done.changed += entry.write(theirs, rules)
            done.works += theirs
        for assignment, name in {(w.place.assignment, w.place.notebook) for w in done.works}:
            done.masters[assignment, name] = Master(book.find_notebook(name, assignment))
    return done


class CoursePolicy:
    """What the course's own nbgrader configuration says about students and lateness."""

    def __init__(self, course: NbCourse) -> None:
        from nbgrader.converters import Autograde
        from nbgrader.preprocessors import AssignLatePenalties

        autograde = Autograde(coursedir=course.directory, parent=course.app)
        self.creates_students = bool(autograde.create_student)
        late = AssignLatePenalties(parent=course.app)
        late.init_plugin()
        self._plugin = late.plugin_inst

    def penalty(self, submission: Any, score: float) -> float | None:
        """What nbgrader's rule takes off, 0 to `score` points; None: nothing. Raises ValueError."""
        if submission.assignment.duedate is None or submission.total_seconds_late <= 0:
            return None
        try:
            said = self._plugin.late_submission_penalty(
                submission.student.id, score, submission.total_seconds_late
            )
            return None if said is None else min(max(float(said), 0.0), score)
        except Exception as e:  # it is the course's own code
            name = type(self._plugin).__name__
            raise ValueError(
                f"the course's rule for lateness, {name}, failed ({type(e).__name__}: {e})"
            ) from None


class GradebookEntry:
    """One student's submission of one assignment, in the gradebook; made if it is not there."""

    def __init__(
        self, book: Any, course: NbCourse, student: str, assignment: str, told: Notices
    ) -> None:
        from nbgrader.api import MissingEntry

        stamp = timestamp(course.folder("submitted", student, assignment))
        if stamp is None:
            told.notes.append(
                f"{student}/{assignment}: when it was handed in is not known, so it is not late"
            )
        self._book = book
        book.update_or_create_student(student)
        try:
            before = book.find_submission(assignment, student).timestamp
            self._is_new_version = stamp is not None and before is not None and stamp != before
            self._stamped = stamp is None or before == stamp
        except MissingEntry:
            self._is_new_version = self._stamped = False
        when = {} if stamp is None else {"timestamp": stamp}
        # nbgrader builds the rows one by one, and is not to be interrupted
        with book.db.no_autoflush:
            self._row = book.update_or_create_submission(assignment, student, **when)

    def write(self, works: Iterable[GradedNotebook], rules: CoursePolicy) -> int:
        """Set what the works have earned. Returns how many of them were not there exactly so."""
        changed = 0
        for work in works:
            notebook = self._notebook(work.place.notebook)
            questions = {q["id"] + CHECK: q for q in work.record["questions"]}
            before = _state(notebook)
            for grade in notebook.grades:
                self._set_grade(grade, questions.get(grade.cell.name))
            for comment in notebook.comments:
                if (q := questions.get(comment.cell.name + CHECK)) is not None:
                    comment.auto_comment = _comment(q)
            self._book.db.flush()
            self._book.db.refresh(notebook, ["score"])
            notebook.late_submission_penalty = rules.penalty(self._row, notebook.score)
            changed += before != _state(notebook) or not self._stamped
        return changed

    def _set_grade(self, grade: Any, question: Record | None) -> None:
        """As nbgrader's autograde: a score by hand stays, flagged if it was for other work."""
        by_hand = grade.manual_score is not None
        if question is None:
            grade.needs_manual_grade |= by_hand and self._is_new_version
            return
        points = float(question["points"])
        looked_at = by_hand and points == grade.auto_score and not self._is_new_version
        grade.needs_manual_grade = by_hand and (bool(grade.needs_manual_grade) or not looked_at)
        grade.auto_score = points

    def _notebook(self, name: str) -> Any:
        """The row of a notebook, with a row for every cell, also if the assignment has grown."""
        from nbgrader.api import Comment, Grade, SubmittedNotebook

        row = next((n for n in self._row.notebooks if n.name == name), None)
        if row is None:
            master = next(n for n in self._row.assignment.notebooks if n.name == name)
            row = SubmittedNotebook(notebook=master, assignment=self._row)
        graded, commented = ({c.cell_id for c in rows} for rows in (row.grades, row.comments))
        for cell in [*row.notebook.grade_cells, *row.notebook.task_cells]:
            if cell.id not in graded:
                Grade(cell=cell, notebook=row)
        for cell in [*row.notebook.solution_cells, *row.notebook.task_cells]:
            if cell.id not in commented:
                Comment(cell=cell, notebook=row)
        self._book.db.add(row)
        self._book.db.flush()
        return row


def _state(notebook: Any) -> tuple[Any, ...]:
    grades = {g.cell.name: (g.auto_score, bool(g.needs_manual_grade)) for g in notebook.grades}
    comments = {c.cell.name: c.auto_comment for c in notebook.comments}
    return grades, comments, notebook.late_submission_penalty


def _comment(question: Record) -> str | None:
    """A comment in the author's words only: nbgrader's pages would run a student's as HTML."""
    if question["status"] == "right":
        return None
    if question["status"] in ("not_yet", "missing"):
        return "No response."
    said = [question["message"]] if question["misconception"] else []
    said += [f"A hint: {question['hint']}"] if question["hint"] else []
    return " ".join(said) or "Not right."


def _known(book: Any, works: Iterable[GradedNotebook], told: Notices) -> list[GradedNotebook]:
    """The works that can be recorded. Raises ValueError if an assignment is not what was graded."""
    cells_of = cache(partial(_cells, book))
    kept = []
    for work in works:
        place = work.place
        cells = cells_of(place.assignment).get(place.notebook)
        if cells is None:
            told.waiting.append(
                f"{place}: passed over; the gradebook has no such notebook in {place.assignment}"
            )
        elif not work.judged:
            told.waiting.append(f"{place}: not recorded, {run_summary.why(work.record)}")
        else:
            _require_same(cells, work)
            if cells.others and (said := _left(place, cells.others)) not in told.notes:
                told.notes.append(said)
            kept.append(work)
    return kept


def _left(place: NotebookPath, others: tuple[str, ...]) -> str:
    is_ours = "is no check cell" if len(others) == 1 else "are no check cells"
    return (
        f"{place.assignment}/{place.notebook}: {', '.join(others)} {is_ours} of this course's; left"
        " as the gradebook has it"
    )


def _cells(book: Any, assignment: str) -> dict[str, Cells]:
    from nbgrader.api import MissingEntry

    try:
        notebooks = book.find_assignment(assignment).notebooks
    except MissingEntry:
        raise ValueError(
            f"the gradebook has no assignment {assignment!r}: run `nbgrader generate_assignment"
            f" {assignment}` there, or say which to record with --assignment; nothing was changed"
        ) from None
    made = {}
    for notebook in notebooks:
        by_hand = {c.name for c in notebook.solution_cells}
        run = {
            c.name: float(c.max_score)
            for c in notebook.grade_cells
            if c.cell_type == "code" and c.name not in by_hand
        }
        ours = {
            name: worth
            for name, worth in run.items()
            if name.removesuffix(CHECK) in by_hand and name.endswith(CHECK)
        }
        made[notebook.name] = Cells(ours, tuple(n for n in run if n not in ours))
    return made


def _require_same(cells: Cells, work: GradedNotebook) -> None:
    """Raises ValueError unless result and gradebook have the same check cells, of equal worth."""
    judged = {q["id"] + CHECK: float(q["out_of"]) for q in work.record["questions"]}
    where = f"{work.place.assignment}/{work.place.notebook}"
    again = (
        "so one of them is of another release: generate the assignment from it, or grade with it;"
        " nothing was changed"
    )
    for name in [n for n in judged if n not in cells.worth]:
        raise ValueError(f"{where}: the results have {name}, and the gradebook does not, {again}")
    for name in [n for n in cells.worth if n not in judged]:
        raise ValueError(
            f"{where}: the gradebook has {name}, and the result of {work.place.student} does not,"
            f" {again}"
        )
    for name, worth in cells.worth.items():
        if worth != judged[name]:
            raise ValueError(
                f"{where}: {name} is worth {worth:g} points in the gradebook and {judged[name]:g}"
                f" in the results, {again}"
            )
