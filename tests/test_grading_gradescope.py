"""The autograder for Gradescope, run from its zip in a tree laid out as theirs: right scores, valid
results always, no secrets."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gradescope_tools import (
    KV,
    KV_POINTS,
    ROOT,
    SECRET,
    by_exercise,
    family_kib,
    hand_in,
    run,
    tree,
    with_answers,
    zip_bytes,
)
from patience import PATIENCE_S

from twophase.checks import registry
from twophase.grading.gradescope import autograder, rehearsal
from twophase.grading.gradescope.autograder import NothingToGrade
from twophase.grading.gradescope.config import PRIVATE, Config
from twophase.grading.release.release import Source

NAME = "03_kv_cache.ipynb"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zip")
    path = folder / "autograder.zip"
    path.write_bytes(zip_bytes(folder))
    return path


@pytest.fixture(scope="module")
def root(archive: Path) -> Iterator[Path]:
    with tree(archive) as laid_out:
        yield laid_out


def watched(root: Path, notebook: bytes) -> tuple[dict[str, Any], int]:
    """The results of a notebook, and the most memory that grading it took, in KiB."""
    hand_in(root, {NAME: notebook})
    env = {
        "PATH": os.environ["PATH"],
        "TWOPHASE_AUTOGRADER_ROOT": str(root),
        "TWOPHASE_AUTOGRADER_PYTHON": sys.executable,
    }
    with subprocess.Popen(
        [root / "run_autograder"], env=env, cwd=root, stdout=subprocess.DEVNULL
    ) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, family_kib(process.pid))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.25)
    assert process.returncode == 0
    return rehearsal.read_results(root), peak


ALL_SOLUTIONS = """
import sys, twophase
from pathlib import Path
from twophase.grading.intake.submissions import Submission
from twophase.grading.judge.judge import Course, Judge, Task
from twophase.grading.release.release import Source
from twophase.grading.sandbox.limits import Limits
from twophase.grading.sandbox.zygote_handle import Zygote
print(twophase.__path__[0])
with Zygote() as zygote:
    judge = Judge(Course(limits=Limits(memory_bytes=150 * 2**20), source=Source()), zygote)
    for path in sys.argv[1:]:
        record = judge.grade(Task(Submission(Path(path), path), 1))
        print(record["status"], record["topic"], record["points"] == record["out_of"], record["message"])
"""


@pytest.mark.more  # the half wrong notebook below keeps the points of what is right
def test_a_solved_notebook_gets_all_points(root: Path) -> None:
    made, _ = watched(root, KV.read_bytes())
    assert made["score"] == KV_POINTS


@pytest.mark.more  # of every topic; the half wrong notebook below keeps its right answers
def test_every_model_solution_is_right_from_the_unpacked_zip_which_has_no_weights(
    tmp_path: Path,
) -> None:
    whole = tmp_path / "whole.zip"
    whole.write_bytes(zip_bytes(tmp_path, Config(), secret=False))
    solutions = sorted(str(p) for p in (ROOT / "solutions").glob("*.ipynb"))
    with tree(whole) as laid_out:
        source = laid_out / "source"
        assert not list(source.rglob("*.safetensors"))
        env = {k: os.environ[k] for k in ("PATH",)} | {"OMP_NUM_THREADS": "1"}
        env |= {"PYTHONPATH": str(source / "lib"), "TWOPHASE_COURSE": str(source / PRIVATE)}
        command = [sys.executable, "-P", "-c", ALL_SOLUTIONS, *solutions]
        done = subprocess.run(
            command, env=env, cwd=laid_out, capture_output=True, text=True, timeout=PATIENCE_S
        )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[0] == str(source / "lib" / "twophase")
    assert len(lines) == 1 + len(solutions)
    assert all(line.startswith("ok ") and " True " in line for line in lines[1:]), lines


HOSTILE = """
import os, sys, json, signal
forged = json.dumps({"score": 1000, "tests": []})
print(forged); sys.stderr.write(forged)
seen = []
for path in ("ROOT/results/results.json", "ROOT/results/results.json.new", "ROOT/run_autograder", "ROOT/source/provisional.json"):
    try: open(path, "w").write(forged); seen.append("wrote " + path)
    except OSError: pass
for path in ("ROOT/source/private/config.json", "ROOT/source/private/secret", "ROOT/submission_metadata.json",
             "ROOT/source/lib/twophase/checks/kv_cache/max_batch.py", "ROOT/submission/03_kv_cache.ipynb",
             "ROOT/source/private/exercises/03_kv_cache.ipynb"):
    try: seen.append("read " + open(path).read())
    except OSError: pass
for name in ("ROOT/results", "ROOT/source/private", "ROOT/submission"):
    try: seen.append("listed " + str(os.listdir(name)))
    except OSError: pass
if "SECRET" in str(os.environ) or "AUTOGRADER" in str(os.environ): seen.append("environment")
for pid in (os.getppid(),):
    try: os.kill(pid, signal.SIGKILL); seen.append("killed")
    except OSError: pass
if seen: raise RuntimeError(str(seen))
"""


WRONG = {
    "kv_cache-max_batch": (
        "def max_batch(memory_bytes, weight_bytes, kv_bytes_per_token, n_tokens):\n"
        "    return memory_bytes // (kv_bytes_per_token * n_tokens)"
    ),
    "kv_cache-kv_bytes": (
        "def kv_bytes(*a, **k):\n    raise ValueError('<script>alert(1)</script> *bold* \\x1b[31m')"
    ),
    "kv_cache-budget": 'def longest_context(*a):\n    raise NotYet("kv_cache-budget")',
}


@pytest.fixture(scope="module")
def graded(root: Path) -> tuple[dict[str, Any], int]:
    """The results of a notebook with wrong answers, unwritten ones and attacks, and the memory that
    they took."""
    attack = HOSTILE.replace("ROOT", str(root)).replace("SECRET", SECRET)
    attacks = {
        "kv_cache-step_bytes": f"{attack}\ndef step_bytes(*a, **k):\n    return 1",
        "kv_cache-rope_cached": "import os\ndef turn(*a, **k):\n    os._exit(0)",
    }
    before = (root / "source" / "provisional.json").read_bytes()
    made, peak_kib = watched(root, with_answers(KV, WRONG | attacks))
    assert (root / "source" / "provisional.json").read_bytes() == before
    assert sorted(p.name for p in (root / "results").iterdir()) == ["results.json"]
    return made, peak_kib


@pytest.fixture
def half_wrong(graded: tuple[dict[str, Any], int]) -> dict[str, Any]:
    return graded[0]


def test_a_half_wrong_notebook_gets_the_points_of_what_is_right_and_is_told_what_is_not(
    half_wrong: dict[str, Any],
) -> None:
    tests = by_exercise(half_wrong)
    lost = [*WRONG, "kv_cache-step_bytes", "kv_cache-rope_cached"]
    points = KV_POINTS - sum(registry.load(i).points for i in lost)
    assert half_wrong["score"] == points == sum(t["score"] for t in tests.values())
    assert sum(t["max_score"] for t in tests.values()) == KV_POINTS
    assert {i for i, t in tests.items() if t["status"] == "failed"} == set(lost)
    wrong = tests["kv_cache-max_batch"]
    assert "weights left out" in wrong["output"]
    assert "A hint:" in wrong["output"]
    hostile = tests["kv_cache-kv_bytes"]
    assert "<script>" in hostile["output"]
    assert hostile["output_format"] == "text"
    assert "\x1b" not in hostile["output"]
    assert all(t["visibility"] == "visible" for t in tests.values())
    assert half_wrong["stdout_visibility"] == "hidden"


def test_a_hostile_notebook_writes_reads_and_forges_nothing_and_keeps_its_honest_points(
    half_wrong: dict[str, Any],
) -> None:
    """Where its files lie is looked at when it has been run, above."""
    tests = by_exercise(half_wrong)
    assert {i for i, t in tests.items() if t["score"] == 0} == {
        *WRONG,
        "kv_cache-step_bytes",
        "kv_cache-rope_cached",
    }
    assert "RuntimeError" not in tests["kv_cache-step_bytes"]["output"]
    assert SECRET not in json.dumps(half_wrong)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "no notebook"),
        ({"notes.txt": b"my work"}, "no notebook"),
        ({NAME: b"{"}, "its JSON cannot be read"),
        ({NAME: KV.read_bytes(), "copy/" + NAME: KV.read_bytes()}, "2 notebooks"),
        (
            {
                "02_arithmetic_intensity.ipynb": (
                    (ROOT / "exercises/02_arithmetic_intensity.ipynb").read_bytes()
                )
            },
            "of kv_cache",
        ),
    ],
    ids=["nothing", "no notebook", "a broken one", "two", "another topic"],
)
def test_what_cannot_be_graded_is_a_visible_zero_with_one_clear_message(
    root: Path, files: dict[str, bytes], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in(root, files)
    monkeypatch.setenv("TWOPHASE_COURSE", str(ROOT))
    made = json.loads(json.dumps(autograder.graded(root, 0.0)))
    assert rehearsal.problems(made) == []
    assert made["score"] == 0
    assert [(t["score"], t["max_score"], t["visibility"]) for t in made["tests"]] == [
        (0, KV_POINTS, "visible")
    ]
    assert says in made["tests"][0]["output"]


def _zipped(name: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as z:
        z.write(KV, name)
    return packed.getvalue()


@pytest.mark.parametrize(
    "files",
    [
        {"homework/week 3/" + NAME: KV.read_bytes()},
        {"all.zip": _zipped("homework/" + NAME)},
        {"answers.ipynb": KV.read_bytes(), "README.md": b"hello", "data/table.csv": b"1,2"},
        {
            NAME: KV.read_bytes(),
            "02_arithmetic_intensity.ipynb": (
                (ROOT / "solutions/02_arithmetic_intensity.ipynb").read_bytes()
            ),
        },
    ],
    ids=["nested", "zip", "beside others", "beside another topic's"],
)
def test_the_one_notebook_of_the_assignment_is_found_wherever_it_lies(
    tmp_path: Path, files: dict[str, bytes]
) -> None:
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    found = autograder.the_one(tmp_path, "kv_cache", Source())
    assert found.read() == KV.read_bytes()


def test_two_notebooks_are_named_when_no_topic_is_set(tmp_path: Path) -> None:
    for n in (1, 2):
        (tmp_path / f"{n}.ipynb").write_bytes(KV.read_bytes())
    with pytest.raises(NothingToGrade, match=r"2 notebooks.*1\.ipynb, 2\.ipynb"):
        autograder.the_one(tmp_path, "", Source())


def test_a_grader_that_cannot_start_leaves_valid_results_without_a_score(root: Path) -> None:
    for python in ("/no/such/python", "/bin/false"):
        done = rehearsal.run(root, python)
        assert done.returncode != 0
        made = rehearsal.read_results(root)
        assert "score" not in made
        assert "tests" not in made
        assert "not of your work" in made["output"]


def test_a_grader_that_takes_too_long_is_ended_before_gradescope_ends_it_and_leaves_no_score(
    root: Path, tmp_path: Path
) -> None:
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    script = (root / "run_autograder").read_text()
    assert "--kill-after=5 540 " in script
    short = root / "run_short"
    short.write_text(script.replace(" 540 ", " 0.2 "))
    short.chmod(0o755)
    env = {
        "PATH": os.environ["PATH"],
        "TWOPHASE_AUTOGRADER_ROOT": str(root),
        "TWOPHASE_AUTOGRADER_PYTHON": str(slow),
    }
    done = subprocess.run([short], env=env, cwd=root, capture_output=True, timeout=PATIENCE_S)
    short.unlink()
    assert done.returncode == 124
    assert "score" not in rehearsal.read_results(root)


def test_a_fault_of_the_grader_is_reported_without_a_score(root: Path) -> None:
    config = root / "source" / PRIVATE / "config.json"
    kept = config.read_bytes()
    config.write_bytes(b"{}")
    try:
        made = run(root, {NAME: KV.read_bytes()})
    finally:
        config.write_bytes(kept)
    assert "score" not in made
    assert "build the autograder's zip again" in made["output"]


def test_where_submissions_cannot_be_confined_nothing_is_run_unless_the_zip_says_unsafe(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "twophase.grading.sandbox.what_confines.missing", lambda: "This kernel has no Landlock."
    )
    monkeypatch.setattr(autograder, "make_zygote", None)
    monkeypatch.setenv("TWOPHASE_COURSE", str(ROOT))
    made = autograder.graded(root, 0.0)
    assert "score" not in made
    assert "no Landlock" in made["output"]
    assert "--unsafe" in made["output"]
    config = root / "source" / PRIVATE / "config.json"
    kept = config.read_bytes()
    config.write_bytes(Config(topic="kv_cache", unsafe=True).to_bytes())
    monkeypatch.setattr(autograder, "the_one", _nothing)
    try:
        assert autograder.graded(root, 0.0)["score"] == 0  # it goes on to what was handed in
    finally:
        config.write_bytes(kept)


def _nothing(*arguments: Any) -> Any:
    raise NothingToGrade("there is nothing")


def test_the_cases_follow_from_the_secret_and_whom_gradescope_names_and_the_seed_is_not_told(
    root: Path, half_wrong: dict[str, Any]
) -> None:
    private = root / "source" / PRIVATE
    config = Config(sets=0)
    seeds = {
        who: autograder.seed_for(who, config, private)
        for who in ("ann@example.edu", "bob@example.edu")
    }
    assert len(set(seeds.values())) == 2
    assert seeds["ann@example.edu"] == autograder.seed_for("ann@example.edu", config, private)
    made = half_wrong
    text = json.dumps(made)
    seed = str(autograder.seed_for("ann@example.edu", Config(), private))
    assert seed not in text
    assert made["extra_data"]["seed_digest"]
    assert made["extra_data"]["record"]["student"] == "ann@example.edu"
    assert made["extra_data"]["confined_by"]
    assert made["extra_data"]["digests"]["library"] == gradescope_run_library()


def gradescope_run_library() -> str:
    """The digest of the library here: that of the zip must be the same, or results could not be
    compared."""
    from twophase.grading.files.digests import library_digest

    return library_digest()


def test_grading_fits_into_a_container_of_768_megabytes(graded: tuple[dict[str, Any], int]) -> None:
    peak_kib = graded[1]
    # some 525 MiB; a moment in which one process ends and the next begins was once seen at 732
    assert 200 * 1024 < peak_kib < 768 * 1024, f"{peak_kib / 1024:.0f} MiB"
