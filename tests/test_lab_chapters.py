"""A chapter as a notebook: the page's cells as they are, its text without a trace of MyST."""

from __future__ import annotations

import re
from pathlib import Path

import jupytext
import nbformat
import pytest

from twophase.cli import my_folder
from twophase.lab import chapters

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "book").glob("[0-9][0-9]_*.md"))


def sources(nb: nbformat.NotebookNode, kind: str) -> list[str]:
    return [c.source for c in nb.cells if c.cell_type == kind]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_chapters_notebook_has_the_pages_cells_and_plain_text(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    made = chapters.to_notebook(text, page.stem)
    nb = nbformat.reads(made.decode("utf-8"), as_version=4)
    nbformat.validate(nb)
    assert sources(nb, "code") == sources(jupytext.reads(text, "md:myst"), "code")
    words = "\n".join(sources(nb, "markdown"))
    assert re.findall(r"^:::|^:[a-z]+:|\{[a-z:-]+\}`|^```\{", words, flags=re.M) == []
    assert words.count("**Question.**") == text.count(":::{question}")
    assert words.count("- **Right**") + words.count("- **No**") == len(
        re.findall(r"^- \[[ x]\]", text, flags=re.M)
    )
    assert chapters.to_notebook(text, page.stem) == made


def test_blocks_formulas_and_roles_become_words() -> None:
    page = (
        "# A title\n\nA {term}`KV heads <GQA>` has {glue:text}`one-number`, see {cite}`a2020` and"
        " {eq}`eq-x` of {py:func}`~twophase.theory.kv_cache.max_batch`.\n\n"
        "```{math}\n:label: eq-x\nx = 1\n```\n\n"
        ":::{question} Why?\n:id: q\n- [x] So. || It is so.\n- [ ] Not so. || It is so.\n:::\n"
    )
    assert chapters.plain(page) == (
        "# A title\n\nA KV heads has `one-number`, see (a2020) and (eq-x) of `max_batch`.\n\n"
        "$$\nx = 1\n$$\n\n**Question.** Why?\n\n- So.\n- Not so.\n\n"
        "<details><summary>Answers</summary>\n\n- **Right**: So. It is so.\n"
        "- **No**: Not so. It is so.\n\n</details>\n"
    )


@pytest.fixture
def course(tmp_path: Path) -> Path:
    for folder, name, text in (
        ("exercises", "01_a.ipynb", "{}"),
        ("book", "01_a.md", "# A\n\n```{code-cell} python\n1 + 1\n```\n"),
        ("book", "index.md", "# Not a chapter\n"),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_the_learners_folder_gets_the_chapters_once_and_keeps_what_was_run(course: Path) -> None:
    assert my_folder.fill(course) == ["01_a.ipynb", "chapters/01_a.ipynb"]
    mine = course / "my" / "chapters" / "01_a.ipynb"
    assert b"1 + 1" in mine.read_bytes()
    mine.write_bytes(mine.read_bytes().replace(b"1 + 1", b"1 + 2"))
    assert my_folder.fill(course) == []
    assert b"1 + 2" in mine.read_bytes()


def test_a_new_release_of_a_chapter_takes_the_old_ones_place_and_keeps_it(course: Path) -> None:
    my_folder.fill(course)
    mine = course / "my" / "chapters" / "01_a.ipynb"
    ran = mine.read_bytes().replace(b"1 + 1", b"1 + 2")
    mine.write_bytes(ran)
    reports = {r.name: r for r in my_folder.update(course)}
    assert reports["chapters/01_a.ipynb"].lines == ["up to date"]
    page = course / "book" / "01_a.md"
    page.write_text(page.read_text(encoding="utf-8").replace("1 + 1", "2 + 2"), encoding="utf-8")
    report = {r.name: r for r in my_folder.update(course)}["chapters/01_a.ipynb"]
    assert report.lines[0] == "updated"
    assert b"2 + 2" in mine.read_bytes()
    (kept,) = (course / "my" / ".twophase" / "backup").iterdir()
    assert kept.read_bytes() == ran
