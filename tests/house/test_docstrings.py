"""Every public name of the package says what it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

from tests.house.sources import PACKAGE, Function, modules, shown, tree

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def documented() -> tuple[set[str], set[str]]:
    """Return the names of methods that some class, and that some protocol, of the package documents.

    What overrides the one, or implements the other, need not say it again.
    """
    of_classes: set[str] = set()
    of_protocols: set[str] = set()
    for path in modules("src"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                names = {item.name for item in node.body if isinstance(item, Function) and ast.get_docstring(item)}
                of_classes |= names
                of_protocols |= names if any("Protocol" in ast.unparse(base) for base in node.bases) else set()
    return of_classes, of_protocols


def public(path: Path) -> Iterator[tuple[Documented, ast.ClassDef | None]]:
    """Yield the module, its public classes and functions, and with their class the public methods."""
    yield tree(path), None
    for node in tree(path).body:
        if _is_public(node):
            yield node, None
        if isinstance(node, ast.ClassDef) and _is_public(node):
            yield from ((method, node) for method in node.body if isinstance(method, Function) and _is_public(method))


def _is_public(node: ast.stmt) -> TypeGuard[ast.ClassDef | Function]:
    if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_"):
        return False
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    return not decorators & {"overload", "typing.overload"} and not any(".setter" in name for name in decorators)


def test_every_public_name_is_documented() -> None:
    of_classes, of_protocols = documented()
    silent = []
    for path in modules("src"):
        for node, owner in public(path):
            name = getattr(node, "name", "the module")
            elsewhere = owner is not None and name in (of_classes if owner.bases else of_protocols)
            if not ast.get_docstring(node) and not elsewhere:
                silent.append(f"{shown(path, getattr(node, 'lineno', 1))} {name}")
    assert silent == []


def test_every_package_says_what_it_is() -> None:
    packages = [path for path in modules("src") if path.name == "__init__.py" and path.is_relative_to(PACKAGE)]
    assert [shown(path) for path in packages if not ast.get_docstring(tree(path))] == []
