"""An answer's code as fragments, for which names, comments, types, layout and the order of
statements do not count.

A fragment is `LENGTH` steps in a row through the syntax tree of one statement, names numbered as
they come up in it. (MOSS takes k-grams of text, and keeps some: Schleimer, Wilkerson and Aiken
2003. These are of trees, and all are kept, since an answer is short.) Each statement stands by
itself, so to reorder them, or to put dead code between them, changes none of the others. What does
not parse is read line by line. Nothing is run.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from twophase.grading.files.cell_syntax import parsed_as_a_cell
from twophase.grading.similar.lines import LEXER, logical_lines

LENGTH = 6  # steps in a fragment
SHORTEST = 4  # a whole statement of fewer steps says nothing
MAX_TEXT = 64_000  # characters of an answer that are looked at
MAX_STEPS = 20_000

Fragment = tuple[str, ...]
# before a name that may be chosen freely; no name in a source that parses begins with it
NAME = "\0"

MODULES = (
    *("np", "numpy", "torch", "math", "random", "statistics"),
    *("collections", "functools", "itertools"),
)
FIXED = {*MODULES, *dir(builtins), *keyword.kwlist}
SILENT = (ast.expr_context, ast.arguments, ast.Expr, ast.Starred)
NO_STATEMENT = (ast.Import, ast.ImportFrom, ast.Pass, ast.Global, ast.Nonlocal)
# what a message says is told elsewhere; names and arguments the task gives
CLOSED = (ast.JoinedStr, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.arg)


@dataclass(frozen=True)
class Statement:
    """The lines of one statement (without those inside it) and its fragments."""

    first: int
    last: int
    fragments: frozenset[Fragment]


@dataclass(frozen=True)
class Code:
    """An answer taken apart: whether all of it is Python, and whether only a part was looked at."""

    statements: tuple[Statement, ...] = ()
    parsed: bool = True
    cut: bool = False
    fragments: frozenset[Fragment] = field(default_factory=frozenset)


def fragments_of(source: str) -> Code:
    """The fragments of any text at all; what cannot be taken apart has none. Raises nothing."""
    try:
        return _taken_apart(source)
    except Exception:  # of one person's text, and the class waits for the comparison
        return Code(parsed=False)


def _taken_apart(source: str) -> Code:
    text = source[:MAX_TEXT]
    tree = parsed_as_a_cell(text)
    if tree is not None:
        found = [_statement(s, s.lineno, 0) for s in _flat(tree.body)]
    else:
        found = [s for line in logical_lines(text) for s in _of_line(*line)]
    kept: list[Statement] = []
    n_steps = 0
    for first, last, labels in found:
        n_steps += len(labels)
        if n_steps > MAX_STEPS:
            break
        kept.append(Statement(first, last, frozenset(fragments(labels))))
    cut = len(source) > MAX_TEXT or n_steps > MAX_STEPS
    everything = frozenset(f for s in kept for f in s.fragments)
    return Code(tuple(kept), tree is not None, cut, everything)


def _of_line(first: int, last: int, text: str) -> Iterator[tuple[int, int, list[str]]]:
    """A line of a text that does not parse as a whole: by a tree of its own, else by its words."""
    opens = text.endswith(":")
    whole = re.sub(r"^elif\b", "if", text) + (" pass" if opens else "")
    if re.match(r"(else|try|finally|except|case|@)", whole):
        return
    tree = parsed_as_a_cell(whole)
    if tree is not None:
        for statement in _flat(tree.body):
            _, _, labels = _statement(statement, first, last)
            yield first, last, labels
        return
    words = (m.group() for m in re.finditer(LEXER, text))
    told = (w for w in words if w not in "\n,()")
    yield first, last, [NAME + w if w.isidentifier() and w not in FIXED else w for w in told]


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements, those inside others too, but for imports, `pass`, docstrings, constants."""
    waiting = list(reversed(body))
    while waiting:
        statement = waiting.pop()
        if isinstance(statement, NO_STATEMENT):
            continue
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if isinstance(statement, ast.AnnAssign) and statement.value is None:
            continue
        pairs = _pairs(statement)
        if pairs:
            waiting += reversed(pairs)
            continue
        yield statement
        inside: list[ast.stmt] = []
        for name in ("body", "orelse", "finalbody"):
            inside += getattr(statement, name, [])
        for part in [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]:
            inside += part.body
        waiting += reversed(inside)


def _pairs(statement: ast.stmt) -> list[ast.stmt]:
    """`a, b = x, y` as `a = x` and `b = y`; nothing for anything else."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return []
    target, value = statement.targets[0], statement.value
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        return []
    starred = any(isinstance(e, ast.Starred) for e in (*target.elts, *value.elts))
    if starred or len(target.elts) != len(value.elts):
        return []
    both = zip(target.elts, value.elts, strict=True)
    return [ast.copy_location(ast.Assign([t], v), statement) for t, v in both]


def _statement(statement: ast.stmt, first: int, last: int) -> tuple[int, int, list[str]]:
    """First line, last line (0: as the tree says) and steps of a statement without its body."""
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    inner = body[0] if body else None
    end = statement.end_lineno or first
    if isinstance(inner, ast.stmt):
        end = max(first, min(end, inner.lineno - 1))
    elif inner is not None:
        end = first
    return first, last or end, list(steps(statement))


def steps(statement: ast.stmt) -> Iterator[str]:
    """The labels of a statement's tree, from the top down and from left to right."""
    waiting: list[ast.AST] = [statement]
    while waiting and (node := waiting.pop()):
        yield from _labels(node)
        waiting += reversed(_below(node))


def _labels(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name):
            yield name if name in FIXED else NAME + name
        case ast.Attribute(attr=name, value=ast.Name(id="self")):
            yield NAME + "." + name
        case ast.Attribute(attr=name):
            yield "." + name
        case ast.Constant(value=value):
            yield _constant(value)
        case ast.JoinedStr():
            yield "text"
        case ast.arg(arg=name):
            yield NAME + name
        case ast.keyword(arg=name):
            yield f"{name}="
        case ast.BinOp() | ast.UnaryOp() | ast.BoolOp():
            yield type(node.op).__name__
        case ast.Compare():
            yield " ".join(type(o).__name__ for o in node.ops[:8])
        case ast.AugAssign() | ast.AnnAssign():
            yield "Assign"
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield "def"
        case ast.operator() | ast.unaryop() | ast.boolop() | ast.cmpop():
            return
        case _ if not isinstance(node, SILENT):
            yield type(node).__name__


def _below(node: ast.AST) -> list[ast.AST]:
    """What comes after a node: its parts, without types and without a statement's body."""
    if isinstance(node, CLOSED):
        return []
    match node:
        case ast.Attribute(value=ast.Name(id="self")):
            return []
        case ast.AnnAssign(target=target, value=value):
            return [target, *([value] if value else [])]
        case ast.AugAssign(target=target, op=op, value=value):
            return [target, ast.BinOp(target, op, value)]  # x += y as x = x + y
        case ast.Raise(exc=ast.Call(func=func)):
            return [func]  # its message is free text
        case _:
            return [
                n
                for n in ast.iter_child_nodes(node)
                if not isinstance(n, ast.stmt | ast.excepthandler | ast.match_case)
            ]


def _constant(value: object) -> str:
    if isinstance(value, bool) or value is None or value is Ellipsis:
        return str(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**30 else "large"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, str):
        return f"'{value[:60]}'"
    return type(value).__name__


def fragments(labels: list[str]) -> Iterator[Fragment]:
    """All runs of LENGTH labels, free names numbered from 0; of SHORTEST or more, the whole."""
    if len(labels) < SHORTEST:
        return
    for start in range(max(1, len(labels) - LENGTH + 1)):
        names: dict[str, str] = {}
        yield tuple(
            names.setdefault(label, f"v{len(names)}") if label[0] == NAME else label
            for label in labels[start : start + LENGTH]
        )
