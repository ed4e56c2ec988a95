"""What a chapter's cells read and bind: names that one cell may take from another."""

from __future__ import annotations

import ast
import symtable
from collections import defaultdict

OF_THEIR_OWN = (
    ast.FunctionDef | ast.ClassDef | ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp
) | ast.GeneratorExp


def taken(table: symtable.SymbolTable) -> set[str]:
    """Names that a scope, or one inside of it, takes from the notebook's."""
    names = {s.get_name() for s in table.get_symbols() if s.is_global()}
    return names.union(*map(taken, table.get_children()))


def taken_by(node: ast.AST) -> set[str]:
    whole = symtable.symtable(ast.unparse(node), "a cell", "exec")
    read = {s.get_name() for s in whole.get_symbols() if s.is_referenced()}
    return read.union(*map(taken, whole.get_children()))


class Cell(ast.NodeVisitor):
    """`needed`: names that are read before the cell binds them. `given`: names that it binds, with
    what they are: `a value`, or the text of a definition or of an import. `promised`: of each
    function, the names that it takes from the notebook when it is called."""

    def __init__(self, source: str) -> None:
        self.needed: set[str] = set()
        self.given: defaultdict[str, set[str]] = defaultdict(set)
        self.promised: dict[str, set[str]] = {}
        self.visit(ast.parse(source))
        called = set[str]().union(*self.promised.values())
        self.needed |= called - set(self.given)

    def need(self, names: set[str]) -> None:
        self.needed |= names - set(self.given)

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, OF_THEIR_OWN):
            self.need(taken_by(node))
        else:
            super().generic_visit(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.promised[f"a lambda in line {node.lineno}"] = taken_by(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.promised[node.name] = taken_by(node) - {node.name}
        self.given[node.name].add(ast.unparse(node))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.need(taken_by(node) - {node.name})
        self.given[node.name].add(ast.unparse(node))

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        origin = node.module if isinstance(node, ast.ImportFrom) else "itself"
        for name in node.names:
            bound = (name.asname or name.name).partition(".")[0]
            self.given[bound].add(f"{name.name} of {origin}")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.visit_Import(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)
        if isinstance(node.value, ast.Lambda) and isinstance(node.targets[0], ast.Name):
            self.given[node.targets[0].id] = {ast.unparse(node.value)}

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.need({node.target.id})
        self.visit(node.value)
        self.visit(node.target)

    def visit_For(self, node: ast.For) -> None:
        for part in (node.iter, node.target, *node.body, *node.orelse):
            self.visit(part)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.given[node.name].add("a value")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.given[node.id].add("a value")
        elif isinstance(node.ctx, ast.Load):
            self.need({node.id})
