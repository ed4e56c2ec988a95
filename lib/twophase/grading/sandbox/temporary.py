"""A folder in memory for one submission's process: temporary files, what torch writes while it
trains a step. Nobody else sees it, its size is bounded, and it is gone with the process.

For a process that is root and may mount, and that Landlock then keeps from writing anywhere else.
Elsewhere a submission has no folder to write to.
"""

from __future__ import annotations

import os
from pathlib import Path

from twophase.grading.sandbox import linux
from twophase.grading.sandbox.hidden_paths import NEW_MOUNTS, PRIVATE, RECURSIVE

MAX_BYTES = 64 * 2**20
MAX_FILES = 2_000  # folders, too
NO_SUID, NO_DEVICES, NO_PROGRAMS = 1 << 1, 1 << 2, 1 << 3


def mount(where: Path, user: int, group: int) -> None:
    """Give this process, in a mount namespace of its own, an empty folder that belongs to `user`.
    Raises OSError if it may not."""
    linux.call("unshare", NEW_MOUNTS)
    linux.call("mount", b"none", b"/", None, PRIVATE | RECURSIVE, None)
    options = f"size={MAX_BYTES},nr_inodes={MAX_FILES},mode=0700,uid={user},gid={group}"
    flags = NO_SUID | NO_DEVICES | NO_PROGRAMS
    linux.call("mount", b"none", os.fsencode(where), b"tmpfs", flags, options.encode())


def works(where: Path) -> bool:
    """Whether this process, which ends for it, can have such a folder. Raises OSError if not."""
    mount(where, 0, 0)
    Path(where, "file").write_bytes(b"x")
    return True
