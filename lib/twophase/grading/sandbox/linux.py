"""The few calls of Linux that Python has no name for. Imported on Linux only."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from functools import cache

CAPABILITY_VERSION_3 = 0x20080522
CAPABILITIES = 64  # more than any kernel has
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_CAPBSET_DROP, PR_SET_SECUREBITS = 24, 28
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 36, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
MADV_COLLAPSE, LARGE_PAGE = 25, 2**21
READ_ALL_FILES = 1 << 2  # CAP_DAC_READ_SEARCH
# executing a file as root, or one that belongs to root, gives nothing; for good
NO_ROOT_LOCKED = 0b11


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _refused(what: str) -> OSError:
    """Why the kernel refused the last call."""
    error = ctypes.get_errno()
    return OSError(error, f"{what}: {os.strerror(error)}")


def prctl(option: int, *values: int) -> None:
    """Raises OSError if the kernel refuses."""
    call("prctl", option, *(*values, 0, 0, 0, 0)[:4])


def call(name: str, *arguments: int | bytes | None) -> None:
    """A function of the C library that returns 0. Raises OSError if the kernel refuses."""
    given = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]
    if getattr(_libc(), name)(*given) != 0:
        raise _refused(name)


def syscall(number: int, *arguments: object) -> int:
    """Returns what the kernel does; raises OSError if it refuses."""
    return prepared(number, *arguments)()


def prepared(number: int, *first: object) -> Callable[..., int]:
    """A system call whose first arguments are known, for who makes it hundreds of times: it takes
    those that follow, no plain numbers."""
    known = [ctypes.c_long(a) if isinstance(a, int) else a for a in (number, *first)]
    of_the_kernel = _libc().syscall

    def call(*more: object) -> int:
        result: int = of_the_kernel(*known, *more)
        if result < 0:
            raise _refused(f"system call {number}")
        return result

    return call


def use_large_pages() -> None:
    """Have what this process has written lie in pages of 2 MB: a fork, and the end of what was
    forked, take half as long. Nothing where the kernel cannot (before 6.1)."""
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8") as maps:
        for where, rights, _, _, inode, *_ in map(str.split, maps.readlines()):
            first, end = (int(edge, 16) for edge in where.split("-"))
            for at in range(-(-first // LARGE_PAGE) * LARGE_PAGE, end - LARGE_PAGE + 1, LARGE_PAGE):
                if rights == "rw-p" and inode == "0":
                    with contextlib.suppress(OSError):  # nothing was ever written there
                        call("madvise", at, LARGE_PAGE, MADV_COLLAPSE)


def drop_capabilities(keep: int = 0) -> None:
    """What makes root more than a user: without these it reads no other process's memory and owns
    only its own files. Those of the mask `keep` are kept where they are there. Raises OSError if
    the kernel refuses and there are some."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable, of the first 32; the others
    there = _libc().capget(header, sets) == 0
    kept = sets[1] & keep if there else 0
    if _libc().capset(header, (ctypes.c_uint32 * 6)(kept, kept)) != 0:
        refused = _refused("capset")
        if not there or any(sets[i] & ~kept for i in (0, 1)) or any(sets[i] for i in (3, 4)):
            raise refused


def forgo_capabilities() -> None:
    """No program that this process or its children could start would get a capability. For root;
    others may not, and need not."""
    with contextlib.suppress(OSError):
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    with contextlib.suppress(OSError):
        prctl(PR_SET_SECUREBITS, NO_ROOT_LOCKED)
    with contextlib.suppress(OSError):  # the first that the kernel does not know
        for capability in range(CAPABILITIES):
            prctl(PR_CAPBSET_DROP, capability)
