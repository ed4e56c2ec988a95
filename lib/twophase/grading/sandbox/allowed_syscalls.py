"""Which system calls a submission may make, on x86-64 and aarch64, and with which arguments: all
others are refused.

The list is what reading files, computing on several threads, plotting into memory and an event loop
of its own need. What is not here makes processes, opens sockets (there is no network), shares memory, changes or
locks files, looks at or touches other processes, or is new in the kernel and unknown to us. Numbers
are from the kernel's tables (arch/x86/entry/syscalls/syscall_64.tbl, scripts/syscall.tbl).
"""

from __future__ import annotations

from dataclasses import dataclass

ALL = 0xFFFFFFFF
OWN_PROCESS = -1  # in a test's values: the number of the process that installs the filter
# mseal, Linux 6.10: what comes later "does not exist", so that libraries fall back
LAST_KNOWN = 462

# name, x86-64, aarch64; "-" where an architecture has no such call
_TABLE = """
read 0 63  readv 19 65  pread64 17 67  preadv 295 69  preadv2 327 286
write 1 64  writev 20 66  pwrite64 18 68  pwritev 296 70  pwritev2 328 287
close 3 57  close_range 436 436  lseek 8 62  dup 32 23  dup2 33 -  dup3 292 24  fcntl 72 25  ioctl 16 29
open 2 -  openat 257 56  stat 4 -  lstat 6 -  fstat 5 80  newfstatat 262 79  statx 332 291  statfs 137 43  fstatfs 138 44
access 21 -  faccessat 269 48  faccessat2 439 439  readlink 89 -  readlinkat 267 78
getdents 78 -  getdents64 217 61  getcwd 79 17  chdir 80 49  fchdir 81 50  umask 95 166

brk 12 214  mmap 9 222  munmap 11 215  mremap 25 216  mprotect 10 226  madvise 28 233  get_mempolicy 239 236
arch_prctl 158 -

pipe 22 -  pipe2 293 59  eventfd 284 -  eventfd2 290 19
epoll_create 213 -  epoll_create1 291 20  epoll_ctl 233 21  epoll_wait 232 -  epoll_pwait 281 22  epoll_pwait2 441 441
poll 7 -  ppoll 271 73  select 23 -  pselect6 270 72
socketpair 53 199  sendto 44 206  recvfrom 45 207  shutdown 48 210  getsockopt 55 209  getsockname 51 204  getpeername 52 205

clone 56 220  exit 60 93  exit_group 231 94  set_tid_address 218 96  set_robust_list 273 99  rseq 334 293  membarrier 324 283
futex 202 98  futex_waitv 449 449  futex_wake 454 454  futex_wait 455 455  futex_requeue 456 456
sched_yield 24 124  sched_getaffinity 204 123  sched_setaffinity 203 122  sched_getparam 143 121  sched_getscheduler 145 120
sched_get_priority_max 146 125  sched_get_priority_min 147 126  getcpu 309 168  getpriority 140 141  setpriority 141 140
wait4 61 260  waitid 247 95  prctl 157 167

rt_sigaction 13 134  rt_sigprocmask 14 135  rt_sigreturn 15 139  rt_sigpending 127 136  rt_sigsuspend 130 133
rt_sigtimedwait 128 137  sigaltstack 131 132  restart_syscall 219 128  kill 62 129  tgkill 234 131
pause 34 -  alarm 37 -  setitimer 38 103  getitimer 36 102

clock_gettime 228 113  clock_getres 229 114  clock_nanosleep 230 115  nanosleep 35 101  gettimeofday 96 169  time 201 -
times 100 153

getpid 39 172  gettid 186 178  getppid 110 173  getpgrp 111 -  getpgid 121 155  getsid 124 156
getuid 102 174  geteuid 107 175  getgid 104 176  getegid 108 177  getresuid 118 148  getresgid 120 150  getgroups 115 158
capget 125 90  getrlimit 97 163  prlimit64 302 261  getrusage 98 165  sysinfo 99 179  uname 63 160  getrandom 318 278
"""

# what a submission does beside that has a folder of its own; Landlock says where
_FOLDER = """
mkdir 83 -  mkdirat 258 34  rmdir 84 -  unlink 87 -  unlinkat 263 35  rename 82 -  renameat 264 38  renameat2 316 276
ftruncate 77 46
"""
# what a judge, which keeps a folder too, does beside: it passes descriptors on, ends its zygote
_JUDGE = """
sendmsg 46 211  recvmsg 47 212  setsockopt 54 208  pidfd_open 434 434  flock 73 32
chmod 90 -  fchmod 91 52  fchmodat 268 53
"""
# these "do not exist": the C library then takes the older call, whose arguments a filter can see
_ABSENT = "clone3 435 435  openat2 437 437  io_uring_setup 425 425"


@dataclass(frozen=True)
class Test:
    """An argument's low or high 32 bits, masked, are one of `values`."""

    argument: int
    values: tuple[int, ...]
    mask: int = ALL
    high: bool = False


def _null(argument: int) -> tuple[Test, Test]:
    return Test(argument, (0,)), Test(argument, (0,), high=True)


# what glibc and musl ask for a thread: everything shared, no namespace, no signal to a parent
THREAD = 0x3D0F00
DETACHED = 0x400000  # musl's, without effect
AF_UNIX, O_ACCMODE, O_TRUNC, MAP_HUGETLB = 1, 0o3, 0o1000, 0x40000
_NO_TRUNCATING_READ = tuple(
    how | flag for how in (0, 1, 2, 3) for flag in (0, O_TRUNC) if (how, flag) != (0, O_TRUNC)
)
# F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC, F_GETPIPE_SZ, F_GET_SEALS
_FCNTL = 0, 1, 2, 3, 4, 1030, 1032, 1034
# TCGETS, TIOCGPGRP, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
_IOCTL = 0x5401, 0x540F, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451
# GET_DUMPABLE, SET_NAME, GET_NAME, GET_SECCOMP, CAPBSET_READ, GET_NO_NEW_PRIVS, SET_VMA (names)
_PRCTL = 3, 15, 16, 21, 23, 39, 0x53564D41
# GET_FS, XCOMP (AMX for matrix products), shadow stack status
_ARCH_PRCTL = 0x1003, 0x1021, 0x1022, 0x1023, 0x3001, 0x5005

SOL_SOCKET = 1
# SO_TYPE, SO_ERROR, SO_SNDBUF, SO_RCVBUF, SO_ACCEPTCONN, SO_PROTOCOL, SO_DOMAIN: nothing of who is
# at the other end
_SOCKET_OPTIONS = (3, 4, 7, 8, 30, 38, 39)

TESTS: dict[str, tuple[Test, ...]] = {
    "clone": (Test(0, (THREAD,), ALL & ~DETACHED),),
    "kill": (Test(0, (OWN_PROCESS,)),),
    "tgkill": (Test(0, (OWN_PROCESS,)),),
    # soft limits are hard ones: they can only be lowered
    "prlimit64": (Test(0, (0, OWN_PROCESS)),),
    "prctl": (Test(0, _PRCTL),),
    "arch_prctl": (Test(0, _ARCH_PRCTL),),
    "fcntl": (Test(1, _FCNTL),),  # no owner of signals, leases, notices, locks, sizes of pipes
    "ioctl": (Test(1, _IOCTL),),
    "socketpair": (Test(0, (AF_UNIX,)),),
    # SO_PEERPIDFD is a hold on the judge's process
    "getsockopt": (Test(1, (SOL_SOCKET,)), Test(2, _SOCKET_OPTIONS)),
    # to its own pair only: a datagram socket could name another process's address
    "sendto": _null(4),
    "mmap": (Test(3, (0,), MAP_HUGETLB),),
    # which Landlock before Linux 6.2 lets through
    "open": (Test(1, _NO_TRUNCATING_READ, O_ACCMODE | O_TRUNC),),
    "openat": (Test(2, _NO_TRUNCATING_READ, O_ACCMODE | O_TRUNC),),
    "sched_setaffinity": (Test(0, (0,)),),
    "setpriority": (Test(0, (0,)), Test(1, (0,))),
}


def _parsed(table: str) -> dict[str, tuple[int | None, int | None]]:
    words = table.split()
    numbers = [None if w == "-" else int(w) for w in words[1::3] + words[2::3]]
    half = len(words) // 3
    return {name: (numbers[i], numbers[half + i]) for i, name in enumerate(words[::3])}


ALLOWED, ABSENT = _parsed(_TABLE), _parsed(_ABSENT)


@dataclass(frozen=True)
class Calls:
    """The calls that a kind of process may make, by name, and what is asked of their arguments."""

    allowed: dict[str, tuple[int | None, int | None]]
    tests: dict[str, tuple[Test, ...]]


SUBMISSION = Calls(ALLOWED, TESTS)
WITH_A_FOLDER = Calls(ALLOWED | _parsed(_FOLDER), TESTS)
# no process, no program, no connection, no look at another process: it may write files and signal
JUDGE = Calls(
    ALLOWED | _parsed(_FOLDER) | _parsed(_JUDGE),
    {name: TESTS[name] for name in ("clone", "prlimit64", "prctl", "arch_prctl", "socketpair")},
)
