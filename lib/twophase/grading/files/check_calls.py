"""Where a notebook calls its checks, by whatever name, and its cells cut there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import zip_longest

from twophase.grading.files.cell_names import LONGEST, MOST, parsed_as_a_cell

RUNS_ITS_CELL = re.compile(r"\s*%%(?:time|capture)\b.*\n")  # in the notebook's own names
COMMENT = re.compile(r"""("[^"\n]*"|'[^'\n]*')|#.*""")  # not a # in a string: \1
CALLS_CHECK = re.compile(r"\bcheck[ \t]*\(")
CALLED = re.compile(r"\b(\w++)[ \t]*+\(")
NAMED = re.compile(r"(\w++)(?:\[(\d{1,3})\])?")  # a word, and which of its items
JOINT = re.compile(r"[ \t]*;?[ \t]*(?:\\\n[ \t]*)*")  # of two statements on one line
ID = re.compile(r"""(?<!hint\()(?<!solution\()['"](\w+-[\w-]+)['"]""")
MOST_PARTS = 100  # of a cell, so that its pieces do not cost much more than the whole

DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

Part = tuple[str, list[str]]  # a piece of a cell, and the exercises whose checks it calls


def checked(source: str) -> list[str]:
    """The exercises whose checks a cell calls: the ids in a cell that calls `check`, however it
    does (`print(check("..."))`, a loop over ids)."""
    code = COMMENT.sub(r"\1", source)
    return ID.findall(code) if CALLS_CHECK.search(code) else []


class CheckCalls:
    """What calls checks in a notebook that is read from top to bottom: `check`, another name of it
    (`verify = check`), each function that calls one; and the ids that names stand for."""

    def __init__(self) -> None:
        self._calling = {"check"}
        self._ids: dict[str, list[str]] = {}

    def parts(self, source: str) -> list[Part]:
        """The next cell cut below each of its statements that calls a check: what stands further
        down has not run when that exercise is asked. Under %%time or %%capture each piece is. In
        one piece if it is too long, no Python, or begins with another %%magic, or if the pieces
        would be too many."""
        begins = RUNS_ITS_CELL.match(source)
        head = begins[0] if begins else ""
        body = source.removeprefix(head)
        read = len(source) <= LONGEST and not body.lstrip().startswith("%%") and self._tells(body)
        tree = parsed_as_a_cell(body) if read else None
        if tree is None:
            return [(source, checked(source))]
        cut: list[Part] = []
        asked: list[str] = []
        begin = at = 0
        for node, (end, following) in zip(tree.body, _ends(tree, body), strict=True):
            text = COMMENT.sub(r"\1", body[at:end])
            if self._tells(text) and self._learn(node, text):
                asked += self._ids_in(text)
                if not _runs_later(node):
                    cut.append((body[begin:end], asked))
                    begin, asked = following, []
            at = following
        if len(cut) > MOST_PARTS:
            return [(source, [i for _, ids in cut for i in ids])]
        return [(head + part, ids) for part, ids in (*cut, (body[begin:], asked)) if part.strip()]

    def _tells(self, text: str) -> bool:
        """Whether it has an id, or a word that may call a check or stand for an id."""
        words = {word for word, _ in NAMED.findall(text)}
        apart = self._calling.isdisjoint(words) and words.isdisjoint(self._ids)
        return not apart or ID.search(text) is not None

    def _ids_in(self, text: str) -> list[str]:
        """The ids in a statement, its own and those that its names stand for."""
        found = ID.findall(text)
        for word, n in NAMED.findall(text):
            ids = self._ids.get(word, [])
            found += ids[int(n) :][:1] if n else ids
        return list(dict.fromkeys(found))[:MOST_PARTS]

    def _learn(self, node: ast.stmt, text: str) -> bool:
        """Whether a statement calls a check, or hands on what does. What it defines is known from
        here on."""
        calls = not self._calling.isdisjoint(CALLED.findall(text))
        lends = self._lends(node, calls)
        known = len(self._calling) + len(self._ids)
        if known < MOST and (lends or not (calls or isinstance(node, DEFINES))):
            names = _names(node)
            self._calling |= names if lends else set()
            self._ids |= dict.fromkeys(names, self._ids_in(text))
        return calls or lends

    def _lends(self, node: ast.stmt, calls: bool) -> bool:
        """Whether what a statement defines may call a check later."""
        nodes = list(ast.walk(node))
        made = [n for n in nodes if isinstance(n, ast.Call)]
        if _runs_later(node):
            return calls or any(self._is_one(a) for call in made for a in call.args)
        called = {id(call.func) for call in made}
        return any(self._is_one(n) and id(n) not in called for n in nodes)

    def _is_one(self, node: ast.AST) -> bool:
        """Whether it is a name that calls checks, or such a name in quotes."""
        match node:
            case ast.Name(id=str(name)) | ast.Attribute(attr=str(name)):
                return name in self._calling
            case ast.Constant(value=str(name)) | ast.alias(name=str(name), asname=str()):
                return name in self._calling
        return False


def _runs_later(node: ast.stmt) -> bool:
    """Whether a statement only defines what may be called below."""
    lambdas = isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda)
    return isinstance(node, DEFINES) or lambdas


def _names(node: ast.stmt) -> set[str]:
    """The names that a definition, an import or an assignment is for."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.ImportFrom(names=names):
            return {a.asname for a in names if a.asname}
        case ast.Assign(targets=targets):
            return {t.id for t in targets if isinstance(t, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
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
