"""Inside theory imports run one way, late imports inside functions included."""

import ast
from pathlib import Path

THEORY = Path(__file__).resolve().parents[1] / "lib" / "twophase" / "theory"
PACKAGE = "twophase.theory"


def imported(source: str) -> set[str]:
    """The modules of theory that a module's source imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}."):
            found.add(str(node.module).split(".")[2])
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names if a.name.startswith(f"{PACKAGE}.")]
            found |= {name.split(".")[2] for name in names}
        assert not (isinstance(node, ast.ImportFrom) and node.level), "imports are absolute here"
    return found


def circle(arrows: dict[str, set[str]]) -> set[str]:
    """The modules that no order of importing can serve: empty if imports run one way."""
    left = {name: below & set(arrows) for name, below in arrows.items()}
    while bottom := {name for name, below in left.items() if not below & set(left)}:
        left = {name: below for name, below in left.items() if name not in bottom}
    return set(left)


def test_no_module_of_theory_imports_itself_by_way_of_others() -> None:
    arrows = {p.stem: imported(p.read_text(encoding="utf-8")) for p in THEORY.glob("*.py")}
    assert "sizes" in arrows["architecture"]
    assert circle(arrows) == set()


def test_a_circle_is_found_late_imports_included() -> None:
    late = "def f():\n    from twophase.theory.b import g\n"
    arrows = {"a": imported(late), "b": imported("from twophase.theory import a"), "c": {"a"}}
    assert circle(arrows) == {"a", "b", "c"}
