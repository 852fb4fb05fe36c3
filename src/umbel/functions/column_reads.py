"""The columns of its frame that a user function reads, told by its code.

Most functions of pipelines are lambdas like `lambda df: df["price"] * df["count"]`: only these columns need to become pandas
columns, which for texts takes longer than the function.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable, Iterator
from typing import Any

_ALL_NAMES = {"locals", "vars", "eval", "exec", "globals", "dir", "inspect", "sys"}
"""Names by which a function may reach its variables otherwise."""
_SUBSCRIPTS = {"BINARY_SUBSCR", "BINARY_OP"}
_PASSED_OVER = {"CACHE", "EXTENDED_ARG", "NOP"}


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
    if _ALL_NAMES.intersection((*code.co_names, *code.co_freevars)) or code.co_flags & (0x20 | 0x80 | 0x200):
        return None
    found = list(_taken(code))
    return None if None in found else frozenset(filter(None, found))


def _taken(code: types.CodeType) -> Iterator[str | None]:
    """Yield the column at each use of a function's argument, None for another use."""
    name = code.co_varnames[0]
    steps = [each for each in dis.get_instructions(code) if each.opname not in _PASSED_OVER]
    for step, key, subscript in zip(steps, [*steps[1:], *steps[:1]], [*steps[2:], *steps[:2]], strict=True):
        if step.argval == name and step.opname.startswith("LOAD_FAST"):
            is_taken = key.opname == "LOAD_CONST" and isinstance(key.argval, str) and _takes(subscript)
            yield key.argval if is_taken else None
        elif step.opname != "LOAD_CONST" and _mentions(step.argval, name):
            yield None


def _takes(step: dis.Instruction) -> bool:
    return step.opname in _SUBSCRIPTS and (step.opname == "BINARY_SUBSCR" or step.argrepr == "[]")


def _mentions(value: Any, name: str) -> bool:
    return name in value if isinstance(value, tuple) else value == name
