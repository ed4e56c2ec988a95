"""A run by several processes: the same results whatever happens to them, nothing lost, nothing left
running, nothing left lying."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grading_run_tools
import pytest
from grading_run_tools import Made, all_end, lines, run, write
from hostile.course import RIGHT, STUBS, TOPIC, answer_cell, cell, cells, dump
from hostile.forging import JUNK
from hostile.layouts import version_3
from hostile.worker import LIMITS, server

from twophase.grading.errors import GraderFault
from twophase.grading.files.notebook import Notebook
from twophase.grading.judge.judge import Course
from twophase.grading.results.records import Record
from twophase.grading.run import pool
from twophase.grading.run.pool import FAILED_STARTS
from twophase.grading.sandbox.limits import Limits
from twophase.grading.sandbox.zygote_handle import Zygote

FORGE = """import os, struct
frame = struct.pack('>IcQ', 7, b'V', 7) + b'{"a":1}'
for fd in range(3, 1024):
    try: os.write(fd, frame)
    except OSError: pass"""
WRONG = "def bytes_of(n_tokens, width):\n    return n_tokens * width"


def a_class() -> dict[str, bytes]:
    """Twenty submissions: right, half done, wrong, broken, hostile."""
    bytes_cells = {
        "right": RIGHT["bytes"],
        "wrong": WRONG,
        "stub": STUBS["bytes"],
        "exit": "import os; os._exit(3)",
        "print": f"print('<script>')\n{RIGHT['bytes']}",
        "raises": "def bytes_of(a, b): raise ValueError(a)",
        "random": (
            "import random; print(random.random(), np.random.random(), hash('a'),"
            f" id)\n{RIGHT['bytes']}"
        ),
        "forge": f"{FORGE}\n{RIGHT['bytes']}",
    }
    own = {
        "exits": "import os; os._exit(0)",
        "junk": JUNK,
        "segfault": "import ctypes; ctypes.string_at(0)",
    }
    own |= {
        "loop": "while True: pass",
        "kills": "import os, signal; os.kill(os.getppid(), signal.SIGKILL)",
    }
    files = {
        f"{name}/03.ipynb": dump(cells(RIGHT | {"bytes": source}))
        for name, source in bytes_cells.items()
    }
    files |= {
        f"own {name}/03.ipynb": dump([cell(source), *cells(dict(RIGHT))])
        for name, source in own.items()
    }
    files |= {"twice/03.ipynb": dump([*cells(dict(RIGHT)), answer_cell("bytes", WRONG)])}
    files |= {
        "old/03.ipynb": version_3(),
        "none/03.ipynb": b"",
        "cut/03.ipynb": dump(cells({}))[:-9],
    }
    return files | {
        "untouched/03.ipynb": dump(cells({})),
        "other/x.ipynb": dump([cell("1")]),
        "=1/a.ipynb": b"{",
    }


def settled(records: list[Record]) -> dict[str, Record]:
    """The records by file, without what varies."""
    assert Counter(r["file"] for r in records).most_common(1)[0][1] == 1
    return {r["file"]: {k: v for k, v in r.items() if k != "varies"} for r in records}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("class"), a_class())


@pytest.fixture(scope="module")
def alone(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    """The results of one process that nothing disturbed."""
    out = tmp_path_factory.mktemp("alone")
    run(folder, out)
    return settled(lines(out))


@pytest.mark.more  # the run below that is killed has two workers
def test_three_workers_give_the_records_of_one(
    folder: Path, alone: dict[str, Record], tmp_path: Path
) -> None:
    run(folder, tmp_path, workers=3)
    assert settled(lines(tmp_path)) == alone


def test_every_submission_of_a_class_keeps_the_points_of_its_right_answers(
    alone: dict[str, Record],
) -> None:
    points = {name.partition("/")[0]: r["points"] for name, r in alone.items()}
    assert points["right"] == points["old"] == points["own loop"] == points["own kills"] == 8
    assert points["wrong"] == points["exit"] == points["forge"] == 6
    assert {n for n, r in alone.items() if r["status"] == "unreadable"} == {
        "none/03.ipynb",
        "cut/03.ipynb",
        "other/x.ipynb",
        "=1/a.ipynb",
    }


# killed when so many lines were told: as it begins, after its first result, in the middle
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("killed_at", [(8,), pytest.param((1, 2, 8), marks=pytest.mark.more)])
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_records_and_leaves_nothing(
    killed_at: tuple[int, ...], folder: Path, alone: dict[str, Record], tmp_path: Path
) -> None:
    scratch, out = tmp_path / "scratch", tmp_path / "out"
    scratch.mkdir()
    command = [sys.executable, grading_run_tools.__file__, str(folder), str(out)]
    env = os.environ | {"TMPDIR": str(scratch)}
    for lines_to_read in (*killed_at, None):  # the last time it is left alone
        workers = "2" if lines_to_read else "1"
        process = subprocess.Popen([*command, workers], env=env, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        if lines_to_read is None:
            told = process.stdout.read().split("\n")
            assert process.wait() == 0, told
        else:
            for _ in range(lines_to_read):
                assert process.stdout.readline()
            process.kill()
            process.wait()
        process.stdout.close()
        assert all_end(str(scratch)), "processes are left"
    found = lines(out)
    assert settled(found) == alone
    assert len({r["key"] for r in found}) == len(found) == len(alone)
    assert list(scratch.iterdir()) == []


def writable_memory(pid: int) -> Iterator[bytes]:
    """What a process has written to its memory, or could have."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            where, rights, *_ = line.split()
            if rights.startswith("rw") and "[v" not in line:
                begin, end = (int(address, 16) for address in where.split("-"))
                memory.seek(begin)
                with contextlib.suppress(OSError):
                    yield memory.read(end - begin)


def test_what_judges_are_told_is_not_in_the_memory_that_zygotes_inherit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "make_server", server)
    mark, other = (random.Random(n).randbytes(32).hex() for n in (1, 2))
    monkeypatch.setenv("TWOPHASE_MARK", mark)
    folder = write(tmp_path / mark, {"a.ipynb": dump([cell(f"{mark!r}"), *cells(dict(RIGHT))])})
    run(folder, tmp_path / "out", Course(mark, LIMITS, Made(), hidden=(folder,)), workers=1)
    assert [(r["points"], r["seed"]) for r in lines(tmp_path / "out")] == [(8, mark)]
    with Zygote([tmp_path / other], server()) as fresh:
        fresh.start()
        parent = int(Path(f"/proc/{fresh.pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert b"fork_server" in Path(f"/proc/{parent}/cmdline").read_bytes()
        has = {
            (name, text): any(text.encode() in block for block in writable_memory(pid))
            for name, pid in (("main", os.getpid()), ("server", parent), ("zygote", fresh.pid))
            for text in (mark, other)
        }
    assert {place for place, found in has.items() if found} == {
        ("main", mark),
        ("main", other),
        ("zygote", other),  # what it was told itself
    }


@dataclass(frozen=True)
class Poison(Made):
    """A check of ours that takes its judge down, by the name of the submission: always, or only the
    first time."""

    once: str = ""

    def topic_of(self, notebook: Notebook, name: str) -> str:
        if name.startswith("once") and not Path(self.once).exists():
            Path(self.once).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if name.startswith("killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        if name.startswith("hangs"):
            threading.Event().wait()
        if name.startswith("nonsense"):
            for path in Path("/proc/self/fd").iterdir():
                if path.is_symlink() and os.readlink(path).startswith("socket:"):
                    os.write(int(path.name), b'{"points": 100}\n')
        return TOPIC


def test_a_judge_that_dies_or_talks_nonsense_is_replaced_and_its_submission_tried_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    names = ("killed", "nonsense", "once", "right")
    folder = write(tmp_path / "in", {f"{name}.ipynb": dump(cells(dict(RIGHT))) for name in names})
    course = Course(1, LIMITS, Poison(once=str(tmp_path / "once")))
    run(folder, tmp_path / "out", course, workers=1)
    seen = {r["file"].removesuffix(".ipynb"): r for r in lines(tmp_path / "out")}
    assert {n: (r["status"], r["points"]) for n, r in seen.items()} == {
        "killed": ("internal", None),
        "nonsense": ("internal", None),
        "once": ("ok", 8),
        "right": ("ok", 8),
    }
    assert "killed by SIGKILL, 2 times" in seen["killed"]["message"]
    assert "sent nonsense" in seen["nonsense"]["message"]
    assert seen["killed"]["digests"]["submission"] == seen["right"]["digests"]["submission"]
    assert all_end(str(tmp_path / "scratch"))
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.more  # the judge above that dies is replaced in the same way
def test_a_judge_that_hangs_is_given_up_and_the_next_run_tries_again(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", {"hangs.ipynb": dump(cells(dict(RIGHT)))})
    run(
        folder,
        tmp_path / "out",
        Course(1, Limits(submission_s=0.5, waiting_s=0.0), Poison(), grace_s=0.5),
        workers=1,
    )
    (record,) = lines(tmp_path / "out")
    assert (record["status"], record["points"]) == ("internal", None)
    assert "did not answer in time, 2 times" in record["message"]
    assert [r and r["status"] for r in run(folder, tmp_path / "out")] == ["ok"]


@dataclass(frozen=True)
class Unlucky(Made):
    """What its judges' workers are forked from dies before they start: so many times, each noted in
    a file."""

    notes: str = ""
    times: int = 1

    def unlucky(self) -> bool:
        return not os.path.exists(self.notes) or os.path.getsize(self.notes) < self.times

    def topic_of(self, notebook: Notebook, name: str) -> str:
        server = os.getppid()
        if self.unlucky() and b"fork_server" in Path(f"/proc/{server}/cmdline").read_bytes():
            with open(self.notes, "a") as notes:
                notes.write("x")
            os.kill(server, signal.SIGKILL)
            while os.getppid() == server:
                os.sched_yield()
        return super().topic_of(notebook, name)


def test_a_worker_that_dies_while_it_starts_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "make_server", server)
    folder = write(tmp_path / "in", {f"{n}.ipynb": dump(cells(dict(RIGHT))) for n in "ab"})
    run(
        folder,
        tmp_path / "out",
        Course(1, LIMITS, Unlucky(notes=str(tmp_path / "notes"))),
        workers=1,
    )
    assert [(r["status"], r["points"]) for r in lines(tmp_path / "out")] == [("ok", 8)] * 2
    assert (tmp_path / "notes").read_text() == "x"


@pytest.mark.more  # starts as many workers as it takes to give up
def test_a_run_whose_workers_never_start_ends_and_says_why(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", {"a.ipynb": dump(cells(dict(RIGHT)))})
    with pytest.raises(GraderFault, match="do not start: the fork server has gone"):
        run(
            folder,
            tmp_path / "out",
            Course(1, LIMITS, Unlucky(notes=str(tmp_path / "notes"), times=99)),
            workers=1,
        )
    assert lines(tmp_path / "out") == []
    assert len((tmp_path / "notes").read_text()) == FAILED_STARTS
