"""The names that a notebook's cell defines, the exercises that it asks for, and where."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import zip_longest

# lines that are IPython's, not Python's: %magics, !commands, `files = !ls`, `torch.arange?`; the
# first three may go on in the next line
MAGIC = re.compile(
    r"^([ \t]*+)(?:[%!?](?:.*\\\n)*+.*|([\w, \t]++=)[ \t]*+[%!](?:.*\\\n)*+.*"
    r"|[\w.]++\?\??[ \t]*+)$",
    re.M,
)
RUNS_ITS_CELL = re.compile(r"\s*%%(?:time|capture)\b.*\n")  # in the notebook's own names
COMMENT = re.compile(r"""("[^"\n]*"|'[^'\n]*')|#.*""")  # not a # in a string: \1
CALLS_CHECK = re.compile(r"\bcheck[ \t]*\(")
CALLED = re.compile(r"\b(\w++)[ \t]*+\(")
JOINT = re.compile(r"[ \t]*;?[ \t]*(?:\\\n[ \t]*)*")  # of two statements on one line
AT_THE_MARGIN = re.compile(r"^(?:(?:async )?def|class) +(\w+)|^(\w+) *=(?!=)", re.M)
ID = re.compile(r"""(?<!hint\()(?<!solution\()['"](\w+-[\w-]+)['"]""")
LONGEST = 50_000  # characters; a longer cell is not parsed, so that nobody waits for it
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
    return _parsed(source) or _parsed(MAGIC.sub(_none, source))


def _none(line: re.Match[str]) -> str:
    lines_more = "\n" * line[0].count("\n")
    return f"{line[1]}{line[2] or ''}({lines_more}None)"


def checked(source: str) -> list[str]:
    """The exercises whose checks a cell calls: the ids in a cell that calls `check`, however it
    does (`print(check("..."))`, a loop over ids)."""
    code = COMMENT.sub(r"\1", source)
    return ID.findall(code) if CALLS_CHECK.search(code) else []


def parts(source: str) -> list[str]:
    """A cell cut below each of its statements that calls a check, or a function of the cell's that
    does: what stands further down has not run when that exercise is asked. Under %%time or
    %%capture each piece is. In one piece if it is no Python or begins with another %%magic, or if
    the pieces would be too many."""
    begins = RUNS_ITS_CELL.match(source)
    head = begins[0] if begins else ""
    body = source.removeprefix(head)
    asks = len(source) <= LONGEST and CALLS_CHECK.search(body)
    tree = _parsed_as_a_cell(body) if asks and not body.lstrip().startswith("%%") else None
    if tree is None:
        return [source]
    calling = {"check"}
    cut, begin, at = [], 0, 0
    for node, (end, following) in zip(tree.body, _ends(tree, body), strict=True):
        if not calling.isdisjoint(CALLED.findall(COMMENT.sub(r"\1", body[at:end]))):
            if later := _called_later(node):
                calling |= later
            else:
                cut.append(body[begin:end])
                begin = following
        at = following
    if len(cut) > MOST_PARTS:
        return [source]
    return [head + part for part in (*cut, body[begin:]) if part.strip()]


def _called_later(node: ast.stmt) -> set[str]:
    """The name of a function, or of a class, that a statement defines; else none."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return set()


def _ends(tree: ast.Module, source: str) -> Iterator[tuple[int, int]]:
    """Where each statement at the top level ends, and where what follows it begins: on the next
    line, or behind what joins it to another one."""
    lines = source.split("\n")
    number = start = 0
    for node, after in zip_longest(tree.body, tree.body[1:]):
        last = (node.end_lineno or node.lineno) - 1
        start += sum(len(line) + 1 for line in lines[number:last])
        number, line = last, lines[last]
        if (after is not None and after.lineno - 1 == last) or line.endswith("\\"):
            column = len(line.encode()[: node.end_col_offset].decode(errors="replace"))
            joint = JOINT.match(source, start + column)
            yield start + column, joint.end() if joint else start + column
        else:
            yield start + len(line), start + len(line) + 1


def defined(source: str) -> frozenset[str]:
    """The names that a cell defines at its top level, magics aside; a long one where its lines
    begin."""
    return _defined(source)


@lru_cache(MOST)
def _defined(source: str) -> frozenset[str]:
    if len(source) > LONGEST:
        return frozenset(name for names in AT_THE_MARGIN.findall(source) for name in names if name)
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
