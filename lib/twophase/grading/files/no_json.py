"""What a notebook looks like whose JSON cannot be read, and what to do about it: one sentence."""

from __future__ import annotations

import json
import re

# one character each of which a file in that encoding begins with, if it is a notebook
WIDE = (("utf-32-le", 4), ("utf-32-be", 4), ("utf-16-le", 2), ("utf-16-be", 2))
# what git writes at the beginning of a line where it cannot join two versions
MERGE_MARK = re.compile(r"^(?:<{7} |\|{7} |={7}$|>{7} )", re.M)
WORDS = ("true", "false", "null")
NUMBER = re.compile(r"-|\.|[eE][+-]?")  # after which there must be a digit
LONGEST_ESCAPE = len(r"\u12ab")


def sentence(data: bytes, text: str, error: Exception) -> str:
    """Why these bytes are no notebook. `text` is what was read of them, and `error` what the
    reader of JSON raised."""
    if "\0" in text[:40] and (encoding := _wide(data)):  # else it was decoded by its first bytes
        return (
            f"its JSON cannot be read: it looks like text in {encoding}; open it in a text editor,"
            " save it as UTF-8, and hand that in"
        )
    if mark := MERGE_MARK.search(text.replace("\r\n", "\n")):
        line = text.replace("\r\n", "\n").count("\n", 0, mark.start()) + 1
        return (
            f"its JSON cannot be read: line {line} is a mark of git's, {mark[0].strip()}, where two"
            " versions were not merged; keep one of the two, take the marks out, see that it opens"
            " in Jupyter, and hand that in"
        )
    if isinstance(error, json.JSONDecodeError) and _is_cut(text, error):
        return (
            f"its JSON cannot be read: it ends in the middle, in line {text.count(chr(10)) + 1}, as"
            " if it had not been saved or sent to the end; save it again, see that it opens in"
            " Jupyter, and hand that in"
        )
    return f"it is no notebook: its JSON cannot be read ({type(error).__name__})"


def _wide(data: bytes) -> str:
    """The name of an encoding that a notebook seems to be in, with several bytes a character."""
    for encoding, width in WIDE:
        start = data[: 40 * width].decode(encoding, "replace").lstrip("\ufeff \r\n\t")
        if start[:1] == "{" and "\0" not in start:
            return encoding.upper()[:6]
    return ""


def _is_cut(text: str, error: json.JSONDecodeError) -> bool:
    """Whether JSON that began well has no end: what is wrong is wrong at its last character."""
    rest = text[error.pos :].rstrip("\ufffd \r\n\t")
    escape = error.msg.startswith("Invalid \\") and len(rest) < LONGEST_ESCAPE
    text_began = error.msg.startswith("Unterminated string") or escape
    other_began = any(w.startswith(rest) for w in WORDS) or NUMBER.fullmatch(rest)
    return text.lstrip("\ufeff \r\n\t")[:1] == "{" and bool(text_began or other_began)
