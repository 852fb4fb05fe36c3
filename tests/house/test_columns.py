"""Columns that umbel adds to a user's rows have names that no field of the user can have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.house.sources import modules, shown, tree
from umbel.errors import InvalidValue
from umbel.operators.columns import check_reserved

LAYERS = ("aggregates", "changes", "operators", "query", "state", "windowing")
INTERNAL = re.compile("_[a-z]+(_[a-z]+)*")
APART = {
    "_erased": "the name of a series",
    "_row": "in `aggregates`: beside the parts of a state, not beside fields",
    "_shard": "the name of a series",
}
"""Names that never stand in a frame with a user's columns."""


def named(module: ast.Module) -> Iterator[str]:
    """Yield the texts of a module that look like the name of an internal column, but for its slots."""
    slots = {
        id(part)
        for node in ast.walk(module)
        if isinstance(node, ast.Assign) and any(getattr(each, "id", "") == "__slots__" for each in node.targets)
        for part in ast.walk(node.value)
    }
    for node in ast.walk(module):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in slots
        if is_text and INTERNAL.fullmatch(node.value):
            yield node.value


def is_reserved(name: str) -> bool:
    try:
        check_reserved([name], "a test")
    except InvalidValue:
        return True
    return False


def test_a_field_cannot_have_the_name_of_an_internal_column():
    layers = modules(*(f"src/umbel/{layer}" for layer in LAYERS))
    found = {name: shown(path) for path in layers for name in named(tree(path))}
    assert found
    assert {name: path for name, path in found.items() if name not in APART and not is_reserved(name)} == {}
    assert not set(APART) - set(found)
