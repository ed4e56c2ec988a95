"""A folder for all that is temporary in a run. What a killed run left is removed by the next."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from twophase.grading.files.removal import remove

PREFIX = "twophase-run-"
LOCK = "lock"


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A new folder, for this process's temporary files too. It is removed at the end, and those of
    runs that were killed now."""
    sweep()
    home, lock = _locked_folder()
    before = tempfile.tempdir
    tempfile.tempdir = str(home)
    try:
        yield home
    finally:
        tempfile.tempdir = before
        remove(home)
        os.close(lock)


def _locked_folder() -> tuple[Path, int]:
    """A folder and its lock: as long as we live, nobody else can have it."""
    while True:
        home = Path(tempfile.mkdtemp(prefix=PREFIX))
        home.chmod(0o711)  # submissions may run as another user, in folders of their own below
        lock = os.open(home / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # else another run took it, between these lines, for one that was left
            if (home / LOCK).exists():
                return home, lock
        os.close(lock)


def sweep() -> None:
    """Remove the folders that killed runs left: ours, with a lock that nobody holds."""
    for home in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if home.is_symlink() or home.stat().st_uid != os.getuid():
                continue
            lock = os.open(home / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(home)
            finally:
                os.close(lock)


def leave(folder: Path, last: bool = False) -> None:
    """Remove a judge's folder inside a run's; and the run's, if it was killed and no other judge of
    it is left, or if this is the `last` process of all, which waits for a judge that looks."""
    remove(folder)
    if not folder.parent.name.startswith(PREFIX):
        return
    with contextlib.suppress(OSError):
        lock = os.open(folder.parent / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if last else fcntl.LOCK_NB))
            if last or os.listdir(folder.parent) == [LOCK]:
                remove(folder.parent)
        finally:
            os.close(lock)
