"""Mutants of a module: copies with one operator, number or condition changed, or one statement dropped."""

from __future__ import annotations

import ast
import copy
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OTHER_COMPARISON: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OTHER_OPERATOR: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
REPORTING = re.compile(r"(_?LOG(GER)?|warnings)\.\w+", re.IGNORECASE)
"""Calls that only report."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutant:
    """A changed module.

    Args:
        path: of the module.
        line: of the change.
        lines: the first and the last line of the changed statement; of its head where it has a body.
        change: `before → after`.
        number: of the change in the module.
        is_edge: whether a comparison is changed.
        is_import: whether the change is in what runs when the module is imported.
    """

    path: Path
    line: int
    lines: tuple[int, int]
    change: str
    number: int
    is_edge: bool
    is_import: bool

    def __str__(self) -> str:
        return f"{os.path.relpath(self.path)}:{self.line}  {self.change}"

    @property
    def tree(self) -> ast.Module:
        """The changed module, with the lines of the original."""
        tree = ast.parse(self.path.read_text(encoding="utf-8"))
        holder, key, _, other = list(_changes(tree))[self.number]
        _set(holder, key, ast.copy_location(other, _get(holder, key)))
        return ast.fix_missing_locations(tree)

    @property
    def text(self) -> str:
        """The changed source."""
        return ast.unparse(self.tree)


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield the mutants of a module. What only types, hints and messages are made of is left as it is."""
    for number, (holder, key, within, other) in enumerate(_changes(ast.parse(path.read_text(encoding="utf-8")))):
        node = _get(holder, key)
        statements = [each for each in (*within, node) if isinstance(each, ast.stmt)]
        change = f"{_short(node)}  →  {_short(other)}"
        is_import = not any(isinstance(each, Function) for each in statements[:-1])
        is_edge = isinstance(node, ast.Compare)
        yield Mutant(path, node.lineno, _lines(statements[-1]), change, number, is_edge, is_import)


def _changes(tree: ast.Module) -> Iterator[tuple[Any, str | int, tuple[ast.AST, ...], ast.AST]]:
    """Yield the changes of a module: where, within what, and by what the node is replaced."""
    for holder, key, within in _places(tree, ()):
        for other in _replacements(_get(holder, key)):
            yield holder, key, within, other


def _replacements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a node may be replaced by."""
    match node:
        case ast.Compare():
            for place, each in enumerate(node.ops):
                if other := OTHER_COMPARISON.get(type(each)):
                    yield _with(node, ops=[*node.ops[:place], other(), *node.ops[place + 1 :]])
        case ast.BinOp() | ast.AugAssign() if type(node.op) in OTHER_OPERATOR and not _is_optional(node):
            yield _with(node, op=OTHER_OPERATOR[type(node.op)]())
        case ast.BoolOp():
            yield _with(node, op=ast.And() if isinstance(node.op, ast.Or) else ast.Or())
        case ast.UnaryOp(op=ast.Not() | ast.Invert()):
            yield node.operand
        case ast.Constant(value=int()) if type(node.value) is int:
            yield _with(node, value=node.value + 1)
        case (
            ast.If(test=ast.Name() | ast.Attribute() | ast.Call() as test)
            | ast.IfExp(test=ast.Name() | ast.Attribute() | ast.Call() as test)
        ):
            yield _with(node, test=ast.UnaryOp(ast.Not(), test))
    if isinstance(node, ast.AugAssign | ast.Raise | ast.Delete) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield ast.Pass()


def _places(node: ast.AST, within: tuple[ast.AST, ...]) -> Iterator[tuple[Any, str | int, tuple[ast.AST, ...]]]:
    """Yield where the nodes below a node are: what holds them, by which name or index, and what they are within."""
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns"} or (isinstance(node, ast.Raise) and name == "exc"):
            continue
        holder, keys = (value, range(len(value))) if isinstance(value, list) else (node, [name])
        for key in keys:
            child = _get(holder, key)
            if isinstance(child, ast.AST) and not _is_idle(child):
                yield holder, key, (*within, node)
                yield from _places(child, (*within, node))


def _is_idle(node: ast.AST) -> bool:
    """Return whether a node is for types, hints or messages."""
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.keyword(arg="hint") | ast.FunctionDef(name="__repr__"):
            return True
        case ast.Expr(value=ast.Call(func=function)):
            return bool(REPORTING.fullmatch(ast.unparse(function)))
    return False


def _is_optional(node: ast.AST) -> bool:
    """Return whether `a | b` looks like a type: `int | None`."""
    return isinstance(node, ast.BinOp) and any(
        isinstance(side, ast.Constant) and side.value is None for side in (node.left, node.right)
    )


def _with(node: ast.AST, **fields: Any) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _get(holder: Any, key: str | int) -> Any:
    return holder[key] if isinstance(key, int) else getattr(holder, key)


def _set(holder: Any, key: str | int, value: ast.AST) -> None:
    if isinstance(key, int):
        holder[key] = value
    else:
        setattr(holder, key, value)


def _lines(statement: ast.stmt) -> tuple[int, int]:
    """Return the first and the last line of a statement, of its head where it has a body."""
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    last = statement.end_lineno or statement.lineno
    if body:
        last = max(
            statement.lineno,
            getattr(body[0], "lineno", body[0].pattern.lineno if hasattr(body[0], "pattern") else last) - 1,
        )
    return statement.lineno, last


def _short(node: ast.AST) -> str:
    return "(dropped)" if isinstance(node, ast.Pass) else " ".join(ast.unparse(node).split())[:90]
