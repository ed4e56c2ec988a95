"""Landlock: the kernel lets a process give up its own rights to files, TCP and signals. No
privilege, no package, no way back.

A submission may read the interpreter's library, installed packages but for those that have what is
asked for ready-made, this package's data files, a few tables of the system, and what `/proc/self`
says of its own memory and descriptors; not this package's Python files (everything is imported
already, and they hold the checks and the answers), nobody's home, no course, no other submission.
It may write nowhere but into a folder of its own, if it has one. Whether a file exists, it may
still ask. Needs Linux 5.13; TCP is closed from 6.7 on, and signals and abstract sockets from 6.12
on (both by seccomp too).
https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import site
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import twophase
from twophase.grading.sandbox import linux
from twophase.grading.sandbox.withheld import PEERS

# system calls, the same on every architecture since 5.1
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION, PATH_BENEATH = 1, 1

WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 14
REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_FILE, MOVE = 1 << 4, 1 << 5, 1 << 7, 1 << 8, 1 << 13
OWN_FOLDER = (WRITE_FILE | READ_FILE | READ_DIR | TRUNCATE) | (
    REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_FILE | MOVE
)  # no links, no devices, no sockets
# the rights to files that each version knows
FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
FILES_NOW = (1 << 16) - 1
ALL_TCP, ALL_SCOPES = 3, 3
SYSTEM = (
    *("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache"),
    *("/etc/localtime", "/etc/timezone", "/usr/share/zoneinfo", "/usr/share/locale"),
    *("/etc/fonts", "/usr/share/fonts", "/usr/share/fontconfig"),
    *("/usr/share/i18n", "/etc/mime.types"),
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/uptime"),
    *("/proc/version", "/proc/filesystems"),
    *("/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/osrelease", "/proc/sys/kernel/pid_max"),
    *("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage"),
    *("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/memory.max"),
    *("/sys/fs/cgroup/cpuset.cpus.effective",),
    *("/dev/urandom", "/dev/random", "/dev/zero"),
)
WRITABLE_DEVICE = Path("/dev/null")
OWN = (  # of /proc/self: not net, not mounts
    *("fd", "maps", "smaps", "stat", "statm", "status", "cmdline"),
    *("comm", "limits", "cgroup", "oom_score_adj"),
)


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


@cache
def abi() -> int:
    """Landlock's version in this kernel; 0 if it has none, or if something keeps us from it."""
    try:
        return linux.syscall(CREATE_RULESET, None, 0, VERSION)
    except (OSError, AttributeError):
        return 0


class Rules:
    """What submissions may read, found and opened once, before the first of them; `restrict` is for
    every one.

    `folder` is the one they stand in. Nothing at or below a path of `hidden` is readable, wherever
    it lies.
    """

    def __init__(self, folder: Path, hidden: Sequence[Path] = ()) -> None:
        self._handled = FILES.get(abi(), FILES[3] if abi() == 4 else FILES_NOW)
        found: dict[Path, int] = {}

        def allow(path: Path, rights: int) -> None:
            found[path] = found.get(path, 0) | rights

        apart = [p.resolve() for p in hidden]
        allow(folder, READ_DIR)
        for root in {path.resolve() for path in (*map(Path, SYSTEM), *libraries())}:
            if not any(p.is_relative_to(root) for p in apart):
                # also where our package is below it: its files' names are no secret
                allow(root, READ_DIR)
            for path in _without(root, [_package(), *_peers(), *apart]):
                allow(path, READ_FILE | READ_DIR)
        for path in data_files():
            if not any(path.is_relative_to(p) for p in apart):
                allow(path, READ_FILE)
        allow(WRITABLE_DEVICE, READ_FILE | WRITE_FILE | TRUNCATE)
        self._rules = [
            rule for path, rights in found.items() for rule in self._opened(path, rights)
        ]

    def _opened(self, path: Path, rights: int) -> Iterator[_Beneath]:
        with contextlib.suppress(OSError):  # not on this system
            target = os.open(path, os.O_PATH | os.O_CLOEXEC)
            of_a_file = WRITE_FILE | READ_FILE | TRUNCATE
            yield _Beneath(rights & self._handled & (-1 if path.is_dir() else of_a_file), target)

    def restrict(self, writable: Path | None = None) -> None:
        """Give up everything that is not allowed, for this process and all that it starts; below
        `writable` it may make, change and remove files. Raises OSError."""
        version = abi()
        asked = _Ruleset(
            self._handled, ALL_TCP if version >= 4 else 0, ALL_SCOPES if version >= 6 else 0
        )
        size = 24 if version >= 6 else 16 if version >= 4 else 8
        fd = linux.syscall(CREATE_RULESET, ctypes.byref(asked), size, 0)
        own = [
            rule
            for name in OWN
            for rule in self._opened(Path("/proc/self", name), READ_FILE | READ_DIR)
        ]
        own += self._opened(writable, OWN_FOLDER) if writable is not None else ()
        add, no_flags = linux.prepared(ADD_RULE, fd, PATH_BENEATH), ctypes.c_long(0)
        for rule in (*self._rules, *own):
            if rule.allowed:
                add(ctypes.byref(rule), no_flags)
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        linux.syscall(RESTRICT_SELF, fd, 0)
        for opened in (fd, *(rule.parent for rule in own)):
            os.close(opened)


def libraries() -> list[Path]:
    """Where the interpreter's library and installed packages are. Other entries of `sys.path` are
    not for submissions."""
    known = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    known |= {
        *site.getsitepackages(),
        *([site.getusersitepackages()] if site.ENABLE_USER_SITE else []),
    }
    known |= {str(Path(p, "lib")) for p in (sys.prefix, sys.base_prefix, sys.base_exec_prefix)}
    return [Path(p) for p in sorted(known)]


def _package() -> Path:
    return Path(twophase.__path__[0]).resolve()


def _peers() -> list[Path]:
    """The folders of the libraries that have answers, where they are installed."""
    found = [importlib.util.find_spec(name) for name in PEERS]
    return [
        Path(folder).resolve()
        for spec in found
        for folder in (spec.submodule_search_locations or () if spec else ())
    ]


def _without(root: Path, apart: Sequence[Path]) -> Iterator[Path]:
    """`root` if nothing of `apart` is in it; else its parts that neither are nor hold such a thing,
    as high up as can be."""
    if any(root.is_relative_to(p) for p in apart):
        return
    if not any(p.is_relative_to(root) for p in apart):
        yield root
    elif root != Path("/"):
        for part in root.iterdir():
            if not part.is_symlink():
                yield from _without(part, apart)


def data_files() -> Iterator[Path]:
    """The package's files that are no Python: checkpoints, tables."""
    for room, folders, files in os.walk(_package()):
        folders[:] = [f for f in folders if f not in ("__pycache__", "checks", "grading", "cli")]
        yield from (Path(room, f) for f in files if not f.endswith((".py", ".pyc")))
