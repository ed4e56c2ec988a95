"""A filter for system calls: what `allowed_syscalls.py` does not have is refused by the kernel, for
ever, without any privilege.

The filter is a program of the kernel's oldest packet filter, over `struct seccomp_data`: number at
byte 0, architecture at 4, arguments from 16 on, 8 bytes each.
https://docs.kernel.org/userspace-api/seccomp_filter.html

A refused call fails with EPERM, so that the notebook sees a PermissionError. A call in another
architecture's numbers kills the process: no library makes one. x32's numbers (bit 30 set) are none
of those allowed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable

from twophase.grading.sandbox import linux
from twophase.grading.sandbox.allowed_syscalls import (
    ABSENT,
    ALL,
    LAST_KNOWN,
    OWN_PROCESS,
    SUBMISSION,
    Calls,
    Test,
)

LOAD, AND, RETURN = 0x20, 0x54, 0x06  # BPF_LD|W|ABS, BPF_ALU|AND|K, BPF_RET|K
EQUAL, ABOVE = 0x15, 0x25  # BPF_JMP|JEQ|K, BPF_JMP|JGT|K: instructions to skip if so, if not
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000, 0x80000000
X32 = 0x40000000
MODE_FILTER = 2
TO_COME = 0x7B1D7B1D  # beyond any process's number, and no part of an instruction


# an architecture's AUDIT_ARCH number, and which column of the tables is its own
MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

Instruction = tuple[int, int, int, int]  # code, skip if so, skip if not, number


def program(machine: str, pid: int, calls: Calls = SUBMISSION) -> list[Instruction]:
    """The filter for the process `pid` on a machine (x86_64, aarch64). Raises KeyError for
    another."""
    audit, column = MACHINES[machine]
    out = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, audit), _ret(KILL), (LOAD, 0, 0, 0)]
    out += [(ABOVE, 0, 1, X32 - 1), _ret(REFUSE | errno.EPERM)]
    untested = calls.allowed.keys() - calls.tests.keys()
    plain = [calls.allowed[name][column] for name in untested]
    for first, last in _ranges(n for n in plain if n is not None):
        if first:
            out.append((ABOVE, 0, 2, first - 1))
        out += [(ABOVE, 1, 0, last), _ret(ALLOW)]
    for name, tests in calls.tests.items():
        number = calls.allowed[name][column]
        if number is not None:
            body = _tested(tests, pid)
            out += [(EQUAL, 0, len(body), number), *body]
    for numbers in ABSENT.values():
        out += [(EQUAL, 0, 1, numbers[column] or 0), _ret(REFUSE | errno.ENOSYS)]
    out += [(ABOVE, 0, 1, LAST_KNOWN), _ret(REFUSE | errno.ENOSYS)]
    return [*out, _ret(REFUSE | errno.EPERM)]


def packed(machine: str, pid: int, calls: Calls = SUBMISSION) -> bytes:
    """The same as the kernel reads it."""
    return b"".join(struct.pack("=HBBI", *step) for step in program(machine, pid, calls))


def prepared(calls: Calls = SUBMISSION) -> bytes:
    """The filter of a process to be forked, whose number is not known yet. Raises KeyError on
    another machine."""
    return packed(platform.machine(), TO_COME, calls)


def completed(prepared_filter: bytes, pid: int) -> bytes:
    """The filter of this process: what `packed` would have given."""
    return prepared_filter.replace(TO_COME.to_bytes(4, "little"), pid.to_bytes(4, "little"))


def restrict(prepared_filter: bytes) -> None:
    """Refuse this process, which must have one thread only, all other system calls. Raises
    OSError."""
    code = completed(prepared_filter, os.getpid())
    kept = ctypes.create_string_buffer(code, len(code))
    filter_program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(kept))
    given = ctypes.create_string_buffer(filter_program, len(filter_program))
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    linux.prctl(linux.PR_SET_SECCOMP, MODE_FILTER, ctypes.addressof(given))


def _ret(action: int) -> Instruction:
    return (RETURN, 0, 0, action)


def _ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The numbers as runs of neighbors, first and last of each."""
    runs: list[tuple[int, int]] = []
    for n in sorted(numbers):
        if runs and n == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], n)
        else:
            runs.append((n, n))
    return runs


def _tested(tests: tuple[Test, ...], pid: int) -> list[Instruction]:
    """ALLOW if every test holds, else EPERM. Does not fall through."""
    out: list[Instruction] = []
    for test in tests:
        values = [pid if v == OWN_PROCESS else v for v in test.values]
        # both architectures are little-endian
        out.append((LOAD, 0, 0, 16 + 8 * test.argument + 4 * test.high))
        if test.mask != ALL:
            out.append((AND, 0, 0, test.mask))
        out += [(EQUAL, len(values) - i, 0, v) for i, v in enumerate(values)]
        out.append(_ret(REFUSE | errno.EPERM))
    return [*out, _ret(ALLOW)]
