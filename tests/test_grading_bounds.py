"""Bounds that the grader states: what lies beyond one is refused, or laid where it can be read."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from grading_course_tools import record
from hostile.child import LIMITS
from hostile.worker import zygote
from patience import PATIENCE_S

from twophase import grading
from twophase.checks import registry
from twophase.grading.course import secret
from twophase.grading.errors import Unreadable
from twophase.grading.intake import archives, gradescope_export, submissions
from twophase.grading.intake.submissions import Submission
from twophase.grading.intake.trees import DEEPEST, Node
from twophase.grading.judge import flagged, judge
from twophase.grading.judge.benches import KEEP
from twophase.grading.judge.judge import Course
from twophase.grading.judge.replay import Replay
from twophase.grading.judge.time_budget import Allowance, Usage
from twophase.grading.judge.which_cells_run import Step
from twophase.grading.run.pool import JudgeProcess, Vanished
from twophase.grading.sandbox.limits import Limits
from twophase.grading.sandbox.session import CellRun


def test_a_judge_keeps_all_sets_of_cases_of_every_chapter() -> None:
    """Else a class that shares the sets would have them made again and again."""
    assert max(len(registry.ids(topic)) for topic in registry.topics()) * secret.SETS <= KEEP


def test_a_notebook_in_more_folders_than_are_looked_into_is_found_all_the_same(
    tmp_path: Path,
) -> None:
    deep = tmp_path.joinpath("ann", *["d"] * (DEEPEST + 5))
    deep.mkdir(parents=True)
    (deep / "03_kv_cache.ipynb").write_text("{}")
    (found,) = submissions.find(tmp_path)
    assert found.name.startswith("ann/")
    assert found.name.endswith("/03_kv_cache.ipynb")
    assert found.read() == b"{}"


def test_a_zip_with_more_folders_in_folders_has_the_notebook_at_the_deepest(tmp_path: Path) -> None:
    path = tmp_path / "class.zip"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("/".join(["ann", *["d"] * (DEEPEST + 5), "03_kv_cache.ipynb"]), "{}")
    (found,) = submissions.find(path)
    assert found.name.count("/") == DEEPEST
    assert found.name.endswith("/03_kv_cache.ipynb")
    assert found.read() == b"{}"


def test_a_class_in_a_zip_of_too_many_files_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "class.zip"
    with zipfile.ZipFile(path, "w") as z:
        for n in range(4):
            z.writestr(f"s{n}/03_kv_cache.ipynb", "{}")
    monkeypatch.setattr(archives, "CLASS_MEMBERS", 4)
    assert len(submissions.find(path)) == 4
    monkeypatch.setattr(archives, "CLASS_MEMBERS", 3)
    with pytest.raises((ValueError, Unreadable), match="too many files in it"):
        submissions.find(path)


def test_a_list_of_submissions_beyond_all_measure_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("submission_metadata.yml", "submission_1: {}\n" * 100_000)
    monkeypatch.setattr(gradescope_export, "MAX_METADATA_BYTES", 2**20)
    node = Node("submission_metadata.yml", "file", path, (0,))
    with pytest.raises(ValueError, match="is larger than 1 MiB: it is no list of submissions"):
        gradescope_export.entries(node)


def heard(line: bytes) -> Any:
    """What the main process makes of a line, when it has asked for `s/a.ipynb` with the seed 1."""
    process = cast(Any, JudgeProcess.__new__(JudgeProcess))
    process.task = SimpleNamespace(submission=SimpleNamespace(name="s/a.ipynb"), seed=1)
    process._heard = bytearray()
    process._pipe = SimpleNamespace(settimeout=lambda s: None, recv=lambda n: line)
    return process.hear()


def test_a_sound_result_counts_only_for_what_was_asked() -> None:
    sound = record("s/a.ipynb", {"t-a": "right"})
    assert heard(json.dumps(sound).encode() + b"\n") == sound
    for other in ({"file": "s/b.ipynb"}, {"seed": 2}):
        with pytest.raises(Vanished, match="nobody asked for it"):
            heard(json.dumps({**sound, **other}).encode() + b"\n")


def test_a_line_that_never_ends_ends_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twophase.grading.run.pool.MAX_LINE_BYTES", 100)
    assert heard(b"x" * 100) is None
    with pytest.raises(Vanished, match="more than a result can be"):
        heard(b"x" * 101)


def test_where_nobody_tells_whose_a_file_is_its_name_decides_its_cases() -> None:
    course = Course(secret=b"one secret of enough bytes", case_sets=0)
    seeds = [
        course.seed_for(Submission(Path("x"), name, student=student))
        for name, student in [("a.ipynb", ""), ("b.ipynb", ""), ("a.ipynb", "ann"), ("b", "ann")]
    ]
    assert len({*seeds}) == 3
    assert seeds[2] == seeds[3]


def test_the_readme_lists_the_flags_that_there_are() -> None:
    room = Path(grading.__path__[0])
    (row,) = re.findall(r"^\| `flags` \| (.*) \|$", (room / "README.md").read_text(), re.M)
    told = {*re.findall(r"`(\w+)`", row)} - {"name", "where", "says"}
    sources = "".join(p.read_text() for p in room.rglob("*.py"))
    literal = {*re.findall(r'Flag\(\s*"(\w+)"', sources)}
    assert literal | {flagged.NOT_ASKED, judge.OTHER_TOPIC} <= told
    assert all(re.search(rf"\b{name}\b", sources) for name in told)


class Slow:
    """A process in which every step takes a second, by a clock of its own."""

    broken = None

    def __init__(self) -> None:
        self.now, self.ran = 0.0, 0
        self.waited = SimpleNamespace(grace_s=lambda: 0.0)

    def fork(self, *_: object) -> Slow:
        return self

    def run_cell(self, source: str, limit_s: float, ends: bool) -> CellRun:
        self.now += 1.0
        self.ran += 1
        return CellRun()

    def close(self) -> None:
        pass


def test_no_step_runs_once_the_time_of_a_submission_is_used_up() -> None:
    """Else each of a thousand short pieces would be given a moment more."""
    slow = Slow()
    replay = Replay(cast(Any, slow), Limits(), {})
    allowance = Allowance(Usage(0.0, clock=lambda: slow.now), until=10.0, forks=3)
    steps = [Step(n, "own", "pass", cell=n) for n in range(1, 1_000)]
    assert replay.process(steps, allowance) is None
    assert slow.ran == 10
    assert replay.trouble == {"timeout"}
    assert not replay.guilty


def test_what_only_a_kernel_has_costs_no_cell() -> None:
    with zygote().fork(LIMITS) as session:
        for source in (
            "%autosave 60\n%clear\n%store x\n1",
            "import torch\ntorch.set_num_interop_threads(2)",
            "import asyncio\nasyncio.get_running_loop()",
            "asyncio.create_task(asyncio.sleep(0))",
        ):
            assert session.run_cell(source, PATIENCE_S).error == ""
