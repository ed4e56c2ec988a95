"""A class graded in parts and merged is the class graded at once; whatever is missing, doubled or
graded otherwise is found."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from grading_course_tools import dump, record
from grading_run_tools import lines, write
from hostile.worker import server
from patience import PATIENCE_S
from typer.testing import CliRunner

from twophase.cli.main import build, main
from twophase.grading.intake.submissions import Submission
from twophase.grading.judge.judge import Course
from twophase.grading.results.records import Record
from twophase.grading.run import merging, pool, shards
from twophase.grading.run.shards import Shard, ShardNote

EXAMPLES = Path(shards.__file__).parent / "batch_examples"
NAMES = tuple(f"s{n:03}/a.ipynb" for n in range(60))
CONDITIONS: dict[str, Any] = {"seed": 1, "library": "", "official": True}
RIGHT = {"t-a": "right", "t-b": "wrong"}
WITH = {"environment": dict.fromkeys(("twophase", "python", "torch"), "1")}


def made(file: str, **more: Any) -> Record:
    """A result, as far as the feedback needs it."""
    return record(file, RIGHT, **(WITH | more))


def parts(tmp_path: Path, of: int = 4, **more: Any) -> list[Path]:
    """The folders of all parts, with made-up results."""
    found = []
    for number in range(1, of + 1):
        folder = tmp_path / f"part-{number}"
        folder.mkdir(parents=True)
        dump(folder, [made(n, **more) for n in NAMES if shards.number_of(n, of) == number])
        shards.write_note(folder, ShardNote(Shard(number, of), NAMES, CONDITIONS, complete=True))
        found.append(folder)
    return found


def merge(capsys: pytest.CaptureFixture[str], folders: list[Path], out: Path) -> tuple[int, str]:
    """The exit code of the command, and what it said."""
    with pytest.raises(SystemExit) as ended:
        main(["merge", *map(str, folders), "--out", str(out)])
    return int(ended.value.code or 0), " ".join("".join(capsys.readouterr()).split())


@pytest.mark.parametrize("of", [1, 2, 7, 16])
def test_every_submission_is_in_exactly_one_part_whatever_else_is_in_the_folder(of: int) -> None:
    found = [Submission(Path(n), n) for n in NAMES]
    seen = Counter(
        s.name for k in range(1, of + 1) for s in shards.submissions_of(found, Shard(k, of))
    )
    assert seen == Counter(NAMES)
    few = found[::7]
    for k in range(1, of + 1):
        assert set(shards.submissions_of(few, Shard(k, of))) == set(
            shards.submissions_of(found, Shard(k, of))
        ) & set(few)


def test_parts_are_of_about_the_same_size() -> None:
    """Of 16,000 names a part has 1,000; the standard deviation is 31."""
    sizes = Counter(shards.number_of(f"student{n}/03_kv_cache.ipynb", 16) for n in range(16_000))
    assert set(sizes) == set(range(1, 17))
    assert all(840 < n < 1160 for n in sizes.values())


@pytest.mark.parametrize(
    "text", ["0/4", "5/4", "3", "3/", "/4", "1/0", "-1/4", "a/b", "1/99999", "٣/٤"]
)
def test_a_part_that_is_none_is_one_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="such as 3/16"):
        shards.parse_shard(text)


def test_merged_parts_are_the_whole_and_merging_again_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders, out = parts(tmp_path), tmp_path / "out"
    code, said = merge(capsys, folders[::-1], out)
    assert code == 0, said
    assert [r["file"] for r in lines(out)] == sorted(NAMES)
    assert "60 submissions: 60 graded" in said
    before = (out / "results.jsonl").read_bytes()
    assert merge(capsys, folders, out)[0] == 0
    assert (out / "results.jsonl").read_bytes() == before
    assert len(list((out / "feedback").iterdir())) == 61


def test_other_results_are_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders, out = parts(tmp_path), tmp_path / "out"
    out.mkdir()
    dump(out, [made("mine.ipynb")])
    before = (out / "results.jsonl").read_bytes()
    code, said = merge(capsys, folders, out)
    assert (code, (out / "results.jsonl").read_bytes()) == (2, before)
    assert "has other results, which are not overwritten" in said
    assert [p.name for p in out.iterdir()] == ["results.jsonl"]


def cut(folder: Path) -> None:
    path = folder / "results.jsonl"
    path.write_bytes(path.read_bytes()[:-20])


def rewrite(folder: Path, **changes: Any) -> None:
    """Another note for a part."""
    n = shards.read_note(folder)
    fields = {
        "submissions": n.submissions,
        "conditions": n.conditions,
        "complete": n.complete,
    } | changes
    shards.write_note(folder, ShardNote(n.shard, **fields))


def again(folder: Path, **more: Any) -> None:
    """Other results for a part."""
    dump(folder, [made(r["file"]) | more for r in lines(folder)])


@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        (lambda f: f.pop(2), "part 3/4 is missing, with"),
        (lambda f: f.append(f[0]), "part 1/4 is there more than once"),
        (lambda f: cut(f[1]), "ends in the middle of a line"),
        (lambda f: rewrite(f[1], complete=False), "part-2 (part 2/4) is not complete"),
        (
            lambda f: rewrite(f[1], submissions=NAMES[:-1]),
            f"saw different submissions: {NAMES[-1]}",
        ),
        (
            lambda f: rewrite(f[1], conditions=CONDITIONS | {"seed": 2}),
            "under different conditions (seed: 1 and 2)",
        ),
        (
            lambda f: f.append(parts(f[0].parent / "other", of=3)[0]),
            "are parts of different divisions",
        ),
        (
            lambda f: again(f[1], digests={"submission": "", "release": "", "library": "x"}),
            "by another version",
        ),
        (
            lambda f: again(f[1], digests={"submission": "", "release": "x", "library": ""}),
            "different releases",
        ),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], trouble: Any, says: str
) -> None:
    folders = parts(tmp_path)
    trouble(folders)
    code, said = merge(capsys, folders, tmp_path / "out")
    assert code == 1, said
    assert says in said
    assert "Nothing was written." in said
    assert not (tmp_path / "out").exists()


def test_a_gap_is_named_submission_by_submission(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = parts(tmp_path)
    lost = lines(folders[0])[0]["file"]
    dump(folders[0], [made(r["file"]) for r in lines(folders[0])[1:]])
    code, said = merge(capsys, folders, tmp_path / "out")
    assert code == 1
    assert f"without a result (1): {lost}" in said


@pytest.mark.parametrize(
    ("answer", "says"), [("right", "they agree"), ("wrong", "they do not agree")]
)
def test_an_overlap_is_named_and_whether_the_results_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: str, says: str
) -> None:
    folders = parts(tmp_path)
    twice = lines(folders[0])[0]["file"]
    mine = [made(r["file"]) for r in lines(folders[1])]
    dump(folders[1], [*mine, record(twice, RIGHT | {"t-a": answer}, varies={"seconds": 9})])
    code, said = merge(capsys, folders, tmp_path / "out")
    assert code == 1
    assert f"{twice} has a result in {folders[0]} and {folders[1]}" in said
    assert says in said


def test_a_result_whose_submission_is_gone_is_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = parts(tmp_path)
    dump(folders[0], [made(r["file"]) for r in lines(folders[0])] + [made("withdrawn.ipynb")])
    code, said = merge(capsys, folders, tmp_path / "out")
    assert code == 0
    assert "left out, since their submissions are no longer there (1): withdrawn.ipynb" in said
    assert "withdrawn.ipynb" not in {r["file"] for r in lines(tmp_path / "out")}


@pytest.mark.parametrize(
    "note", [None, "{", '{"schema": 9}', '{"schema": 1, "number": 5, "of": 4}']
)
def test_a_folder_that_is_no_part_is_bad_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], note: str | None
) -> None:
    folders = parts(tmp_path)
    (folders[0] / "shard.json").unlink()
    if note is not None:
        (folders[0] / "shard.json").write_text(note)
    code, said = merge(capsys, folders, tmp_path / "out")
    assert code == 2
    assert "twophase grade --shard" in said


def test_the_note_tells_the_secret_s_fingerprint_and_not_the_secret() -> None:
    one, other = (
        shards.conditions(Course(secret=s)) for s in (b"the secret of one", b"the secret of two")
    )
    assert one["secret"] != other["secret"]
    assert one["seed"] is None
    assert "the secret" not in repr(one)


def test_a_class_graded_in_parts_by_the_command_is_the_class_graded_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "in", {name: b"{" * (n + 1) for n, name in enumerate(NAMES[:12])})
    monkeypatch.setattr(pool, "make_server", server)
    monkeypatch.chdir(tmp_path)

    def twophase(*arguments: str) -> int:
        return CliRunner().invoke(build(list(arguments)), arguments).exit_code

    for part in ("1/2", "2/2"):
        assert (
            twophase("grade", "in", "--out", f"part-{part[0]}", "--shard", part, "--workers", "1")
            == 1
        )
    assert twophase("merge", "part-1", "part-2", "--out", "merged") == 0
    assert twophase("grade", "in", "--out", "whole", "--workers", "1") == 1
    found = [
        {r["file"]: r | {"varies": {}} for r in lines(tmp_path / out)}
        for out in ("merged", "whole")
    ]
    assert found[0] == found[1]
    assert len(found[0]) == 12


def stand_in(folder: Path) -> dict[str, str]:
    """An environment in which `twophase` writes its arguments down, and says that some files could
    not be read."""
    folder.mkdir()
    (folder / "twophase").write_text('#!/bin/sh\nprintf "%s\\n" "$@" > arguments\nexit 1\n')
    (folder / "twophase").chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize("example", ["slurm.sh", "kubernetes.yml"])
def test_the_commands_of_the_batch_examples_are_commands_that_we_have(
    tmp_path: Path, example: str
) -> None:
    env = stand_in(tmp_path / "bin")
    if example == "slurm.sh":
        env |= {
            "SLURM_ARRAY_TASK_ID": "3",
            "SLURM_ARRAY_TASK_COUNT": "16",
            "SLURM_CPUS_PER_TASK": "4",
        }
        command = ["bash", str(EXAMPLES / example)]
    else:
        job = yaml.safe_load((EXAMPLES / example).read_text())
        assert job["spec"]["completionMode"] == "Indexed"
        assert job["spec"]["completions"] == 16
        (container,) = job["spec"]["template"]["spec"]["containers"]
        env |= {"JOB_COMPLETION_INDEX": "2"}
        command = [*container["command"], *container["args"]]
    assert subprocess.run(command, cwd=tmp_path, env=env, timeout=PATIENCE_S).returncode == 0
    given = (tmp_path / "arguments").read_text().splitlines()
    assert given[given.index("--shard") + 1] == "3/16"
    assert given[given.index("--out") + 1] == "grades-part-3"
    grade = typer.main.get_command(build(given)).commands["grade"]  # type: ignore[attr-defined]
    parsed = grade.make_context("grade", given[1:]).params
    assert (parsed["shard"], parsed["workers"], str(parsed["secret_file"])) == (
        "3/16",
        4,
        "course.secret",
    )
    text = (EXAMPLES / example).read_text()
    assert "twophase merge grades-part-*/ --out grades/" in text


def test_a_plan_names_no_owner_twice(tmp_path: Path) -> None:
    plan = merging.plan_merge(parts(tmp_path, of=3))
    assert sorted(plan.owner) == sorted(NAMES)
    assert plan.problems == []
