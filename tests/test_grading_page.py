"""The page for instructors says what the code does: its limits and the exit codes' commands are the
grader's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from twophase.checks.exercise import Exercise
from twophase.checks.judge import PATIENCE
from twophase.cli import main
from twophase.grading.course import secret
from twophase.grading.files import notebook
from twophase.grading.judge import remote_answer
from twophase.grading.sandbox import limits, rlimits, worker
from twophase.grading.sandbox.limits import Limits
from twophase.protocol import codec

PAGE = (Path(__file__).parents[1] / "book" / "grading.md").read_text(encoding="utf-8")
MIB = 2**20
WORDS = {3: "three"}


@pytest.mark.parametrize(
    "said",
    [
        f"| time of a submission | {Limits().submission_s:g} s: half for all",
        f"| time of a cell | {Limits().cell_s:g} s |",
        (
            f"| time of a case | {Exercise.time_limit_s:g} s unless the exercise says otherwise;"
            f" {WORDS[PATIENCE]} times that"
        ),
        f"| memory | {Limits().memory_bytes / 1e9:g} GB beyond",
        f"| a notebook | {notebook.MAX_BYTES // MIB} MiB, {notebook.MAX_CELLS:,} cells |",
        f"| processes for one submission | {Limits().forks}, one after the other",
        f"| of the system | {rlimits.MAX_THREADS} threads, {limits.MAX_FILES} open files,",
        f"| printed by a cell | {worker.MAX_OUTPUT:,} characters kept |",
        (
            f"| sent by an answer | {codec.MAX_FRAME_BYTES // MIB} MiB at once,"
            f" {remote_answer.MAX_CASE_BYTES // MIB} MiB and {remote_answer.MAX_CALLBACKS:,}"
            " callbacks in one case |"
        ),
        f"Students share {secret.SETS} sets of cases",
    ],
)
def test_a_limit_on_the_page_is_the_codes(said: str) -> None:
    assert said in " ".join(PAGE.split())


def test_every_command_that_the_page_shows_is_there() -> None:
    known = {entry.name for entry in main.ENTRIES}
    shown = {line.split()[1] for line in PAGE.splitlines() if line.startswith("twophase ")}
    assert (
        {"release", "grade", "score", "similar", "merge", "gradescope", "nbgrader", "self-check"}
        <= shown
        <= known
    )
