"""Results are appended, survive a crash, are resumed, and never take the grader's own fault for a
zero."""

from __future__ import annotations

import os
import socket
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from grading_run_tools import course, lines, run, write
from hostile.course import EXERCISES, RIGHT, STUBS, TOPIC, cell, cells, dump, exercise
from hostile.notebooks import UNREADABLE, version_3
from hostile.worker import zygote

from twophase.grading.intake.submissions import find
from twophase.grading.release.release import Release
from twophase.grading.reports import feedback
from twophase.grading.results.records import SCHEMA, Record
from twophase.grading.results.writer import Results
from twophase.grading.run.folder import grade_folder

SCRIPT = "<script>alert(1)</script>"
WRONG = "def bytes_of(n_tokens, width):\n    return n_tokens * width"


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A class: right, half right, hostile names, broken files."""
    folder, out = tmp_path_factory.mktemp("class"), tmp_path_factory.mktemp("out")
    files = {
        "ann/03.ipynb": dump(cells(dict(RIGHT))),
        f"bob/{SCRIPT.replace('/', '')}.ipynb": dump(
            cells(RIGHT | {"bytes": f"print('{SCRIPT}')\n{WRONG}"})
        ),
        "cy/loop.ipynb": dump([cell("while True: pass"), *cells(dict(RIGHT))]),
        "dee/junk.ipynb": dump(
            cells(
                RIGHT
                | {
                    "bytes": (
                        "import os\nfor n in range(3, 300):\n    try: os.write(n, b'x' * 99)\n   "
                        " except OSError: pass"
                    )
                }
            )
        ),
        "eve/old.ipynb": version_3(),
        "fay/=cmd.ipynb": dump(
            cells(
                RIGHT
                | {"bytes": f"def bytes_of(a, b): raise ValueError('{SCRIPT}\\x1b[2J\\u202e')"}
            )
        ),
        **{f"gus/{name}.ipynb": data for name, data in UNREADABLE.items()},
    }
    write(folder, files)
    (folder / "gus/folder.ipynb").mkdir()
    (folder / "gus/link.ipynb").symlink_to("/etc/passwd")
    os.mkfifo(folder / "gus/pipe.ipynb")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(folder / "gus/s.ipynb"))
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / ".ipynb_checkpoints/03.ipynb").write_bytes(dump(cells({})))
    os.rename(folder / "eve", os.fsencode(folder) + b"/e\xffe")
    run(folder, out)
    return folder, out


def by_name(out: Path) -> dict[str, Record]:
    return {r["file"]: r for r in lines(out)}


def test_every_file_gets_a_record_and_the_run_goes_on(graded: tuple[Path, Path]) -> None:
    seen = {name: (r["status"], r["points"]) for name, r in by_name(graded[1]).items()}
    assert len(seen) == 6 + len(UNREADABLE) + 4
    assert seen["ann/03.ipynb"] == ("ok", 8)
    assert seen["cy/loop.ipynb"] == ("partial", 8)
    assert seen["dee/junk.ipynb"] == ("protocol", 6)
    assert seen["e\ufffde/old.ipynb"] == ("ok", 8)
    assert all(v == ("unreadable", None) for n, v in seen.items() if n.startswith("gus/"))


def test_a_record_says_what_was_judged_with_what_and_why(graded: tuple[Path, Path]) -> None:
    record = next(r for n, r in by_name(graded[1]).items() if n.startswith("bob/"))
    assert (record["schema"], record["seed"], record["topic"]) == (SCHEMA, 1, TOPIC)
    assert set(record["digests"]) == {"submission", "release", "library"}
    assert record["confined_by"]
    assert {"python", "torch", "numpy", "twophase"} <= set(record["environment"])
    question = record["questions"][0]
    assert (question["status"], question["misconception"], question["points"]) == (
        "wrong",
        "half",
        0,
    )
    assert question["hint"] == "First hint of bytes."
    assert [c["right"] for c in question["cases"]] == [False] * 5
    assert SCRIPT in question["cell"]["output"]
    assert record["points"] == 6


def test_a_second_run_skips_all_and_a_changed_file_is_graded_again(
    graded: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for n in range(3):
        (folder / f"{n}.ipynb").write_bytes(dump(cells(dict(RIGHT))) if n else b"broken")
    assert None not in run(folder, out)
    assert run(folder, out) == [None, None, None]
    (folder / "1.ipynb").write_bytes(dump(cells({})))
    assert [r and r["points"] for r in run(folder, out)] == [None, None, 0]
    assert None not in run(folder, out, course(seed=2))
    assert len(lines(out)) == 3 + 1 + 3


def test_the_same_seed_gives_the_same_record_but_for_what_varies(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.ipynb").write_bytes(
        dump(cells(RIGHT | {"bytes": WRONG, "softmax": STUBS["softmax"]}))
    )
    seen = [run(tmp_path / "in", tmp_path / out)[0] for out in ("1", "2")]
    assert all(r is not None and r.pop("varies") for r in seen)
    assert seen[0] == seen[1]


def test_a_last_line_that_a_crash_cut_short_is_dropped_and_graded_again(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in "ab":
        (tmp_path / f"in/{name}.ipynb").write_bytes(b"broken")
    run(tmp_path / "in", tmp_path / "out")
    path = tmp_path / "out/results.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    told = run(tmp_path / "in", tmp_path / "out")
    assert [r and r["file"] for r in told] == [None, "b.ipynb"]
    assert [r["file"] for r in lines(tmp_path / "out")] == ["a.ipynb", "b.ipynb"]


def test_an_interrupted_run_keeps_what_it_has_and_the_next_goes_on(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in "abc":
        (tmp_path / f"in/{name}.ipynb").write_bytes(dump(cells(dict(RIGHT))))

    def interrupted(record: Record | None) -> None:
        raise KeyboardInterrupt

    with Results(tmp_path / "out") as results, pytest.raises(KeyboardInterrupt):
        grade_folder(find(tmp_path / "in"), course(), results, 1, interrupted, zygote())
    assert [(r["file"], r["points"]) for r in lines(tmp_path / "out")] == [("a.ipynb", 8)]
    assert [r and r["points"] for r in run(tmp_path / "in", tmp_path / "out")] == [None, 8, 8]


def test_a_file_that_is_no_results_file_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text("my notes\n")
    with pytest.raises(ValueError, match=r"line 1 of .* is no result"):
        Results(tmp_path)
    assert (tmp_path / "results.jsonl").read_text() == "my notes\n"


def test_two_runs_do_not_write_to_one_file(tmp_path: Path) -> None:
    with Results(tmp_path), pytest.raises(ValueError, match="another run"):
        Results(tmp_path)


def test_a_check_that_fails_on_its_own_reference_is_internal_and_never_a_zero(
    tmp_path: Path,
) -> None:
    def broken(n_tokens: int, width: int) -> Any:
        raise KeyError("a bug of ours")

    good = EXERCISES[f"{TOPIC}-bytes"]
    bad = exercise("bytes", "bytes_of", broken, good.misconceptions[0].answer, good.cases)
    released = Release(TOPIC, {bad.id: bad}, {}, (), "test")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.ipynb").write_bytes(dump(cells(dict(RIGHT))))
    told = run(tmp_path / "in", tmp_path / "out", course(released))
    assert [(r["status"], r["points"]) for r in told if r] == [("internal", None)]
    assert [(r["status"], r["points"]) for r in run(tmp_path / "in", tmp_path / "out") if r] == [
        ("ok", 8)
    ]


class Tags(HTMLParser):
    """The tags of a page, and the text outside of its style."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def pages(graded: tuple[Path, Path]) -> dict[str, str]:
    out = graded[1]
    with Results(out) as results:
        index = feedback.write(out, results.index.latest())
    names = {r["file"]: feedback.page_name(r["file"]) for r in lines(out)}
    found = {n: (out / "feedback" / p).read_text("utf-8") for n, p in names.items()}
    return found | {"index": index.read_text("utf-8")}


def test_nothing_a_student_wrote_becomes_markup(pages: dict[str, str]) -> None:
    assert len(pages) == 6 + len(UNREADABLE) + 4 + 1
    for page in pages.values():
        seen = Tags(page)
        assert not seen.tags & {"script", "img", "iframe", "link", "base", "form"}
        assert "\x1b" not in page
        assert "\u202e" not in page
    bob = next(p for n, p in pages.items() if n.startswith("bob/"))
    assert SCRIPT in Tags(bob).text
    fay = next(p for n, p in pages.items() if n.startswith("fay/"))
    assert f"ValueError: {SCRIPT}" in Tags(fay).text


def test_a_page_names_the_misconception_with_its_sentence_and_the_first_hint(
    pages: dict[str, str],
) -> None:
    text = Tags(next(p for n, p in pages.items() if n.startswith("bob/"))).text
    assert "half: This is half." in text
    assert "A hint: First hint of bytes." in text
    assert "6 of 8" in text


def test_a_page_does_not_show_the_cases_that_are_not_public(pages: dict[str, str]) -> None:
    text = Tags(next(p for n, p in pages.items() if n.startswith("bob/"))).text
    assert "fresh 1" in text
    assert "fresh 2" not in text
    assert "2 more cases are not shown" in text


def test_the_index_leads_to_every_page_and_pages_stay_in_their_folder(
    graded: tuple[Path, Path], pages: dict[str, str]
) -> None:
    for record in lines(graded[1]):
        name = feedback.page_name(record["file"])
        assert f'href="{name}"' in pages["index"]
        assert "/" not in name
    assert feedback.page_name("../../etc/x.ipynb").startswith("etc-x-")
    assert feedback.page_name("a b.ipynb") != feedback.page_name("a-b.ipynb")


@pytest.mark.parametrize("folder", ["nowhere", "empty", "file"])
def test_a_folder_without_notebooks_is_one_sentence(tmp_path: Path, folder: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"no folder|no \.ipynb file"):
        find(tmp_path / folder)
