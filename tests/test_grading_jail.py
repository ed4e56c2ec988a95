"""What student code can do in its process and what it cannot, each tried in the real one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile.course import cell, dump, release
from hostile.worker import LIMITS, output, zygote
from patience import PATIENCE_S

from twophase.checks import registry
from twophase.grading.files.notebook import parse
from twophase.grading.judge.which_cells_run import make_plan
from twophase.grading.sandbox import (
    hidden_paths,
    landlock,
    rlimits,
    user,
    what_confines,
    zygote_handle,
)
from twophase.grading.sandbox.limits import Limits
from twophase.grading.sandbox.session import Session
from twophase.grading.sandbox.zygote_handle import Zygote
from twophase.protocol import AnswerError

LABELS = what_confines.confined_by()
needs_landlock = pytest.mark.skipif(
    f"landlock-{landlock.abi()}" not in LABELS, reason="nothing here confines by Landlock"
)
needs_seccomp = pytest.mark.skipif(
    "seccomp" not in LABELS, reason="nothing here confines by seccomp"
)
PACKAGE = Path(registry.__file__).parents[1]
CHECK = PACKAGE / "checks/kv_cache/max_batch.py"
INSTALLED = Path(sysconfig.get_path("purelib"))


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with zygote().fork(LIMITS) as one:
        yield one


def refused(session: Session, source: str) -> bool:
    """Whether it fails as an ordinary exception that says so, and the process lives on."""
    ran = session.run_cell(source, 60.0)
    return "OSError" in ran.types and (
        "not permitted" in ran.error or "denied" in ran.error or "pty" in ran.error
    )


WORK = {
    "twenty threads": (
        (
            "import threading\nseen = []\nthreads = [threading.Thread(target=seen.append,"
            " args=(i,)) for i in range(20)]\n[t.start() for t in threads]; [t.join() for t in"
            " threads]\nprint(len(seen))"
        ),
        "20",
    ),
    "a pool of threads": (
        (
            "from concurrent.futures import ThreadPoolExecutor as T\nwith T(4) as pool:"
            " print(sum(pool.map(abs, range(10))))"
        ),
        "45",
    ),
    "torch on several threads": (
        (
            "import torch\ntorch.set_num_threads(4)\nx = torch.ones(512, 512)\nprint((x @ x)[0,"
            " 0].item(), torch.get_num_threads())"
        ),
        "512.0 4",
    ),
    "a backward pass": (
        (
            "import torch\nx = torch.ones(3, requires_grad=True)\n(x *"
            " x).sum().backward()\nprint(x.grad.tolist())"
        ),
        "[2.0, 2.0, 2.0]",
    ),
    "Numba, compiled in the cell": (
        (
            "import numba\n@numba.njit\ndef f(n):\n    s = 0\n    for i in range(n): s += i\n   "
            " return s\nprint(f(10))"
        ),
        "45",
    ),
    "a figure, drawn into memory": (
        (
            "import io, matplotlib.pyplot as plt\nfig, ax = plt.subplots(); ax.plot([1, 2]);"
            " ax.set_title('$x^2$')\nf = io.BytesIO(); fig.savefig(f); print(len(f.getvalue()) >"
            " 1000)"
        ),
        "True",
    ),
    "await at the top": (
        "import asyncio\nawait asyncio.sleep(0)\nprint(await asyncio.to_thread(lambda: 7))",
        "7",
    ),
    "an event loop in a thread": (
        (
            "import asyncio, threading\nt = threading.Thread(target=lambda:"
            " asyncio.run(asyncio.sleep(0)))\nt.start(); t.join(); print('ran')"
        ),
        "ran",
    ),
    "a pair of sockets": (
        "import socket; a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))",
        "b'x'",
    ),
    "a signal to itself": (
        (
            "import signal; signal.signal(signal.SIGUSR1, lambda *a: print('got'));"
            " signal.raise_signal(signal.SIGUSR1)"
        ),
        "got",
    ),
    "a timer": (
        (
            "import signal, threading\ndef late(*a): raise"
            " TimeoutError\nsignal.signal(signal.SIGALRM,"
            " late)\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\ntry:"
            " threading.Event().wait()\nexcept TimeoutError: print('late')"
        ),
        "late",
    ),
    "printing to nowhere": (
        "import os\nwith open(os.devnull, 'w') as f: print('x', file=f)\nprint('done')",
        "done",
    ),
    "the time of a city": (
        (
            "import datetime as d, zoneinfo\nprint(d.datetime(2020, 1, 1,"
            " tzinfo=zoneinfo.ZoneInfo('Europe/Paris')).utcoffset())"
        ),
        "1:00:00",
    ),
    "a callback from C": (
        "import ctypes as c; print(c.CFUNCTYPE(c.c_int, c.c_int)(lambda x: x + 1)(2))",
        "3",
    ),
    "its own memory's size": (
        "import os; print(int(open('/proc/self/statm').read().split()[0]) > 0)",
        "True",
    ),
    "a database in memory": (
        "import sqlite3; print(sqlite3.connect(':memory:').execute('select 1').fetchone())",
        "(1,)",
    ),
    "os.nice": ("import os; n = os.nice(0); print(os.nice(1) in (n + 1, 19))", "True"),
}


@pytest.mark.parametrize("name", WORK)
def test_ordinary_work_is_done(session: Session, name: str) -> None:
    source, expected = WORK[name]
    assert output(session, source) == expected


@needs_seccomp
@pytest.mark.parametrize(
    "source",
    [
        "import os; os.fork()",
        "import os; os.posix_spawn('/bin/true', ['true'], {})",
        "import os; os.execv('/bin/true', ['true'])",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.popen('true')",
        "import multiprocessing as m; m.Process(target=print).start()",
        "import multiprocessing as m; m.get_context('spawn').Process(target=print).start()",
        "import pty; pty.fork()",
        "get_ipython().system_piped('ls')",
        "get_ipython().system_raw('ls')",
        "%%bash\nls",
    ],
)
def test_no_process_is_started(session: Session, source: str) -> None:
    assert refused(session, source)


@pytest.mark.parametrize(
    "line",
    [
        "!ls",
        "x = !ls",
        "%pip install x",
        "%conda install -y x",
        "%uv pip install x",
        "!!ls",
        "%sx ls",
    ],
)
def test_a_line_for_the_shell_starts_nothing_and_its_cell_goes_on(
    session: Session, line: str
) -> None:
    ran = session.run_cell(f"{line}\nafter = 1\nprint(after)", 60.0)
    assert (ran.error, ran.output.split()[-1]) == ("", "1")
    assert "No program is started here" in ran.output


@needs_seccomp
@pytest.mark.parametrize(
    "family", ["AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK", "AF_PACKET", "AF_VSOCK", "AF_ALG"]
)
@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM", "SOCK_RAW", "SOCK_SEQPACKET"])
def test_no_socket_is_opened(session: Session, family: str, kind: str) -> None:
    assert refused(session, f"import socket; socket.socket(socket.{family}, socket.{kind}, 0)")


@needs_seccomp
def test_a_socket_that_it_has_reaches_nobody_else(session: Session) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("\0twophase-test-jail-" + str(os.getpid()))
        name = listening.getsockname()
        pair = "import array, socket; a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        assert refused(session, f"{pair}a.sendto(b'x', {name!r})")
        assert refused(session, f"{pair}a.connect({name!r})")
        assert refused(session, f"{pair}a.sendmsg([b'x'], [], 0, {name!r})")
        assert refused(session, f"{pair}socket.send_fds(a, [b'x'], [0])"), "no descriptor travels"
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.recv(1)


def syscall(name: str, x86: int, arm: int, arguments: str = "0, 0, 0, 0") -> str:
    """A cell that makes a system call by its number and raises what it fails with."""
    return (
        f"import ctypes, os, platform\nlibc = ctypes.CDLL(None, use_errno=True)\nn = {x86} if"
        f" platform.machine() == 'x86_64' else {arm}  # {name}\nif libc.syscall(n, {arguments}) <"
        " 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))"
    )


@needs_seccomp
@pytest.mark.parametrize(
    "source",
    [
        syscall("shmget", 29, 194, "0, 4096, 0o1600"),
        syscall("ptrace", 101, 117, "16, os.getppid()"),
        syscall("process_vm_readv", 310, 270, "os.getppid(), 0, 0, 0, 0, 0"),
        syscall("keyctl", 250, 219),
        syscall("bpf", 321, 280),
        syscall("perf_event_open", 298, 241),
        syscall("unshare", 272, 97, "0x10000000"),
        syscall("userfaultfd", 323, 282),
        syscall("msgget", 68, 186),
        syscall("prctl: forget to die with the parent", 157, 167, "1, 0"),
        syscall("prctl: be readable", 157, 167, "4, 1"),
        "import os; os.memfd_create('x')",
        "import os; os.pidfd_open(os.getppid())",
        "import os; os.kill(os.getppid(), 0)",
        "import os; os.kill(1, 0)",
        "import os; os.kill(-1, 0)",
        "import os; os.killpg(os.getpgid(os.getppid()), 0)",
        "import os; os.sched_setaffinity(os.getppid(), {0})",
        "import os; os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
        "import os; os.setuid(0)",
        "import os; os.setresuid(-1, 0, 0)",
        "import os; os.chroot('.')",
        "import os; os.setsid()",
        "import fcntl; fcntl.flock(open('/dev/zero'), fcntl.LOCK_EX)",
        "import os; os.sync(); os.fsync(0)",
        f"import os; os.chmod({str(PACKAGE)!r}, 0)",
        f"import os; os.utime({str(CHECK)!r}, (0, 0))",
        f"import os; os.setxattr({str(CHECK)!r}, 'user.x', b'x')",
        f"import os; os.truncate({str(CHECK)!r}, 0)",
        f"import os; os.link({str(CHECK)!r}, 'x')",
        f"import os; os.symlink({str(CHECK)!r}, 'x')",
        f"import os; os.rename({str(CHECK)!r}, {str(CHECK)!r})",
    ],
)
def test_no_other_process_file_or_right_is_touched(session: Session, source: str) -> None:
    assert refused(session, source)


PLACES = [
    ".",
    "..",
    "/",
    "/tmp",
    "/var/tmp",
    "/dev/shm",
    "/dev/mqueue",
    "/run",
    "/etc",
    "/usr/lib",
    "/proc/self",
    str(Path.home()),
]
PLACES += [str(PACKAGE), sys.prefix, tempfile.gettempdir(), str(Path.cwd())]
MADE = "made-by-a-submission"


@needs_landlock
@pytest.mark.parametrize("place", sorted(set(PLACES)))
def test_no_file_is_written_anywhere(session: Session, place: str) -> None:
    file = f"{place}/{MADE}"
    for attempt in (
        f"open({file!r}, 'w')",
        f"os.mkdir({file!r})",
        f"os.mkfifo({file!r})",
        f"os.open({place!r}, os.O_TMPFILE | os.O_RDWR)",
    ):
        ran = session.run_cell(f"import os; {attempt}", 20.0)
        assert "OSError" in ran.types, (attempt, ran)
    assert not Path(place, MADE).exists()


@needs_landlock
def test_an_existing_file_is_neither_changed_nor_emptied(session: Session, tmp_path: Path) -> None:
    mine = tmp_path / "grades.csv"
    mine.write_text("1")
    mine.chmod(0o666)
    for how in (
        "O_WRONLY",
        "O_RDWR",
        "O_RDONLY | os.O_TRUNC",
        "O_WRONLY | os.O_APPEND",
        "O_RDONLY",
    ):
        assert refused(session, f"import os; os.open({str(mine)!r}, os.{how})")
    assert refused(session, f"import os; os.open({os.__file__!r}, os.O_RDONLY | os.O_TRUNC)"), (
        "a library that it may read"
    )
    assert mine.read_text() == "1"


@needs_landlock
@pytest.mark.parametrize(
    "path",
    [
        *(
            "/etc/shadow",
            "/etc/passwd",
            "/etc/hostname",
            "/proc/1/cmdline",
            "/proc/mounts/../1/environ",
            "/proc/kallsyms",
            "/proc/net/unix",
            "/proc/self/net/tcp",
            "/proc/self/mountinfo",
            "/proc/self/environ",
        ),
        *(
            f"/proc/PARENT/{name}"
            for name in ("environ", "cmdline", "maps", "mem", "status", "fd/0", "root/etc/hosts")
        ),
        *(
            str(CHECK),
            str(PACKAGE / "theory/kv_cache.py"),
            str(PACKAGE / "grading/sandbox/worker.py"),
            __file__,
        ),
        *(str(INSTALLED / name) for name in ("transformers/cache_utils.py", "gguf/quants.py")),
        *(
            "/usr/src",
            "/boot",
            "/root",
            "/home",
            "/var/log",
            "/tmp",
            "/proc",
            "/sys",
            "/dev",
            "/dev/pts",
            "/run",
        ),
        *(str(PACKAGE.parents[1] / name) for name in ("solutions", "README.md", "tests", ".git")),
    ],
)
def test_no_file_is_read_that_is_none_of_its_business(session: Session, path: str) -> None:
    source = (
        f"import os\npath = {path!r}.replace('PARENT', str(os.getppid()))\n"
        "open(path, 'rb') if os.path.isfile(path) else os.listdir(path)"
    )
    ran = session.run_cell(source, 20.0)
    assert "OSError" in ran.types, ran


@needs_landlock
def test_the_judges_memory_and_environment_are_out_of_reach(session: Session) -> None:
    for name in ("environ", "mem", "maps", "cmdline", "fd"):
        source = (
            f"import os; p = '/proc/{os.getpid()}/{name}'; os.listdir(p) if {name == 'fd'} else"
            " open(p, 'rb')"
        )
        assert refused(session, source), name


HIDDEN = Path(json.__file__).parent  # of the interpreter, so readable if it were not hidden


@pytest.fixture(scope="module")
def hiding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A submission of another zygote, with hidden folders."""
    hidden = [HIDDEN, tmp_path_factory.mktemp("hidden")]
    with Zygote(hidden=hidden) as own, own.fork(LIMITS) as one:
        yield one


@needs_landlock
def may_mount() -> bool:
    return os.geteuid() == 0 and user.in_a_fork(
        lambda: hidden_paths.hide([Path("/nowhere")], [Path("/")], Path("/nowhere"))
    )


@pytest.mark.skipif(not may_mount(), reason="only who may mount can hide names and sizes")
def test_nobody_learns_the_size_or_time_of_a_hidden_file(tmp_path: Path) -> None:
    others = tmp_path / "submissions" / "ann"
    others.mkdir(parents=True)
    (others / "03_kv_cache.ipynb").write_text("x" * 1234)
    (tmp_path / "secret").write_text("y" * 99)
    with Zygote(hidden=[others.parent, tmp_path / "secret"]) as own, own.fork(LIMITS) as one:
        ran = one.run_cell(f"import os; os.stat({str(others)!r})", 20.0)
        assert "FileNotFoundError" in ran.types, ran
        said = output(one, f"import os; print(os.stat({str(tmp_path / 'secret')!r}).st_size)")
        assert said == "0"
        assert refused(one, f"open({str(tmp_path / 'secret')!r})")


def test_hidden_paths_stay_unreadable_where_libraries_are_readable(hiding: Session) -> None:
    for source in (f"open({str(HIDDEN / 'tool.py')!r})", f"import os; os.listdir({str(HIDDEN)!r})"):
        assert {"PermissionError", "FileNotFoundError"} & set(hiding.run_cell(source, 20.0).types)
    assert output(hiding, f"print(len(open({os.__file__!r}).read()) > 0)") == "True", (
        "its neighbors are"
    )
    assert str(HIDDEN) not in output(hiding, "print(open('/proc/self/cmdline').read())")


def test_its_folder_is_empty_and_can_be_listed(session: Session) -> None:
    assert output(session, "import os; print(os.listdir(), os.listdir(os.getcwd()))") == "[] []"


def test_it_has_no_capability_and_no_way_to_one(session: Session) -> None:
    status = dict(
        line.split(":\t", 1)
        for line in output(session, "print(open('/proc/self/status').read())").splitlines()
        if ":\t" in line
    )
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert os.geteuid() != 0 or int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"] == ("1" if {"seccomp"} & set(LABELS) else "0")
    assert status["Seccomp"] == ("2" if "seccomp" in LABELS else "0")
    assert status["Groups"].strip() == "" or os.geteuid() != 0


def test_it_shares_no_memory_with_the_process_that_it_was_forked_from(session: Session) -> None:
    shared = output(
        session,
        "print([l for l in open('/proc/self/maps') if l.split()[1][1] == 'w' and l.split()[1][3] =="
        " 's'])",
    )
    assert shared == "[]"


def test_it_is_the_first_to_go_when_memory_runs_out(session: Session) -> None:
    assert output(session, "print(open('/proc/self/oom_score_adj').read())") == "1000"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who can be another user")
def test_root_runs_it_as_a_user_of_its_own_and_no_two_zygotes_share_one(
    session: Session, hiding: Session
) -> None:
    if not {"own-user", "own-limits"} & set(LABELS):
        pytest.skip("root may not become another user here")
    real, effective = eval(output(session, "import os; print((os.getuid(), os.geteuid()))"))
    assert real != 0
    assert (effective == real) == ("own-user" in LABELS)
    assert int(output(hiding, "import os; print(os.getuid())")) != real


@needs_seccomp
def test_threads_are_limited() -> None:
    source = (
        "import threading\nthreading.stack_size(65536)\nstop, n = threading.Event(), 0\ntry:\n   "
        " while n < 5000:\n        threading.Thread(target=stop.wait, daemon=True).start(); n +="
        " 1\nexcept RuntimeError: pass\nstop.set()\nprint(n)"
    )
    if "own-user" in LABELS or "own-limits" in LABELS:
        with zygote().fork(Limits(cell_s=60.0)) as one:
            assert 20 <= int(output(one, source)) <= rlimits.MAX_THREADS
    else:  # its user has other threads, too
        with zygote().fork(Limits(cell_s=60.0)) as one:
            assert 20 <= int(output(one, source)) < 5000


def test_an_ordinary_kernel_lacks_nothing_and_says_what_confines() -> None:
    lacks = what_confines.missing()
    assert (lacks == "") == (
        "seccomp" in LABELS and any(label.startswith("landlock") for label in LABELS)
    )
    assert LABELS[:3] == ("processes", "rlimits", "no-capabilities")


@pytest.mark.parametrize(
    ("tried", "names"),
    [
        ((), ["Landlock", "seccomp", "capset"]),
        (("seccomp",), ["Landlock", "capset"]),
        (("no-capabilities", "landlock-7", "own-user"), ["seccomp"]),
        (("landlock-7", "seccomp", "own-user"), ["capset"]),
    ],
)
def test_what_is_missing_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tried: tuple[str, ...], names: list[str]
) -> None:
    monkeypatch.setattr(what_confines, "_tried", lambda: tried)
    said = what_confines.missing()
    assert all(name in said for name in names)
    assert "--unsafe" in said
    assert ("Landlock" in said) == ("Landlock" in names)
    assert ("capset" in said) == ("capset" in names)


@needs_seccomp
@needs_landlock
@pytest.mark.parametrize(
    "error", ["raise OSError(1, 'no')", "os.kill(os.getpid(), 9)"], ids=["refused", "killed"]
)
@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("seccomp.restrict", "seccomp"),
        ("landlock.Rules.restrict", "landlock"),
        ("linux.drop_capabilities", "no-capabilities"),
    ],
)
def test_a_container_that_refuses_or_kills_gives_labels_and_no_crash(
    error: str, module: str, absent: str
) -> None:
    source = (
        "import os\nfrom twophase.grading.sandbox import jail, landlock, linux, seccomp\n"
        f"def restrict(*a):\n    {error}\n{module} = restrict\njail.main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert absent not in ran.stdout
    assert ("seccomp" if absent == "landlock" else "landlock") in ran.stdout


def test_on_another_system_the_same_names_give_practice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert what_confines.supported() == ""
    assert what_confines.missing() == ""
    assert "practice" in what_confines.confined_by()
    monkeypatch.setattr("platform.system", lambda: "Windows")
    assert "WSL2" in what_confines.supported()


def test_practice_runs_ends_and_blames_like_the_jail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygote_handle, "practice", lambda: True)
    with (
        zygote_handle.make_zygote() as practice,
        practice.fork(LIMITS) as one,
    ):
        assert output(one, "print(1 + 1)") == "2"
        ran = one.run_cell(
            "from twophase.theory.kv_cache import max_batch; max_batch(1, 1, 1, 1)", 20.0
        )
        assert "Withheld" in ran.types
        assert "MemoryError" in one.run_cell("x = bytearray(3 * 10**9)", 20.0).types
        with pytest.raises(AnswerError, match="SIGSEGV"):
            one.run_cell("import ctypes; ctypes.string_at(0)", 20.0)
    with pytest.raises(Exception, match="interrupted"):
        practice.fork(LIMITS)


# the last of this file: a zygote has one child at a time, so `session` ends here
LOADED_LATE = {
    "a step of training": (
        "model = torch.nn.Linear(2, 1); step = torch.optim.AdamW(model.parameters())\n"
        "model(torch.ones(1, 2)).sum().backward(); step.step(); print('done')",
        "done",
    ),
    "torch.compile": ("print(torch.compile(lambda x: 2 * x)(torch.ones(1)).item())", "2.0"),
    "torch.func": ("print(torch.func.grad(lambda x: x * x)(torch.ones(())).item())", "2.0"),
    "torch's counter": (
        "from torch.utils.flop_counter import FlopCounterMode\n"
        "with FlopCounterMode(display=False) as meter: torch.ones(3, 3) @ torch.ones(3, 3)\n"
        "print(meter.get_total_flops())",
        "54",
    ),
    "a tensor without values": (
        "import sys\nloaded = len(sys.modules)\nkeys = torch.empty(2, 3, device='meta')\n"
        "print(torch.empty_like(keys).nbytes, len(sys.modules) - loaded)",
        "24 0",
    ),
}


def test_what_torch_loads_late_works_in_there() -> None:
    with zygote().fork(LIMITS, more=True) as one:
        said = {name: output(one, f"import torch\n{s}") for name, (s, _) in LOADED_LATE.items()}
    assert said == {name: expected for name, (_, expected) in LOADED_LATE.items()}
    for source, _ in LOADED_LATE.values():
        plan = make_plan(parse(dump([cell(f"import torch\n{source}")])), release())
        assert plan.loads_more()


@pytest.mark.parametrize(("end", "signal_told"), [("os._exit(3)", 0), ("os.abort()", 6)])
def test_what_ended_a_process_is_told_also_without_pidfds(
    monkeypatch: pytest.MonkeyPatch, end: str, signal_told: int
) -> None:
    from twophase.grading.sandbox import zygote as of_a_zygote

    monkeypatch.delattr(os, "pidfd_open", raising=False)
    started = subprocess.Popen([sys.executable, "-c", f"import os; {end}"])
    assert of_a_zygote._signal_that_ended(started.pid, 60.0) == signal_told
    started.returncode = 0  # it has been waited for
