"""Numbers of JSON with more digits than a float has: `Decimal` takes all of them."""

from __future__ import annotations

import decimal
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import orjson
import polars as pl

from umbel.types.dtype import DType
from umbel.types.json_texts import json_text

LONG = re.compile(rb"[0-9][0-9.]{15}")
"""Matches in a number that may have more digits than `EXACT`; it may match in others and in texts."""
EXACT = 15
"""Decimal digits that a float of 64 bits always has (`DBL_DIG` of C)."""

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode


class LongNumber(decimal.Decimal):
    """A number of JSON with all its digits.

    `Decimal` rounds it to its scale, as it does floats.
    """


def with_long_numbers(value: Any, text: bytes, names: Collection[str]) -> Any:
    """Return rows with all digits of some of their numbers.

    Those that a float cannot hold become a `LongNumber` each.

    Args:
        value: the value of a JSON text: an object or a list of them, which are changed.
        text: the text.
        names: the members to look at, and in.
    """
    if not names or LONG.search(text) is None:
        return value
    rows, pieces = (value, elements(text)) if isinstance(value, list) else ([value], [text])
    for row, piece in zip(rows, pieces, strict=True):
        if isinstance(row, dict) and LONG.search(piece):
            with suppress(RecursionError):  # a row that is nested so deeply has its numbers as floats
                row.update(_long_members(piece, names))
    return value


def _long_members(text: bytes, names: Collection[str]) -> dict[str, Any]:
    members = _members(text)
    found = {name: members[name] for name in names if name in members and LONG.search(members[name])}
    return {name: parse_long(bytes(each)) for name, each in found.items()}


def elements(text: bytes) -> Sequence[Any]:
    """Return the text of each element of a JSON list, as buffers.

    Raises:
        ValueError: the text is no such list.
    """
    try:
        return _elements(text)
    except RecursionError:  # it stops some levels before the parser of values does
        return [json_text(each) for each in orjson.loads(text)]


def member(text: bytes, name: str) -> bytes:
    """Return the text of a member of a JSON object."""
    return bytes(_members(text)[name])


def parse_long(text: str | bytes) -> Any:
    """Return the value of a JSON text with all digits of its numbers.

    Those that a float cannot hold are each a `LongNumber`.
    """
    return json.loads(text, parse_float=_number)


def _number(text: str) -> float | LongNumber:
    mantissa = re.split("[eE]", text, maxsplit=1)[0]
    number = float(text)
    is_long = len(mantissa.replace(".", "").strip("-0")) > EXACT
    return LongNumber(text) if is_long and math.isfinite(number) else number


def with_decimals(types: Mapping[str, DType]) -> dict[str, DType]:
    """Return the types that are decimals, or have them inside."""
    return {name: dtype for name, dtype in types.items() if has_decimals(dtype)}


def has_decimals(dtype: DType) -> bool:
    """Return whether a type is decimals, or has them inside."""
    return _is_decimal(dtype.polars())


def _is_decimal(dtype: Any) -> bool:
    if isinstance(dtype, pl.Struct):
        return any(_is_decimal(each.dtype) for each in dtype.fields)
    return _is_decimal(dtype.inner) if isinstance(dtype, pl.List | pl.Array) else bool(dtype == pl.Decimal)
