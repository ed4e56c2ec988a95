"""Where a cell may call its checks, and the cell cut there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest

from twophase.grading.files.cell_names import LONGEST, defined
from twophase.grading.files.cell_syntax import parsed_as_a_cell, readable

RUNS_ITS_CELL = re.compile(r"\s*%%(?:time|capture)\b.*\n")  # in the notebook's own names
# with an indent or prompts, which IPython takes off
PASTED = re.compile(r"\A\n*[ \t]|^[ \t]*(?:>>>|In \[)", re.M)
COMMENT = re.compile(r"""("[^"\n]*"|'[^'\n]*')|#.*""")  # not a # in a string: \1
CALLS_CHECK = re.compile(r"\bcheck[ \t]*\(")
CALLS = re.compile(r"[\w\])][ \t]*\(")
# a line at the margin that is no definition, import, comment or closing bracket: it may call
AT_ONCE = re.compile(r"^(?!(?:async )?def |class |(?:import|from) [^;\n]*$)[^\s#)\]}]", re.M)
JOINT = re.compile(r"[ \t]*;?[ \t]*(?:\\\n[ \t]*)*")  # of two statements on one line
ID = re.compile(r"""(?<!hint\()(?<!solution\()['"](\w+-[\w-]+)['"]""")
CATCHES = re.compile(r"\bexcept\b|\bsuppress\b")
NAMES_CHECK = re.compile(r"\bcheck\b")
MOST_PARTS = 100  # of a cell, so that its pieces do not cost much more than the whole


def checked(source: str) -> list[str]:
    """The exercises whose checks a cell seems to call: the ids in a cell that calls `check`,
    however it does (`print(check("..."))`, a loop over ids)."""
    code = COMMENT.sub(r"\1", source)
    return ID.findall(code) if CALLS_CHECK.search(code) else []


def catches(source: str, exercise_id: str) -> bool:
    """Whether a cell may go on where the check of an exercise, or of one that it does not name, has
    failed."""
    caught = (CATCHES.search(source) and NAMES_CHECK.search(source)) or _swallows(source)
    ids = ID.findall(source)
    return bool(caught) and (not ids or exercise_id in ids)


def _swallows(source: str) -> bool:
    """Whether a cell makes a context that may go on where something in it has failed. One that
    returns nothing, as a timer does, cannot."""
    if "__exit__" not in source:
        return False
    tree = parsed_as_a_cell(source) if len(source) <= LONGEST else None
    if tree is None:
        return True
    exits = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "__exit__"]
    returns = [r.value for e in exits for r in ast.walk(e) if isinstance(r, ast.Return) and r.value]
    given = any(not isinstance(r, ast.Constant) or r.value for r in returns)
    return given or source.count("__exit__") > len(exits)  # or it is handed on, or made otherwise


def parts(source: str, names: Iterable[str] = ()) -> list[str]:
    """A cell that defines one of `names`, or speaks of a check, cut below each of its statements
    that calls anything: who knows by what name a check is called, and what stands further down has
    not run when that exercise is asked. If these are too many, below each that says `check(`. Under
    %%time or %%capture each piece is. In one piece if it is too long, no Python, or begins with
    another %%magic."""
    begins = RUNS_ITS_CELL.match(source)
    head = begins[0] if begins else ""
    body = source.removeprefix(head)
    if len(body) <= LONGEST and PASTED.search(body):
        body = readable(body)
    reads = len(source) <= LONGEST and not body.lstrip().startswith("%%") and AT_ONCE.search(body)
    if not (reads and (CALLS_CHECK.search(body) or ID.search(body) or defined(body) & {*names})):
        return [source]
    if not (tree := parsed_as_a_cell(body)):
        return [source]
    for calls in (CALLS, CALLS_CHECK):
        cut, begin, at = [], 0, 0
        for node, (end, following) in zip(tree.body, _ends(tree, body), strict=True):
            if not _runs_later(node) and calls.search(COMMENT.sub(r"\1", body[at:end])):
                cut.append(body[begin:end])
                begin = following
            at = following
        if len(cut) <= MOST_PARTS:
            return [head + part for part in (*cut, body[begin:]) if part.strip()]
    return [source]


def _runs_later(node: ast.stmt) -> bool:
    """Whether a statement only defines what may be called below."""
    if isinstance(node, ast.Assign):
        return isinstance(node.value, ast.Lambda)
    defines = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return isinstance(node, defines) and not node.decorator_list


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
