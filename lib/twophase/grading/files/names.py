"""The names that a notebook's cell defines."""

from __future__ import annotations

import ast
import re

MAGIC = re.compile(r"^\s*[%!?].*$", re.M)

# what is assigned inside of these is theirs
SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def defined(source: str) -> set[str]:
    """The names that a cell defines at its top level, magics aside."""
    try:
        tree = ast.parse(MAGIC.sub("", source))
    except Exception:  # SyntaxError, and whatever else the parser raises on odd text
        return set()
    names: set[str] = set()
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)  # what is inside of it is its own
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(a.asname or a.name).partition(".")[0] for a in node.names}
        elif not isinstance(node, SCOPES):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            todo += ast.iter_child_nodes(node)
    return names


def used(source: str) -> set[str]:
    """All names in a cell, wherever in it they stand."""
    try:
        tree = ast.parse(MAGIC.sub("", source))
    except Exception:
        return set()
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}


def only_defines(source: str) -> bool:
    """Whether running a cell does nothing but define names: functions, classes, imports, values
    that no call makes. What its functions do when they are called is another matter."""
    try:
        tree = ast.parse(source)
    except Exception:  # no Python, or a magic
        return False
    return all(_only_defines(node) for node in tree.body)


def _only_defines(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        made = [*node.decorator_list, *getattr(node, "bases", []), *getattr(node, "keywords", [])]
        inside = node.body if isinstance(node, ast.ClassDef) else []
        return not any(map(_calls, made)) and all(map(_only_defines, inside))
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        named = all(isinstance(t, ast.Name | ast.Tuple) for t in targets)
        return named and not (node.value is not None and _calls(node.value))
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Import | ast.ImportFrom | ast.Pass)


def _calls(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Call | ast.Await) for n in ast.walk(node))
