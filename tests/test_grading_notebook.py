"""Reading notebooks: nbformat's own readings agree with ours, and no bytes raise anything but Unreadable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hostile.course import RIGHT, TOPIC, answer_cell, cell, cells, dump, release, setup_cell
from hostile.notebooks import version_3
from hypothesis import given
from hypothesis import strategies as st

from twophase.grading.notebook import Unreadable, parse, read
from twophase.grading.plan import make_plan

json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda x: (
        st.lists(x, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["cells", "worksheets", "metadata", "nbgrader", "source", "grade_id", "cell_type", "input"]
            ),
            x,
        )
    ),
    max_leaves=25,
)


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_unreadable(data: bytes) -> None:
    _parses_or_unreadable(data)


@given(json_like)
def test_no_json_raises_anything_but_unreadable_and_all_of_it_can_be_planned(tree: Any) -> None:
    _parses_or_unreadable(json.dumps({"cells": [tree]}).encode())
    _parses_or_unreadable(json.dumps(tree).encode())


def _parses_or_unreadable(data: bytes) -> None:
    try:
        notebook = parse(data)
    except Unreadable:
        return
    make_plan(notebook, release())


@pytest.mark.parametrize("data", [dump(cells(dict(RIGHT))), version_3()], ids=["version 4", "version 3"])
def test_the_cells_are_those_that_nbformat_reads(data: bytes) -> None:
    theirs = nbformat.reads(data.decode(), as_version=4)
    ours = parse(data)
    assert [(c.kind, c.source) for c in ours.cells] == [(c.cell_type, c.source) for c in theirs.cells]
    assert [c.grade_id for c in ours.cells] == [
        c.metadata.get("nbgrader", {}).get("grade_id", "") for c in theirs.cells
    ]


def test_a_source_in_lines_is_the_same_source() -> None:
    split = cell("")
    split["source"] = ["a = 1\n", "b = 2"]
    assert parse(dump([split])).cells[0].source == "a = 1\nb = 2"


def test_a_byte_order_mark_is_no_obstacle() -> None:
    assert len(parse(b"\xef\xbb\xbf" + dump([cell("1")])).cells) == 1


@pytest.mark.parametrize("what", ["missing", "folder", "link"])
def test_what_is_no_file_is_unreadable(tmp_path: Path, what: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(__file__)
    with pytest.raises(Unreadable, match=r"cannot be opened|folder|link"):
        read(tmp_path / what)


def steps(all_cells: list[dict[str, Any]]) -> list[tuple[str, str]]:
    plan = make_plan(parse(dump(all_cells)), release())
    return [(s.role, s.exercise_id or s.source.splitlines()[0]) for s in plan.steps]


def test_cells_run_in_the_order_of_the_submission_with_the_released_setup_first() -> None:
    made = [
        cell("one = 1"),
        answer_cell("softmax", "x"),
        cell("", kind="markdown"),
        setup_cell("mine"),
        answer_cell("bytes", "y"),
    ]
    assert steps(made) == [
        ("setup", "from twophase.lab import NotYet, check, hint, solution, progress"),
        ("own", "one = 1"),
        ("answer", f"{TOPIC}-softmax"),
        ("answer", f"{TOPIC}-bytes"),
    ]


def test_an_exercise_by_itself_has_the_setup_and_its_own_cell() -> None:
    plan = make_plan(parse(dump([cell("one = 1"), *cells(dict(RIGHT))])), release())
    assert [s.role for s in plan.alone(f"{TOPIC}-bytes", with_own=False)] == ["setup", "answer"]
    assert [s.role for s in plan.alone(f"{TOPIC}-bytes", with_own=True)] == ["setup", "own", "answer"]
