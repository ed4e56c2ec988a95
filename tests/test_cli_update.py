"""`twophase update`: a new release comes in, and not a character of the learner's is lost."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from pathlib import Path

import nbformat
import pytest
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from nbformat import NotebookNode
from notebook_tools import exercise_cells, small_solution

import twophase.checks.kv_cache
from twophase.cli import my_folder, notebook_update
from twophase.cli.main import main

NAME = "03_kv_cache.ipynb"
ID = "kv_cache-max_batch"
ANSWER = (
    "def max_batch(memory_bytes, weight_bytes, kv_bytes_per_token, n_tokens):\n    return 7  # mine"
)
code, text = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell


def released(change: Callable[[NotebookNode], object] = lambda nb: None) -> NotebookNode:
    """What tools/exercises.py makes of the small solution, after a change by its author."""
    from twophase.grading.release.exercise_notebook import normalize, release

    nb = small_solution()
    change(nb)
    return release(normalize(nb, "kv_cache"))


@pytest.fixture(autouse=True)
def _one_exercise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twophase.checks.kv_cache, "ORDER", ("max_batch",))


def cell(nb: NotebookNode, name: str) -> NotebookNode:
    return next(c for c in nb.cells if notebook_update.key(c) == name)


def at(nb: NotebookNode, name: str) -> int:
    return next(i for i, c in enumerate(nb.cells) if notebook_update.key(c) == name)


def sources(nb: NotebookNode) -> list[str]:
    return [c.source for c in nb.cells]


def answered(nb: NotebookNode) -> NotebookNode:
    """The learner's notebook: an answer that was run, a scratch cell and a note."""
    mine = copy.deepcopy(nb)
    cell(mine, ID).source = ANSWER
    cell(mine, ID).execution_count = 4
    mine.cells.insert(at(mine, ID), code("scratch = 1"))
    mine.cells.append(text("my note"))
    mine.cells.insert(0, text("above all"))
    return mine


def retitled(nb: NotebookNode) -> None:
    nb.cells[2].source = "## A better task\n\nWrite it well."


def new_stub(nb: NotebookNode) -> None:
    nb.cells[3].source = nb.cells[3].source.replace("How many sequences fit.", "The largest batch.")


def with_other() -> NotebookNode:
    """A release with a second exercise, which the course has no check for: only its cells matter
    here."""
    nb = released()
    extra = nbformat.v4.new_notebook()
    extra.cells = exercise_cells(
        "kv_cache-other", 'def f():\n    raise NotYet("kv_cache-other")', 1
    )
    for c, name in zip(
        extra.cells, ("kv_cache-other-task", "kv_cache-other", "kv_cache-other-check"), strict=True
    ):
        c.id = name
        c.metadata["twophase"] = {"cell": name, "digest": notebook_update._digest(c.source)}
    nb.cells[5:5] = extra.cells
    return nb


def test_the_same_release_changes_nothing() -> None:
    mine = answered(released())
    assert not notebook_update.merge(mine, released()).changed


def test_a_new_task_comes_in_and_answer_outputs_and_own_cells_stay_where_they_were() -> None:
    mine = answered(released())
    merged = notebook_update.merge(mine, released(retitled))
    assert merged.changed
    wanted = [s.replace("\n\nWrite it.", "\n\nWrite it well.") for s in sources(mine)]
    assert wanted != sources(mine)
    assert sources(merged.notebook) == wanted
    assert cell(merged.notebook, ID).execution_count == 4


def test_an_untouched_stub_becomes_the_new_stub() -> None:
    merged = notebook_update.merge(released(), released(new_stub))
    assert "The largest batch." in cell(merged.notebook, ID).source


def test_an_answer_stays_when_its_stub_changes_and_the_learner_is_told() -> None:
    merged = notebook_update.merge(answered(released()), released(new_stub))
    assert cell(merged.notebook, ID).source == ANSWER
    assert any(ID in line and "read the task again" in line for line in merged.lines)
    assert not notebook_update.merge(merged.notebook, released(new_stub)).changed


def test_a_new_exercise_comes_in_at_its_place() -> None:
    merged = notebook_update.merge(answered(released()), with_other())
    names = [k for c in merged.notebook.cells if (k := notebook_update.key(c))]
    assert names == [notebook_update.key(c) for c in with_other().cells]
    assert "kv_cache-other is new" in merged.lines


def test_the_answer_to_a_removed_exercise_is_kept_at_the_end_once_and_comes_back_with_it() -> None:
    mine = with_other()
    cell(mine, "kv_cache-other").source = "def f(): return 'mine'"
    mine.cells.insert(at(mine, "kv_cache-other") + 1, code("f()  # try it"))
    merged = notebook_update.merge(mine, released())
    assert sources(merged.notebook)[-2:] == [notebook_update.KEPT_TEXT, "def f(): return 'mine'"]
    assert "f()  # try it" in sources(merged.notebook)
    again = notebook_update.merge(merged.notebook, released())
    assert not again.changed
    back = notebook_update.merge(merged.notebook, with_other()).notebook
    assert cell(back, "kv_cache-other").source == "def f(): return 'mine'"
    assert notebook_update.KEPT_TEXT not in sources(back)


def test_an_untouched_stub_of_a_removed_exercise_goes() -> None:
    merged = notebook_update.merge(with_other(), released())
    assert sources(merged.notebook) == sources(released())


def test_a_split_answer_loses_neither_half_and_the_last_one_counts() -> None:
    mine = answered(released())
    first = copy.deepcopy(cell(mine, ID))
    first.source, first.id = "helper = 1", "first-half"
    mine.cells.insert(at(mine, ID), first)
    merged = notebook_update.merge(mine, released(retitled)).notebook
    assert "helper = 1" in sources(merged)
    assert cell(merged, ID).source == ANSWER
    ids = [notebook_update.key(c) for c in merged.cells if notebook_update.key(c)]
    assert len(ids) == len(set(ids))


def test_a_changed_setup_cell_comes_back_as_released_and_the_change_stays_below_it() -> None:
    mine = released()
    cell(mine, "kv_cache-setup").source += "\nimport numpy as np"
    merged = notebook_update.merge(mine, released()).notebook
    i = at(merged, "kv_cache-setup")
    assert merged.cells[i].source == cell(released(), "kv_cache-setup").source
    assert merged.cells[i + 1].source.endswith("import numpy as np")
    assert notebook_update.key(merged.cells[i + 1]) is None
    assert not notebook_update.merge(merged, released()).changed


def test_an_answer_that_was_turned_into_text_is_kept_as_the_answer() -> None:
    mine = answered(released())
    i = at(mine, ID)
    mine.cells[i] = text(ANSWER, metadata=mine.cells[i].metadata)
    merged = notebook_update.merge(mine, released()).notebook
    assert (cell(merged, ID).cell_type, cell(merged, ID).source) == ("code", ANSWER)


def test_a_deleted_cell_of_the_release_comes_back() -> None:
    mine = answered(released())
    del mine.cells[at(mine, f"{ID}-check")]
    merged = notebook_update.merge(mine, released()).notebook
    assert at(merged, f"{ID}-check") == at(merged, ID) + 1


@cache
def releases() -> tuple[NotebookNode, ...]:
    return released(), released(retitled), released(new_stub), with_other()


WORDS = st.sampled_from(
    ["", "a = 1", "# note", ANSWER, "## A task\n\nWrite it.", "é\n\n\u2028x", "\ud800"]
)
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["own", "edit", "copy", "delete", "move"]), st.integers(0, 30), WORDS
    ),
    max_size=8,
)


@draws(150)
@given(edits=EDITS, which=st.sampled_from(range(4)))
def test_whatever_a_learner_did_to_the_notebook_their_text_survives_and_a_second_update_is_idle(
    edits: list[tuple[str, int, str]], which: int
) -> None:
    release, mine = releases()[which], copy.deepcopy(releases()[3])
    for n, (what, where, words) in enumerate(edits):
        i = where % len(mine.cells)
        if what == "own":
            mine.cells.insert(i, code(words))
        elif what == "edit":
            mine.cells[i].source = words
        elif what == "copy":
            mine.cells.insert(i, copy.deepcopy(mine.cells[i]))
            mine.cells[i].id = f"copy-{n}"
        elif what == "delete" and len(mine.cells) > 1:
            del mine.cells[i]
        elif what == "move":
            mine.cells.append(mine.cells.pop(i))
    written = [
        c.source for c in mine.cells if notebook_update.key(c) is None or notebook_update.edited(c)
    ]
    merged = notebook_update.merge(mine, release)
    assert all(sources(merged.notebook).count(s) >= written.count(s) for s in written)
    nbformat.validate(merged.notebook)
    assert not notebook_update.merge(merged.notebook, release).changed


@pytest.fixture
def course(tmp_path: Path) -> Path:
    (tmp_path / "exercises").mkdir()
    (tmp_path / "exercises" / NAME).write_bytes(notebook_update.to_bytes(released()))
    my_folder.fill(tmp_path)
    return tmp_path


def update(course: Path) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["update", "--course", str(course)])
    return int(stopped.value.code or 0)


def test_update_writes_the_merged_notebook_and_keeps_the_old_one(
    course: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = course / "my" / NAME
    before = notebook_update.to_bytes(answered(notebook_update.read(mine.read_bytes())))
    mine.write_bytes(before)
    (course / "exercises" / NAME).write_bytes(notebook_update.to_bytes(released(retitled)))
    assert update(course) == 0
    after = nbformat.reads(mine.read_text(), as_version=4)
    assert cell(after, ID).source == ANSWER
    assert "Write it well" in cell(after, f"{ID}-task").source
    backups = list((course / "my" / ".twophase" / "backup").iterdir())
    assert [b.read_bytes() for b in backups] == [before]
    assert backups[0].name in capsys.readouterr().out
    written = mine.read_bytes()
    assert update(course) == 0
    assert "up to date" in capsys.readouterr().out
    assert mine.read_bytes() == written
    assert not list((course / "my").glob(".*.part"))


BROKEN = (
    b"",
    b"{",
    b"[]",
    b'{"cells": 3}',
    b"\xff\xfe",
    b'{"cells": [{}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}',
)


@pytest.mark.parametrize("content", BROKEN)
def test_a_malformed_notebook_is_left_as_it_is_with_a_sentence_and_the_others_go_on(
    course: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (course / "exercises" / "04_latency_throughput.ipynb").write_bytes(
        notebook_update.to_bytes(released())
    )
    (course / "my" / NAME).write_bytes(content)
    assert update(course) == 2
    assert (course / "my" / NAME).read_bytes() == content
    out, err = capsys.readouterr()
    assert err.startswith(f"{NAME}: left as it is")
    assert err.count("\n") == 1
    assert "04_latency_throughput.ipynb: new, copied" in out


def test_a_notebook_of_an_older_format_is_brought_up_to_date(course: Path) -> None:
    old = answered(released())
    old.nbformat_minor = 4
    for c in old.cells:
        del c["id"]
    (course / "my" / NAME).write_text(nbformat.writes(old, version=nbformat.NO_CONVERT))
    (course / "exercises" / NAME).write_bytes(notebook_update.to_bytes(released(retitled)))
    assert update(course) == 0
    after = nbformat.reads((course / "my" / NAME).read_text(), as_version=4)
    assert cell(after, ID).source == ANSWER
    assert cell(after, ID).id == ID
    assert "my note" in sources(after)
