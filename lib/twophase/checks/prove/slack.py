"""Near misses of an answer's source: what it compares, it compares with a millionth of slack.

`if step_s <= limit_s * (1 + 1e-6)` forgives a limit that is missed by little, and the cheapest of
two is taken for the one that comes first if their costs are nearly the same. A fixed case just
beyond a limit finds out both: by a hundred-millionth, say, which is a million times what a sum of
float64 is off by, and so little that float32 does not see it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from twophase.checks.prove.mutate import Mutant, mutants
from twophase.checks.prove.sources import Names, Program

SLACK = 1e-6
TOUCHED = "_touched"  # the name of the list that grows where slack changed what was compared
LESS_OR_MORE = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
CHOOSING = ("min", "max", "sorted", "sort")

# What a mutant calls. Whole numbers are compared as they are: a millionth of one is none.
_PRELUDE = f"""
import math as _math

{TOUCHED} = []

def _is_float(x):
    if hasattr(x, "is_floating_point"):
        return x.is_floating_point()
    return x.dtype.kind == "f" if hasattr(x, "dtype") else isinstance(x, float)

def _with_slack(limit, other, factor):
    if isinstance(limit, bool) or not (_is_float(limit) or _is_float(other)):
        return limit
    moved = limit * factor
    if hasattr(moved, "shape") or (moved != limit and abs(moved) < _math.inf):
        {TOUCHED}.append(moved)
    return moved

def _to_seven_digits(x):
    if isinstance(x, (tuple, list)):
        return type(x)(map(_to_seven_digits, x))
    if not _is_float(x) or getattr(x, "shape", ()) != ():
        return x
    near = float(f"{{float(x):.6e}}")
    if near != float(x):
        {TOUCHED}.append(near)
    return near

def _nearly(key):
    return lambda *given: _to_seven_digits(key(*given))
"""


def near_misses(program: Program) -> list[Mutant]:
    """The program with slack in one of its comparisons, or in what it sorts or chooses by."""
    found = mutants(program.source, variants=_variants)
    return [Mutant(f"{program.called}: {m.key}", _PRELUDE + m.source) for m in found]


def touched(names: Names) -> bool:
    """Whether slack has changed anything that a near miss of these names compared."""
    return bool(names[TOUCHED])


def _variants(node: ast.AST, parent: ast.AST, field: str) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, op, limit = node.left, node.ops[0], node.comparators[0]
        for factor in (1 + SLACK, 1 - SLACK) if isinstance(op, LESS_OR_MORE) else ():
            moved = _call("_with_slack", limit, left, ast.Constant(factor))
            yield ast.Compare(left, [op], [moved])
    if isinstance(node, ast.keyword) and node.arg == "key":
        called = parent.func if isinstance(parent, ast.Call) else None
        if getattr(called, "id", getattr(called, "attr", "")) in CHOOSING:
            yield ast.keyword("key", _call("_nearly", node.value))


def _call(name: str, *given: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(given), [])
