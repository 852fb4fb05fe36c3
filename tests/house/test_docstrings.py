"""Every public name of the package says what it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.sources import PACKAGE, Function, modules, shown, tree

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def inherited() -> set[str]:
    """Return the names of methods that some class of the package documents: an override inherits that text."""
    methods = (node for path in modules("src") for node in ast.walk(tree(path)) if isinstance(node, Function))
    return {node.name for node in methods if ast.get_docstring(node)}


def public(path: Path) -> Iterator[tuple[Documented, bool]]:
    """Yield the module, its public classes and functions, and (marked) the methods of classes that have bases."""
    yield tree(path), False
    for node in tree(path).body:
        if isinstance(node, Function) and not node.name.startswith("_") and not _is_overload(node):
            yield node, False
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node, False
            yield from ((method, bool(node.bases)) for method in node.body if _is_public_method(method))


def _is_public_method(node: ast.stmt) -> bool:
    if not isinstance(node, Function) or node.name.startswith("_"):
        return False
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    return not _is_overload(node) and not any(".setter" in name for name in decorators)


def _is_overload(node: Function) -> bool:
    return any(ast.unparse(decorator) in {"overload", "typing.overload"} for decorator in node.decorator_list)


def test_every_public_name_is_documented() -> None:
    known = inherited()
    silent = [
        f"{shown(path, getattr(node, 'lineno', 1))} {getattr(node, 'name', 'the module')}"
        for path in modules("src")
        for node, may_inherit in public(path)
        if not ast.get_docstring(node) and not (may_inherit and getattr(node, "name", "") in known)
    ]
    assert silent == []


def test_every_package_says_what_it_is() -> None:
    packages = [path for path in modules("src") if path.name == "__init__.py" and path.is_relative_to(PACKAGE)]
    assert [shown(path) for path in packages if not ast.get_docstring(tree(path))] == []
