"""Landlock: the kernel lets a process give up its own rights to files, TCP and signals. No privilege, no package, no way back.

A submission may read the interpreter, the libraries and this package's data files; not its Python files (everything is imported
already, and they hold the checks and the answers), not the course, not other submissions. It may write to its own folder.
Needs Linux 5.13; TCP is closed from 6.7 on, and signals to other processes from 6.12 on. https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import twophase

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls, the same on every architecture since 5.1
VERSION, PATH_BENEATH = 1, 1
PR_SET_NO_NEW_PRIVS = 38

WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL_DEV = 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}  # the rights to files that each version knows
FILES_NOW = (1 << 16) - 1
ALL_TCP, ALL_SCOPES = 3, 3
READABLE = ("/usr", "/lib", "/lib64", "/etc", "/proc", "/sys/devices/system", "/dev/urandom", "/dev/zero")
WRITABLE_DEVICES = ("/dev/null",)


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), "landlock")
    return result


@cache
def abi() -> int:
    """Landlock's version in this kernel; 0 if it has none."""
    try:
        return _call(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION)
    except (OSError, AttributeError):
        return 0


def ruleset(writable: Path) -> int | None:
    """A descriptor for what a submission may do, for `restrict`. None where the kernel has no Landlock."""
    version = abi()
    if version == 0:
        return None
    handled = FILES.get(version, FILES[3] if version == 4 else FILES_NOW)
    rules = _Ruleset(handled, ALL_TCP if version >= 4 else 0, ALL_SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    fd = _call(CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), 0)
    for root in (*READABLE, sys.prefix, sys.base_prefix, *sys.path):
        _allow(fd, Path(root), READ_DIR & handled)
        for path in _without_the_package(Path(root)):
            _allow(fd, path, (READ_FILE | READ_DIR) & handled)
    for path in _data_files():
        _allow(fd, path, READ_FILE & handled)
    _allow(fd, writable, handled & ~IOCTL_DEV)
    for device in WRITABLE_DEVICES:
        _allow(fd, Path(device), (READ_FILE | WRITE_FILE | TRUNCATE) & handled)
    return fd


def restrict(fd: int) -> None:
    """Give up everything that the ruleset does not allow, for this process and all that it starts. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    _call(RESTRICT_SELF, fd, 0)


def _allow(fd: int, path: Path, rights: int) -> None:
    try:
        target = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # not on this system
        return
    try:
        if not path.is_dir():
            rights &= WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV | 1
        if rights:
            _call(ADD_RULE, fd, PATH_BENEATH, ctypes.byref(_Beneath(rights, target)), 0)
    finally:
        os.close(target)


def _package() -> Path:
    return Path(twophase.__path__[0]).resolve()


def _without_the_package(root: Path) -> Iterator[Path]:
    """`root` if the package is not below it; else its parts that do not lead to the package, when they are libraries.

    Where the package runs from a clone, `sys.path` leads to the clone's `lib`, of which nothing but the package is of use.
    """
    root = root.resolve()
    package = _package()
    if root == package:
        return
    if root not in package.parents:
        yield root
    elif root != Path("/"):
        for part in root.iterdir():
            if not part.is_symlink():
                yield from _without_the_package(part)


def _data_files() -> Iterator[Path]:
    """The package's files that are no Python: checkpoints, tables."""
    for room, folders, files in os.walk(_package()):
        folders[:] = [f for f in folders if f not in ("__pycache__", "checks", "grading", "cli")]
        yield from (Path(room, f) for f in files if not f.endswith((".py", ".pyc")))
