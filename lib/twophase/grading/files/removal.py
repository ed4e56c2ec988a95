"""Removing a folder that somebody else has filled: of any depth, with names, links and permissions
of any kind."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path


def remove(folder: Path) -> None:
    """Remove `folder` and what is in it, as far as that is possible. Raises nothing.

    A folder found inside another is moved to the top before it is looked into, so that no path and
    no recursion gets deep. Links are removed, and what they point to is not touched.
    """
    if folder.is_symlink():
        return
    stuck: set[str] = set()
    while waiting := [e for e in _entries(folder) if e.name not in stuck]:
        for entry in waiting:
            try:
                _flatten(entry, folder)
            except FileNotFoundError:  # somebody else removes it, too: look again
                continue
            except OSError:
                stuck.add(entry.name)
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    """What is in a folder, which is opened up first; nothing if it cannot be read."""
    with contextlib.suppress(OSError):
        os.chmod(folder, stat.S_IRWXU)
        with os.scandir(folder) as found:
            return list(found)
    return []


def _flatten(entry: os.DirEntry[str], top: Path) -> None:
    """Remove an entry; if it is a folder, its files too, and move its folders to the top. Raises
    OSError."""
    if not entry.is_dir(follow_symlinks=False):
        os.unlink(entry.path)
        return
    for inner in _entries(entry.path):
        if inner.is_dir(follow_symlinks=False):
            os.chmod(inner.path, stat.S_IRWXU)
            os.rename(inner.path, top / secrets.token_hex(16))
        else:
            os.unlink(inner.path)
    os.rmdir(entry.path)
