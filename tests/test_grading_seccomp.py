"""The filter for system calls, run by an interpreter of our own on both architectures: each number,
and the arguments that matter."""

from __future__ import annotations

import errno
import re
import struct
import subprocess

import pytest

from twophase.grading.sandbox import seccomp
from twophase.grading.sandbox.allowed_syscalls import (
    ABSENT,
    ALLOWED,
    JUDGE,
    SUBMISSION,
    TESTS,
    WITH_A_FOLDER,
    Calls,
)

PID = 4321
ALLOW, KILL = "allow", "kill"
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# numbers of the kernel's tables, x86-64 and aarch64, of what must never be allowed
FORBIDDEN = {
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281), "socket": (41, 198),
    "connect": (42, 203), "accept": (43, 202), "accept4": (288, 242), "bind": (49, 200), "listen": (50, 201),
    "sendmsg": (46, 211), "sendmmsg": (307, 269), "recvmsg": (47, 212), "setsockopt": (54, 208),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195),
    "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440), "kcmp": (312, 272), "bpf": (321, 280), "perf_event_open": (298, 241),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "userfaultfd": (323, 282),
    "io_uring_enter": (426, 426), "mount": (165, 40), "umount2": (166, 39), "unshare": (272, 97), "setns": (308, 268),
    "chroot": (161, 51), "pivot_root": (155, 41), "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    "inotify_init1": (294, 26), "fanotify_init": (300, 262), "personality": (135, 92), "modify_ldt": (154, None),
    "iopl": (172, None), "ioperm": (173, None), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53),
    "fchmodat2": (452, 452), "chown": (92, None), "fchown": (93, 55), "fchownat": (260, 54), "utimensat": (280, 88),
    "setxattr": (188, 5), "truncate": (76, 45), "fallocate": (285, 47), "mkdirat": (258, 34), "unlinkat": (263, 35),
    "renameat2": (316, 276), "linkat": (265, 37), "symlinkat": (266, 36), "mknodat": (259, 33), "creat": (85, None),
    "flock": (73, 32), "sync": (162, 81), "syncfs": (306, 267), "fsync": (74, 82), "splice": (275, 76), "vmsplice": (278, 75),
    "tee": (276, 77), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "setuid": (105, 146), "setresuid": (117, 147), "setgid": (106, 144), "setgroups": (116, 159), "capset": (126, 91),
    "setsid": (112, 157), "setpgid": (109, 154), "setrlimit": (160, 164), "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274), "ioprio_set": (251, 30), "move_pages": (279, 239), "migrate_pages": (256, 238),
    "mlock": (149, 228), "mlockall": (151, 230), "seccomp": (317, 277), "landlock_restrict_self": (446, 446),
    "init_module": (175, 105), "finit_module": (313, 273), "kexec_load": (246, 104), "reboot": (169, 142),
    "swapon": (167, 224), "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "sethostname": (170, 161), "acct": (163, 89), "quotactl": (179, 60), "syslog": (103, 116), "timer_create": (222, 107),
    "cachestat": (451, 451), "mincore": (27, 232), "get_robust_list": (274, 100), "process_mrelease": (448, 448),
}  # fmt: skip
NEEDED = {
    "read": (0, 63),
    "openat": (257, 56),
    "mmap": (9, 222),
    "futex": (202, 98),
    "exit_group": (231, 94),
    "rt_sigreturn": (15, 139),
}
NEEDED |= {
    "getrandom": (318, 278),
    "madvise": (28, 233),
    "statx": (332, 291),
    "epoll_pwait": (281, 22),
    "clock_nanosleep": (230, 115),
}


def run(machine: str, number: int, *args: int, arch: int | None = None) -> str | int:
    """What the filter says: allow, kill, or the error that the call fails with. An interpreter of
    classic BPF, as far as filters use it."""
    given = [*args, *[0] * (6 - len(args))]
    data = struct.pack(
        "<iIQ6Q", number, AUDIT[machine] if arch is None else arch, 0, *(a % 2**64 for a in given)
    )
    program, at, a = seccomp.packed(machine, PID), 0, 0
    assert len(program) % 8 == 0
    assert len(program) // 8 <= 4096
    for _ in range(4096):
        code, yes, no, k = struct.unpack_from("=HBBI", program, 8 * at)
        at += 1
        if code == 0x20:
            assert k % 4 == 0
            (a,) = struct.unpack_from("<I", data, k)
        elif code == 0x54:
            a &= k
        elif code in (0x15, 0x25):
            at += yes if (a == k if code == 0x15 else a > k) else no
        elif code == 0x06:
            if k == 0x80000000:
                return KILL
            return ALLOW if k == 0x7FFF0000 else k - 0x50000
        else:
            raise AssertionError(f"no such instruction: {code:#x}")
    raise AssertionError("the filter does not end")


def both(names: dict[str, tuple[int | None, int | None]]) -> list[tuple[str, str, int]]:
    return [
        (m, name, n[i])
        for i, m in enumerate(AUDIT)
        for name, n in names.items()
        if n[i] is not None
    ]  # type: ignore[misc]


@pytest.mark.parametrize("machine", AUDIT)
def test_every_number_is_refused_but_those_of_the_table(machine: str) -> None:
    column = list(AUDIT).index(machine)
    plain = {n[column] for name, n in ALLOWED.items() if name not in TESTS} - {None}
    tested = {ALLOWED[name][column] for name in TESTS} - {None}
    absent = {n[column] for n in ABSENT.values()}
    for number in set(range(700)) - tested:
        expected = (
            ALLOW
            if number in plain
            else errno.ENOSYS
            if number in absent or number > 462
            else errno.EPERM
        )
        assert run(machine, number) == expected, number


@pytest.mark.parametrize(("machine", "name", "number"), both(FORBIDDEN))
def test_what_must_never_be_allowed_is_refused_whatever_its_arguments(
    machine: str, name: str, number: int
) -> None:
    for args in ((), (PID,), (1, 1, 1, 1, 1, 1), (0x3D0F00,), (2**64 - 1,) * 6):
        assert run(machine, number, *args) == errno.EPERM, (name, args)


@pytest.mark.parametrize("machine", AUDIT)
@pytest.mark.parametrize("calls", [SUBMISSION, WITH_A_FOLDER, JUDGE])
def test_a_filter_made_before_its_process_is_the_filter_of_that_process(
    machine: str, calls: Calls
) -> None:
    """Bit for bit, also for a number that looks like a part of an instruction."""
    for pid in (1, 2, 6, 255, PID, 0x0015, 0x7FFF, 2**22, 0x7B1D, 0x1D7B1D):
        early = seccomp.packed(machine, seccomp.TO_COME, calls)
        assert seccomp.completed(early, pid) == seccomp.packed(machine, pid, calls)


@pytest.mark.parametrize(("machine", "name", "number"), both(NEEDED))
def test_what_ordinary_work_needs_is_allowed(machine: str, name: str, number: int) -> None:
    assert run(machine, number) == ALLOW, name


@pytest.mark.parametrize("machine", AUDIT)
def test_another_architectures_numbers_kill_and_x32s_are_refused(machine: str) -> None:
    for arch in (
        0x40000003,
        0x40000028,
        *(a for m, a in AUDIT.items() if m != machine),
    ):  # i386, arm
        assert run(machine, 0, arch=arch) == KILL
    for number in range(600):
        assert run(machine, number | 0x40000000) == errno.EPERM
        assert run(machine, number - 2**31) == errno.EPERM  # a negative number


ARGUMENTS = [  # call, arguments that pass, arguments that do not
    ("clone", [(0x3D0F00,), (0x7D0F00,)], [(17,), (0x1200011,), (0x4111,), (0x3D0F00 | 0x10000000,), (0x3D0F00 & ~0x10000,)]),
    ("kill", [(PID, 9), (PID | 1 << 32, 9)], [(0, 9), (2**64 - 1, 9), (1, 0), (PID + 1, 0), (2**32 - PID, 9)]),
    ("tgkill", [(PID, 7, 9)], [(1, 1, 9), (0, PID, 9)]),
    ("prlimit64", [(0, 7), (PID, 7)], [(1, 7, 0), (PID + 1, 7, 1)]),
    ("prctl", [(15,), (16,)], [(1,), (4, 1), (8,), (22, 2), (28,), (35,), (38,), (0x59616D61,), (36,)]),
    ("fcntl", [(3, 1), (3, 3), (3, 1030)], [(3, 8), (3, 6), (3, 7), (3, 1024), (3, 1026), (3, 1031), (3, 10), (3, 37)]),
    ("ioctl", [(1, 0x5401), (1, 0x5421)], [(1, 0x5412), (1, 0x541D), (1, 0x8901), (1, 0)]),
    ("socketpair", [(1, 1), (1, 2)], [(2, 1), (10, 1), (16, 3), (0, 0)]),
    ("sendto", [(3, 1, 1, 0, 0, 0)], [(3, 1, 1, 0, 5, 16), (3, 1, 1, 0, 5 << 32, 16)]),
    ("mmap", [(0, 9, 3, 0x22), (0, 9, 5, 2)], [(0, 9, 3, 0x40022)]),
    ("openat", [(0, 0, 0), (0, 0, 0o2000000), (0, 0, 0o1101), (0, 0, 0o2)], [(0, 0, 0o1000), (0, 0, 0o2001000)]),
    ("sched_setaffinity", [(0,)], [(1,), (PID,)]),
    ("setpriority", [(0, 0, 9)], [(1, 0, 9), (2, 0, 9), (0, 1, 9)]),
]  # fmt: skip


@pytest.mark.parametrize("machine", AUDIT)
@pytest.mark.parametrize(("name", "passes", "fails"), ARGUMENTS, ids=[a[0] for a in ARGUMENTS])
def test_arguments_are_looked_at(
    machine: str, name: str, passes: list[tuple[int, ...]], fails: list[tuple[int, ...]]
) -> None:
    number = ALLOWED[name][list(AUDIT).index(machine)]
    assert number is not None
    assert [run(machine, number, *a) for a in passes] == [ALLOW] * len(passes)
    assert [run(machine, number, *a) for a in fails] == [errno.EPERM] * len(fails)


HEADERS = {
    "x86_64": ("asm/unistd_64.h", ""),
    "aarch64": (
        "asm-generic/unistd.h",
        (
            "#define __BITS_PER_LONG 64\n#define __ARCH_WANT_NEW_STAT\n#define"
            " __ARCH_WANT_SET_GET_RLIMIT\n"
        ),
    ),
}


@pytest.mark.parametrize("machine", AUDIT)
def test_the_table_has_the_numbers_of_the_kernels_headers(machine: str) -> None:
    header, defines = HEADERS[machine]
    try:
        source = f"{defines}#define __ARCH_WANT_SYS_CLONE3\n#include <{header}>\n"
        macros = subprocess.run(
            ["cc", "-E", "-dM", "-"], input=source, text=True, capture_output=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no C compiler with the kernel's headers here")
    known = dict(re.findall(r"#define (__NR\w*) (\w+)", macros))
    column = list(AUDIT).index(machine)
    compared = 0
    for name, numbers in {**ALLOWED, **ABSENT}.items():
        says = known.get(f"__NR_{name}")
        says = known.get(says, says) if says is not None else None
        if says is not None:
            assert int(says) == numbers[column], name
            compared += 1
    assert compared > 100, "the header was not read"


def test_the_filter_is_short_enough_for_the_kernel() -> None:
    assert all(len(seccomp.program(m, PID)) < 1000 for m in AUDIT)
