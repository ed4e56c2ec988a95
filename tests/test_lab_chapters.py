"""A chapter as a notebook: the page's cells as they are, its text without a trace of MyST."""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest
from chapter_tools import Cell
from patience import PATIENCE_S

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
    ours = [chapters.SAY_QUOTED] if "{glue" in text else []
    assert sources(nb, "code") == ours + sources(jupytext.reads(text, "md:myst"), "code")
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


def test_a_cell_says_what_the_text_calls_its_numbers() -> None:
    program = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        f"cells = [{chapters.SAY_QUOTED!r}, 'from myst_nb import glue',"
        ' \'glue("best", "heads", display=False); glue("gap", 3)\', \'1\']\n'
        "for cell in cells:\n    print('>', shell.run_cell(cell, store_history=False).success)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S
    )
    wanted = "> True\n> True\nIn the text:\n  best: heads\n  gap: 3\n> True\nOut[0]: 1\n> True\n"
    assert done.stdout.replace("\n\n", "\n") == wanted, done.stderr


def lost_names(cells: list[str]) -> list[str]:
    """Names that a cell assigned, that a loop of another cell took, and that a later one reads."""
    given: dict[str, int] = {}  # name -> the cell that assigned it
    taken: dict[str, int] = {}  # -> the cell whose loop took it
    lost = []
    for number, source in enumerate(cells):
        for statement in ast.parse(re.sub(r"^[%!].*$", "", source, flags=re.M)).body:
            named = [n for n in ast.walk(statement) if isinstance(n, ast.Name)]
            stored = {n.id for n in named if isinstance(n.ctx, ast.Store)}
            stored |= {n.arg for n in ast.walk(statement) if isinstance(n, ast.arg)}
            for name in {n.id for n in named} - stored:
                if taken.get(name, number) != number:
                    lost.append(f"{name}, in {source.splitlines()[0]!r}")
            if isinstance(statement, ast.For):
                targets = {n.id for n in ast.walk(statement.target) if isinstance(n, ast.Name)}
                taken |= {n: number for n in targets if given.get(n, number) != number}
                stored -= targets
            if isinstance(statement, ast.Assign):
                given |= dict.fromkeys(stored, number)
            for name in stored:
                taken.pop(name, None)
    return lost


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_no_loop_takes_a_name_that_a_later_cell_reads(page: Path) -> None:
    cells = sources(jupytext.reads(page.read_text(encoding="utf-8"), "md:myst"), "code")
    assert lost_names(cells) == []


def not_again(sources: list[str]) -> list[str]:
    """Why a cell might do something else, or fail, when it is run once more: it reads what it binds
    again, or what no cell before bound; a name is a function or an import in one cell and
    something else in another; a function that later cells call reads a name that one of these
    binds again; or a constant has two values."""
    cells, found, known = [Cell(source) for source in sources], [], set(dir(builtins))
    for number, cell in enumerate(cells):
        found += [f"{name} is read, and nobody bound it" for name in cell.needed - known]
        known |= set(cell.given)
        later = cells[number + 1 :]
        changed = set[str]().union(*(other.given for other in later))
        found += [f"{name} is read, then bound again" for name in cell.needed & set(cell.given)]
        for function, names in cell.promised.items():
            if any(function in other.needed for other in later):
                found += [f"{function} reads {name}, bound again" for name in names & changed]
    for name in set[str]().union(*(cell.given for cell in cells)):
        of_cells = [cell.given[name] for cell in cells if name in cell.given]
        if len(set[str]().union(*of_cells)) > 1:
            found.append(f"{name} is several things")
        if len(of_cells) > 1 and len(name) > 1 and name.isupper():
            found.append(f"{name} is bound in {len(of_cells)} cells")
    return sorted(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_cell_that_is_run_again_finds_the_names_that_it_found_before(page: Path) -> None:
    cells = sources(jupytext.reads(page.read_text(encoding="utf-8"), "md:myst"), "code")
    assert not_again([re.sub(r"^[%!].*$", "", cell, flags=re.M) for cell in cells]) == []


def test_a_cell_that_cannot_be_run_again_is_found() -> None:
    assert not_again(["n = 1", "n = n + 1"]) == ["n is read, then bound again"]
    assert not_again(["n = 1", "m"]) == ["m is read, and nobody bound it"]
    assert not_again(["n = 1", "n += 1"]) == ["n is read, then bound again"]
    assert not_again(["def f():\n    return 1", "f = 2"]) == ["f is several things"]
    assert not_again(["from math import e", "for e in (1, 2):\n    print(e)"]) != []
    assert not_again(["k = 1\ndef f():\n    return k", "k = 2", "f()"]) == [
        "f reads k, bound again"
    ]
    assert not_again(["START = 1", "START = 2"]) == ["START is bound in 2 cells"]
    assert not_again(["import math", "import math", "n = [k for k in (1, 2)]", "n = 3"]) == []
    assert not_again(["k = 1", "def f(k):\n    return k", "k = 2", "f(k)"]) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_no_role_stands_inside_of_code_where_nobody_reads_it(page: Path) -> None:
    prose = "\n".join(
        sources(jupytext.reads(page.read_text(encoding="utf-8"), "md:myst"), "markdown")
    )
    assert re.findall(r"`\{[a-z:]+\}`[^`]*``", prose) == []


def test_a_name_that_a_loop_took_is_found() -> None:
    loop = "for arch in (1, 2):\n    print(arch)"
    assert lost_names(["arch = 3", loop, "print(arch)"]) == ["arch, in 'print(arch)'"]
    assert lost_names(["arch = 3", loop, "arch = 4", "print(arch)"]) == []
    assert lost_names(["arch = 3", loop + "\nprint(arch)"]) == []


def test_figures_have_the_numbers_of_the_page() -> None:
    head = 'mystnb:\n  figure: {name: fig-%s, caption: "A %s."}'
    cell = f"```{{code-cell}} python\n---\n{head}\n---\n1\n```\n"
    page = "# T\n\nSee {numref}`fig-b`.\n\n" + "".join(cell % (n, n) for n in "ab")
    nb = nbformat.reads(chapters.to_notebook(page, "04_x").decode("utf-8"), as_version=4)
    words = "\n".join(sources(nb, "markdown"))
    assert "See Fig. 4.2." in words
    assert "*Fig. 4.1 A a.*" in words
    assert "*Fig. 4.2 A b.*" in words


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
