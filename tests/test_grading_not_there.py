"""What works in a student's own kernel and cannot where answers are graded is told with what to do:
somebody who types, a file, the network, a GPU."""

from __future__ import annotations

import pytest
from hostile.course import RIGHT, cells, dump
from hostile.worker import grade

from twophase.grading.judge.what_is_not_there import (
    WHY_NO_GPU,
    WHY_NO_LOOP,
    WHY_NO_MEMORY,
    WHY_REFUSED,
    WHY_UNANSWERED,
    reason,
)


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
