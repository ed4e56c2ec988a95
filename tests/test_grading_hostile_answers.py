"""Answers that pretend, forge or spy earn nothing and cost no other answer its points; nothing
hidden is found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hostile.course import RIGHT, STUBS, cell, cells, dump, release
from hostile.expect import expect_nothing_gained, expect_the_exact_score
from hostile.notebooks import CORPUS, Hostile, tried
from hostile.spying import MARK
from hostile.worker import LIMITS, grade, zygote

from twophase.grading.files.notebook import parse
from twophase.grading.judge.benches import Benches
from twophase.grading.judge.one_submission import SubmissionJudge
from twophase.grading.sandbox.limits import Limits
from twophase.grading.sandbox.session import Session
from twophase.grading.sandbox.zygote_handle import Zygote

HERE = [*CORPUS["answers"], *CORPUS["forging"], *CORPUS["reaching"], *CORPUS["spying"]]


@pytest.fixture(scope="module", autouse=True)
def secret_in_the_environment() -> Iterator[None]:
    """Something to find: in the judge's environment before the worker starts, and in its memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWOPHASE_TEST_MARK", MARK)
        yield


@pytest.mark.parametrize("attack", tried(HERE))
def test_an_attack_loses_what_it_broke_and_nothing_else(attack: Hostile) -> None:
    expect_the_exact_score(attack)


@pytest.mark.parametrize("attack", tried([h for h in HERE if h.empty], every=18))
def test_an_attack_earns_nothing_by_itself(attack: Hostile) -> None:
    expect_nothing_gained(attack)


class Counting(Zygote):
    """Tells each submission's process which look at the answer it is for: the first, the second."""

    def __init__(self) -> None:
        self.looks = 0

    def fork(self, limits: Limits, beside: bool = False, more: bool = False) -> Session:
        self.looks += 1
        session = zygote().fork(limits, beside)
        session.run_cell(f"LOOK = {self.looks}", 60.0)
        return session


@pytest.mark.parametrize(("right_at", "gains"), [("LOOK == 2", False), ("LOOK >= 2", True)])
def test_an_answer_that_is_right_at_its_second_look_must_be_so_at_a_third(
    right_at: str, gains: bool
) -> None:
    source = f"def bytes_of(n_tokens, width): return 2 * n_tokens * width if {right_at} else -1"
    counting = Counting()
    made = cells(STUBS | {"bytes": source})
    made.insert(1, cell("1 / 0"))  # without another cell above there is nothing else to try
    work = parse(dump(made))
    judge = SubmissionJudge(counting, release(), Benches(), LIMITS, 1, work)
    seen, *_ = judge.grade().questions
    assert seen.verdict.right == seen.alone == gains
    assert counting.looks >= 3


LUCKY = """import os
lucky = os.urandom(1)[0] % 4 == 0
def bytes_of(n_tokens, width): return 2 * n_tokens * width if lucky else -1"""


@pytest.mark.more
def test_an_answer_that_guesses_gains_nothing_by_the_second_look_that_it_is_given() -> None:
    """Right in a quarter of all processes, it is right at the first look in a quarter of all
    gradings. More looks add nearly nothing."""
    gained = 0
    for _ in range(40):
        seen, *_ = grade(dump(cells(STUBS | {"bytes": LUCKY}))).questions
        gained += seen.alone
    assert (
        gained <= 3
    )  # of forty: one in a hundred each; a second look alone would give every fifth


def test_an_answer_that_another_cell_breaks_is_right_whenever_it_is_looked_at() -> None:
    broken = cells(dict(RIGHT))
    broken.insert(1, cell("import builtins; builtins.sum = lambda *a: 3"))
    assert [q.verdict.right for q in grade(dump(broken)).questions] == [True] * len(RIGHT)
