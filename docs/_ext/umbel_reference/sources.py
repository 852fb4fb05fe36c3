"""What only the source code lists: metrics and environment variables, read from its syntax trees."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import umbel

ROOT = Path(umbel.__file__).parent
VARIABLE = re.compile(r"UMBEL_[A-Z_]+")
KINDS = ("Counter", "Gauge", "Histogram")


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of a server.

    Args:
        name: as Prometheus reads it; counters end in `_total`.
        kind: counter, gauge or histogram.
        labels: the names of its labels.
        doc: its help text.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    doc: str


@dataclass(frozen=True, slots=True)
class ErrorClass:
    """An error class with a code of its own.

    Args:
        builtins: the builtin exceptions it also is.
        doc: the first line of its docstring.
    """

    name: str
    code: str
    builtins: tuple[str, ...]
    doc: str


@cache
def trees() -> tuple[ast.Module, ...]:
    """Return the syntax tree of each module of umbel."""
    return tuple(ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in sorted(ROOT.rglob("*.py")))


def variables() -> set[str]:
    """Return the environment variables named in the code; those that end in `_` begin names that users choose."""
    constants = (node.value for tree in trees() for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {value for value in constants if isinstance(value, str) and VARIABLE.fullmatch(value)}


def metrics() -> list[Metric]:
    """Return the metrics that umbel registers, by name."""
    found = [metric for tree in trees() for function in ast.walk(tree) for metric in _metrics(function)]
    return sorted({each.name: each for each in found}.values(), key=lambda each: each.name)


def _metrics(function: ast.AST) -> Iterator[Metric]:
    """Yield the metrics made in a function; names of help texts and labels stand for what was last assigned to them."""
    if not isinstance(function, ast.FunctionDef):
        return
    assigned: dict[str, list[tuple[int, ast.expr]]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, []).append((node.lineno, node.value))
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in KINDS and _is_name(node.args):
            arguments = [_literal(each, assigned, node.lineno) for each in node.args]
            name, doc, labels = (*arguments, ())[:3]
            suffix = "_total" if ast.unparse(node.func) == "Counter" else ""
            yield Metric(f"{name}{suffix}", ast.unparse(node.func).lower(), tuple(labels), str(doc))


def _is_name(arguments: list[ast.expr]) -> bool:
    return bool(arguments) and isinstance(arguments[0], ast.Constant) and str(arguments[0].value).startswith("umbel_")


def _literal(node: ast.expr, assigned: dict[str, list[tuple[int, ast.expr]]], line: int) -> object:
    if isinstance(node, ast.Name):
        _, node = max((each for each in assigned[node.id] if each[0] <= line), key=lambda each: each[0])
    if isinstance(node, ast.List):
        parts = [
            _literal(part.value, assigned, line) if isinstance(part, ast.Starred) else [_literal(part, assigned, line)]
            for part in node.elts
        ]
        return [each for part in parts for each in part]
    return ast.literal_eval(node)


def error_classes() -> list[ErrorClass]:
    """Return the subclasses of `UmbelError` that have a code of their own, by code."""
    classes = {node.name: node for tree in trees() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    found = []
    for node in classes.values():
        codes = [
            each.value for each in node.body if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "code"
        ]
        ancestors = _ancestors(node.name, classes)
        if codes and "UmbelError" in ancestors:
            doc = (ast.get_docstring(node) or "").partition("\n")[0]
            also = tuple(name for name in ancestors if hasattr(builtins, name) and name != "Exception")
            found.append(ErrorClass(node.name, ast.literal_eval(codes[0]), also, doc))
    return sorted(found, key=lambda each: each.code)


def _ancestors(name: str, classes: dict[str, ast.ClassDef]) -> list[str]:
    """Return a class's name and those of its bases, as far as the source has them."""
    bases = classes[name].bases if name in classes else []
    names = [ast.unparse(base).rpartition(".")[2] for base in bases]
    return [name, *(each for base in names for each in _ancestors(base, classes))]
