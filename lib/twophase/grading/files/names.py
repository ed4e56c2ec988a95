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
