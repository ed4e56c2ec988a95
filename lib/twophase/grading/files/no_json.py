"""What a notebook looks like whose JSON cannot be read, and what to do about it: one sentence."""

from __future__ import annotations

import json
import re

# encodings in which JSON is no UTF-8, with the bytes that a character takes
WIDE = (("utf-32-le", 4), ("utf-32-be", 4), ("utf-16-le", 2), ("utf-16-be", 2))
# what git writes at the beginning of a line where it cannot join two versions
MERGE_MARK = re.compile(r"^(?:<{7} |\|{7} |={7}$|>{7} )", re.M)
WORDS = ("true", "false", "null")
NUMBER = re.compile(r"-|\.|[eE][+-]?")  # after which there must be a digit
LONGEST_ESCAPE = len(r"\u12ab")


def sentence(data: bytes, text: str, error: Exception) -> str:
    """Why these bytes are no notebook. `text` is what was read of them, and `error` what the
    reader of JSON raised."""
    lines = text.replace("\r\n", "\n")
    if "\0" in text[:40] and (encoding := _wide(data)):  # else it was decoded by its first bytes
        said = f"it looks like text in {encoding}; save it as UTF-8 in a text editor"
    elif mark := MERGE_MARK.search(lines):
        line = lines.count("\n", 0, mark.start()) + 1
        said = f"line {line} is a mark of git's ({mark[0].strip()}); merge the two versions"
    elif isinstance(error, json.JSONDecodeError) and _is_cut(text, error):
        line = lines.count("\n") + 1
        said = f"it ends in the middle, in line {line}; save it again"
    else:
        return f"it is no notebook: its JSON cannot be read ({type(error).__name__})"
    return f"its JSON cannot be read: {said}, see that it opens in Jupyter, and hand that in"


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
