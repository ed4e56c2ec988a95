"""`twophase lab`, `next` and `progress`: sittings, where one stopped, recall questions, a folder
that is never overwritten."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from twophase.checks import registry
from twophase.cli import my_folder, sittings
from twophase.cli.learn import learners_environment
from twophase.cli.main import main
from twophase.lab import record

ROOT = Path(__file__).resolve().parent.parent
IDS = [i for t in registry.topics() for i in registry.ids(t)]


def course_with(folder: Path, *names: str) -> Path:
    (folder / "exercises").mkdir(exist_ok=True)
    for name in names:
        (folder / "exercises" / name).write_text(f'{{"made for": "{name}"}}')
    return folder


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    return int(stopped.value.code or 0)


def test_lab_copies_what_is_missing_and_never_overwrites(tmp_path: Path) -> None:
    course = course_with(tmp_path, "01_a.ipynb", "02_b.ipynb")
    (tmp_path / "my").mkdir()
    (tmp_path / "my" / "01_a.ipynb").write_text("mine")
    assert run("lab", "--no-open", "--course", str(course)) == 0
    assert (tmp_path / "my" / "01_a.ipynb").read_text() == "mine"
    assert (tmp_path / "my" / "02_b.ipynb").read_bytes() == (
        tmp_path / "exercises" / "02_b.ipynb"
    ).read_bytes()
    assert my_folder.progress_file(course).read_bytes() == b""
    record.write("check", IDS[0], my_folder.progress_file(course), status="right", points=1)
    before = {p: p.read_bytes() for p in (tmp_path / "my").rglob("*") if p.is_file()}
    assert run("lab", "--no-open", "--course", str(course)) == 0
    assert {p: p.read_bytes() for p in (tmp_path / "my").rglob("*") if p.is_file()} == before


def test_lab_opens_jupyterlab_in_the_learners_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    environments: list[dict[str, str]] = []

    def execve(program: str, arguments: list[str], environment: dict[str, str]) -> None:
        started.append([program, *arguments])
        environments.append(environment)

    monkeypatch.setattr("os.execve", execve)
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "/mine")
    monkeypatch.chdir(tmp_path)
    assert run("lab", "--course", str(course_with(tmp_path, "01_a.ipynb"))) == 0
    assert started[0][:4] == [sys.executable, sys.executable, "-m", "jupyterlab"]
    assert Path.cwd() == tmp_path / "my"
    settings, mine = environments[0]["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    assert mine == "/mine"  # the learner's own stay
    assert (Path(settings) / "labconfig" / "page_config.json").is_file()


def test_a_learners_jupyterlab_has_nothing_for_instructors_and_no_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from jupyter_core.paths import jupyter_config_path
    from jupyter_server.services.config import ConfigManager
    from jupyterlab_server.config import get_page_config

    environment = learners_environment(os.environ)
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", environment["JUPYTER_CONFIG_PATH"])
    labextensions = [str(Path(sys.prefix) / "share" / "jupyter" / "labextensions")]
    disabled = get_page_config(labextensions)["disabledExtensions"]
    assert "@jupyter/nbgrader" in disabled
    assert "@jupyterlab/apputils-extension:announcements" in disabled
    config = ConfigManager(read_config_path=jupyter_config_path()).get("jupyter_server_config")
    extensions = config["ServerApp"]["jpserver_extensions"]
    served = [name for name, on in extensions.items() if "nbgrader" in name and on]
    assert served == []


def test_a_dangling_link_in_the_learners_folder_is_left_alone(tmp_path: Path) -> None:
    course = course_with(tmp_path, "01_a.ipynb")
    (tmp_path / "my").mkdir()
    (tmp_path / "my" / "01_a.ipynb").symlink_to(tmp_path / "elsewhere.ipynb")
    assert my_folder.fill(course) == []
    assert not (tmp_path / "elsewhere.ipynb").exists()


@pytest.mark.parametrize("topic", registry.topics())
def test_the_sittings_of_each_topic_are_the_pages(topic: str) -> None:
    page = ROOT / "book" / f"{registry.stem(topic)}.md"
    parts = re.split(r"^:::\{sitting\} (\d+)$", page.read_text("utf8"), flags=re.M)
    on_page = {
        f"Sitting {number}": [f"{topic}-{slug.strip()}" for slug in ",".join(boxes).split(",")]
        for number, part in zip(["1", *parts[1::2]], parts[0::2], strict=True)
        if (boxes := re.findall(r"^:only: ([\w, ]+)$", part, flags=re.M))
    }
    cut = sittings.of_topic(topic)
    assert {s.title.partition(":")[0]: [e.id for e in s.exercises] for s in cut} == on_page
    assert all("minutes" not in s.title for s in cut)


@pytest.mark.parametrize("text", ["", "[]", '{"cells": 3}', '{"cells": [{}]}', '{"cells": []}'])
def test_without_a_notebook_that_can_be_read_a_topic_is_one_sitting(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "exercises").mkdir()
    topic = registry.topics()[0]
    (tmp_path / "exercises" / f"{registry.stem(topic)}.ipynb").write_text(text)
    (whole,) = sittings.of_topic(topic, tmp_path)
    assert [e.id for e in whole.exercises] == registry.ids(topic)
    line = sittings.where_stopped([], tmp_path)[1]
    assert line.startswith(f"Next: my/{registry.stem(topic)}.ipynb, about ")


def solved(*ids: str) -> list[record.Event]:
    return [
        {"event": "check", "id": i, "status": "right", "points": 1, "time": "2026-05-06T07:08:09"}
        for i in ids
    ]


def test_a_newcomer_is_sent_to_the_first_exercise() -> None:
    lines = sittings.where_stopped([])
    assert "not started" in lines[0]
    assert IDS[0] in lines[2]


def test_next_names_the_last_exercise_and_what_is_left_of_its_sitting() -> None:
    topic = registry.topics()[-1]
    first = sittings.of_topic(topic)[0].exercises
    lines = sittings.where_stopped(solved(first[0].id))
    assert lines[0] == f"Last: {first[0].id}, solved, on 2026-05-06."
    minutes = sum(e.minutes for e in first[1:])
    if minutes:
        assert registry.stem(topic) in lines[1]
        assert f"about {minutes} minutes" in lines[1]
        assert [line.split()[0] for line in lines[2:]] == [e.id for e in first[1:]]


def test_when_all_is_done_that_is_said() -> None:
    assert sittings.where_stopped(solved(*IDS))[-1] == "Every exercise is done."


def test_an_exercise_that_the_course_no_longer_has_is_passed_over() -> None:
    events = [*solved(IDS[0]), *solved("kv_cache-gone", "gone-gone")]
    assert IDS[0] in sittings.where_stopped(events)[0]
    assert [e.id for e in sittings.recall_questions(events)] == [IDS[0]]


def test_recall_asks_two_done_exercises_those_not_asked_for_longest() -> None:
    done = IDS[:3]
    events = solved(*done)
    asked: list[str] = []
    for _ in range(3):
        for e in sittings.recall_questions(events):
            asked.append(e.id)
            events.append({"event": "recall", "id": e.id})
    assert all(asked.count(i) == 2 for i in done)


def test_without_a_terminal_next_prints_questions_then_answers_and_records_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    course = course_with(tmp_path, "01_a.ipynb")
    my_folder.fill(course)
    file = my_folder.progress_file(course)
    for i in IDS[:2]:
        record.write("check", i, file, status="right", points=1)
    assert run("next", "--course", str(course)) == 0
    out = capsys.readouterr().out
    parts = [registry.load(i).recall[part] for part in (0, 1) for i in IDS[:2]]
    assert sorted(out.index(p) for p in parts) == [out.index(p) for p in parts]
    assert [e["id"] for e in record.read(file) if e["event"] == "recall"] == IDS[:2]


def test_ctrl_d_at_a_recall_question_ends_quietly_and_counts_as_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ctrl_d(prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", ctrl_d)
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    file = tmp_path / "progress.jsonl"
    file.touch()
    exercise = registry.load(IDS[0])
    sittings.ask([exercise], file)
    out = capsys.readouterr().out
    assert exercise.recall[0] in out
    assert exercise.recall[1] not in out
    assert file.read_bytes() == b""


def test_next_writes_nothing_where_no_folder_was_made(tmp_path: Path) -> None:
    assert run("next", "--course", str(course_with(tmp_path))) == 0
    assert not (tmp_path / "my").exists()


def test_progress_prints_the_states(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    course = course_with(tmp_path, "01_a.ipynb")
    my_folder.fill(course)
    record.write(
        "check", "kv_cache-max_batch", my_folder.progress_file(course), status="right", points=2
    )
    assert run("progress", "03_kv_cache", "--course", str(course)) == 0
    row = next(
        line for line in capsys.readouterr().out.splitlines() if "kv_cache-max_batch" in line
    )
    assert "done" in row
    assert "2 of 2" in row
