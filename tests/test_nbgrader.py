"""The notebooks are nbgrader assignments as they stand: its own generate_assignment and autograde
say so."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from notebook_tools import ROOT, SOLUTIONS, small_solution, solved

import twophase.checks.kv_cache

nbgrader_apps = pytest.importorskip("nbgrader.apps", reason="nbgrader does not run on this system")

COURSE = "two_phases"


@pytest.fixture(autouse=True)
def _programs_of_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """nbgrader starts `alembic` by its name, so the environment's programs must be on the path."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def graded_by_nbgrader(
    folder: Path, solutions: dict[str, NotebookNode], exercises: dict[str, NotebookNode]
) -> dict[str, float]:
    """The scores of an untouched and a solved submission, and the most that nbgrader would give, as
    its gradebook has them."""
    from nbgrader.api import Gradebook
    from nbgrader.coursedir import CourseDirectory
    from traitlets.config import Config

    submissions = {
        "untouched": exercises,
        "solved": {n: solved(nb, 1) for n, nb in exercises.items()},
    }
    sets = {folder / "source" / COURSE: solutions} | {
        folder / "submitted" / s / COURSE: n for s, n in submissions.items()
    }
    for place, notebooks in sets.items():
        place.mkdir(parents=True)
        for name, nb in notebooks.items():
            nbformat.write(nb, place / name)
    config = Config()
    config.CourseDirectory.root = str(folder)
    config.CourseDirectory.course_id = "course"
    config.CourseDirectory.db_url = f"sqlite:///{folder / 'gradebook.db'}"
    config.NbGrader.logfile = ""
    config.Execute.timeout = 120
    api = nbgrader_apps.NbGraderAPI(CourseDirectory(config=config), config=config)
    done = [
        api.generate_assignment(COURSE),
        *(api.autograde(COURSE, student) for student in submissions),
    ]
    for result in done:
        assert result["success"], result.get("error") or result.get("log")
    release = folder / "release" / COURSE
    assert sorted(p.name for p in release.glob("*.ipynb")) == sorted(exercises)
    for name, nb in exercises.items():
        assert_same_assignment(nbformat.read(release / name, as_version=4), nb)
    with Gradebook(config.CourseDirectory.db_url) as book:
        scores = {s: float(book.find_submission(COURSE, s).score) for s in submissions}
        return {**scores, "most": float(book.find_assignment(COURSE).max_score)}


def assert_same_assignment(theirs: NotebookNode, ours: NotebookNode) -> None:
    """nbgrader's own release differs from exercises/ in nothing but the stub."""
    assert len(theirs.cells) == len(ours.cells)
    for a, b in zip(theirs.cells, ours.cells, strict=True):
        mark = b.metadata.get("nbgrader", {})
        assert a.metadata.get("nbgrader", {}).get("grade_id") == mark.get("grade_id")
        assert a.source == b.source or mark.get("solution")
        if b.cell_type == "code":
            assert a.outputs == b.outputs == []


def points(notebooks: dict[str, NotebookNode]) -> float:
    return sum(
        c.metadata.get("nbgrader", {}).get("points", 0)
        for nb in notebooks.values()
        for c in nb.cells
    )


def test_a_small_course_untouched_gets_nothing_and_solved_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from twophase.grading.release.exercise_notebook import normalize, release

    monkeypatch.setattr(twophase.checks.kv_cache, "ORDER", ("max_batch",))
    nb = normalize(small_solution(), "kv_cache")
    scores = graded_by_nbgrader(
        tmp_path, {"03_kv_cache.ipynb": nb}, {"03_kv_cache.ipynb": release(nb)}
    )
    assert scores == {"untouched": 0, "solved": 2, "most": 2}


@pytest.mark.more  # the small course above takes the same way
@pytest.mark.timeout(1200)  # two kernels for every topic
def test_the_whole_course_untouched_gets_nothing_and_solved_everything(tmp_path: Path) -> None:
    assert SOLUTIONS, "there are no notebooks"
    solutions = {p.name: nbformat.read(p, as_version=4) for p in SOLUTIONS}
    exercises = {
        p.name: nbformat.read(ROOT / "exercises" / p.name, as_version=4) for p in SOLUTIONS
    }
    scores = graded_by_nbgrader(tmp_path, solutions, exercises)
    assert scores == {"untouched": 0, "solved": points(exercises), "most": points(exercises)}
    shutil.rmtree(tmp_path / "autograded")
