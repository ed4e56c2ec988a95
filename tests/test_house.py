"""The house rules of CONTRIBUTING.md that a machine can hold: which room may import which, and how
long a file may be."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from exercise_tools import ALL_IDS
from patience import PATIENCE_S

from twophase.checks import registry

ROOT = Path(__file__).resolve().parents[1]
LIB = ROOT / "lib" / "twophase"
FILES = sorted(LIB.rglob("*.py"))
MAX_LINES = 300

MODELS = {"theory", "kernels", "measure"}
BELOW_CHECKS = {*MODELS, "models", "parallel", "serving", "protocol"}
MAY_IMPORT: dict[str, set[str]] = {
    "theory": set(),
    "protocol": set(),
    "drawing": set(),
    "kernels": {"theory", "protocol"},
    "measure": {"theory", "kernels"},
    "models": MODELS,
    "parallel": {*MODELS, "models"},
    "serving": {*MODELS, "models", "parallel"},
    "errata": BELOW_CHECKS,
    "checks": BELOW_CHECKS,
    "grading": {"checks", "protocol"},
    "lab": {"checks", "measure", "protocol"},
    "cli": {*BELOW_CHECKS, "checks", "grading", "lab", "errata"},
}
# in `grading` each room may import those before it
GRADER = ("errors", "files", "sandbox", "course", "intake", "release", "results", "judge", "scores")
GRADER += ("run", "reports", "similar", "gradescope", "nbgrader")
# only inside functions: the official worker has no checks, and needs no clock
LATE = {("lab", "checks"), ("lab", "measure")}


def room_of(path: Path) -> str:
    return path.relative_to(LIB).parts[0].removesuffix(".py")


def absolute(path: Path, node: ast.ImportFrom) -> str:
    """The full name of the module in `from module import ...`, also of `from .module import
    ...`."""
    if not node.level:
        return node.module or ""
    package = ("twophase", *path.relative_to(LIB).parts)[: -node.level]
    return ".".join([*package, *([node.module] if node.module else [])])


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """Every module that a file imports, with whether that happens when the file itself is
    imported."""
    return list(_imports(path, ast.parse(path.read_text(encoding="utf-8")), now=True))


def _imports(path: Path, node: ast.AST, now: bool) -> Iterator[tuple[str, bool]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, now) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        module = absolute(path, node)
        yield module, now
        if module == "twophase":
            yield from ((f"twophase.{alias.name}", now) for alias in node.names)
    elif not isinstance(node, ast.expr):  # in which there is no statement
        late = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        )
        for inner in ast.iter_child_nodes(node):
            yield from _imports(path, inner, now and not late)


def test_a_room_imports_only_the_rooms_below_it() -> None:
    wrong = []
    for path in FILES:
        room = room_of(path)
        for module, now in imports(path) if room != "__init__" else []:
            package, _, rest = module.partition(".")
            below = rest.partition(".")[0]
            if package != "twophase" or below == room or below not in MAY_IMPORT:
                continue
            if below not in MAY_IMPORT[room]:
                wrong.append(f"{path.relative_to(LIB)} may not import {module}")
            elif now and (room, below) in LATE:
                wrong.append(f"{path.relative_to(LIB)} may import {module} only inside a function")
    assert not wrong


def test_a_room_of_the_grader_imports_only_those_before_it() -> None:
    wrong = []
    for path in [p for p in FILES if room_of(p) == "grading"]:
        room = path.relative_to(LIB / "grading").parts[0].removesuffix(".py")
        for module, _ in imports(path) if room != "__init__" else []:
            if module.startswith("twophase.grading."):
                below = module.split(".")[2]
                if GRADER.index(below) > GRADER.index(room):
                    wrong.append(f"{path.relative_to(LIB)} may not import {module}")
    assert not wrong


def test_a_class_name_of_the_grader_has_one_meaning() -> None:
    named = [
        node.name
        for path in FILES
        if room_of(path) == "grading"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    assert sorted({name for name in named if named.count(name) > 1}) == []


def test_the_graders_readme_names_every_file_of_it_and_none_that_is_not_there() -> None:
    grader = LIB / "grading"
    text = (grader / "README.md").read_text(encoding="utf-8")
    there = {p.relative_to(grader).as_posix() for p in grader.glob("*/*.py")} - {"__init__.py"}
    named = set(re.findall(rf"`((?:{'|'.join(GRADER)})/\w+\.py)`", text))
    assert sorted(named - there) == []
    for line in text.partition("| room |")[2].partition("\n\n")[0].splitlines():
        files = re.findall(r"`(\w+)`", line)
        rooms = [f for f in files if (grader / f).is_dir()]
        named |= {f"{room}/{file}.py" for room in rooms for file in files}
    assert sorted(n for n in there - named if not n.endswith("__init__.py")) == []


def test_what_the_graders_readme_points_to_inside_a_file_is_there() -> None:
    grader = LIB / "grading"
    text = (grader / "README.md").read_text(encoding="utf-8")
    pointed = re.findall(r"`(\w+/\w+\.py)` \(((?:`\w+`(?:, )?)+)\)", text)
    assert len(pointed) >= 5
    for file, names in pointed:
        source = (grader / file).read_text(encoding="utf-8")
        for name in re.findall(r"\w+", names):
            assert re.search(rf"(?:def|class) {name}\b", source), f"{file} has no {name}"


def test_every_room_has_its_arrows_and_its_line_in_contributing() -> None:
    rooms = {room_of(p) for p in FILES} - {"__init__"}
    assert rooms <= set(MAY_IMPORT)
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for room in rooms:
        assert f"`{room}`" in text or f"`{room}.py`" in text, (
            f"CONTRIBUTING.md does not say what {room} is"
        )


def test_the_arrows_have_no_cycle() -> None:
    left = {room: set(below) for room, below in MAY_IMPORT.items()}
    while left:
        bottom = {room for room, below in left.items() if not below & set(left)}
        assert bottom, f"these import each other: {sorted(left)}"
        left = {room: below for room, below in left.items() if room not in bottom}


@pytest.mark.parametrize("room", ["theory", "protocol", "drawing", "lab"])
def test_these_rooms_import_the_standard_library_only_when_they_are_imported(room: str) -> None:
    """Theory always: it runs in a browser. The protocol meets numpy and torch only if a value is
    theirs."""
    for path in [p for p in FILES if room_of(p) == room]:
        for module, now in imports(path):
            if (now or room == "theory") and module.split(".")[0] not in {
                *sys.stdlib_module_names,
                "twophase",
            }:
                pytest.fail(f"{path.relative_to(LIB)} imports {module}")


def test_no_file_of_the_package_or_its_tools_is_longer_than_a_person_reads_at_once() -> None:
    tools = [path for room in ("tools", "book/_ext") for path in ROOT.glob(f"{room}/**/*.py")]
    lines = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in [*FILES, *tools]}
    assert not {str(p.relative_to(ROOT)): n for p, n in lines.items() if n > MAX_LINES}


def test_checks_of_formulas_bring_neither_numpy_nor_torch() -> None:
    formulas = [i for i in ALL_IDS if registry.load(i).kind == "formula"]
    code = (
        "import sys\nfrom twophase.checks import judge, registry\n"
        f"for i in {formulas!r}:\n"
        "    bench = judge.Bench(registry.load(i))\n"
        "    brought = {'numpy', 'torch'} & set(sys.modules)\n"
        "    assert not brought, f'{i} brings {brought}'"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr.splitlines()[-1]
