"""A model-solution notebook: its canonical form, its rules, and the exercise notebook it becomes.

Nothing here runs or writes a notebook; tools/exercises.py and `twophase release` do. nbgrader's own
preprocessors make the release; only the stub is ours: it names the exercise and says how many lines
the author's answer takes.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import re
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbgrader import utils
from nbgrader.preprocessors import (
    CheckCellMetadata,
    ClearOutput,
    ClearSolutions,
    ComputeChecksums,
    LockCells,
)

from twophase.checks import registry
from twophase.checks.exercise import Exercise
from twophase.checks.registry import Catalog
from twophase.grading.files.notebook import grade_id
from twophase.grading.release.compose import BEGIN, END

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE = {"name": "python"}
MAX_ID = 64  # nbformat's limit for cell ids
FLAGS = {"schema_version": 3, "task": False}
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
MARKS = {  # what nbgrader's metadata must say of each kind of cell
    "answer": {"grade": False, "solution": True, "locked": False, **FLAGS},
    "check": {"grade": True, "solution": False, "locked": True, **FLAGS},
    "setup": {"grade": False, "solution": False, "locked": True, **FLAGS},
}


class BadNotebook(ValueError):
    """A notebook that breaks a rule of CONTRIBUTING.md, "Notebooks"."""


def topic_of(path: Path) -> str:
    """The topic of `NN_topic.ipynb`. Raises BadNotebook if there is none of that name."""
    stems = {registry.stem(t): t for t in registry.CHAPTERS}
    if path.stem not in stems:
        raise BadNotebook(
            f"{path.name} is no topic's notebook: a name is like {registry.stem('kv_cache')}.ipynb"
        )
    topic = stems[path.stem]
    if topic not in registry.topics():
        raise BadNotebook(
            f"{path.name} has no exercises yet: lib/twophase/checks/{topic}/ is missing"
        )
    return topic


def normalize(nb: NotebookNode, topic: str, catalog: Catalog = registry.COURSE) -> NotebookNode:
    """A copy in canonical form: ids made from grade ids, the headings of tasks from the exercises,
    least metadata, no trace of the editor that saved it."""
    headings = task_headings(topic, catalog)
    made = nbformat.v4.upgrade(copy.deepcopy(nb))
    made.nbformat, made.nbformat_minor = 4, 5
    made.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": LANGUAGE})
    for cell, cell_id in zip(made.cells, _cell_ids(made.cells, topic), strict=True):
        cell.id = cell_id
        kept = {k: cell.metadata[k] for k in ("nbgrader", "tags") if cell.metadata.get(k)}
        cell.metadata = nbformat.from_dict(kept)
        for extra in ("checksum", "cell_type"):
            cell.metadata.get("nbgrader", {}).pop(extra, None)
        cell.source = cell.source.strip("\n")
        if cell_id in headings and cell.source.startswith("#"):
            _, newline, task = cell.source.partition("\n")
            cell.source = headings[cell_id] + newline + task
        # what it prints grows with the course: nbval must not compare it
        if cell.source == "progress()":
            cell.metadata["tags"] = sorted({*cell.metadata.get("tags", []), "nbval-ignore-output"})
    return made


def task_headings(topic: str, catalog: Catalog = registry.COURSE) -> dict[str, str]:
    """Task cell's id -> its heading: number, title, kind, points, minutes."""
    chapter = int(catalog.stem(topic).split("_")[0])
    return {
        f"{e.id}-task": (
            f"### {chapter}.{number} {e.title} ({e.kind}, {e.points}"
            f" {'point' if e.points == 1 else 'points'}, {e.minutes} minutes)"
        )
        for number, e in enumerate(catalog.load_topic(topic), start=1)
    }


def _cell_ids(cells: list[NotebookNode], topic: str) -> list[str]:
    """A stable id for every cell: its grade id; `<id>-task` above an answer; else counted."""
    ids: list[str] = []
    last, count = f"{topic}-intro", 0
    for cell, following in zip(cells, [*cells[1:], None], strict=True):
        if own := grade_id(cell):
            ids.append(own)
            last, count = own.removesuffix("-check"), 0
        elif cell.cell_type == "markdown" and following and utils.is_solution(following):
            ids.append(f"{grade_id(following)}-task")
        else:
            count += 1
            ids.append(f"{last}-text-{count}")
    return ids


def validate(nb: NotebookNode, topic: str, catalog: Catalog = registry.COURSE) -> None:
    """Raises BadNotebook, one sentence, for the first rule that a canonical notebook breaks."""
    ids = [cell.id for cell in nb.cells]
    for cell_id in ids:
        if ids.count(cell_id) > 1:
            raise BadNotebook(f"two cells have the id {cell_id}; an id is used once")
        if not re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{MAX_ID}}}", cell_id):
            signs = "other signs than letters, digits, _ and -"
            raise BadNotebook(f"the id {cell_id} is longer than {MAX_ID} or has {signs}")
    _validate_setup(nb, topic)
    answers = [grade_id(c) for c in nb.cells if utils.is_solution(c)]
    exercises = catalog.load_topic(topic)
    expected = [e.id for e in exercises]
    for missing in [i for i in expected if i not in answers]:
        raise BadNotebook(f"there is no answer cell for {missing}")
    for unknown in [i for i in answers if i not in expected]:
        raise BadNotebook(f"the answer cell {unknown} belongs to no exercise of {topic}")
    if answers != expected:
        raise BadNotebook(
            f"the exercises stand in another order than the topic's ORDER: {', '.join(expected)}"
        )
    graded = [c.id for c in nb.cells if utils.is_grade(c)]
    for stray in [g for g in graded if g.removesuffix("-check") not in expected]:
        raise BadNotebook(f"the check cell {stray} belongs to no exercise")
    for exercise in exercises:
        _validate_exercise(nb, ids.index(exercise.id), exercise)


def _validate_setup(nb: NotebookNode, topic: str) -> None:
    first = next((c for c in nb.cells if c.cell_type == "code"), None)
    if first is None or grade_id(first) != f"{topic}-setup":
        raise BadNotebook(
            f"the first code cell must be the setup cell, with the grade_id {topic}-setup"
        )
    _require_marks(first, "setup")
    if "from twophase.lab import" not in first.source:
        names = "NotYet, check, hint, solution and progress"
        raise BadNotebook(f"the setup cell must import {names} from twophase.lab")


def _require_marks(cell: NotebookNode, kind: str) -> None:
    for key, value in MARKS[kind].items():
        found = cell.metadata.nbgrader.get(key)
        if found != value:
            must = f"must have {key} = {value} in its nbgrader metadata, not {found}"
            raise BadNotebook(f"the {kind} cell {cell.id} {must}")


def _validate_exercise(nb: NotebookNode, at: int, exercise: Exercise) -> None:
    task, answer = nb.cells[at - 1] if at else None, nb.cells[at]
    if task is None or task.cell_type != "markdown" or not task.source.startswith("#"):
        what = "its task: a markdown cell that begins with a heading"
        raise BadNotebook(f"above the answer cell {exercise.id} must stand {what}")
    _require_marks(answer, "answer")
    if BEGIN not in answer.source:
        raise BadNotebook(f"the answer cell {exercise.id} has no {BEGIN} … {END}")
    check, asks = nb.cells[at + 1] if at + 1 < len(nb.cells) else None, f'check("{exercise.id}")'
    if check is None or (check.id, check.source) != (f"{exercise.id}-check", asks):
        raise BadNotebook(f"below the answer cell {exercise.id} must stand its check cell: {asks}")
    _require_marks(check, "check")
    worth, says = exercise.points, check.metadata.nbgrader.get("points")
    if says != worth:
        raise BadNotebook(f"{exercise.id} is worth {worth} points, and its check cell says {says}")


class ClearToNotYet(ClearSolutions):  # type: ignore[misc]
    """nbgrader's ClearSolutions, with a stub that says how long the author's answer is."""

    def _replace_solution_region(self, cell: NotebookNode, language: str) -> bool:
        new_lines: list[str] = []
        region: list[str] | None = None
        indent, replaced = "", False
        for line in cell.source.split("\n"):
            if self.begin_solution_delimeter in line:
                if region is not None:
                    raise BadNotebook(f"{cell.id} begins a solution inside another one")
                region, indent = [], line[: len(line) - len(line.lstrip())]
            elif self.end_solution_delimeter in line:
                if region is None:
                    raise BadNotebook(f"{cell.id} ends a solution that it did not begin")
                new_lines.append(indent + stub(grade_id(cell), region))
                region, replaced = None, True
            else:
                (new_lines if region is None else region).append(line)
        if region is not None:
            raise BadNotebook(f"{cell.id} begins a solution that it does not end")
        cell.source = "\n".join(new_lines)
        return replaced


def stub(exercise_id: str, answer: list[str]) -> str:
    """The line that stands for an answer of these lines. Blank lines and comments do not count."""
    n = sum(1 for line in answer if line.strip() and not line.strip().startswith("#"))
    lines = "line" if n == 1 else "lines"
    return f'raise NotYet("{exercise_id}")  # the author\'s answer takes {n} {lines}'


def release(solutions: NotebookNode, catalog: Catalog = registry.COURSE) -> NotebookNode:
    """The exercise notebook: stubs for answers, no outputs, cells locked, checksums as nbgrader
    wants them.

    Each cell's metadata says `twophase: {cell, digest}`: what it is, and its text as released, so
    that `twophase update` can tell what a learner has changed.
    """
    nb = copy.deepcopy(solutions)
    resources: dict[str, Any] = {"nbgrader": {}}
    for step in (ClearToNotYet, ClearOutput, LockCells, CheckCellMetadata, ComputeChecksums):
        nb, resources = step().preprocess(nb, resources)
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            cell.metadata["deletable"] = cell.metadata["editable"] = False
        cell.metadata["twophase"] = {
            "cell": cell.id,
            "digest": hashlib.sha256(cell.source.encode()).hexdigest()[:16],
        }
        if utils.is_solution(cell):
            _validate_stub(cell, catalog.load(cell.id))
    return nb


def _validate_stub(cell: NotebookNode, exercise: Exercise) -> None:
    """The stub must run as it stands and define every name that the check calls."""
    try:
        body = ast.parse(cell.source).body
    except SyntaxError as e:
        why = f"without its answer, {cell.id} is no Python: {e.msg} in line {e.lineno}"
        raise BadNotebook(why) from None
    defined = {node.name for node in body if isinstance(node, DEFINITIONS)}
    for name in exercise.entries:
        if name not in defined:
            why = f"{cell.id} must define {name} above {BEGIN}, so that its stub does too"
            raise BadNotebook(why)


def to_bytes(nb: NotebookNode) -> bytes:
    """The notebook as a file: valid, and the same bytes for the same content."""
    nbformat.validate(nb)
    text: str = nbformat.writes(nb, version=nbformat.NO_CONVERT)
    return (text.rstrip("\n") + "\n").encode("utf-8")
