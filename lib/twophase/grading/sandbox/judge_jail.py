"""Shutting a judge in. It reads what submissions send, byte for byte: should one of them ever turn
it, it starts nothing, connects to nothing, reads no other process, and takes no more memory than
this. Linux."""

from __future__ import annotations

import contextlib
import resource

from twophase.grading.sandbox import allowed_syscalls, linux, rlimits, seccomp

MEMORY_BYTES = 2 * 10**9  # beside what is mapped when it begins: cases, references, what crosses


def enter() -> None:
    """Shut this process in, for good, as far as this system does it. It must have one thread."""
    linux.forgo_capabilities()
    with contextlib.suppress(OSError):  # it may read files that a collector stored as others'
        linux.drop_capabilities(keep=linux.READ_ALL_FILES)
    rlimits.lower(resource.RLIMIT_AS, rlimits.address_space_bytes() + MEMORY_BYTES)
    rlimits.lower(resource.RLIMIT_CORE, 0)
    with contextlib.suppress(OSError, KeyError):  # a kernel or a machine without
        seccomp.restrict(seccomp.prepared(allowed_syscalls.JUDGE))
