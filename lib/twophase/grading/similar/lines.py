"""A text that may be no Python, as words and as logical lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

LEXER = re.compile(
    r"#[^\n]*|\"\"\"[\s\S]*?(?:\"\"\"|\Z)|'''[\s\S]*?(?:'''|\Z)|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
    r"|\d[\w.]*|\w+|[^\w\s]|\n"
)
# what begins a line also where a bracket was left open
BEGINS = ("def ", "class ", "return ", "for ", "while ", "import ")


def logical_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """First line, last line and text, brackets and long strings whole. A `def` ends an open one."""
    depth, first, line, parts = 0, 1, 1, ""
    for piece in re.finditer(LEXER, text):
        token = piece.group()
        if token == "\n":
            line += 1
            starts = text[piece.end() : piece.end() + 80].lstrip(" \t")
            if depth == 0 or starts.startswith(BEGINS):
                if parts.strip():
                    yield first, line - 1, parts.strip()
                depth, first, parts = 0, line, ""
            continue
        if token.startswith("#"):
            continue
        depth = max(0, depth + (token in "([{") - (token in ")]}"))
        line += token.count("\n")
        apart = parts[-1:].isalnum() and (token[0].isalnum() or token[0] == "_")
        parts += f" {token}" if apart else token
    if parts.strip():
        yield first, line, parts.strip()
