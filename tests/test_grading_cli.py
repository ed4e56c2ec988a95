"""`twophase check` and `twophase grade` as a person meets them: exit codes, one sentence for bad use, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from exercise_tools import ALL_IDS, right_answers
from hostile.course import cell, dump
from hostile.worker import LIMITS, zygote

from twophase.checks import registry
from twophase.cli.main import main
from twophase.grading import release
from twophase.grading.notebook import Cell
from twophase.grading.run import Course, Submission, grade_one

TOPIC = "kv_cache"


def solved(leave_out: str = "") -> bytes:
    """The released cells of a topic with right answers from tests/answers."""
    released = release.load(TOPIC)
    made = [cell(s, i, grade=False, locked=True, solution=False) for i, s in released.locked.items()]
    for exercise_id in released.exercises:
        if exercise_id != leave_out:
            source = right_answers(exercise_id)[0].read_text("utf-8")
            made.append(cell(source, exercise_id, grade=False, locked=False, solution=True))
    return dump(made)


def twophase(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "twophase.cli.main", *arguments]
    env = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=100)


def test_check_scores_a_solved_notebook_in_full_and_exits_0(tmp_path: Path) -> None:
    (tmp_path / "03_kv_cache.ipynb").write_bytes(solved())
    done = twophase("check", "03_kv_cache.ipynb", cwd=tmp_path)
    total = sum(registry.load(i).points for i in release.load(TOPIC).exercises)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{total} of {total} points" in done.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["03_kv_cache.ipynb"]


def test_check_exits_1_when_something_is_not_right_and_says_what(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_bytes(solved(leave_out=f"{TOPIC}-max_batch"))
    done = twophase("check", "a.ipynb", cwd=tmp_path)
    assert done.returncode == 1
    assert "cell is not in the notebook" in done.stdout


def test_grade_writes_results_and_feedback_and_a_second_run_skips(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/ann.ipynb").write_bytes(solved())
    first = twophase("grade", "in", "--out", "grades", "--workers", "1", cwd=tmp_path)
    assert first.returncode == 0, first.stdout + first.stderr
    record = json.loads((tmp_path / "grades/results.jsonl").read_text())
    assert (record["status"], record["points"]) == ("ok", record["out_of"])
    assert (tmp_path / "grades/feedback/index.html").is_file()
    (tmp_path / "in/bob.ipynb").write_bytes(b"{")
    second = twophase("grade", "in", "--out", "grades", cwd=tmp_path)
    assert second.returncode == 1
    assert "2 submissions: 1 graded, 1 unreadable" in second.stdout
    assert "Graded before: 1" in second.stdout
    assert "bob.ipynb: unreadable: it is no notebook" in second.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["check", "nowhere.ipynb"], "there is no file nowhere.ipynb"),
        (["check", "broken.ipynb"], "cannot be read"),
        (["check", "."], "folder"),
        (["check", "other.ipynb"], "no cell of it belongs to an exercise"),
        (["check"], "Missing argument"),
        (["grade", "nowhere"], "nowhere is no folder"),
        (["grade", "empty"], "there is no .ipynb file"),
        (["grade", "full", "--out", "broken.ipynb"], "is a file; give a folder to --out"),
        (["grade", "full", "--workers", "-1"], "--workers"),
        (["grade", "full", "--out", "notes"], "is no result of"),
    ],
)
def test_bad_use_is_one_sentence_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    (tmp_path / "broken.ipynb").write_bytes(b"{")
    (tmp_path / "other.ipynb").write_bytes(dump([cell("1")]))
    for name in ("empty", "full", "notes"):
        (tmp_path / name).mkdir()
    (tmp_path / "full/a.ipynb").write_bytes(b"{")
    (tmp_path / "notes/results.jsonl").write_text("my notes\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = "".join(capsys.readouterr())
    assert ended.value.code == 2, said
    assert says in said
    assert "Traceback" not in said


@pytest.mark.parametrize("topic", registry.topics())
def test_the_release_of_a_topic_asks_every_exercise_that_has_a_check(topic: str) -> None:
    assert list(release.load(topic).exercises) == registry.ids(topic)
    assert ALL_IDS


def released_solutions() -> list[str]:
    return [
        t for t in registry.topics() if (release.course_root() / "solutions" / f"{registry.stem(t)}.ipynb").is_file()
    ]


@pytest.mark.parametrize("topic", released_solutions())
def test_the_released_solutions_get_full_marks_without_what_is_withheld(topic: str) -> None:
    path = release.course_root() / "solutions" / f"{registry.stem(topic)}.ipynb"
    record = grade_one(Submission(path, path.name), Course(limits=LIMITS), zygote())
    assert (record["status"], record["points"]) == ("ok", record["out_of"]), [
        (q["id"], q["message"]) for q in record["questions"] if q["status"] != "right"
    ] or record["message"]
    assert record["flags"] == []


def test_a_release_that_asks_what_has_no_check_is_our_fault() -> None:
    asks = Cell("code", "", f"{TOPIC}-nothing-check", grade=True)
    with pytest.raises(Exception, match="which has no check"):
        release.from_cells(TOPIC, (asks,), {}, "")
