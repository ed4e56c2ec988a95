"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

PRIVATE = 0o640  # what has names and grades in it


def replace_text(path: Path, content: str, encoding: str = "utf-8", mode: int = 0o666) -> Path:
    """Write a file whole or not at all: whoever reads it meets the old one or the new one, and a
    full disk leaves the old one. Its folders are made. Returns the path. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(handle, "w", encoding=encoding, errors="replace", newline="") as file:
            file.write(content)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    return path
