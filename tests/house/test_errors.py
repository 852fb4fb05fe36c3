"""An error has a code of its own, and a section that explains it."""

from __future__ import annotations

import ast
import re

from tests.house.sources import ROOT, modules, shown, tree

PAGE = ROOT / "docs" / "errors.md"


def errors() -> list[tuple[str, ast.ClassDef]]:
    """Return the error classes of the package with their places: `UmbelError` and all that come from it."""
    classes = [
        (shown(path, node.lineno), node)
        for path in modules("src")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
    ]
    known: set[str] = set()
    while more := {"UmbelError", *(node.name for _, node in classes if _bases(node) & known)} - known:
        known |= more
    return [(place, node) for place, node in classes if node.name in known]


def codes() -> dict[str, list[str]]:
    """Return the code of every error class of the package, with the places that give it."""
    found: dict[str, list[str]] = {}
    for place, node in errors():
        for item in node.body:
            if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "code":
                found.setdefault(ast.literal_eval(item.value), []).append(f"{place} {node.name}")
    return found


def _bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).rpartition(".")[2] for base in node.bases}


def test_codes_are_unique() -> None:
    assert {code: places for code, places in codes().items() if len(places) > 1} == {}


def answers() -> set[str]:
    """Return the codes of answers that no error class stands behind: `{"code": "…", …}` in the source."""
    pairs = (
        pair
        for path in modules("src")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Dict)
        for pair in zip(node.keys, node.values, strict=True)
    )
    return {value.value for key, value in pairs if _is(key, "code") and isinstance(value, ast.Constant)}


def _is(node: ast.expr | None, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def test_codes_are_documented() -> None:
    documented = set(re.findall(r"^## `([a-z-]+)`$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert sorted((set(codes()) | answers()) - documented) == []
    assert sorted(documented - set(codes()) - answers()) == []
