"""Answers that pretend, forge or spy earn nothing and cost no other answer its points; nothing hidden is found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hostile.expect import expect_nothing_gained, expect_the_exact_score
from hostile.notebooks import CORPUS, Hostile
from hostile.spying import MARK

HERE = [*CORPUS["answers"], *CORPUS["forging"], *CORPUS["reaching"], *CORPUS["spying"]]


@pytest.fixture(scope="module", autouse=True)
def secret_in_the_environment() -> Iterator[None]:
    """Something to find: in the judge's environment before the worker starts, and in its memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWOPHASE_TEST_MARK", MARK)
        yield


@pytest.mark.parametrize("attack", HERE, ids=lambda h: h.name)
def test_an_attack_loses_what_it_broke_and_nothing_else(attack: Hostile) -> None:
    expect_the_exact_score(attack)


@pytest.mark.parametrize("attack", [h for h in HERE if h.empty], ids=lambda h: h.name)
def test_an_attack_earns_nothing_by_itself(attack: Hostile) -> None:
    expect_nothing_gained(attack)
