"""What works in a student's own kernel and cannot where answers are graded is told with what to do:
somebody who types, a file, the network, a GPU."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hostile.course import RIGHT, cell, cells, dump
from hostile.worker import grade

from twophase.grading.files.check_calls import catches
from twophase.grading.judge.what_is_not_there import (
    WHY_NO_GPU,
    WHY_NO_LOOP,
    WHY_NO_MEMORY,
    WHY_NO_THREAD,
    WHY_OF_A_KERNEL,
    WHY_REFUSED,
    WHY_UNANSWERED,
    reason,
)
from twophase.grading.judge.which_cells_run import ExecutionPlan, Step


def said(first: str, inside: str = "pass") -> str:
    """What is said of the first answer, with this above it in its cell, or inside of it."""
    source = (
        f"{first}\ndef bytes_of(n_tokens, width):\n    {inside}\n    return 2 * n_tokens * width"
    )
    seen, *others = grade(dump(cells(dict(RIGHT) | {"bytes": source}))).questions
    assert not seen.verdict.right
    assert all(q.verdict.right for q in others)
    return seen.verdict.message


@pytest.mark.parametrize(
    "line",
    [
        "n = int(input('how many? '))",
        "import getpass; getpass.getpass()",
        "breakpoint()",
        "import pdb; pdb.set_trace()",
    ],
)
def test_a_cell_or_an_answer_that_waits_for_somebody_is_told_that_nobody_types(line: str) -> None:
    assert said(line).endswith(WHY_UNANSWERED)
    assert said("pass", line).endswith(WHY_UNANSWERED)


@pytest.mark.parametrize(
    "line",
    [
        "open('data.json')",
        "np.load('weights.npy')",
        "%run helpers.py",
        "import os; os.chdir('/content')",
    ],
)
def test_a_file_that_is_not_there_is_told_with_what_to_do(line: str) -> None:
    assert said(line).endswith(WHY_REFUSED)


@pytest.mark.parametrize(
    "above",
    [
        "v = !echo 42\nn = int(v[0])",
        "3\n_ = None\nn = Out[1]",
        "import os\nassert os.system('true') == 0\nn = 42",
    ],
)
def test_what_only_a_kernel_has_is_told_to_whoever_may_rest_on_it(above: str) -> None:
    assert said(above).endswith(WHY_OF_A_KERNEL)
    source = "def bytes_of(n_tokens, width):\n    return n * n_tokens * width"
    written = cells(dict(RIGHT) | {"bytes": source})
    written.insert(1, cell(above))
    assert grade(dump(written)).questions[0].verdict.message.endswith(WHY_OF_A_KERNEL)


def test_an_error_in_a_cell_that_is_a_notebooks_own_is_said_without_more() -> None:
    assert WHY_OF_A_KERNEL not in said("n = int([][0])")


def test_who_starts_too_many_threads_is_told_how_many_there_may_be() -> None:
    start = "import threading, time; sleep = dict(target=time.sleep, args=(1,))"
    start += "\nfor _ in range(40): threading.Thread(**sleep).start()"
    assert said(start).endswith(WHY_NO_THREAD)


def test_who_asks_for_more_memory_than_there_is_is_told_how_much_that_is() -> None:
    assert said("import torch; x = torch.zeros(60_000, 60_000)").endswith(WHY_NO_MEMORY)


def test_an_answer_that_wants_a_loop_of_events_is_told_that_there_is_none() -> None:
    assert said("import asyncio", "asyncio.get_running_loop()").endswith(WHY_NO_LOOP)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        ("AssertionError: Torch not compiled with CUDA enabled", WHY_NO_GPU),
        ("RuntimeError: Found no NVIDIA driver on your system.", WHY_NO_GPU),
        ("RuntimeError: No CUDA GPUs are available", WHY_NO_GPU),
        ("NotImplementedError: Could not run 'aten::empty' from the 'MPS' backend.", WHY_NO_GPU),
        ('(Caused by NameResolutionError("example.com"))', WHY_REFUSED),
        ("EOFError: Ran out of input", ""),
        ("ValueError: the file was not found", ""),
        ("ValueError: Permission denied", ""),
        ("Case “one”: Exception: a PermissionError, it seems", ""),
        ("ValueError: no data: [Errno 13] Permission denied: 'data.json'", WHY_REFUSED),
        ("PermissionError: [Errno 13] Permission denied: 'data.json'", WHY_REFUSED),
        ("RuntimeError: unable to open shared memory object: Permission denied", WHY_REFUSED),
    ],
)
def test_an_error_says_what_was_not_there_and_another_one_does_not(error: str, why: str) -> None:
    assert reason(error) == why


@pytest.mark.parametrize("ends", ["print('took')", "return None", "return False"])
def test_a_timer_does_not_go_on_where_a_check_has_failed(ends: str) -> None:
    assert not catches(f"class Timer:\n    def __exit__(self, *a):\n        {ends}", "a-b")


@pytest.mark.parametrize(
    "source",
    [
        "class C:\n    def __exit__(self, *a):\n        return True",
        "class C:\n    def __exit__(self, *a):\n        return self.log(a)",
        "class C: pass\nC.__exit__ = lambda *a: True",
        "class C:\n    __exit__ = lambda *a: True",
        "C = type('C', (), {'__exit__': lambda *a: 1})",
        "class C:\n    def __exit__(self, *a):\n        return (",
        "try:\n    check('a-b')\nexcept ValueError: pass",
    ],
)
def test_whatever_may_go_on_where_a_check_has_failed_is_seen(source: str) -> None:
    assert catches(source, "a-b")


def test_a_line_that_takes_much_from_torch_is_read_once() -> None:
    """A text of which every part begins what is looked for, and nothing ends it."""
    plan = ExecutionPlan(
        (Step(0, "own", "# " + "from torch import " * 60_000),), {}, frozenset(), (), {}, {}
    )
    begun = time.process_time()
    assert not plan.loads_more()
    assert time.process_time() - begun < 5  # it took a quarter of an hour
    assert replace(plan, steps=(Step(0, "own", "from torch import compile"),)).loads_more()
