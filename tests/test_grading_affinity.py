"""A judge and the process that it asks share one processor, and only while a submission is
judged."""

from __future__ import annotations

import os

import pytest
from hostile.worker import LIMITS, output, zygote

from twophase.grading.sandbox.affinity import one_processor, processors, stay_on

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system leaves nobody on a processor"
)
WHERE = "import os; print(sorted(os.sched_getaffinity(0)))"


def test_a_submission_runs_where_its_judge_runs_and_both_are_free_again() -> None:
    before = processors()
    with one_processor():
        mine = processors()
        assert len(mine) == 1
        assert mine[0] in before
        with zygote().fork((), LIMITS) as session:
            assert output(session, WHERE) == str(mine)
    assert processors() == before
    with zygote().fork((), LIMITS) as session:  # the zygote has stayed where it was
        assert output(session, WHERE) == str(before)


def test_what_breaks_inside_leaves_nobody_behind_on_one_processor() -> None:
    before = processors()
    with pytest.raises(ZeroDivisionError), one_processor():
        raise ZeroDivisionError
    assert processors() == before


def test_where_the_system_refuses_or_knows_nothing_of_it_all_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = processors()
    stay_on([2**15])  # no machine has so many
    assert processors() == before
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.delattr(os, "sched_setaffinity")
    with one_processor():
        assert processors() == []
    stay_on([])
