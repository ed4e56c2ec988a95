"""Full disks, interruptions, resuming, regrading: what is written stays whole, and the same command
goes on."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from grading_run_tools import all_end, course, lines, run, write
from hostile.course import RIGHT, STUBS, cell, cells, dump
from hostile.worker import server
from patience import PATIENCE_S
from typer.testing import CliRunner

from twophase.cli.main import build, explain, main
from twophase.grading.errors import CannotWrite, writing
from twophase.grading.intake.submissions import Submission, find
from twophase.grading.judge import judge
from twophase.grading.reports import feedback
from twophase.grading.results.records import Record, result_of
from twophase.grading.results.writer import Results
from twophase.grading.run import pool
from twophase.grading.run.already_graded import AlreadyGraded
from twophase.grading.run.folder import selected

HALF = dump(cells(RIGHT | {"bytes": STUBS["bytes"]}))


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "twophase.cli.main", *arguments]


def environment(scratch: Path) -> dict[str, str]:
    scratch.mkdir(exist_ok=True)
    return os.environ | {
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "300",
        "NO_COLOR": "1",
        "TMPDIR": str(scratch),
    }


def test_a_full_disk_stops_the_run_in_one_sentence_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "in", {f"{n:02}.ipynb": b"{" * (n + 1) for n in range(20)})
    arguments = ["grade", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--workers", "1"]

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, resource.RLIM_INFINITY))

    # Python 3.11 keeps half a file of bytecode, too, and every later import of it would fail
    env = environment(tmp_path / "scratch") | {"PYTHONDONTWRITEBYTECODE": "1"}
    full = subprocess.run(
        command(*arguments),
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        preexec_fn=small_disk,
    )
    assert full.returncode == 3, full.stdout + full.stderr
    (said,) = full.stderr.splitlines()
    assert "results.jsonl cannot be written: File too large" in said
    assert "the same command goes on" in said
    kept = lines(tmp_path / "out")
    assert 0 < len(kept) < 20
    monkeypatch.setattr(pool, "make_server", server)
    then = CliRunner().invoke(build(arguments), arguments)
    assert then.exit_code == 1, then.output
    found = lines(tmp_path / "out")
    assert found[: len(kept)] == kept
    assert sorted(r["file"] for r in found) == [f"{n:02}.ipynb" for n in range(20)]
    assert f"Graded before: {len(kept)}" in then.stdout


def test_who_wants_no_bytecode_gets_none_from_judges_either(tmp_path: Path) -> None:
    """Python keeps half a file of it on a full disk, and then no judge starts any more."""
    here = Path(judge.__file__).parents[3]
    copy = tmp_path / "lib"
    shutil.copytree(here, copy, ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))
    write(tmp_path / "in", {"a.ipynb": b"{"})
    env = environment(tmp_path / "scratch") | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command("grade", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--workers", "1"),
        env=env | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert not [*copy.rglob("*.pyc")]


def test_half_a_line_that_was_written_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "in", {"a.ipynb": b"1", "b.ipynb": b"2"})
    run(tmp_path / "in", tmp_path / "out")
    records = lines(tmp_path / "out")
    before = (tmp_path / "out/results.jsonl").read_bytes()
    write_all, calls = os.write, []

    def write_half(fd: int, data: memoryview) -> int:
        calls.append(len(data))
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_all(fd, data[: len(data) // 2])

    with Results(tmp_path / "out") as results:
        monkeypatch.setattr(os, "write", write_half)
        with pytest.raises(CannotWrite, match="No space left on device"):
            results.append(records[0])
        monkeypatch.undo()
        assert (tmp_path / "out/results.jsonl").read_bytes() == before
        results.append(records[1] | {"message": "again"})
        assert [r["message"] for r in results.index.latest()] == [records[0]["message"], "again"]
    assert len(calls) == 2


def test_results_that_are_no_regular_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").symlink_to("/dev/full")
    with pytest.raises(ValueError, match="is no file"):
        Results(tmp_path)


def test_results_of_the_first_schema_are_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text('{"schema": 1, "file": "a.ipynb"}\n')
    with pytest.raises(
        ValueError, match=r"line 1 of .* another version of twophase \(schema 1; this one has 2\)"
    ):
        Results(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"points": 99.0}, "ValueError: points 99.0, and its questions have 6"),
        ({"points": float("nan")}, "ValueError: points nan"),
        ({"out_of": 7.0}, "ValueError: out_of 7.0, and its questions have 8"),
        ({"status": "internal"}, "ValueError: points 6"),
        ({"points": None}, "ValueError: points None"),
    ],
)
def test_points_that_are_not_those_of_the_answers_are_refused_and_nothing_is_changed(
    graded: tuple[Path, Path], tmp_path: Path, change: Record, said: str
) -> None:
    first, *others = lines(graded[1])
    made = "".join(json.dumps(r) + "\n" for r in (first | change, *others))
    (tmp_path / "results.jsonl").write_text(made)
    with pytest.raises(
        ValueError, match=f"line 1 of .* is no result of this version .{said}.*remove that line"
    ):
        Results(tmp_path)
    assert (tmp_path / "results.jsonl").read_text() == made


@pytest.mark.parametrize(
    ("status", "points"), [("wrong", 2.0), ("right", 0.0), ("right", 1.0), ("wrong", -1.0)]
)
def test_an_answer_has_all_its_points_or_none(
    graded: tuple[Path, Path], tmp_path: Path, status: str, points: float
) -> None:
    record = lines(graded[1])[0]
    question = record["questions"][0]
    record["points"] += points - question["points"]
    question |= {"status": status, "points": points}
    (tmp_path / "results.jsonl").write_text(json.dumps(record) + "\n")
    with pytest.raises(ValueError, match=f"is {status} and has {points:g} of 2 points"):
        Results(tmp_path)


@pytest.mark.parametrize("out", ["file", "file/below/it"])
def test_a_file_in_the_place_of_the_folder_or_of_one_above_it_is_bad_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], out: str
) -> None:
    folder = write(tmp_path / "in", {"ann/a.ipynb": HALF})
    (tmp_path / "file").write_text("years of work")
    for command_, given in (("grade", folder), ("similar", folder), ("merge", folder)):
        with pytest.raises(SystemExit) as ended:
            main([command_, str(given), "--out", str(tmp_path / out)])
        said = "".join(capsys.readouterr())
        assert (ended.value.code, "file is a file; give a folder to --out" in said) == (2, True)
    assert (tmp_path / "file").read_text() == "years of work"


def test_what_cannot_be_written_is_a_sentence_with_what_to_do_and_exit_3() -> None:
    with pytest.raises(CannotWrite) as e, writing("grades"):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "grades/.grades.csv.0123")
    said, code = explain(e.value)
    assert code == 3
    assert said.startswith("grades cannot be written: Read-only file system. ")
    assert said.endswith("mend that, and the same command goes on.")


def test_results_among_the_submissions_are_refused_before_they_become_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "in", {"ann/a.ipynb": HALF})
    for out in (folder, folder / "grades", folder / "ann"):
        arguments = ["grade", str(folder), "--out", str(out)]
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        said = "".join(capsys.readouterr())
        assert ended.value.code == 2, said
        assert "among the submissions; give a folder beside it" in said
    assert [p.name for p in folder.rglob("*")] == ["ann", "a.ipynb"]


def test_ctrl_c_says_what_is_done_and_ends_all_processes(tmp_path: Path) -> None:
    loop = [
        cell("while True: pass"),
        cell("", "kv_cache-kv_bytes", grade=False, locked=False, solution=True),
    ]
    write(tmp_path / "in", {"a.ipynb": b"{", "b.ipynb": dump(loop)})
    env = environment(tmp_path / "scratch")
    grade = command("grade", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--workers", "1")
    process = subprocess.Popen(
        grade, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    while "a.ipynb: unreadable" not in process.stdout.readline():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    said = process.stdout.read()
    assert process.wait(PATIENCE_S) == 130, said
    assert "Stopped. 1 of 2 are done and stay; the same command goes on from there." in said
    process.stdout.close()
    assert all_end(str(tmp_path / "scratch"))
    assert list((tmp_path / "scratch").iterdir()) == []
    assert [r["file"] for r in lines(tmp_path / "out")] == ["a.ipynb"]


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("class")
    write(
        folder, {"ann/a.ipynb": HALF, "bob/a.ipynb": b"{", "cy/a.ipynb": dump(cells(dict(RIGHT)))}
    )
    run(folder, folder / "out")
    return folder, folder / "out"


def test_what_is_done_is_known_without_starting_a_process(
    graded: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*anything: object) -> None:
        raise AssertionError("a judge was started")

    monkeypatch.setattr(pool, "JudgeProcess", started)
    assert run(*graded, workers=2) == [None, None, None]


def test_regrade_grades_again_and_both_lines_stay(
    graded: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, out = graded
    (tmp_path / "out").mkdir()
    (tmp_path / "out/results.jsonl").write_bytes((out / "results.jsonl").read_bytes())
    told = run(folder, tmp_path / "out", again=["ann/a.ipynb"])
    assert [r and r["file"] for r in told] == [None, None, "ann/a.ipynb"]
    found = [r for r in lines(tmp_path / "out") if r["file"] == "ann/a.ipynb"]
    assert len(found) == 2
    assert found[0]["key"] == found[1]["key"]
    with Results(tmp_path / "out") as results:
        files = [r["file"] for r in results.index.latest()]
    assert files == ["ann/a.ipynb", "bob/a.ipynb", "cy/a.ipynb"]


def test_regrade_takes_a_name_a_student_or_the_beginning_of_a_digest(
    graded: tuple[Path, Path],
) -> None:
    folder, out = graded
    found = find(folder)
    with Results(out) as results:
        digest = next(r for r in results.index.latest() if r["file"] == "cy/a.ipynb")["digests"][
            "submission"
        ]
        assert selected(["ann/a.ipynb", digest[:12].upper()], found, results.index) == {
            "ann/a.ipynb",
            "cy/a.ipynb",
        }
        someone = [s for s in found if s.student] or found
        wanted = someone[0].student or someone[0].name
        assert someone[0].name in selected([wanted], found, results.index)
        for nobody in ("nobody", digest[:7], ""):
            with pytest.raises(ValueError, match="no submission is called"):
                selected([nobody], found, results.index)


@pytest.mark.parametrize("change", ["secret", "seed", "release", "topics"])
def test_another_key_is_graded_again(
    graded: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Whatever decides a result is in its key."""
    folder, out = graded
    one = course()
    if change == "secret":
        one = type(one)(1, one.limits, one.source, secret=b"of this course, 16+")
    if change == "seed":
        one = course(seed=2)
    if change in ("release", "topics"):
        digest = (lambda self, topic: "another") if change == "release" else (lambda self: ["more"])
        monkeypatch.setattr(type(one.source), "digest" if change == "release" else "topics", digest)
    with Results(out) as results:
        done = [s.name for s in find(folder) if s in AlreadyGraded(one, results.index)]
    kept = {"release": ["bob/a.ipynb"], "topics": ["ann/a.ipynb", "cy/a.ipynb"]}
    assert done == kept.get(change, [])


@pytest.mark.parametrize("change", ["seed", "submission"])
def test_who_goes_back_to_what_was_graded_before_gets_that_result_again(
    tmp_path: Path, change: str
) -> None:
    """The last line of a file counts, so a result under other conditions must not stay the last
    one."""
    folder, out = write(tmp_path / "in", {"a.ipynb": HALF}), tmp_path / "out"
    run(folder, out)
    if change == "submission":
        write(folder, {"a.ipynb": dump(cells(dict(RIGHT)))})
    run(folder, out, course(seed=5) if change == "seed" else None)
    write(folder, {"a.ipynb": HALF})
    run(folder, out)
    assert run(folder, out) == [None]
    first, other, last = lines(out)
    assert first["key"] == last["key"] != other["key"]
    assert result_of(last) == result_of(first)


def test_students_who_share_a_set_of_cases_share_its_seed_and_the_secret_stays_here() -> None:
    one = course()
    secret = type(one)(1, one.limits, one.source, secret=b"of this course, 16+", case_sets=4)
    seeds = {secret.seed_for(Submission(Path("a"), "a.ipynb", student=f"s{n}")) for n in range(100)}
    assert len(seeds) == 4
    assert secret.without_secret().secret == b""
    assert b"of this course" not in repr(secret).encode()


def pages(out: Path) -> dict[str, int]:
    return {p.name: p.stat().st_mtime_ns for p in (out / "feedback").iterdir()}


def test_pages_are_written_again_only_where_a_result_changed(
    graded: tuple[Path, Path], tmp_path: Path
) -> None:
    records: list[Record] = lines(graded[1])
    feedback.write(tmp_path, records)
    before = pages(tmp_path)
    assert len(before) == 4
    records[0] = records[0] | {"message": "another", "varies": {}}
    records[1] = records[1] | {"varies": {"seconds": 9}}
    feedback.write(tmp_path, records)
    after = pages(tmp_path)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"index.html", feedback.page_name(records[0]["file"])}


def test_a_page_does_not_tell_the_seed_that_comes_from_the_secret_and_says_if_it_is_not_official(
    graded: tuple[Path, Path],
) -> None:
    record = lines(graded[1])[0]
    assert "Seed 1" in feedback.page(record)
    hidden = record | {"seed": "5eed" * 16, "official": False}
    assert "5eed" not in feedback.page(hidden)
    assert "Not an official result" in feedback.page(
        hidden | {"confined_by": ["processes", "unsafe"]}
    )
    assert "Practice, not an official result" in feedback.page(
        hidden | {"confined_by": ["practice"]}
    )
    assert "official" not in feedback.page(record | {"official": True})
