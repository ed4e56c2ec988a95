"""Mutants of an answer's source: the same program with one small mistake in it."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass

from twophase.checks.prove.variants import small_arguments, variants

TELLING = (ast.Call, ast.BinOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.Subscript, ast.ListComp)
STATEMENTS = (ast.Assign, ast.AugAssign, ast.Return, ast.Expr)
SHORT = 60  # characters of a statement that is shown whole
SMALL = (ast.keyword, ast.comprehension, ast.Slice, ast.UnaryOp, ast.operator, ast.cmpop)
Where = tuple[ast.AST, str, int | None]  # parent, its field, place in the field if it is a list
Variants = Callable[[ast.AST, ast.AST, str], Iterator[ast.AST]]  # of a node, its parent, the field


@dataclass(frozen=True)
class Mutant:
    """One mistake. `key` names it in the list of equivalent mutants: the function, the code before
    and after, no line numbers, so that edits elsewhere do not change it."""

    key: str
    source: str


def mutants(source: str, small: Container[str] = (), variants: Variants = variants) -> list[Mutant]:
    """Every mutant of a module's source, in the order of the code. Those that read the same are
    made once. `small`: arguments that are cut to what a person might have tried; `variants`: what
    an expression or a statement may be mistaken for."""
    tree = _bare(ast.parse(source))
    plain = ast.unparse(tree)
    seen, keys = {plain}, Counter[str]()
    found = []
    for scope, where, new, around in _changes(tree, small, variants):
        before = _get(where)
        text = around if isinstance(around, str) else _line(around or before)
        _put(where, new)
        changed = ast.unparse(ast.fix_missing_locations(tree))
        says = around if isinstance(around, str) else f"{text} -> {_line(around or new)}"
        _put(where, before)
        if changed in seen:
            continue
        seen.add(changed)
        key = f"{scope}: {says}"
        keys[key] += 1
        found.append(Mutant(key if keys[key] == 1 else f"{key} #{keys[key]}", changed))
    return found


def _bare(tree: ast.Module) -> ast.Module:
    """Without docstrings and annotations: nothing in them can be wrong."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:] or [ast.Pass()]
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
    return ast.fix_missing_locations(_NoAnnotations().visit(tree))  # type: ignore[no-any-return]


class _NoAnnotations(ast.NodeTransformer):
    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        value = node.value or ast.Constant(None)
        return ast.copy_location(ast.Assign([node.target], value), node)


def _changes(
    tree: ast.Module, small: Container[str], variants: Variants
) -> Iterator[tuple[str, Where, ast.AST, ast.AST | str | None]]:
    """(name of the function or class, place, what to put there, how to show it) for every mutant.
    It is shown as the expression that it is part of, by itself (None), or in these words."""

    def walk(
        node: ast.AST, scope: str, around: ast.AST | None
    ) -> Iterator[tuple[str, Where, ast.AST, ast.AST | str | None]]:
        if isinstance(node, TELLING) or (
            isinstance(node, STATEMENTS) and len(_line(node)) <= SHORT
        ):
            around = node
        elif not isinstance(node, SMALL):
            around = None
        for field, value in ast.iter_fields(node):
            for i, child in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr):
                    continue
                where = (node, field, i if isinstance(value, list) else None)
                for new in variants(child, node, field):
                    yield scope, where, new, around
                inside = f"{scope}.{getattr(child, 'name', '')}".strip(".")
                if isinstance(child, ast.FunctionDef):
                    for says, new in small_arguments(child, small):
                        yield inside, where, new, says
                if not isinstance(child, ast.Raise):  # what an error says is not compared
                    inner = isinstance(child, ast.FunctionDef | ast.ClassDef)
                    yield from walk(child, inside if inner else scope, around)

    yield from walk(tree, "", None)


def _get(where: Where) -> ast.AST:
    parent, field, place = where
    value = getattr(parent, field)
    return value if place is None else value[place]  # type: ignore[no-any-return]


def _put(where: Where, new: ast.AST) -> None:
    parent, field, place = where
    if place is None:
        setattr(parent, field, new)
    else:
        getattr(parent, field)[place] = new


def _line(node: ast.AST) -> str:
    """The first line of the code of a node, its body left out."""
    head = copy.copy(node)
    if hasattr(head, "body") and isinstance(head.body, list):
        head.body = [ast.Pass()]
        if hasattr(head, "orelse"):
            head.orelse = []
    return ast.unparse(head).replace("\n", " ").replace("    ", "")
