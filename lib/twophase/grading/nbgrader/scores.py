"""Scores into nbgrader's gradebook: each check cell's automatic score, and nothing of what a person
has put there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twophase.grading.nbgrader import course as nbgrader_course
from twophase.grading.nbgrader.course import NbCourse
from twophase.grading.nbgrader.files import Master, timestamp
from twophase.grading.nbgrader.works import GradedNotebook, NotebookPath, Notices
from twophase.grading.results import counts
from twophase.grading.results.records import Record

CHECK = "-check"  # what a check cell's grade_id has after the exercise's


@dataclass
class Recorded:
    """What was done: works that are in the gradebook now, how many of them had to be changed there,
    and their notebooks as it has them."""

    works: list[GradedNotebook] = field(default_factory=list)
    changed: int = 0
    masters: dict[tuple[str, str], Master] = field(default_factory=dict)


@dataclass(frozen=True)
class Cells:
    """One notebook of an assignment as the gradebook has it: its cells that are scored by running,
    and what they are worth."""

    worth: Mapping[str, float]
    others: tuple[str, ...]  # such cells that are no check cells of ours


def record(course: NbCourse, works: Iterable[GradedNotebook], told: Notices) -> Recorded:
    """Write the scores of all works, in one transaction. What was not judged is left as it is
    there, and told.

    Raises ValueError if the gradebook and the results do not belong together; then nothing is
    written.
    """
    rules = CoursePolicy(course)
    done = Recorded()
    with nbgrader_course.transaction(course) as book:
        known = _known(book, works, told)
        submissions: dict[tuple[str, str], list[GradedNotebook]] = defaultdict(list)
        for work in known:
            submissions[work.place.student, work.place.assignment].append(work)
        for (student, assignment), theirs in submissions.items():
            if not rules.creates_students and not _has_student(book, student):
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

        self.creates_students = bool(
            Autograde(coursedir=course.directory, parent=course.app).create_student
        )
        late = AssignLatePenalties(parent=course.app)
        late.init_plugin()
        self._plugin = late.plugin_inst

    def penalty(self, submission: Any, score: float) -> float | None:
        """What nbgrader's rule takes off a notebook, 0 to `score` points; None without lateness or
        penalty. Raises ValueError."""
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
        """Set what the works have earned. Returns how many of them were not there yet, exactly
        so."""
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
        """As nbgrader's autograde: a score by hand stays, and is to be looked at again when what it
        was given for is another."""
        by_hand = grade.manual_score is not None
        if question is None:
            grade.needs_manual_grade |= by_hand and self._is_new_version
            return
        points = float(question["points"])
        looked_at = by_hand and points == grade.auto_score and not self._is_new_version
        grade.needs_manual_grade = by_hand and (bool(grade.needs_manual_grade) or not looked_at)
        grade.auto_score = points

    def _notebook(self, name: str) -> Any:
        """The row of a notebook, with a row for every cell: some are missing if the assignment has
        grown since."""
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
    return (
        grades,
        {c.cell.name: c.auto_comment for c in notebook.comments},
        notebook.late_submission_penalty,
    )


def _comment(question: Record) -> str | None:
    """A comment for the answer's cell, in the author's words only: nbgrader's feedback page would
    run a student's as HTML."""
    if question["status"] == "right":
        return None
    if question["status"] in ("not_yet", "missing"):
        return "No response."
    named = f"{question['message']} " if question["misconception"] else ""
    return (
        f"{named}A hint: {question['hint']}" if question["hint"] else named.strip() or "Not right."
    )


def _known(book: Any, works: Iterable[GradedNotebook], told: Notices) -> list[GradedNotebook]:
    """The works that can be recorded. Raises ValueError if one of their assignments is not what was
    graded."""
    assignments: dict[str, dict[str, Cells]] = {}
    kept = []
    noted: set[tuple[str, str]] = set()
    for work in works:
        place = work.place
        if place.assignment not in assignments:
            assignments[place.assignment] = _cells(book, place.assignment)
        cells = assignments[place.assignment].get(place.notebook)
        if cells is None:
            told.waiting.append(
                f"{place}: passed over; the gradebook has no such notebook in {place.assignment}"
            )
        elif not work.judged:
            told.waiting.append(f"{place}: not recorded, {counts.why(work.record)}")
        else:
            _require_same(cells, work)
            if cells.others and (place.assignment, place.notebook) not in noted:
                noted.add((place.assignment, place.notebook))
                told.notes.append(_left(place, cells.others))
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
    """Raises ValueError unless the result has the check cells of the gradebook, each worth the
    same."""
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


def _has_student(book: Any, student: str) -> bool:
    from nbgrader.api import MissingEntry

    try:
        book.find_student(student)
    except MissingEntry:
        return False
    return True
