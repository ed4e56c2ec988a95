"""`twophase check` and `twophase grade` as a person meets them: exit codes, one sentence for bad
use, never a traceback."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from exercise_tools import ALL_IDS, right_answers
from grading_course_tools import dump as write_results
from grading_course_tools import record
from hostile.course import cell, dump
from hostile.worker import LIMITS, server, zygote
from patience import PATIENCE_S
from rich.console import Console
from typer.testing import CliRunner

from twophase.checks import registry
from twophase.cli import grading_options, grading_shown
from twophase.cli.main import build, main
from twophase.grading.files.notebook import Cell, parse
from twophase.grading.intake.submissions import Submission
from twophase.grading.judge.judge import Course, Judge, Task
from twophase.grading.judge.which_cells_run import make_plan
from twophase.grading.release import release
from twophase.grading.results import reader, records, run_summary
from twophase.grading.run import folder as run
from twophase.grading.run import pool
from twophase.grading.sandbox import what_confines

TOPIC = "kv_cache"


def solved(leave_out: str = "") -> bytes:
    """The released cells of a topic with right answers from tests/answers."""
    released = release.Source().load(TOPIC)
    made = [
        cell(s, i, grade=False, locked=True, solution=False) for i, s in released.locked.items()
    ]
    for exercise_id in released.exercises:
        if exercise_id != leave_out:
            source = right_answers(exercise_id)[0].read_text("utf-8")
            made.append(cell(source, exercise_id, grade=False, locked=False, solution=True))
    return dump(made)


def twophase(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "twophase.cli.main", *arguments]
    env = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=PATIENCE_S
    )


@pytest.fixture
def check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[bytes], tuple[object, str]]:
    """`twophase check` of a notebook in this process: its exit code, and what it prints."""
    monkeypatch.setattr(pool, "make_server", server)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def run(notebook: bytes) -> tuple[object, str]:
        Path("03_kv_cache.ipynb").write_bytes(notebook)
        with pytest.raises(SystemExit) as ended:
            main(["check", "03_kv_cache.ipynb"])
        return ended.value.code, capsys.readouterr().out

    return run


def test_check_scores_a_solved_notebook_in_full_and_exits_0(
    check: Callable[[bytes], tuple[object, str]], tmp_path: Path
) -> None:
    code, said = check(solved())
    total = sum(registry.load(i).points for i in release.Source().load(TOPIC).exercises)
    assert code in (0, None), said
    assert f"{total} of {total} points" in said
    assert sorted(p.name for p in tmp_path.iterdir()) == ["03_kv_cache.ipynb"]


def test_check_exits_1_when_something_is_not_right_and_says_what(
    check: Callable[[bytes], tuple[object, str]],
) -> None:
    code, said = check(solved(leave_out=f"{TOPIC}-max_batch"))
    assert code == 1
    assert "No code cell of the notebook answers it" in said


def test_grade_writes_results_and_feedback_and_a_second_run_skips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/ann.ipynb").write_bytes(solved())
    first = twophase("grade", "in", "--out", "grades", "--workers", "1", cwd=tmp_path)
    assert first.returncode == 0, first.stdout + first.stderr
    record = json.loads((tmp_path / "grades/results.jsonl").read_text())
    assert (record["status"], record["points"]) == ("ok", record["out_of"])
    assert (tmp_path / "grades/feedback/index.html").is_file()
    assert "Without --secret everybody has the same cases" in first.stdout
    (tmp_path / "in/bob.ipynb").write_bytes(b"{")
    monkeypatch.setattr(pool, "make_server", server)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    second = CliRunner().invoke(build(["grade"]), ["grade", "in", "--out", "grades"])
    assert second.exit_code == 1
    assert "2 submissions: 1 graded, 1 unreadable" in second.output
    assert "Graded before: 1" in second.output
    assert "bob.ipynb: unreadable: its JSON cannot be read" in second.output


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
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
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
    assert list(release.Source().load(topic).exercises) == registry.ids(topic)
    assert ALL_IDS


def released_solutions() -> list[str]:
    return [
        t
        for t in registry.topics()
        if (release.course_root() / "solutions" / f"{registry.stem(t)}.ipynb").is_file()
    ]


@pytest.mark.parametrize("topic", released_solutions())
def test_the_released_solutions_get_full_marks_without_what_is_withheld(topic: str) -> None:
    path = release.course_root() / "solutions" / f"{registry.stem(topic)}.ipynb"
    course = Course(limits=LIMITS)
    task = Task(Submission(path, path.name), course.seed)
    record = Judge(course, zygote()).grade(task)
    assert (record["status"], record["points"]) == ("ok", record["out_of"]), [
        (q["id"], q["message"]) for q in record["questions"] if q["status"] != "right"
    ] or record["message"]
    assert record["flags"] == []


def test_a_release_that_asks_what_has_no_check_is_our_fault() -> None:
    asks = Cell("code", "", f"{TOPIC}-nothing-check", grade=True)
    with pytest.raises(Exception, match="which has no check"):
        release.from_cells(TOPIC, (asks,), {}, "")


@pytest.fixture
def unconfined(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A kernel that lacks what confines a submission."""
    monkeypatch.setattr(
        what_confines, "missing", lambda: "This kernel has no Landlock; grade with --unsafe."
    )
    records.confinement.cache_clear()
    yield
    records.confinement.cache_clear()


@pytest.mark.usefixtures("unconfined")
def test_where_submissions_cannot_be_confined_nothing_is_graded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.ipynb").write_bytes(b"{")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["grade", "."])
    assert ended.value.code == 2
    assert "no Landlock; grade with --unsafe" in "".join(capsys.readouterr())
    assert not (tmp_path / "grades").exists()


@pytest.mark.usefixtures("unconfined")
def test_with_unsafe_it_goes_on_and_record_summary_and_page_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.ipynb").write_bytes(b"{")
    monkeypatch.chdir(tmp_path)
    in_here = run.grade_tasks
    monkeypatch.setattr(
        run, "grade_tasks", lambda tasks, one, workers, z: in_here(tasks, one, workers, zygote())
    )
    with pytest.raises(SystemExit) as ended:
        main(["grade", "in", "--unsafe"])
    assert ended.value.code == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "Not official, 1 of them: graded without what should confine them (--unsafe)." in said
    record = json.loads((tmp_path / "grades/results.jsonl").read_text())
    assert (record["official"], record["confined_by"][-1]) == (False, "unsafe")
    (page,) = (tmp_path / "grades/feedback").glob("a-*.html")
    assert "Not an official result" in page.read_text()


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GB", 2e9), ("512MB", 512e6), ("1.5GiB", 1.5 * 2**30), ("3", 3e9), (" 1 gb ", 1e9)],
)
def test_an_amount_of_memory_has_a_unit_or_is_in_gb(text: str, size: float) -> None:
    assert grading_options.memory_bytes(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1GB", "1 TB", "10MB", "1e99", "0"])
def test_an_amount_of_memory_that_is_none_is_one_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=f"--memory-limit '{text}'"):
        grading_options.memory_bytes(text)


def test_a_summary_of_a_thousand_submissions_fits_a_screen_and_counts_them() -> None:
    answers = [{"t-a": "right", "t-b": f"slip_{n % 5}" if n % 4 else "right"} for n in range(1000)]
    counted = run_summary.count(
        record(f"s{n}/a.ipynb", a, status="partial" if n % 100 == 0 else "ok")
        for n, a in enumerate(answers)
    )
    console = Console(record=True, width=120)
    grading_shown.summary(console, counted)
    said = console.export_text()
    assert len(said.splitlines()) < 25
    assert "1,000 submissions: 990 graded, 10 graded in part" in said
    assert "250 (25%)" in said
    assert "slip_1 150" in said  # of each 20 numbers three end in 1 or 6 and are no multiple of 4
    assert "5.00" in said  # 250 have 8 points, 750 have 4


def test_the_bar_tells_rate_and_time_left_and_a_line_each_trouble() -> None:
    now = iter([0.0, 0.0, 0.0, 0.0, 10.0, 10.0, 10.0, 10.0])
    console = Console(record=True, width=300)
    watch = grading_shown.Watch(console, 50, lambda: next(now))
    watch(None)
    watch(record("a/\x1b[2J.ipynb", {}, status="unreadable"))
    assert watch.pace() == "6.0 per min, 0:08:00 left, 1 troubled"
    assert "a/\ufffd[2J.ipynb: unreadable: Not graded." in console.export_text()


def test_a_class_graded_with_a_secret_is_not_graded_without_it_by_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.ipynb").write_bytes(dump([cell("1")]))
    (tmp_path / "out").mkdir()
    write_results(tmp_path / "out", [record("a.ipynb", {"t-a": "right"}, seed="ab" * 32)])
    before = (tmp_path / "out/results.jsonl").read_bytes()
    with pytest.raises(SystemExit) as stopped:
        main(["grade", str(tmp_path / "in"), "--out", str(tmp_path / "out")])
    assert stopped.value.code == 2
    assert "was graded with a secret; give the same --secret" in " ".join(
        capsys.readouterr().err.split()
    )
    assert (tmp_path / "out/results.jsonl").read_bytes() == before


def test_a_sample_without_an_audit_is_bad_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.ipynb").write_bytes(dump([cell("1")]))
    with pytest.raises(SystemExit) as stopped:
        main(
            ["grade", str(tmp_path), "--out", str(tmp_path.parent / "out-of-it"), "--sample", "0.5"]
        )
    assert stopped.value.code == 2
    assert "--sample says how many an audit takes" in capsys.readouterr().err


def test_exercises_that_notebooks_ask_and_nobody_graded_are_named() -> None:
    released = release.Source().load(TOPIC)
    asked = cell(
        'check("kv_cache-extra")',
        "kv_cache-extra-check",
        grade=True,
        locked=True,
        solution=False,
        points=2,
    )
    flags = make_plan(parse(dump([asked])), released).flags
    assert ("not_asked", "kv_cache-extra") in {(f.name, f.where) for f in flags}
    counted = run_summary.count(
        [
            {
                **record("a.ipynb", {"t-a": "right"}),
                "flags": [{"name": "not_asked", "where": "kv_cache-extra", "says": ""}],
            }
        ]
    )
    console = Console(width=200, record=True, file=io.StringIO())
    grading_shown.summary(console, counted)
    assert "--variants may be missing: kv_cache-extra in 1" in console.export_text()
    ours = {f.where for f in make_plan(parse(solved()), released).flags if f.name == "not_asked"}
    assert ours == set()


def test_what_broke_once_and_lost_nothing_is_said_to_have() -> None:
    troubled = {**record("a.ipynb", {"t-a": "right"}, status="partial"), "message": "", "flags": []}
    assert run_summary.why(troubled).endswith("went well when it was tried again: nothing is lost")
    cut = {**troubled, "flags": [{"name": "cell_broke", "where": "cell 3", "says": "timed out"}]}
    assert run_summary.why(cut) == "cell 3: timed out"


def test_a_student_of_a_plain_folder_is_graded_again_by_the_folders_name(tmp_path: Path) -> None:
    (tmp_path / "ann").mkdir()
    write_results(tmp_path, [])
    found = [
        Submission(tmp_path / "ann/03.ipynb", "ann/03.ipynb"),
        Submission(tmp_path / "bob.ipynb", "bob.ipynb"),
    ]
    assert run.selected(["ann"], found, reader.Index(tmp_path / "results.jsonl")) == {
        "ann/03.ipynb"
    }
