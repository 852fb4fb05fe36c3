"""Class source text: comments above fields, and fields defined more than once."""

from __future__ import annotations

import ast
import linecache
import re
import textwrap
from collections import Counter
from dataclasses import dataclass, field

MAXIMUM_DECORATOR_LINES = 200


@dataclass(frozen=True, slots=True)
class ClassText:
    """Facts read from the source text of a class.

    Empty when there is no text, as for generated code.

    Args:
        comments: the comment directly above each field, by field name.
        duplicates: names of fields and methods defined more than once.
    """

    comments: dict[str, str] = field(default_factory=dict)
    duplicates: tuple[str, ...] = ()


def read_class(name: str, location: str) -> ClassText:
    """Read the class `name` whose decorators or `class` line begin at `location`."""
    file, _, line = location.rpartition(":")
    lines = linecache.getlines(file)
    start = _class_line(lines, name, int(line) - 1)
    if start is None:
        return ClassText()
    block = textwrap.dedent("".join(_block(lines, start)))
    try:
        body = ast.parse(block).body[0]
    except SyntaxError:
        return ClassText()
    assert isinstance(body, ast.ClassDef)
    fields = [(each.target.id, each.lineno) for each in body.body if _is_field(each)]  # type: ignore[attr-defined]
    methods = [each.name for each in body.body if _is_method(each)]  # type: ignore[attr-defined]
    counts = Counter([*(name for name, _ in fields), *methods])
    comments = {name: _comment_above(block.splitlines(), line - 1) for name, line in fields}
    found = {name: comment for name, comment in comments.items() if comment}
    return ClassText(found, tuple(name for name, count in counts.items() if count > 1))


def _is_field(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)


def _is_method(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)


def _comment_above(lines: list[str], index: int) -> str:
    found: list[str] = []
    while index > 0 and lines[index - 1].strip().startswith("#"):
        index -= 1
        found.insert(0, lines[index].strip().lstrip("#").strip())
    return "\n".join(found)


def _class_line(lines: list[str], name: str, near: int) -> int | None:
    pattern = re.compile(rf"\s*class\s+{re.escape(name)}\b")
    for index in range(max(near, 0), min(near + MAXIMUM_DECORATOR_LINES, len(lines))):
        if pattern.match(lines[index]):
            return index
    return None


def _block(lines: list[str], start: int) -> list[str]:
    indent = len(lines[start]) - len(lines[start].lstrip())
    end = start + 1
    while end < len(lines) and (not lines[end].strip() or _deeper(lines[end], indent)):
        end += 1
    return lines[start:end]


def _deeper(line: str, indent: int) -> bool:
    return len(line) - len(line.lstrip()) > indent
