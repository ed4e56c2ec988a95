"""The names that a notebook's cell defines and uses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain

from twophase.grading.files.cell_syntax import parsed, parsed_as_a_cell

AT_THE_MARGIN = re.compile(r"^(?:(?:async )?def|class) +(\w+)|^(\w+) *=(?!=)", re.M)
LONGEST = 50_000  # characters; a longer cell is not parsed, so that nobody waits for it
MOST = 2_000  # cells that are remembered: those of one notebook

# what is assigned inside of these is theirs, but by := in all but the first
SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def defined(source: str) -> frozenset[str]:
    """The names that a cell binds at its top level, and that its functions say to be global; magics
    aside. Of a long cell only what its lines begin with."""
    return frozenset(_bound(source)[0])


def changes(sources: Iterable[str], name: str) -> bool:
    """Whether a cell, in pieces, binds a name more than once, or binds and deletes it."""
    stored, deleted = map(tuple, map(chain.from_iterable, zip(*map(_bound, sources), strict=True)))
    return name in stored and (stored + deleted).count(name) > 1


@lru_cache(MOST)
def _bound(source: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names that are bound at a cell's top level, each as often as it is; those deleted."""
    if len(source) > LONGEST:
        return tuple(n for names in AT_THE_MARGIN.findall(source) for n in names if n), ()
    tree = parsed_as_a_cell(source)
    stored: list[str] = []
    deleted: list[str] = []
    todo: list[ast.AST] = list(tree.body) if tree else []
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            stored.append(node.name)  # what is inside of it is its own, or said to be global
            inside = [*ast.walk(node)]
            outer = {name for n in inside if isinstance(n, ast.Global) for name in n.names}
            stored += [
                i for n in inside if (i := getattr(n, "name", getattr(n, "id", ""))) in outer
            ]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            stored += [(a.asname or a.name).partition(".")[0] for a in node.names]
        elif isinstance(node, SCOPES):
            here = () if isinstance(node, ast.Lambda) else ast.walk(node)
            stored += [n.target.id for n in here if isinstance(n, ast.NamedExpr)]
        else:
            if isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
                stored.append(node.name)
            if isinstance(node, ast.Name):
                stored += [node.id] * isinstance(node.ctx, ast.Store)
                deleted += [node.id] * isinstance(node.ctx, ast.Del)
            todo += ast.iter_child_nodes(node)
    return tuple(stored), tuple(deleted)


@lru_cache(MOST)
def used(source: str) -> frozenset[str]:
    """All names in a cell, wherever in it they stand; of a long one none."""
    tree = parsed_as_a_cell(source) if len(source) <= LONGEST else None
    nodes = ast.walk(tree) if tree else ()
    return frozenset(n.id for n in nodes if isinstance(n, ast.Name))


@lru_cache(MOST)
def only_defines(source: str) -> bool:
    """Whether running a cell does nothing but define names: functions, classes, imports, values
    that no call makes. What its functions do when they are called is another matter."""
    tree = parsed(source) if len(source) <= LONGEST else None  # nor if it has a magic
    return tree is not None and all(_only_defines(node) for node in tree.body)


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
    if isinstance(node, ast.ImportFrom):
        return all(a.name != "*" for a in node.names)  # which names those are, no cell says
    return isinstance(node, ast.Import | ast.Pass)


def _calls(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Call | ast.Await) for n in ast.walk(node))
