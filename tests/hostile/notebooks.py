"""The corpus: submissions that attack the grader, are broken, or are merely unlike ours. Each says which answers it must lose.

Where an attack is followed by the right answer, the answer counts unless the attack stops its own cell or spoils its own process.
"""

from __future__ import annotations

import pytest
from _pytest.mark.structures import ParameterSet
from hostile import breaking, forging
from hostile.answers import ANSWERS
from hostile.attack import Hostile
from hostile.breaking import BREAKING
from hostile.forging import FORGING
from hostile.honest import HONEST
from hostile.layouts import CELLS, FORMATS, UNREADABLE, version_3
from hostile.patching import PATCHING
from hostile.reaching import REACHING
from hostile.spying import SPYING
from hostile.withheld import WITHHELD

__all__ = ["CORPUS", "UNREADABLE", "Hostile", "tried", "version_3"]

SLOW = [*breaking.SLOW, *forging.SLOW]
CORPUS = {
    "breaking": BREAKING,
    "slow": SLOW,
    "patching": PATCHING,
    "forging": FORGING,
    "reaching": REACHING,
    "spying": SPYING,
    "answers": [*ANSWERS, *WITHHELD],
    "cells": [*CELLS, *FORMATS],
    "honest": HONEST,
}


def tried(attacks: list[Hostile], every: int = 6) -> list[ParameterSet]:
    """These as parameters of a test, every sixth in `make test`, all in `make test-more`.

    Neighbors in the corpus are of a kind, so that every kind is among them.
    """
    return [
        pytest.param(one, id=one.name, marks=[pytest.mark.more] if i % every else [])
        for i, one in enumerate(attacks)
    ]
