"""A submission has a folder in memory to write to: its own, small, seen by nobody else, and gone
with its process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from twophase.grading.sandbox import user, what_confines

if sys.platform != "linux":
    pytest.skip("on Linux only", allow_module_level=True)

from hostile.worker import LIMITS, zygote

from twophase.grading.sandbox import temporary
from twophase.grading.sandbox.session import Session


def may_mount(folder: Path) -> bool:
    return os.geteuid() == 0 and user.in_a_fork(lambda: temporary.works(folder))


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    labels = " ".join(what_confines.confined_by())
    if "landlock" not in labels or "seccomp" not in labels or not may_mount(tmp_path):
        pytest.skip("needs root, mounts, Landlock and seccomp")
    with zygote().fork(LIMITS, more=True) as one:
        yield one


HONEST = {
    "a temporary file": "import tempfile\nwith tempfile.TemporaryFile('w+') as f:\n"
    "    f.write('x'); f.seek(0); assert f.read() == 'x'",
    "a named one, moved": "import tempfile, os\nd = tempfile.mkdtemp()\n"
    "open(d + '/a', 'w').write('x'); os.replace(d + '/a', d + '/b')\n"
    "assert open(d + '/b').read() == 'x'",
    "a folder, removed again": "import tempfile, os\nwith tempfile.TemporaryDirectory() as d:\n"
    "    os.makedirs(d + '/a/b'); open(d + '/a/b/c', 'wb').write(b'x' * 1000)\n"
    "assert not os.path.exists(d)",
    "arrays saved": "import numpy as np, tempfile\np = tempfile.gettempdir() + '/a'\n"
    "np.save(p + '.npy', np.eye(3)); assert np.load(p + '.npy').sum() == 3",
    "a checkpoint": "import torch, tempfile\nwith tempfile.NamedTemporaryFile() as f:\n"
    "    torch.save({'a': torch.ones(3)}, f.name); assert torch.load(f.name)['a'].sum() == 3",
    "a step of training": "import torch\nmodel = torch.nn.Linear(3, 1)\n"
    "steps = torch.optim.Adam(model.parameters())\n"
    "model(torch.ones(2, 3)).sum().backward(); steps.step()",
    "a compiled function": "import torch\n"
    "assert torch.compile(lambda x: x + 1)(torch.ones(2)).sum() == 4",
}


@pytest.mark.parametrize("source", HONEST.values(), ids=HONEST)
def test_what_is_right_with_temporary_files_is_right_here(session: Session, source: str) -> None:
    assert session.run_cell(source, 60.0).error == ""


FILL = """
import errno, os, tempfile
try:
    with open(os.path.join(tempfile.gettempdir(), 'big'), 'wb') as f:
        while True: f.write(bytes(2**20))
except OSError as e:
    assert e.errno in (errno.ENOSPC, errno.EFBIG), e
    print(os.path.getsize(f.name))
"""


def test_it_holds_so_much_and_no_more(session: Session) -> None:
    ran = session.run_cell(FILL, 60.0)
    assert ran.error == ""
    assert int(ran.output) <= temporary.MAX_BYTES


def test_it_holds_so_many_files_and_no_more(session: Session) -> None:
    ran = session.run_cell(
        "import os, tempfile\nn = 0\ntry:\n"
        "    while True: os.mkdir(f'{tempfile.gettempdir()}/{n}'); n += 1\n"
        "except OSError: print(n)",
        60.0,
    )
    assert 100 < int(ran.output) < temporary.MAX_FILES


FORBIDDEN = {
    "a program": "os.execv(p, [p])",
    "a library": "ctypes.CDLL(p)",
    "a link to elsewhere": "os.symlink('/etc/passwd', p + '.link')",
    "a pipe": "os.mkfifo(p + '.pipe')",
    "a mount over it": "assert not ctypes.CDLL(None).mount(b'x', p.encode(), b'tmpfs', 0, None)",
    "rights for others": "os.chmod(p, 0o777)",
    "moved elsewhere": "os.rename(p, '/tmp/left-behind-by-a-submission')",
    "a file elsewhere made": "open(os.path.dirname(os.__file__) + '/it', 'w')",
    "a file elsewhere removed": "os.unlink(os.__file__)",
}


@pytest.mark.parametrize("attempt", FORBIDDEN.values(), ids=FORBIDDEN)
def test_nothing_comes_of_it_but_files(session: Session, attempt: str) -> None:
    made = "import ctypes, math, os, shutil, tempfile\np = tempfile.gettempdir() + '/it'\n"
    library = "import _ctypes\nopen(p, 'wb').write(open(_ctypes.__file__, 'rb').read())\n"
    assert session.run_cell(made + library, 60.0).error == ""
    assert {"OSError", "AssertionError"} & {*session.run_cell(attempt, 60.0).types}


def test_nobody_else_sees_it_and_it_is_gone_with_its_process(session: Session) -> None:
    wrote = session.run_cell(
        "import os, tempfile\np = tempfile.gettempdir()\n"
        "open(p + '/mine', 'w').write('x'); print(p, os.listdir(p))",
        20.0,
    )
    folder = Path(wrote.output.split()[0])
    assert "mine" in wrote.output
    assert list(folder.iterdir()) == []
    with zygote().fork(LIMITS, beside=True) as beside:
        assert (
            beside.run_cell(
                "import os, tempfile; print(os.listdir(tempfile.gettempdir()))", 20.0
            ).output
            == "[]\n"
        )
    session.close()
    with zygote().fork(LIMITS) as after:
        assert (
            after.run_cell(
                "import os, tempfile; print(os.listdir(tempfile.gettempdir()))", 20.0
            ).output
            == "[]\n"
        )
    assert list(folder.iterdir()) == []
