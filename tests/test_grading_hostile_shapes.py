"""Submissions that hold a process until its time is up lose what they held and nothing else; so do
broken and odd notebooks."""

from __future__ import annotations

import pytest
from hostile.expect import expect_the_exact_score
from hostile.notebooks import CORPUS, Hostile, tried


@pytest.mark.parametrize("attack", tried(CORPUS["slow"]))
def test_what_never_ends_is_ended_and_costs_no_other_answer(attack: Hostile) -> None:
    expect_the_exact_score(attack)


@pytest.mark.parametrize("odd", tried(CORPUS["cells"]))
def test_a_notebook_of_another_shape_has_the_points_of_its_answers(odd: Hostile) -> None:
    expect_the_exact_score(odd)


@pytest.mark.parametrize("ordinary", tried(CORPUS["honest"]))
def test_an_ordinary_answer_written_differently_keeps_its_points(ordinary: Hostile) -> None:
    expect_the_exact_score(ordinary)
