"""Exercises of a second topic in one notebook are not graded, and whoever hands them in, grades
them or reads of them is told so in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gradescope_tools import ROOT
from hostile.worker import LIMITS, server, zygote
from rich.console import Console

from twophase.checks import registry
from twophase.cli.grading_shown import summary
from twophase.cli.self_check import _flags
from twophase.grading.errors import Unreadable
from twophase.grading.files.notebook import parse
from twophase.grading.gradescope.autograder import NothingToGrade, the_one
from twophase.grading.intake.submissions import Submission
from twophase.grading.judge.judge import Course, Judge, Task
from twophase.grading.release.release import Source
from twophase.grading.results import run_summary
from twophase.grading.results.records import Record
from twophase.grading.run import pool, self_check

FIRST, SECOND = "latency_throughput", "sharding"
SAYS = (
    "The notebook was graded as one of latency_throughput, and its 1 exercise of sharding was not:"
    " hand that in as a notebook of sharding."
)


def cells_of(topic: str) -> list[dict[str, Any]]:
    path = ROOT / "exercises" / f"{registry.stem(topic)}.ipynb"
    cells: list[dict[str, Any]] = json.loads(path.read_bytes())["cells"]
    return cells


def one_of(topic: str) -> list[dict[str, Any]]:
    """The setup and the first exercise of a topic."""
    code = [c for c in cells_of(topic) if c["cell_type"] == "code"]
    ids = "setup", *[f"{registry.load(registry.ids(topic)[0]).id}{e}" for e in ("", "-check")]
    return [c for c in code if c["metadata"].get("nbgrader", {}).get("grade_id", "").endswith(ids)]


def write(path: Path, cells: list[dict[str, Any]]) -> Path:
    path.write_text(
        json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells})
    )
    return path


@pytest.fixture
def both(tmp_path: Path) -> Path:
    return write(tmp_path / "homework.ipynb", [*one_of(SECOND), *cells_of(FIRST)])


def graded(path: Path) -> Record:
    judge = Judge(Course(limits=LIMITS), zygote())
    return judge.grade(Task(Submission(path, path.name), 1))


def test_the_record_has_a_flag_for_the_topic_that_was_not_graded(both: Path) -> None:
    record = graded(both)
    assert record["topic"] == FIRST
    assert {q["id"].partition("-")[0] for q in record["questions"]} == {FIRST}
    assert record["flags"] == [{"name": "other_topic", "where": SECOND, "says": SAYS}]


def test_grade_names_the_notebook_and_the_topic(both: Path) -> None:
    console = Console(record=True, width=300)
    summary(console, run_summary.count([graded(both)]))
    [line] = [x for x in console.export_text().splitlines() if "Two topics" in x]
    assert line.endswith("was not graded: sharding in homework.ipynb")


def test_self_check_tells_the_student_what_is_not_graded_and_what_to_do(
    both: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "make_server", server)
    record = self_check.check(both, LIMITS)
    assert f"{SECOND}: {SAYS}" in _flags(record)


def test_a_notebook_of_one_topic_has_no_such_flag_whatever_else_has_an_id(tmp_path: Path) -> None:
    setup = one_of(SECOND)[:1]
    text = {"cell_type": "markdown", "metadata": one_of(SECOND)[1]["metadata"], "source": "notes"}
    record = graded(write(tmp_path / "a.ipynb", [*cells_of(FIRST), *setup, text]))
    assert record["flags"] == []


def test_without_ids_the_checks_that_a_notebook_calls_say_which_topics_are_in_it() -> None:
    calls = "".join(f'check("{registry.ids(t)[0]}")\n' for t in (FIRST, SECOND))
    book = parse(json.dumps({"cells": [{"cell_type": "code", "source": calls}]}).encode())
    source = Source()
    name = f"{registry.stem(FIRST)}.ipynb"
    assert source.besides(book, source.topic_of(book, name)) == {SECOND: 1}
    with pytest.raises(Unreadable) as told:
        source.topic_of(book, "homework.ipynb")
    assert "asks for exercises of latency_throughput and sharding" in str(told.value)
    assert "hand in a notebook for each" in str(told.value)


def test_gradescope_says_that_the_exercises_it_wanted_are_in_a_notebook_of_another_topic(
    both: Path,
) -> None:
    with pytest.raises(NothingToGrade) as told:
        the_one(both.parent, SECOND, Source())
    assert f"homework.ipynb (of {FIRST}, with 1 of the exercises of {SECOND} in it)" in str(
        told.value
    )
