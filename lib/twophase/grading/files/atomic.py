"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PRIVATE = 0o640  # what has names and grades in it


@contextmanager
def replacing(
    path: Path, mode: int = 0o666, sync: bool = True, new: bool = False
) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when the block ends, and is gone if it
    raises: whoever reads meets the old one or the new one, and a full disk leaves the old one. With
    `sync` it is on the disk before it is in place; a `new` one never replaces another
    (FileExistsError). Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(beside, "xb", opener=lambda name, how: os.open(name, how, mode)) as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        (os.link if new else os.replace)(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def replace_text(path: Path, content: str, encoding: str = "utf-8", mode: int = 0o666) -> Path:
    """Write a text file and its folders. Returns the path. Raises OSError."""
    with replacing(path, mode, sync=False) as file:
        file.write(content.encode(encoding, "replace"))
    return path
