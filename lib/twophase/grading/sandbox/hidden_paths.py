"""Nothing over the paths that no submission may see: not their contents, which Landlock keeps, nor
their names, sizes and times, which it does not.

For a zygote that is root and may mount: it moves to a mount namespace of its own, and puts an empty
file system on each folder, an empty file on each file. Elsewhere Landlock is all there is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from twophase.grading.sandbox import linux

NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
PRIVATE, RECURSIVE, BIND, READ_ONLY = 1 << 18, 1 << 14, 1 << 12, 1


def hide(paths: Sequence[Path], needed: Sequence[Path], empty: Path) -> bool:
    """Hide these paths from this process and all below it, but for those in which something
    `needed` lies; `empty` is where an empty file may be made. Returns whether it could."""
    if os.geteuid() != 0:
        return False
    try:
        linux.call("unshare", NEW_MOUNTS)
        linux.call("mount", b"none", b"/", None, PRIVATE | RECURSIVE, None)
        for path in {p.resolve() for p in paths}:
            if not any(n.resolve().is_relative_to(path) for n in needed):
                _cover(path, empty)
    except (OSError, AttributeError):
        return False
    return True


def _cover(path: Path, empty: Path) -> None:
    where = os.fsencode(path)
    if path.is_dir():
        linux.call("mount", b"none", where, b"tmpfs", READ_ONLY, b"size=4k,nr_inodes=2,mode=0555")
    elif path.exists():
        empty.touch(mode=0)
        linux.call("mount", os.fsencode(empty), where, None, BIND, None)
