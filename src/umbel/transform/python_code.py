"""Function bodies of `custom_code`: compiled once, with the names they may use."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import math
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import Any

VALUE, RECORD = "source_field", "record"
SCOPE: dict[str, Any] = {
    "datetime": datetime,
    "date": date,
    "timedelta": timedelta,
    "timezone": timezone,
    "json": json,
    "re": re,
    "math": math,
    "hashlib": hashlib,
}
"""Names in scope of the code, besides Python's own."""

FILE = "custom_code"
_MUTATORS = frozenset(
    {"append", "extend", "insert", "remove", "pop", "popitem", "clear", "update", "setdefault", "sort", "reverse"}
    | {"add", "discard", "__setitem__", "__delitem__", "__ior__", "__iadd__"}
)
_ESCAPES = frozenset({"eval", "exec", "globals", "locals", "vars", "setattr", "delattr", "getattr", "builtins"})
_HARMLESS = frozenset({"__class__", "__name__", "__doc__", "__len__", "__contains__", "__str__", "__repr__"})


class InvalidCode(ValueError):
    """Code that is not valid Python.

    Args:
        message: of Python.
        line: in the code.
    """

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"line {line} of the code: {message}")
        self.line = line


@dataclass(frozen=True)
class FunctionBody:
    """A function body of the user.

    Args:
        tree: its statements.
        function: takes the value and the record.
    """

    tree: tuple[ast.stmt, ...]
    function: Callable[[Any, Any], Any]

    @classmethod
    def compiled(cls, code: str) -> FunctionBody:
        """Return a function body, compiled.

        Raises:
            ValueError: it is not valid Python; the message names the line in the code.
        """
        try:
            tree = ast.parse(textwrap.dedent(code), FILE)
            module = ast.parse(f"def transformed({VALUE}, {RECORD}): pass", FILE)
            function = module.body[0]
            assert isinstance(function, ast.FunctionDef)
            function.body = tree.body or function.body
            scope = dict(SCOPE)
            exec(compile(module, FILE, "exec"), scope)  # noqa: S102  that is what the step is for
        except (SyntaxError, RecursionError, MemoryError) as error:
            raise InvalidCode(str(getattr(error, "msg", error)), getattr(error, "lineno", None) or 1) from None
        if not tree.body:
            raise ValueError("the code is empty: it returns the new value")
        if inspect.isgeneratorfunction(scope["transformed"]):
            raise ValueError("the code has a yield: it returns one value")
        return cls(tuple(tree.body), scope["transformed"])

    @property
    def locals(self) -> frozenset[str]:
        """The names that it assigns, wherever, with those of its arguments."""
        code = self.function.__code__
        return frozenset(code.co_varnames + code.co_cellvars)

    @property
    def reads_record(self) -> bool:
        """True if the code uses the whole record."""
        return any(
            isinstance(node, ast.Name) and (node.id in {RECORD, *_ESCAPES} or _is_internal(node.id))
            for node in self._nodes()
        )

    @property
    def may_mutate(self) -> bool:
        """True if the code may change the value or the record in place."""
        return any(map(_mutates, self._nodes()))

    def _nodes(self) -> list[ast.AST]:
        return [node for statement in self.tree for node in ast.walk(statement)]


def _mutates(node: ast.AST) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom | ast.AugAssign):
        return True
    if isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
        return True
    if isinstance(node, ast.Attribute):
        return node.attr in _MUTATORS | _ESCAPES or _is_internal(node.attr)
    return isinstance(node, ast.Name) and (node.id in _ESCAPES or _is_internal(node.id))


def _is_internal(name: str) -> bool:
    """Return True if a name leads to whatever Python has: `__getattribute__`, `__builtins__`."""
    return name.startswith("__") and name not in _HARMLESS


def line_in_code(error: BaseException) -> int | None:
    """Return the line of a function body that raised, None if none did."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            found = trace.tb_lineno
        trace = trace.tb_next
    return found
