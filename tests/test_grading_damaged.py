"""What one person hands in, however damaged, becomes one sentence about that person, and the class
is graded and compared all the same."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from grading_run_tools import course
from hostile.course import RIGHT, cells, dump
from hostile.worker import grade, zygote
from layout_tools import NOTEBOOK, lay, zipped
from typer.testing import CliRunner

from twophase.cli.main import build
from twophase.grading.errors import Unreadable
from twophase.grading.files import notebook
from twophase.grading.intake.layouts import instant
from twophase.grading.intake.submissions import Submission, find
from twophase.grading.judge.judge import Judge, Task
from twophase.grading.release.release import Source
from twophase.grading.run import self_check
from twophase.grading.similar import fragments
from twophase.grading.similar.class_comparison import read_notebooks

THOUSAND = 1000
HONEST = dump(cells(dict(RIGHT)))


def damages(honest: bytes) -> Iterator[bytes]:
    """Copies with one byte changed: to 0, to 255, and by its lowest bit, all over."""
    for change in (lambda b: 0, lambda b: 255, lambda b: b ^ 1):
        for at, byte in enumerate(honest):
            if (other := change(byte)) != byte:
                yield honest[:at] + bytes([other]) + honest[at + 1 :]


def damaged_class(folder: Path, honest: bytes) -> Path:
    """A thousand damaged copies, a folder each, and one person with a sound notebook."""
    made = list(damages(honest))
    step = len(made) / THOUSAND
    assert step >= 1
    files = {f"s{n:03}/a.zip": made[int(n * step)] for n in range(THOUSAND)}
    return lay(folder, files | {"zoe/a.ipynb": HONEST})


@pytest.fixture(scope="module")
def zips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Damaged zips, each with a notebook of no course and a zip with another one."""
    inner = zipped({"y.ipynb": NOTEBOOK, "z.txt": b"z" * 50})
    whole = zipped({"x.ipynb": NOTEBOOK, "inner.zip": inner})
    return damaged_class(tmp_path_factory.mktemp("class"), whole)


def nameless(folder: Path) -> None:
    """A zip whose one file has an empty name: no program makes it, one damaged byte does."""
    folder.mkdir()
    sound = zipped({"x.ipynb": NOTEBOOK})
    (folder / "a.zip").write_bytes(sound.replace(b"x.ipynb", b"\0.ipynb"))
    with zipfile.ZipFile(folder / "a.zip") as z:
        assert z.namelist() == [""]


def test_a_thousand_damaged_zips_stop_nobody_from_being_graded(zips: Path) -> None:
    judge = Judge(course(), zygote())
    records = {s.name: judge.grade(Task(s, 1)) for s in find(zips)}
    assert {f.split("/")[0] for f in records} == {*(f"s{n:03}" for n in range(THOUSAND)), "zoe"}
    assert (records["zoe/a.ipynb"]["status"], records["zoe/a.ipynb"]["points"]) == ("ok", 8)
    others = [r for f, r in records.items() if f != "zoe/a.ipynb"]
    assert {r["status"] for r in others} == {"unreadable"}
    assert all(r["message"].startswith("This file could not be graded: ") for r in others)


def test_a_thousand_damaged_zips_stop_nobody_from_being_compared(
    zips: Path, tmp_path: Path
) -> None:
    arguments = ["similar", str(zips), "--out", str(tmp_path)]
    done = CliRunner().invoke(build(arguments), arguments)
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "similar.json").read_text())
    assert found["notebooks"] == 1
    assert len({u["file"].split("/")[0] for u in found["unreadable"]}) == THOUSAND


def test_a_thousand_damaged_notebooks_are_read_or_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    made = list(damages(HONEST))
    for damaged in made[:: len(made) // THOUSAND]:
        path.write_bytes(damaged)
        one = [Submission(path, "ann/a.ipynb")]
        papers, unreadable = read_notebooks(one, None, Source(), None, lambda *told: None)
        assert len(papers) + len(unreadable) == 1
        try:
            sound = notebook.parse(damaged)
        except Unreadable:
            assert unreadable
        else:
            assert sound.cells


def test_a_file_without_a_name_in_a_zip_is_one_person_s_trouble(tmp_path: Path) -> None:
    lay(tmp_path / "in", {"zoe/a.ipynb": HONEST})
    nameless(tmp_path / "in" / "ann")
    found = {s.name: s for s in find(tmp_path / "in")}
    assert set(found) == {"ann/a.zip/\N{REPLACEMENT CHARACTER}.ipynb", "zoe/a.ipynb"}


def test_a_zip_of_a_class_in_which_a_file_has_no_name_is_read(tmp_path: Path) -> None:
    data = zipped({"ann/x.ipynb": NOTEBOOK, "??": b"", "bob/x.ipynb": NOTEBOOK})
    (tmp_path / "class.zip").write_bytes(data.replace(b"??", b"\0\0"))
    with pytest.raises(IndexError):  # what zipfile does where it is asked whether this is a folder
        [i.is_dir() for i in zipfile.ZipFile(tmp_path / "class.zip").infolist()]
    assert {s.name for s in find(tmp_path / "class.zip")} == {"ann/x.ipynb", "bob/x.ipynb"}


@pytest.mark.parametrize("name", ["", "..", "///..", "a/.."])
def test_a_name_that_names_nothing_is_said(name: str, tmp_path: Path) -> None:
    data = zipped([("?" * max(1, len(name)), b"text")])
    lay(tmp_path, {"ann/a.zip": data.replace(b"?" * max(1, len(name)), name.encode() or b"/")})
    (one,) = find(tmp_path)
    assert "it holds no notebook" in one.trouble


def test_whatever_a_library_raises_is_about_the_one_whose_file_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only what zipfile is known to raise: anything, anywhere in the zip."""
    files = {"ann/a.zip": zipped({"x.ipynb": HONEST}), "zoe/a.ipynb": HONEST}
    lay(tmp_path, files)

    def unheard_of(*args: object, **kwargs: object) -> None:
        raise AssertionError("never seen before")

    for name in ("infolist", "open", "__init__"):
        with monkeypatch.context() as patched:
            patched.setattr(zipfile.ZipFile, name, unheard_of)
            found = {s.name.split("/")[0]: s for s in find(tmp_path)}
            with pytest.raises(Unreadable, match="damaged"):
                found["ann"].read()
            assert notebook.parse(found["zoe"].read()).cells
        found["zoe"].read()


def test_a_notebook_in_utf_16_is_compared_and_remarked_on_too(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    path.write_bytes(HONEST.decode().encode("utf-16"))
    one = [Submission(path, "ann/a.ipynb")]
    papers, unreadable = read_notebooks(one, None, Source(), None, lambda *told: None)
    assert (len(papers), unreadable) == (1, [])
    assert self_check.remarks(path.read_bytes(), {"questions": []}) == []


def test_a_text_that_cannot_be_taken_apart_has_no_fragments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(text: str) -> None:
        raise SystemError("AST constructor recursion depth mismatch")

    monkeypatch.setattr(fragments, "parsed_as_a_cell", fail)
    assert fragments.fragments_of("x = 1").fragments == frozenset()
    assert not fragments.fragments_of("x = 1").parsed


@pytest.mark.parametrize("text", ["0001-01-01 00:00:00 +1400", "9999-12-31 23:59:59 -1200"])
def test_a_time_that_cannot_be_meant_is_no_time(text: str) -> None:
    assert instant(text) == ""


def test_an_odd_file_is_read_again_by_the_judge_and_never_its_fault(tmp_path: Path) -> None:
    """`internal` would send the instructor to look for a fault of the grader's."""
    nameless(tmp_path / "ann")
    judge = Judge(course(), zygote())
    for submission in find(tmp_path):
        assert judge.grade(Task(submission, 1))["status"] == "unreadable"


BYTES = "kv_cache-bytes"
DEEP = 50_000  # far beyond any recursion limit
ANSWERS = {
    "a list in a list in a list": f"x = 1\n    for _ in range({DEEP}): x = [x]\n    return x",
    "a dict in a dict": f"x = 1\n    for _ in range({DEEP}): x = {{'x': x}}\n    return x",
    "a list in itself": "x = []\n    x.append(x)\n    return x",
    "a call of itself": "return bytes_of(n, width)",
    "a call of itself that catches": (
        "try:\n        return bytes_of(n, width)\n    except RecursionError:\n        return []"
    ),
    "an error behind an error": (
        f"e = ValueError()\n    for _ in range({DEEP}):\n        f = ValueError()\n"
        "        f.__cause__ = e\n        e = f\n    raise e"
    ),
}


@pytest.mark.parametrize("what", ANSWERS)
def test_an_answer_that_digs_deep_costs_itself_and_nobody_else(what: str) -> None:
    answer = f"def bytes_of(n, width):\n    {ANSWERS[what]}"
    found = grade(dump(cells(RIGHT | {"bytes": answer})))
    points = {q.verdict.exercise_id: q.verdict.points for q in found.questions}
    assert points == {i: 0 if i == BYTES else 2 for i in points}
    assert sum(q.verdict.points for q in grade(HONEST).questions) == 8


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def with_deep(place: str, depth: int) -> bytes:
    """The honest notebook with lists in lists somewhere."""
    tree = json.loads(HONEST)
    if place == "metadata":
        tree["metadata"]["deep"] = "DEEP"
    else:
        tree["cells"][1][place] = ["DEEP"] if place == "outputs" else {"deep": "DEEP"}
    return json.dumps(tree).encode().replace(b'"DEEP"', nested(depth))


@pytest.mark.parametrize("place", ["metadata", "outputs", "attachments"])
def test_json_that_digs_deep_is_one_persons_trouble(place: str, tmp_path: Path) -> None:
    """What Python's own JSON reads is graded and compared; what it does not is a sentence."""
    lay(
        tmp_path,
        {
            "ann/a.ipynb": with_deep(place, 400),
            "bob/a.ipynb": with_deep(place, DEEP),
            "zoe/a.ipynb": HONEST,
        },
    )
    judge, found = Judge(course(), zygote()), find(tmp_path)
    records = {s.name[:3]: judge.grade(Task(s, 1)) for s in found}
    assert {who: r["points"] for who, r in records.items()} == {"ann": 8, "bob": None, "zoe": 8}
    assert records["bob"]["status"] == "unreadable"
    assert "RecursionError" in records["bob"]["message"]
    papers, unreadable = read_notebooks(found, None, Source(), None, lambda *told: None)
    assert [p.file[:3] for p in papers] == ["ann", "zoe"]
    assert [file[:3] for file, _ in unreadable] == ["bob"]
