"""The notebooks: exercises/ is what solutions/ gives, gives nothing away, and says exactly what is
not solved yet."""

from __future__ import annotations

import ast
import copy
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from IPython.core.formatters import DisplayFormatter
from nbformat import NotebookNode
from notebook_tools import ROOT, SOLUTIONS, exercise_cells, small_solution, solved, topic_of
from patience import PATIENCE_S

import twophase.checks.kv_cache
from twophase.checks import registry

SANITIZE = ROOT / "tests" / "nbval_sanitize.cfg"

topics = pytest.mark.parametrize("path", SOLUTIONS, ids=lambda p: p.stem)


def exercise_file(path: Path) -> Path:
    return ROOT / "exercises" / path.name


# `python -m pytest`, without the 2 s that a grammar for URLs takes (tests/conftest.py)
PYTEST = "import sys; sys.modules['rfc3987_syntax'] = None; import pytest; sys.exit(pytest.main())"


def nbval(notebook: Path, report: Path, *options: str) -> dict[int, bool]:
    """Whether each code cell passes, by its number among the code cells, in a pytest of its own."""
    common = [
        "--nbval-current-env",
        "--nbval-cell-timeout",
        str(PATIENCE_S),
        "--continue-on-collection-errors",
    ]
    command = [
        sys.executable,
        "-c",
        PYTEST,
        *options,
        *common,
        "-p",
        "no:cacheprovider",
        f"--junitxml={report}",
    ]
    done = subprocess.run(
        [*command, str(notebook)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
    )
    cells = {
        int(c.attrib["name"].split()[-1]): not len(c) for c in ET.parse(report).iter("testcase")
    }
    assert done.returncode == (0 if all(cells.values()) else 1), done.stdout[-2000:]
    assert cells, "nbval found no cells"
    return cells


def code_cells(nb: NotebookNode) -> list[NotebookNode]:
    return [c for c in nb.cells if c.cell_type == "code"]


def graded(nb: NotebookNode) -> set[int]:
    """The numbers of the check cells among the code cells."""
    return {i for i, c in enumerate(code_cells(nb)) if c.metadata.get("nbgrader", {}).get("grade")}


def test_every_topic_with_exercises_has_its_notebook() -> None:
    assert [topic_of(p) for p in SOLUTIONS] == registry.topics()


def test_exercises_are_what_solutions_give(capsys: pytest.CaptureFixture[str]) -> None:
    import exercises

    assert exercises.main(["--check"]) == 0, capsys.readouterr().out


@topics
def test_exercises_store_no_outputs_and_no_answers(path: Path) -> None:
    nb = nbformat.read(exercise_file(path), as_version=4)
    assert all(not c.outputs and c.execution_count is None for c in code_cells(nb))
    text = exercise_file(path).read_text(encoding="utf-8")
    assert "SOLUTION" not in text
    for exercise_id in registry.ids(topic_of(path)):
        assert text.count(f'raise NotYet(\\"{exercise_id}\\")') >= 1


@topics
def test_solutions_store_the_outputs_of_a_run_in_order(path: Path) -> None:
    cells = code_cells(nbformat.read(path, as_version=4))
    assert [c.execution_count for c in cells] == list(range(1, len(cells) + 1))


@topics
def test_every_notebook_has_at_least_four_kinds_of_exercise(path: Path) -> None:
    assert len({e.kind for e in registry.load_topic(topic_of(path))}) >= 4


@dataclass
class Ran:
    """What a code cell gave: whether it raised, and how its last line is shown."""

    raised: bool = False
    shown: dict[str, str] = field(default_factory=dict)


def run_here(nb: NotebookNode, monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[Ran]:
    """The code cells, run one after the other in this process."""
    names: dict[str, Any] = {"__name__": "__main__"}
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(user_ns=names))
    monkeypatch.setattr("twophase.lab.record._here", [])
    monkeypatch.chdir(folder)  # in which nobody keeps a record
    monkeypatch.setattr("twophase.lab.clock.BUDGET_S", 0.001)  # nothing here depends on a time
    ran: list[Ran] = []

    def publish(data: dict[str, Any]) -> None:  # what displays itself, as a verdict does
        ran[-1].shown = data

    monkeypatch.setattr("IPython.display.publish_display_data", publish)
    for i, cell in enumerate(code_cells(nb)):
        ran.append(Ran())
        *lines, last = ast.parse(cell.source).body or [ast.Pass()]
        shows = isinstance(last, ast.Expr)
        try:
            body = ast.Module(lines if shows else [*lines, last], [])
            exec(compile(body, f"cell {i}", "exec"), names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), f"cell {i}", "eval"), names)
                shown = {} if value is None else DisplayFormatter().format(value)[0]
                ran[-1].shown = shown or ran[-1].shown
        except Exception:
            ran[-1].raised = True
    return ran


@topics
def test_an_untouched_notebook_fails_exactly_at_its_check_cells(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nb = nbformat.read(exercise_file(path), as_version=4)
    ran = run_here(nb, monkeypatch, tmp_path)
    assert {i for i, cell in enumerate(ran) if cell.raised} == graded(nb)


@pytest.mark.more  # of all notebooks; a small one below
@topics
def test_nbval_fails_an_untouched_notebook_exactly_at_its_check_cells(
    path: Path, tmp_path: Path
) -> None:
    nb = nbformat.read(exercise_file(path), as_version=4)
    cells = nbval(exercise_file(path), tmp_path / "report.xml", "--nbval-lax")
    assert len(cells) == len(code_cells(nb))
    assert {n for n, passed in cells.items() if not passed} == graded(nb)


@pytest.mark.more  # the model solutions below do; these answers the kill matrix accepts
@topics
def test_a_solved_notebook_passes(path: Path, tmp_path: Path) -> None:
    nb = solved(nbformat.read(exercise_file(path), as_version=4))
    nbformat.write(nb, tmp_path / path.name)
    cells = nbval(tmp_path / path.name, tmp_path / "report.xml", "--nbval-lax")
    assert len(cells) == len(code_cells(nb))
    assert all(cells.values())
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([path.name, "report.xml"])


@topics
def test_the_model_solutions_show_what_they_showed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nb = nbformat.read(path, as_version=4)
    for cell, ran in zip(code_cells(nb), run_here(nb, monkeypatch, tmp_path), strict=True):
        assert not ran.raised, cell.source
        if "nbval-ignore-output" not in cell.metadata.get("tags", []):
            stored = [dict(output.data) for output in cell.outputs]
            assert stored == ([ran.shown] if ran.shown else []), cell.source


@pytest.mark.more  # in a real kernel, as nbval compares; a small notebook below
@topics
def test_nbval_finds_what_the_model_solutions_showed(path: Path, tmp_path: Path) -> None:
    cells = nbval(path, tmp_path / "report.xml", "--nbval", "--nbval-sanitize-with", str(SANITIZE))
    assert all(cells.values()), (
        f"cells that differ: {[n for n, passed in cells.items() if not passed]}"
    )


def test_running_notebooks_writes_nothing_beside_them() -> None:
    kept = {p.name for folder in ("exercises", "solutions") for p in (ROOT / folder).iterdir()}
    assert {n for n in kept if not n.endswith(".ipynb")} <= {".ipynb_checkpoints"}


# What twophase.grading.release.exercise_notebook makes and refuses, on a small notebook.


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> NotebookNode:
    monkeypatch.setattr(twophase.checks.kv_cache, "ORDER", ("max_batch",))
    return small_solution()


def made(nb: NotebookNode) -> NotebookNode:
    from twophase.grading.release.exercise_notebook import normalize, release, validate

    nb = normalize(nb, "kv_cache")
    validate(nb, "kv_cache")
    return release(nb)


def source(nb: NotebookNode, name: str) -> str:
    return str(next(c.source for c in nb.cells if c.id == name))


def test_the_stub_names_the_exercise_and_counts_the_lines_of_code(small: NotebookNode) -> None:
    lines = source(made(small), "kv_cache-max_batch").splitlines()
    assert (
        lines[-1] == '    raise NotYet("kv_cache-max_batch")  # the author\'s answer takes 2 lines'
    )
    assert lines[1] == '    """How many sequences fit."""'


def test_each_region_of_a_cell_gets_its_own_stub_at_its_own_indent(small: NotebookNode) -> None:
    small.cells[3].source = (
        "class max_batch:\n    def a(self):\n        ### BEGIN SOLUTION\n        return 1\n       "
        " ### END SOLUTION\n\n    def b(self):\n        x = 1\n        ### BEGIN SOLUTION\n       "
        " x += 1\n        return x\n        ### END SOLUTION"
    )
    stub = 'raise NotYet("kv_cache-max_batch")  # the author\'s answer takes'
    assert (
        source(made(small), "kv_cache-max_batch")
        == f"class max_batch:\n    def a(self):\n        {stub} 1 line\n\n"
        f"    def b(self):\n        x = 1\n        {stub} 2 lines"
    )


def test_the_heading_of_a_task_is_made_from_its_exercise(small: NotebookNode) -> None:
    small.cells[2].source = "## Any title (99 points)\n\nHow many?"
    assert source(made(small), "kv_cache-max_batch-task") == (
        "### 3.1 How many sequences fit (formula, 2 points, 8 minutes)\n\nHow many?"
    )


def test_the_same_solution_gives_the_same_bytes_whatever_the_editor_left_in_it(
    small: NotebookNode,
) -> None:
    from twophase.grading.release.exercise_notebook import to_bytes

    touched = copy.deepcopy(small)
    touched.metadata = nbformat.from_dict(
        {"kernelspec": {"name": "mine", "display_name": "Mine"}, "toc": {"x": 1}}
    )
    for i, c in enumerate(touched.cells):
        c.id = f"random-{i}"
        c.metadata["collapsed"] = True
        c.source += "\n"
        if c.cell_type == "code":
            c.execution_count, c.outputs = 7, [nbformat.v4.new_output("stream", text="secret")]
    assert to_bytes(made(touched)) == to_bytes(made(small))


Break = Callable[[NotebookNode], object]


def _points(nb: NotebookNode) -> None:
    nb.cells[4].metadata.nbgrader["points"] = 3


def _rename(nb: NotebookNode) -> None:
    nb.cells[3].metadata.nbgrader["grade_id"] = "kv_cache-max_bach"


def _twice(nb: NotebookNode) -> None:
    nb.cells += copy.deepcopy(nb.cells[2:5])


def _stranger(nb: NotebookNode) -> None:
    nb.cells += exercise_cells(
        "kv_cache-unknown", "def f():\n    ### BEGIN SOLUTION\n    ### END SOLUTION", 1
    )


def _set(i: int, text: str) -> Break:
    return lambda nb: nb.cells[i].update(source=text)


BREAKS: dict[str, tuple[Break, str]] = {
    "points differ from the exercise's": (_points, "worth 2 points"),
    "an id is misspelt": (_rename, "no answer cell for kv_cache-max_batch"),
    "an exercise stands twice": (_twice, "an id is used once"),
    "an exercise is unknown": (_stranger, "belongs to no exercise"),
    "the check cell is missing": (lambda nb: nb.cells.pop(4), "must stand its check cell"),
    "the check cell checks something else": (_set(4, 'check("x")'), "must stand its check cell"),
    "the task is missing": (lambda nb: nb.cells.pop(2), "must stand its task"),
    "there is no solution region": (_set(3, "def max_batch(): pass"), "has no ### BEGIN SOLUTION"),
    "the def is inside the region": (
        _set(3, "### BEGIN SOLUTION\nx\n### END SOLUTION"),
        "must define max_batch",
    ),
    "the region never ends": (_set(3, "def max_batch():\n    ### BEGIN SOLUTION"), "does not end"),
    "the region is not closed before the next": (
        _set(3, "def max_batch():\n    ### BEGIN SOLUTION\n    ### BEGIN SOLUTION"),
        "inside another one",
    ),
    "the stub is no Python": (
        _set(3, "def max_batch()\n    ### BEGIN SOLUTION\n    ### END SOLUTION"),
        "is no Python",
    ),
    "the setup cell is missing": (lambda nb: nb.cells.pop(1), "setup cell"),
}


@pytest.mark.parametrize("how", BREAKS)
def test_a_broken_model_solution_is_refused_with_a_sentence(how: str, small: NotebookNode) -> None:
    from twophase.grading.release.exercise_notebook import BadNotebook

    change, says = BREAKS[how]
    change(small)
    with pytest.raises(BadNotebook, match=says):
        made(small)


def test_the_tool_writes_both_notebooks_once_and_finds_drift(
    small: NotebookNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import exercises

    (tmp_path / "solutions").mkdir()
    path = tmp_path / "solutions" / "03_kv_cache.ipynb"
    nbformat.write(small, path)
    assert exercises.main(["--check"], tmp_path) == 1
    assert "is missing: run `make exercises`" in capsys.readouterr().out
    assert exercises.main([], tmp_path) == 0
    first = [p.read_bytes() for p in sorted(tmp_path.rglob("*.ipynb"))]
    assert len(first) == 2
    assert b"Right. 2 of 2 points" in path.read_bytes()
    assert exercises.main(["kv_cache"], tmp_path) == 0
    assert [p.read_bytes() for p in sorted(tmp_path.rglob("*.ipynb"))] == first
    assert exercises.main(["--check"], tmp_path) == 0
    target = tmp_path / "exercises" / path.name
    target.write_bytes(target.read_bytes().replace(b"That is all", b"That was all"))
    capsys.readouterr()
    assert exercises.main(["--check"], tmp_path) == 1
    assert "is not what solutions/03_kv_cache.ipynb gives" in capsys.readouterr().out
    path.write_bytes(path.read_bytes().replace(b"max(0, free", b"max(1, free"))
    assert exercises.main([], tmp_path) == 1
    assert "kv_cache-max_batch-check fails" in capsys.readouterr().out


def test_nbval_tells_a_solved_exercise_from_an_untouched_one(
    small: NotebookNode, tmp_path: Path
) -> None:
    """Both in one notebook: its first check passes, its second one fails."""
    untouched = made(small)
    nb = solved(untouched)
    for cell in copy.deepcopy(untouched.cells[2:5]):  # the task, the stub, the check
        cell.id += "-again"
        nb.cells.append(cell)
    nbformat.write(nb, tmp_path / "both.ipynb")
    cells = nbval(tmp_path / "both.ipynb", tmp_path / "report.xml", "--nbval-lax")
    assert {n for n, passed in cells.items() if not passed} == {4}
    assert set(cells) == {0, 1, 2, 3, 4}
