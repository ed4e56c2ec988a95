"""The names that a notebook's cell defines and uses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain

# lines that are IPython's, not Python's: %magics, !commands, `files = !ls`, `torch.arange?`; the
# first three may go on in the next line
MAGIC = re.compile(
    r"^([ \t]*+)(?:[%!?](?:.*\\\n)*+.*|([\w, \t.\[\]'\"]++=)[ \t]*+[%!](?:.*\\\n)*+.*"
    r"|[\w.*\[\]'\"]++\?\??[ \t]*+)$",
    re.M,
)
AT_THE_MARGIN = re.compile(r"^(?:(?:async )?def|class) +(\w+)|^(\w+) *=(?!=)", re.M)
LONGEST = 50_000  # characters; a longer cell is not parsed, so that nobody waits for it
MOST = 2_000  # cells that are remembered: those of one notebook

# what is assigned inside of these is theirs
SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except Exception:  # SyntaxError, and whatever else the parser raises on odd text
        return None


def parsed_as_a_cell(source: str) -> ast.Module | None:
    """A cell as Python, with `None` where a line is IPython's own. First as it stands: a line of
    Python may begin with %, too. Then without prompts and an indent of all its lines, as IPython
    runs it; its lines stay as many."""
    tree = _parsed(source) or _parsed(MAGIC.sub(_none, source))
    if tree is None and (bare := without_prompts(source)) != source:
        return _parsed(bare) or _parsed(MAGIC.sub(_none, bare))
    return tree


def without_prompts(source: str) -> str:
    """A cell without what IPython takes off first: `>>> `, `In [3]: `, an indent of all lines."""
    from IPython.core import inputtransformer2 as ipython

    lines = source.splitlines(keepends=True)
    blank = next((n for n, line in enumerate(lines) if line.strip()), 0)
    bare = lines[blank:]
    for strip in (ipython.leading_indent, ipython.classic_prompt, ipython.ipython_prompt):
        bare = strip(bare)
    return "".join([*lines[:blank], *bare])


def _none(line: re.Match[str]) -> str:
    lines_more = "\n" * line[0].count("\n")
    return f"{line[1]}{line[2] or ''}({lines_more}None)"


def defined(source: str) -> frozenset[str]:
    """The names that a cell defines at its top level, magics aside; a long one where its lines
    begin."""
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
        elif not isinstance(node, SCOPES):
            if isinstance(node, ast.Name):
                stored += [node.id] * isinstance(node.ctx, ast.Store)
                deleted += [node.id] * isinstance(node.ctx, ast.Del)
            todo += ast.iter_child_nodes(node)
    return tuple(stored), tuple(deleted)


def used(source: str) -> frozenset[str]:
    """All names in a cell, wherever in it they stand."""
    return _used(source) if len(source) <= LONGEST else frozenset()


@lru_cache(MOST)
def _used(source: str) -> frozenset[str]:
    tree = _parsed(MAGIC.sub("", source))
    nodes = ast.walk(tree) if tree else ()
    return frozenset(n.id for n in nodes if isinstance(n, ast.Name))


def only_defines(source: str) -> bool:
    """Whether running a cell does nothing but define names: functions, classes, imports, values
    that no call makes. What its functions do when they are called is another matter."""
    return len(source) <= LONGEST and _all_define(source)


@lru_cache(MOST)
def _all_define(source: str) -> bool:
    tree = _parsed(source)  # none if it is no Python, or has a magic
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
