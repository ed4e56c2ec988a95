"""What one node of a program may be mistaken for."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Container, Iterator
from typing import Any

SWAPPED: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult, ast.FloorDiv),
    ast.FloorDiv: (ast.Div,),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
DROPPED = {  # calls that are forgotten: what they were given is taken as it is
    *("max", "min", "abs", "int", "float", "round", "sorted", "list", "ceil", "floor", "sqrt"),
    *(
        "exp",
        "log",
        "log2",
        "reversed",
        "set",
        "clone",
        "copy",
        "deepcopy",
        "to",
        "float",
        "double",
    ),
    *("item", "tolist", "softmax", "clamp", "unsqueeze", "squeeze", "nan_to_num", "contiguous"),
    *("maximum", "minimum", "where", "sort", "flip", "cumsum", "repeat_interleave", "masked_fill"),
    *("transpose", "tril", "triu", "expand_as", "type_as"),
}
COMMUTING = ("max", "min", "maximum", "minimum", "logaddexp", "isclose", "gcd")
RENAMED = {  # one name for another
    "max": ("min",),
    "min": ("max",),
    "maximum": ("minimum",),
    "minimum": ("maximum",),
    "ceil": ("floor",),
    "floor": ("ceil",),
    "float64": ("float32",),
    "double": ("float",),
    "float32": ("float16",),
    "int64": ("int32",),
    "ValueError": ("RuntimeError",),
}
LARGE, LONG = 2048, 256  # tables that somebody once made large enough


def variants(node: ast.AST, parent: ast.AST, field: str) -> Iterator[ast.AST]:
    """What may stand in the place of `node`, a child of `parent`."""
    if isinstance(node, ast.stmt):
        yield from _statement(node)
    elif isinstance(node, tuple(SWAPPED)):
        yield from (other() for other in SWAPPED[type(node)])
    elif make := _EXPRESSIONS.get(type(node)):
        yield from make(node)
    if isinstance(parent, ast.Assign) and field == "value" and _is_empty(node):
        yield _kept(parent, node)


def _is_empty(node: ast.AST) -> bool:
    return ast.unparse(node) in ("[]", "{}", "set()", "list()", "dict()")


def _kept(parent: ast.Assign, node: ast.AST) -> ast.AST:
    """A container that is not made anew, but kept from one call to the next."""
    name = ast.unparse(parent.targets[0])
    kept = f"globals().setdefault({'kept ' + name!r}, {ast.unparse(node)})"
    return ast.parse(kept, mode="eval").body


def small_arguments(node: ast.FunctionDef, names: Container[str]) -> Iterator[tuple[str, ast.AST]]:
    """The function as one that was tried on small arguments only: (what is small, the function),
    for each argument of these names."""
    for name in (a.arg for a in node.args.args if a.arg in names):
        new = ast.FunctionDef(
            **{**vars(node), "body": [*ast.parse(re.sub(r"\bit\b", name, _CUT)).body, *node.body]}
        )
        yield f"{name} -> {name} % {LARGE}, or its first {LONG} entries", new


_CUT = f"""
it = (
    it % {LARGE} if isinstance(it, (int, float))
    else it[:{LONG}] if isinstance(it, (list, tuple))
    else {{k: v % {LARGE} if isinstance(v, (int, float)) else v for k, v in dict(it).items()}}
    if isinstance(it, dict)
    else it[tuple(slice({LONG}) for _ in it.shape)]
)
"""


def _constant(node: ast.Constant) -> Iterator[ast.AST]:
    x = node.value
    if isinstance(x, bool):
        yield ast.Constant(not x)
    elif isinstance(x, int):
        yield from map(_number, dict.fromkeys((x + 1, x - 1, 2 * x, 0)))
    elif isinstance(x, float):
        yield from map(_number, dict.fromkeys((2 * x, 1.1 * x, 0.0)))


def _number(x: float) -> ast.AST:
    return ast.Constant(x) if x >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-x))


def _binary(node: ast.BinOp) -> Iterator[ast.AST]:
    yield node.left
    yield node.right


def _unary(node: ast.UnaryOp) -> Iterator[ast.AST]:
    yield node.operand


def _boolean(node: ast.BoolOp) -> Iterator[ast.AST]:
    for i in range(len(node.values)):
        left = node.values[:i] + node.values[i + 1 :]
        yield left[0] if len(left) == 1 else ast.BoolOp(node.op, left)


def _call(node: ast.Call) -> Iterator[ast.AST]:
    name = _name(node.func)
    for i in range(len(node.args) - 1 if name not in COMMUTING else 0):
        args = list(node.args)
        args[i], args[i + 1] = args[i + 1], args[i]
        yield ast.Call(node.func, args, node.keywords)
    if len(node.args) > 1:
        yield ast.Call(node.func, node.args[:-1], node.keywords)
    for i in range(len(node.keywords)):
        yield ast.Call(node.func, node.args, node.keywords[:i] + node.keywords[i + 1 :])
    if name in DROPPED:
        yield from (a for a in node.args if not isinstance(a, ast.Starred))
        if isinstance(node.func, ast.Attribute) and not _is_module(node.func.value):
            yield node.func.value


def _is_module(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("torch", "np", "math", "F", "nn")


def _name(node: ast.AST) -> str:
    return getattr(node, "id", None) or getattr(node, "attr", None) or ""


def _word(node: ast.Name | ast.Attribute) -> Iterator[ast.AST]:
    for other in RENAMED.get(_name(node), ()):
        if isinstance(node, ast.Name):
            yield ast.Name(other, node.ctx)
        else:
            yield ast.Attribute(node.value, other, node.ctx)


def _slice(node: ast.Slice) -> Iterator[ast.AST]:
    if node.lower:
        yield ast.Slice(None, node.upper, node.step)
    if node.upper:
        yield ast.Slice(node.lower, None, node.step)
    if node.step:
        yield ast.Slice(node.lower, node.upper, None)


def _choice(node: ast.IfExp) -> Iterator[ast.AST]:
    yield node.body
    yield node.orelse


def _comprehension(node: ast.comprehension) -> Iterator[ast.AST]:
    for i in range(len(node.ifs)):
        ifs = node.ifs[:i] + node.ifs[i + 1 :]
        yield ast.comprehension(node.target, node.iter, ifs, node.is_async)


_EXPRESSIONS: dict[type[ast.AST], Callable[[Any], Iterator[ast.AST]]] = {
    ast.Constant: _constant,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolean,
    ast.Call: _call,
    ast.Name: _word,
    ast.Attribute: _word,
    ast.Slice: _slice,
    ast.IfExp: _choice,
    ast.comprehension: _comprehension,
}


def _statement(node: ast.stmt) -> Iterator[ast.AST]:
    """The statement left out, a test that always or never holds, a loop that ends after its first
    round."""
    if isinstance(node, ast.If | ast.While):
        kind = type(node)
        yield kind(ast.Constant(False), node.body, node.orelse)
        if isinstance(node, ast.If):
            yield kind(ast.Constant(True), node.body, node.orelse)
    if isinstance(node, ast.For):
        yield ast.For(node.target, node.iter, [*node.body, ast.Break()], node.orelse)
    elif isinstance(node, ast.While):
        yield ast.While(node.test, [*node.body, ast.Break()], node.orelse)
    elif isinstance(node, ast.AugAssign):
        load = ast.parse(ast.unparse(node.target), mode="eval").body
        yield ast.Assign([node.target], node.value, lineno=0)
        for other in SWAPPED.get(type(node.op), ()):
            yield ast.Assign([node.target], ast.BinOp(load, other(), node.value), lineno=0)  # type: ignore[arg-type]
    keep = (ast.FunctionDef, ast.ClassDef, ast.Return, ast.Import, ast.ImportFrom, ast.Pass)
    if not isinstance(node, (*keep, ast.If, ast.While, ast.For)):
        yield ast.Pass()
