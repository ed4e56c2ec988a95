"""Somebody else's text, made fit to be shown: it moves no cursor and reorders no line."""

from __future__ import annotations

import re

# what moves a cursor or reorders text, and halves of letters, which nothing can print
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text without control characters."""
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(value: object) -> str:
    """The text in one line, for a terminal or a cell."""
    return printable(str(value)).replace("\n", " ")
