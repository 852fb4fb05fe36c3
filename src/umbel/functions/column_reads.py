"""The columns of its frame that a user function reads, told by its code.

Most functions of pipelines are lambdas like `lambda df: df["price"] * df["count"]`: only these columns need to become pandas
columns, which for texts takes longer than the function.
"""

from __future__ import annotations

import dis
import re
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_BY_NAME = {"locals", "vars", "eval", "exec", "globals", "dir", "inspect", "sys"}
_BY_NAME |= {"query", "from_query", "sql", "execute", "evaluate"}
"""Names by which a function may reach its variables otherwise.

The last ones evaluate texts that name a variable of their caller: in pandas, DuckDB and numexpr.
"""
_SUBSCRIPTS = {"BINARY_SUBSCR", "BINARY_OP"}
_PASSED_OVER = {"CACHE", "EXTENDED_ARG", "NOP"}
_OF_A_VARIABLE = re.compile("(?:LOAD|STORE)_FAST(?:_BORROW)?")


class _Step(NamedTuple):
    """An instruction: its name, its argument, and how that is written."""

    opname: str
    argval: Any
    argrepr: str


def columns_read(function: Callable[..., Any]) -> frozenset[str] | None:
    """Return the columns that a function of one frame can read.

    None if it may read any. They are known of a plain function that does nothing with its frame but take columns by constant
    names.
    """
    if not isinstance(function, types.FunctionType):
        return None
    code = function.__code__
    variadic = code.co_flags & (0x04 | 0x08)
    if code.co_argcount != 1 or code.co_kwonlyargcount or variadic or code.co_varnames[0] in code.co_cellvars:
        return None
    if code.co_flags & (0x20 | 0x80 | 0x200) or not _BY_NAME.isdisjoint((*code.co_names, *code.co_freevars)):
        return None
    found = list(_taken(code))
    if None in found or (code.co_names and not found) or _in_texts(code):
        return None
    return frozenset(filter(None, found))


def _in_texts(code: types.CodeType) -> bool:
    """Return whether a text names the function's argument, as queries of DuckDB do."""
    named = re.compile(rf"\b{re.escape(code.co_varnames[0])}\b")
    return any(isinstance(each, str) and named.search(each) for each in code.co_consts)


def _taken(code: types.CodeType) -> Iterator[str | None]:
    """Yield the column at each use of a function's argument, None for another use."""
    name = code.co_varnames[0]
    steps = list(_steps(code))
    for step, key, subscript in zip(steps, [*steps[1:], *steps[:1]], [*steps[2:], *steps[:2]], strict=True):
        if step.argval == name and step.opname.startswith("LOAD_FAST"):
            is_taken = key.opname == "LOAD_CONST" and isinstance(key.argval, str) and _takes(subscript)
            yield key.argval if is_taken else None
        elif step.opname != "LOAD_CONST" and _mentions(step.argval, name):
            yield None


def _steps(code: types.CodeType) -> Iterator[_Step]:
    """Yield instructions; those that Python 3.13 and later do in one, of two variables, apart."""
    for each in dis.get_instructions(code):
        parts = _OF_A_VARIABLE.findall(each.opname)
        if len(parts) == 2 and isinstance(each.argval, tuple):
            yield from (_Step(part, name, name) for part, name in zip(parts, each.argval, strict=True))
        elif each.opname not in _PASSED_OVER:
            yield _Step(each.opname, each.argval, each.argrepr)


def _takes(step: _Step) -> bool:
    return step.opname in _SUBSCRIPTS and (step.opname == "BINARY_SUBSCR" or step.argrepr == "[]")


def _mentions(value: Any, name: str) -> bool:
    return name in value if isinstance(value, tuple) else value == name
