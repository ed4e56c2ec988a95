"""The names that a notebook's cell defines, the exercises that it asks for, and where."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from itertools import pairwise

# lines that are IPython's, not Python's: %magics, !commands, `files = !ls`, `torch.arange?`
MAGIC = re.compile(r"^([ \t]*+)(?:[%!?].*|([\w, \t]++=)[ \t]*+[%!].*|[\w.]++\?\??[ \t]*+)$", re.M)
COMMENT = re.compile(r"#.*")
CALLS_CHECK = re.compile(r"\bcheck\(")
ID = re.compile(r"""(?<!hint\()(?<!solution\()['"](\w+-[\w-]+)['"]""")
LONGEST = 50_000  # characters; of a longer cell nothing is known, so that nobody waits for it
MOST_PARTS = 100  # of a cell, so that its pieces do not cost much more than the whole
MOST = 2_000  # cells that are remembered: those of one notebook

# what is assigned inside of these is theirs
SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except Exception:  # SyntaxError, and whatever else the parser raises on odd text
        return None


def _parsed_as_a_cell(source: str) -> ast.Module | None:
    """A cell as Python, with `None` where a line is IPython's own. First as it stands: a line of
    Python may begin with %, too."""
    return _parsed(source) or _parsed(MAGIC.sub(r"\1\2None", source))


def checked(source: str) -> list[str]:
    """The exercises whose checks a cell calls: the ids in a cell that calls `check`, however it
    does (`print(check("..."))`, a loop over ids)."""
    code = COMMENT.sub("", source)
    return ID.findall(code) if CALLS_CHECK.search(code) else []


def parts(source: str) -> list[str]:
    """A cell cut below each of its statements that calls a check: what stands further down has not
    run when that exercise is asked. In one piece if it is no Python or begins with a %%magic, or if
    the pieces would be too many."""
    tree = _parsed_as_a_cell(source) if CALLS_CHECK.search(source[:LONGEST]) else None
    if tree is None or source.startswith("%%") or len(source) > LONGEST:
        return [source]
    lines = source.split("\n")
    spans = [(node.lineno - 1, node.end_lineno or node.lineno) for node in tree.body]
    ends = [
        end for at, end in spans if CALLS_CHECK.search(COMMENT.sub("", "\n".join(lines[at:end])))
    ]
    if len(ends) > MOST_PARTS:
        return [source]
    cut = ["\n".join(lines[at:end]) for at, end in pairwise(sorted({0, *ends, len(lines)}))]
    return [part for part in cut if part.strip()]


def defined(source: str) -> frozenset[str]:
    """The names that a cell defines at its top level, magics aside."""
    return _defined(source) if len(source) <= LONGEST else frozenset()


@lru_cache(MOST)
def _defined(source: str) -> frozenset[str]:
    tree = _parsed_as_a_cell(source)
    if tree is None:
        return frozenset()
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
    return frozenset(names)


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
