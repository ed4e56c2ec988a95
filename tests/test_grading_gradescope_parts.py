"""The parts of the autograder for Gradescope: what is in its zip, whom it believes, what it tells
whom, how much memory it gives."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from gradescope_tools import ROOT, SECRET, zip_bytes
from grading_course_tools import question
from grading_course_tools import record as stored

from twophase.cli import self_check
from twophase.cli.main import main
from twophase.grading.errors import CannotWrite
from twophase.grading.gradescope import autograder, bundle, rehearsal, requirements
from twophase.grading.gradescope import config as gradescope_config
from twophase.grading.gradescope import results as gradescope_results
from twophase.grading.gradescope.config import Config
from twophase.grading.release.release import Source
from twophase.grading.reports import feedback


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zip")
    path = folder / "autograder.zip"
    path.write_bytes(zip_bytes(folder))
    return path


def test_the_same_settings_and_files_give_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    assert zip_bytes(tmp_path) == archive.read_bytes()
    assert zip_bytes(tmp_path, Config(topic="kv_cache", sets=3)) != archive.read_bytes()


def test_the_zip_has_scripts_to_run_and_private_files_closed_and_nothing_that_is_not_needed(
    archive: Path,
) -> None:
    with zipfile.ZipFile(archive) as z:
        modes = {i.filename: stat.S_IMODE(i.external_attr >> 16) for i in z.infolist()}
    assert (modes["setup.sh"], modes["run_autograder"]) == (0o755, 0o755)
    private = {n for n in modes if n.startswith("private/")}
    assert private == {
        "private/config.json",
        "private/secret",
        "private/exercises/03_kv_cache.ipynb",
    }
    assert all(modes[n] == 0o600 for n in private)
    rest = (
        set(modes)
        - private
        - {"setup.sh", "run_autograder", "provisional.json", "requirements.txt"}
    )
    assert all(n.startswith("lib/twophase") and n.endswith((".py", "/METADATA")) for n in rest)
    assert not any("solution" in n or "tests" in Path(n).parts for n in modes)
    assert list(modes) == sorted(modes)


def test_the_released_notebook_in_the_zip_is_the_stub_and_no_model_answer_goes_along(
    archive: Path,
) -> None:
    with zipfile.ZipFile(archive) as z:
        assert (
            z.read("private/exercises/03_kv_cache.ipynb")
            == (ROOT / "exercises/03_kv_cache.ipynb").read_bytes()
        )
        assert z.read("private/secret").decode() == SECRET


def test_the_scripts_are_bash_and_every_blank_is_filled(archive: Path, tmp_path: Path) -> None:
    bundle.unpack(archive, tmp_path)
    for name in ("setup.sh", "run_autograder"):
        assert subprocess.run(["bash", "-n", tmp_path / name], capture_output=True).stderr == b""
        for mark in ("@PYTHON@", "@TORCH@", "@SECONDS@"):
            assert mark not in (tmp_path / name).read_text()
    setup = (tmp_path / "setup.sh").read_text()
    assert f"python install '{sys.version_info[0]}.{sys.version_info[1]}'" in setup
    assert "'torch==2.13.0'" in setup
    assert rehearsal.problems(json.loads((tmp_path / "provisional.json").read_text())) == []


def test_what_is_installed_there_is_pinned_as_here_and_has_nothing_of_the_book() -> None:
    pins = [
        *(ROOT / "constraints.txt").read_text().splitlines(),
        *(ROOT / "requirements.txt").read_text().splitlines(),
    ]
    pinned = {
        name.lower().replace("_", "-"): v for name, _, v in (p.partition("==") for p in pins) if v
    }
    torch, lines = requirements.lines()
    assert torch == f"torch=={pinned['torch']}"
    wanted = dict(line.split("==") for line in lines)
    assert {n: v for n, v in wanted.items() if n in pinned} == {
        n: pinned[n] for n in wanted if n in pinned
    }
    assert {"numpy", "ipython", "numba", "jinja2", "parso"} <= set(wanted)
    assert not {
        "jupyter-book",
        "jupyterlab",
        "sphinx",
        "nbgrader",
        "typer",
        "transformers",
        "torch",
    } & set(wanted)


ONLY_WHAT_IS_INSTALLED = """
import sys
from importlib.metadata import packages_distributions
from packaging.utils import canonicalize_name
from twophase.grading.gradescope import requirements

installed = set(requirements.versions())
owners = {m: {*map(canonicalize_name, d)} for m, d in packages_distributions().items()}
missing = {m for m, names in owners.items() if not names & {*installed, "twophase", "setuptools"}}
for name in [m for m in sys.modules if m.partition(".")[0] in missing]:
    del sys.modules[name]

class Container:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"not in the container: {name}", name=name)

sys.meta_path.insert(0, Container())
import twophase.grading.gradescope.autograder
import twophase.grading.judge.judge
import twophase.grading.sandbox.fork_server
from twophase.checks import registry
from twophase.grading.sandbox.preload import preload

print(len(missing) > 100, preload(), len(registry.topics()))
"""


def test_the_grader_and_all_that_a_notebook_can_import_need_no_more_than_is_installed_there() -> (
    None
):
    done = subprocess.run(
        [sys.executable, "-c", ONLY_WHAT_IS_INSTALLED], capture_output=True, text=True
    )
    assert done.stdout.split("\n")[-2:] == ["True [] 14", ""], done.stderr


def test_a_zip_is_not_overwritten_by_another_and_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    assert bundle.save(path, b"one")
    assert not bundle.save(path, b"one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(ValueError, match="is another; move it away"):
        bundle.save(path, b"two")
    assert path.read_bytes() == b"one"
    with pytest.raises(ValueError, match="there is no folder"):
        bundle.save(tmp_path / "no" / "a.zip", b"")


def test_a_full_disk_leaves_no_half_of_a_zip_in_the_way_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as m:
        m.setattr(os, "fsync", full)
        with pytest.raises(CannotWrite, match=r"a.zip cannot be written: No space left on device"):
            bundle.save(tmp_path / "a.zip", b"one")
    assert list(tmp_path.iterdir()) == []
    assert bundle.save(tmp_path / "a.zip", b"one")


def test_an_instructors_folders_go_along_without_their_notebooks_if_there_is_a_release(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "mine"
    for name in (
        "kv_cache/__init__.py",
        "kv_cache/own.py",
        "solutions/03_kv_cache.ipynb",
        ".git/config",
        "kv_cache/notes.txt",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    code = {"p/kv_cache/__init__.py", "p/kv_cache/own.py"}
    assert set(bundle._folder(folder, "p", False)) == code
    assert set(bundle._folder(folder, "p", True)) == {
        *code,
        "p/solutions/03_kv_cache.ipynb",
    }


@pytest.mark.parametrize("released", [True, False])
def test_model_answers_stay_behind_if_the_course_itself_is_a_release(
    released: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a clone that `twophase release` wrote: there is no --release, and the tasks are there."""
    with_notebooks: list[bool] = []
    monkeypatch.setattr(Source, "folder", lambda self: tmp_path if released else None)
    monkeypatch.setattr(Source, "validate", lambda self: None)
    monkeypatch.setattr(bundle, "_notebooks", lambda config, source: {})
    monkeypatch.setattr(
        bundle, "_folder", lambda folder, place, asked: with_notebooks.append(asked) or {}
    )
    bundle.build(Config(), Source(checks=(tmp_path,), variants=tmp_path))
    assert with_notebooks == [not released] * 2


@pytest.mark.parametrize(
    ("tree", "student"),
    [
        ({"users": [{"email": " Ann@Example.edu ", "id": 3, "name": "Ann"}]}, "ann@example.edu"),
        ({"users": [{"email": "", "id": 3}]}, "3"),
        ({"users": [{"email": "zoe@x.edu"}, {"email": "bob@x.edu"}]}, "bob@x.edu"),
        ({"users": [{"email": "bob@x.edu"}, {"email": "zoe@x.edu"}]}, "bob@x.edu"),
        ({"users": []}, ""),
        ({"users": "ann"}, ""),
        ({"users": [{"email": None, "id": None}]}, ""),
        ([], ""),
    ],
)
def test_a_student_is_whom_gradescope_names(tmp_path: Path, tree: Any, student: str) -> None:
    path = tmp_path / "submission_metadata.json"
    path.write_text(json.dumps(tree))
    assert gradescope_config.handed_in(path)[0] == student
    assert gradescope_config.handed_in(tmp_path / "none")[0] == ""


def test_a_submission_gets_the_memory_that_the_container_leaves(tmp_path: Path) -> None:
    def given(limit: str, config: Config = Config()) -> int:  # noqa: B008 frozen
        (tmp_path / "max").write_text(limit)
        return gradescope_config.memory_bytes(
            config, (str(tmp_path / "none"), str(tmp_path / "max"))
        )

    assert given(str(768 * 2**20)) == 148 * 2**20 == given("max") == given(str(2**63 - 4096))
    assert given(str(512 * 2**20)) == gradescope_config.LEAST_BYTES
    assert given(str(64 * 2**30)) == gradescope_config.MOST_BYTES
    assert given("max", Config(memory_bytes=5)) == 5


def test_settings_of_another_version_are_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    config = Config(topic="kv_cache", checks=("checks/0",), sets=0)
    path.write_bytes(config.to_bytes())
    assert gradescope_config.read_config(path) == config
    for broken in (b"", b"[]", b'{"schema": 2}', config.to_bytes().replace(b'"sets"', b'"set"')):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match="build the autograder's zip again"):
            gradescope_config.read_config(path)


def record(status: str = "ok", cases: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """A grader's record with one wrong exercise."""
    shown = {"case": "tiny", "public": True, "right": False, "message": "8 is not 9", "error": ""}
    question = {
        "id": "kv_cache-max_batch",
        "title": "How many",
        "status": "wrong",
        "points": 0.0,
        "out_of": 2.0,
        "message": "Subtract them.",
        "misconception": "weights_left_out",
        "hint": "Think.",
        "alone": False,
        "cases": cases or [shown],
        "cell": {"error": "", "output": "x" * 10_000},
    }
    return {
        "status": status,
        "message": "the disk is full",
        "points": 0.0,
        "out_of": 2.0,
        "questions": [question],
        "flags": [
            {"name": "locked_cell_changed", "where": "cell 1", "says": "A locked cell was changed."}
        ],
        "digests": {"submission": "1", "release": "2", "library": "3"},
        "seed": "0123456789abcdef" * 4,
        "confined_by": ["processes"],
    }


def test_of_cases_not_shown_their_number_is_told_after_publishing_and_never_what_they_expect() -> (
    None
):
    secret = {
        "case": "fresh 9",
        "public": False,
        "right": False,
        "message": "3 is not 4",
        "error": "",
    }
    made = gradescope_results.results(record(cases=[secret]), 1.0)
    assert rehearsal.problems(made) == []
    visible = [t for t in made["tests"] if t["visibility"] == "visible"]
    later = [t for t in made["tests"] if t["visibility"] == "after_published"]
    assert "fresh 9" not in json.dumps([visible, later, made["output"]])
    assert "3 is not 4" not in json.dumps([visible, later, made["output"]])
    assert [t["output"] for t in later] == ["How many: 1 of 1 are not right."]
    assert "score" not in later[0]
    assert made["score"] == 0.0


def test_without_failures_on_hidden_cases_everything_is_visible_so_that_the_total_is() -> None:
    made = gradescope_results.results(record(), 1.0)
    assert [t["visibility"] for t in made["tests"]] == ["visible"]
    assert "locked cell" in made["output"]


def test_the_graders_fault_has_no_score_and_a_broken_file_has_a_zero_that_says_why() -> None:
    fault = gradescope_results.results(record("internal"), 1.0, 41.0)
    assert "score" not in fault
    assert "tests" not in fault
    assert "the disk is full" in fault["output"]
    broken = gradescope_results.results(record("unreadable"), 1.0, 41.0)
    assert (broken["score"], broken["tests"][0]["max_score"]) == (0.0, 41.0)
    assert rehearsal.problems(fault) == rehearsal.problems(broken) == []


def test_an_instructor_finds_the_record_without_the_seed() -> None:
    extra = gradescope_results.results(record(), 1.0)["extra_data"]
    assert extra["record"]["questions"][0]["misconception"] == "weights_left_out"
    assert len(extra["record"]["questions"][0]["cell"]["output"]) == gradescope_results.LONGEST_KEPT
    assert record()["seed"] not in json.dumps(extra)
    assert (
        extra["seed_digest"]
        == gradescope_results.results(record(), 2.0)["extra_data"]["seed_digest"]
    )


@pytest.mark.parametrize("message", ["Its cell stopped with {}.", "Wrong."])
def test_what_a_cell_stopped_with_is_told_once(message: str) -> None:
    error = "ModuleNotFoundError: No module named 'mine'"
    asked = question("kv_cache-max_batch", "missing") | {"message": message.format(error)}
    asked["cell"] = {"error": error, "output": ""}
    made = stored("a.ipynb", [asked], environment=defaultdict(str), varies=defaultdict(str))
    shown = gradescope_results.results(made, 1.0)["tests"][0]["output"]
    for said in (shown, "\n".join(self_check._says(made["questions"][0])), feedback.page(made)):
        assert said.count("No module named") == 1


def test_text_of_a_students_loses_what_moves_a_cursor_or_reorders_a_line() -> None:
    said = gradescope_results.text("a\x1b[2Jb\u202ec\ud800" + "d" * 9_000)
    assert said.startswith("a\N{REPLACEMENT CHARACTER}[2Jb\N{REPLACEMENT CHARACTER}c?")
    assert len(said) < 4_100
    said.encode()


def test_results_replace_the_provisional_ones_in_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "results.json"
    path.write_text("provisional")
    gradescope_results.write(path, {"score": 1.0})
    assert json.loads(path.read_text()) == {"score": 1.0}
    with pytest.raises(ValueError, match="JSON compliant"):
        gradescope_results.write(path, {"score": float("nan")})
    assert json.loads(path.read_text()) == {"score": 1.0}

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        gradescope_results.write(path, {"score": 2.0})
    assert [p.name for p in tmp_path.iterdir()] == ["results.json"]
    assert json.loads(path.read_text()) == {"score": 1.0}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"score": "4"}, "score: Input should be a valid number"),
        (
            {"visibility": "after due date"},
            "visibility: Input should be 'hidden'",
        ),
        ({"points": 4}, "points: Extra inputs are not permitted"),
        ({"tests": [{"status": "right"}]}, "tests.0.status: Input should be 'passed' or 'failed'"),
        ({"tests": [{"score": 3, "max_score": 2}]}, "not between 0 and 2"),
        ({"tests": [7]}, "tests.0: Input should be a valid dictionary"),
    ],
)
def test_the_rehearsal_finds_what_gradescope_would_not_understand(
    change: dict[str, Any], says: str
) -> None:
    assert any(says in p for p in rehearsal.problems({"score": 1.0} | change))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["build", "--topic", "kvcache"], "there is no topic 'kvcache'"),
        (["build", "x.ipynb"], "unexpected extra argument"),
        (["build", "--secret", "none"], "there is no secret none"),
        (["try"], "Missing argument 'files'"),
        (["try", "x.ipynb"], "there is no file autograder.zip; make it with"),
        (["try", "x.ipynb", "none.zip"], "there is no file none.zip"),
        (["try", "x.ipynb", "text.zip"], "text.zip is no zip"),
    ],
)
def test_a_wrong_call_is_one_sentence_and_exit_2(
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.zip").write_text("no zip")
    with pytest.raises(SystemExit) as left:
        main(["gradescope", *arguments])
    assert left.value.code == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "autograder.zip").exists()


def test_build_writes_the_zip_and_says_that_without_a_secret_cases_can_be_drawn_by_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        main_exit(["gradescope", "build", "--topic", "kv_cache"])
        assert "Without --secret" in capsys.readouterr().out
    expected = bundle.build(Config(topic="kv_cache"), Source())
    assert (tmp_path / "autograder.zip").read_bytes() == expected


def main_exit(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code in (0, None)


def test_exercises_of_an_instructors_own_are_graded_from_the_zip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = Path(bundle.__file__).parents[1] / "release" / "checks_example"
    source = Source(checks=(example / "checks",), variants=example / "variants")
    path = tmp_path / "autograder.zip"
    path.write_bytes(bundle.build(Config(topic="kv_cache"), source))
    bundle.unpack(path, tmp_path / "source")
    private = tmp_path / "source" / "private"
    monkeypatch.setenv("TWOPHASE_COURSE", str(private))  # put back after the test
    there = autograder.source_of(gradescope_config.read_config(private / "config.json"), private)
    assert there.checks[0].is_relative_to(private)
    asked, here = there.load("kv_cache"), source.load("kv_cache")
    assert list(asked.exercises) == list(here.exercises)
    assert {"kv_cache-send_s", "kv_cache-fewest_chips"} <= set(asked.exercises)
    assert asked.digest == here.digest


@pytest.mark.parametrize(
    ("results", "code", "says"),
    [
        (gradescope_results.unreadable("No notebook.", 1.0, 41.0), 0, "0 of 41"),
        (
            gradescope_results.without_score("no disk", 1.0),
            3,
            "Gradescope reports a failed autograder. It printed, for you only:\nprinted",
        ),
    ],
)
def test_a_rehearsal_shows_what_gradescope_would_and_exits_3_only_without_a_score(
    results: dict[str, Any],
    code: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def rehearse(archive: Path, files: list[Path], student: str) -> rehearsal.Rehearsal:
        assert (archive, files, student) == (Path("a.zip"), [Path("x.ipynb")], "bob@x.edu")
        return rehearsal.Rehearsal(results, "printed", 0)

    monkeypatch.setattr(rehearsal, "rehearse", rehearse)
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as left:
        main(["gradescope", "try", "x.ipynb", "a.zip", "--student", "bob@x.edu"])
    assert left.value.code == code
    assert says in capsys.readouterr().out
