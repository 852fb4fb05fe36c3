"""Checks of JSONPaths.

Polars reads a path up to a character that it does not know, without an error.
"""

from __future__ import annotations

import re
from typing import Any

import polars as pl

from umbel.errors import InvalidValue
from umbel.expr.errors import InvalidExprException
from umbel.expr.units import text

_NAME = r"[^\s.\[\]!$&()*,:<=>?@|]+"
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_WITHIN = rf"""(?:{_QUOTED}|[^\[\]'"])*"""
_BRACKETS = rf"""\[(?:{_QUOTED}|[^\[\]'"]|\[{_WITHIN}\])*\]"""
_READ = re.compile(rf"\$(?:\.\.?(?:\*|{_NAME})|(?:\.\.?)?{_BRACKETS})*\s*", re.DOTALL)
_HINT = 'json_extract("$.a.b[0]")'


def path_text(value: Any) -> str:
    """Return a constant as a JSONPath.

    Raises:
        InvalidType: it is not a str.
        InvalidExprException: Polars reads only the beginning of it, as of `$.first name`.
    """
    path = text(value)
    read = _READ.match(path)
    if read is not None and read.end() < len(path) and _is_known(path):
        raise InvalidExprException(
            f"json_extract: {path!r} is no JSONPath from {path[read.end() :]!r} on",
            hint="names with other characters stand in brackets: \"$['first name']\"",
        )
    return path


def check_path(path: str) -> None:
    """Check that Polars knows a JSONPath.

    Raises:
        InvalidValue: it does not.
    """
    if not path.startswith("$"):
        raise InvalidValue(f"json_extract: a JSONPath starts with '$', not {path!r}", hint=_HINT)
    if not _is_known(path):
        raise InvalidValue(f"json_extract: {path!r} is no JSONPath", hint=_HINT)


def _is_known(path: str) -> bool:
    try:
        pl.Series([None], dtype=pl.String).str.json_path_match(path)
        pl.Series(["{}"]).str.json_path_match(path)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return False
    return True
