"""What several tests need of notebooks: a small model-solution notebook, the tools that make
exercises, right answers put in."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import nbformat
from exercise_tools import right_answers
from nbformat import NotebookNode

from twophase.checks import registry

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))  # tools/ is no package: authors run its files

SOLUTIONS = sorted((ROOT / "solutions").glob("[0-9][0-9]_*.ipynb"))

MAX_BATCH = '''def max_batch(memory_bytes, weight_bytes, kv_bytes_per_token, n_tokens):
    """How many sequences fit."""
    ### BEGIN SOLUTION
    free = memory_bytes - weight_bytes  # what is left

    # whole sequences only
    return max(0, free // (kv_bytes_per_token * n_tokens))
    ### END SOLUTION
'''


def marked(source: str, grade_id: str, **marks: object) -> NotebookNode:
    """A code cell with nbgrader's metadata."""
    metadata = {
        "grade": False,
        "grade_id": grade_id,
        "locked": False,
        "schema_version": 3,
        "solution": False,
        "task": False,
    }
    return nbformat.v4.new_code_cell(source, metadata={"nbgrader": {**metadata, **marks}})


def exercise_cells(exercise_id: str, answer: str, points: int) -> list[NotebookNode]:
    """The three cells of an exercise."""
    return [
        nbformat.v4.new_markdown_cell("## A task\n\nWrite it."),
        marked(answer, exercise_id, solution=True),
        marked(
            f'check("{exercise_id}")',
            f"{exercise_id}-check",
            grade=True,
            locked=True,
            points=points,
        ),
    ]


def small_solution() -> NotebookNode:
    """A model-solution notebook with one exercise, as an author saves it."""
    setup = marked(
        "from twophase.lab import NotYet, check, hint, solution, progress",
        "kv_cache-setup",
        locked=True,
    )
    nb = nbformat.v4.new_notebook()
    nb.cells = [
        nbformat.v4.new_markdown_cell("# The KV cache"),
        setup,
        *exercise_cells("kv_cache-max_batch", MAX_BATCH, 2),
        nbformat.v4.new_markdown_cell("That is all."),
    ]
    return nb


def solved(exercise: NotebookNode, which: int = 0) -> NotebookNode:
    """The exercise notebook with independently written right answers in its answer cells."""
    nb = copy.deepcopy(exercise)
    for cell in nb.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            files = right_answers(cell.metadata.nbgrader.grade_id)
            cell.source = files[which % len(files)].read_text(encoding="utf-8")
    return nb


def topic_of(path: Path) -> str:
    """The topic of a notebook file."""
    return next(t for t in registry.CHAPTERS if registry.stem(t) == path.stem)
