"""A file whose JSON cannot be read is told what it looks like, and what to do."""

from __future__ import annotations

import json

import pytest

from twophase.cli.grading_shown import trouble
from twophase.grading.errors import Unreadable
from twophase.grading.files.notebook import parse

BOOK = json.dumps(
    {
        "cells": [
            {"cell_type": "code", "metadata": {"a": True}, "source": ["x = 'ä'\n", 'y = "\\n"']}
        ],
        "metadata": {"kernelspec": None, "n": [-1.5, False]},
        "nbformat": 4,
    },
    indent=1,
)
CUT, WIDE, MERGE = "it ends in the middle", "it looks like text in UTF-", "a mark of git's"


def said(data: bytes) -> str:
    with pytest.raises(Unreadable) as told:
        parse(data)
    return str(told.value)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_wherever_a_notebook_is_cut_it_is_told_that_it_ends_in_the_middle(
    encoding: str, end: str
) -> None:
    whole = BOOK.replace("\n", end).encode(encoding)
    least = len("{\n".encode(encoding))
    for at in range(least, len(whole) - (2 if encoding == "utf-16" else 1)):
        assert CUT in said(whole[:at]), whole[max(0, at - 20) : at]


def test_the_line_in_which_a_notebook_ends_is_told_and_what_to_do() -> None:
    for end in ("\n", "\r\n"):
        assert said(end.join(BOOK.splitlines()[:3]).encode()) == (
            "its JSON cannot be read: it ends in the middle, in line 3; save it again, see that it"
            " opens in Jupyter, and hand that in"
        )


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-32"])
def test_text_of_several_bytes_a_character_is_told_to_be_saved_as_utf_8(encoding: str) -> None:
    told = said(BOOK.encode(encoding))
    assert f"{WIDE}{encoding[4:6]};" in told
    assert "save it as UTF-8" in told


def test_utf_16_that_says_so_is_read_as_before() -> None:
    assert [c.source for c in parse(BOOK.encode("utf-16")).cells] == ["x = 'ä'\ny = \"\\n\""]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_marks_of_a_merge_are_told_with_their_line(end: str) -> None:
    lines = BOOK.splitlines()
    both = [*lines[:4], "<<<<<<< HEAD", lines[4], "=======", lines[4], ">>>>>>> theirs", *lines[5:]]
    told = said(end.join(both).encode())
    assert "line 5 is a mark of git's (<<<<<<<); merge the two versions, see that" in told


def test_each_sentence_fits_into_a_line_that_grade_prints() -> None:
    lines = BOOK.splitlines()
    for data in (
        BOOK.encode("utf-16-le"),
        "\n".join([*lines[:4], "<<<<<<< HEAD", *lines[4:]]).encode(),
        BOOK[:-2].encode(),
    ):
        record = {"file": "x" * 30, "status": "unreadable", "message": said(data)}
        assert trouble(record).plain.endswith("and hand that in")


def test_a_mark_that_was_overlooked_is_told_too() -> None:
    lines = BOOK.splitlines()
    for mark in ("=======", ">>>>>>> theirs", "||||||| base"):
        assert MERGE in said("\n".join([*lines[:4], mark, *lines[4:]]).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"hello",
        b"<html><body>sign in</body></html>",
        b"%PDF-1.4\n\x00\x01",
        b'{"cells": [],}',
        BOOK.encode() + b"x",
        bytes(1000),
        b"x\x00" * 100,
        BOOK.replace('"cells"', "cells").encode(),
    ],
)
def test_nothing_is_guessed_of_what_looks_like_none_of_these(data: bytes) -> None:
    told = said(data)
    assert told.startswith("it is no notebook: its JSON cannot be read (JSONDecodeError)")
