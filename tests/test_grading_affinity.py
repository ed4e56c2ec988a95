"""A judge and the process that it asks share one processor, and only while a submission is
judged."""

from __future__ import annotations

import os

import pytest
from grading_run_tools import course, write
from hostile.course import RIGHT, cells, dump
from hostile.worker import LIMITS, output, zygote

from twophase.grading.intake.submissions import find
from twophase.grading.judge.judge import Judge, Task
from twophase.grading.sandbox import affinity
from twophase.grading.sandbox.affinity import one_processor, processors, stay_on
from twophase.grading.sandbox.zygote_handle import Zygote

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system leaves nobody on a processor"
)
HONEST = dump(cells(dict(RIGHT)))
WHERE = "import os; print(sorted(os.sched_getaffinity(0)))"


@pytest.fixture
def before() -> list[int]:
    """The processors of this process, whose zygote has started."""
    zygote().start()
    return processors()


def test_a_submission_runs_where_its_judge_runs_and_all_others_where_they_may(before) -> None:
    with one_processor():
        mine = processors()
        assert len(mine) == 1
        assert mine[0] in before
        with zygote().fork(LIMITS) as session:
            assert output(session, WHERE) == str(mine)
            assert processors_of(zygote().pid) == before
    assert processors() == before
    with zygote().fork(LIMITS) as session:
        assert output(session, WHERE) == str(before)


def test_a_judge_is_on_one_processor_while_it_grades_and_free_behind_it(
    before, tmp_path, monkeypatch
) -> None:
    seen = []
    fork = type(zygote()).fork

    def spied(self, *args, **kwargs):
        seen.append(processors())
        return fork(self, *args, **kwargs)

    monkeypatch.setattr(type(zygote()), "fork", spied)
    (found,) = find(write(tmp_path, {"zoe/a.ipynb": HONEST}))
    assert Judge(course(), zygote()).grade(Task(found, 1))["points"] == 8
    assert {len(there) for there in seen} == {1}
    assert processors() == before


def test_a_server_that_is_started_meanwhile_is_not_left_on_one_processor(before) -> None:
    with one_processor(), Zygote() as other:
        other.start()
        assert processors_of(other.pid) == before
        with other.fork(LIMITS) as session:
            assert output(session, WHERE) == str(processors())


TWO_THREADS = """
import time, torch
def taken(threads):
    torch.set_num_threads(threads)
    x, began = torch.ones(40_000), time.process_time()
    for _ in range(300):
        x = x.exp().clamp(max=1)
    return time.process_time() - began
taken(2)
one, two = (sorted(taken(threads) for _ in range(12)) for threads in (1, 2))
print(two[0] < 8 * one[6])  # the median: a virtual machine has counted no time at all for one
"""


def test_threads_of_an_answer_do_not_spin_for_each_other(before) -> None:
    """Two that spin take the processor in turns, milliseconds for each of these operations: some
    tens of times what one thread takes, in processor time."""
    with one_processor(), zygote().fork(LIMITS) as session:
        assert output(session, TWO_THREADS) == "True"


def test_the_processor_is_the_one_on_which_a_thread_is(before) -> None:
    for processor in before:
        stay_on([processor])
        found = affinity._current()
        stay_on(before)
        assert found == [processor]


def test_what_breaks_inside_leaves_nobody_behind_on_one_processor(before) -> None:
    with pytest.raises(ZeroDivisionError), one_processor():
        raise ZeroDivisionError
    assert processors() == before


def test_where_the_system_refuses_or_does_not_say_all_goes_on(before, monkeypatch) -> None:
    stay_on([2**15])  # no machine has so many
    assert processors() == before
    with monkeypatch.context() as patched:
        patched.setattr(affinity, "_current", list)
        with one_processor():
            assert processors() == before
    with monkeypatch.context() as patched:
        patched.setattr(os, "sched_getaffinity", refused)
        patched.setattr(os, "sched_setaffinity", refused)
        with one_processor():
            assert processors() == []
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.delattr(os, "sched_setaffinity")
    with one_processor():
        assert processors() == []


def processors_of(pid: int) -> list[int]:
    return sorted(os.sched_getaffinity(pid))


def refused(*arguments: object) -> list[int]:
    raise PermissionError(1, "refused")
