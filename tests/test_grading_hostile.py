"""A hostile or broken submission loses what it broke and nothing else, harms no neighbor, and
leaves nothing behind.

Cells that break, patch, or come in another shape; the files beside this one have the other kinds,
which take as long.
"""

from __future__ import annotations

import pytest
from hostile.expect import expect_nothing_gained, expect_the_exact_score
from hostile.notebooks import CORPUS, UNREADABLE, Hostile, tried

from twophase.grading.errors import Unreadable
from twophase.grading.files.notebook import parse

HERE = [*CORPUS["breaking"], *CORPUS["patching"]]


@pytest.mark.parametrize("attack", tried(HERE))
def test_an_attack_loses_what_it_broke_and_nothing_else(attack: Hostile) -> None:
    expect_the_exact_score(attack)


@pytest.mark.parametrize("attack", tried([h for h in HERE if h.empty], every=18))
def test_an_attack_earns_nothing_by_itself(attack: Hostile) -> None:
    expect_nothing_gained(attack)


def test_every_name_in_the_corpus_is_of_one_notebook() -> None:
    names = [h.name for kind in CORPUS.values() for h in kind]
    assert len(names) == len(set(names)), sorted({n for n in names if names.count(n) > 1})


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_no_notebook_is_called_unreadable(name: str) -> None:
    with pytest.raises(Unreadable, match="it "):
        parse(UNREADABLE[name])
