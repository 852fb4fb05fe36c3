"""Conversion of text to floats, booleans, bytes and nested values, for text-only formats.

Bytes are base64 and nested values JSON, as offline queries write them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import orjson
import polars as pl

from umbel.formats.json_lines import parse_value
from umbel.types.dtype import DType
from umbel.types.json_values import revive
from umbel.types.long_numbers import with_decimals, with_long_numbers
from umbel.types.raw import Raw, column_of

TRUTH = {"true": True, "false": False, "1": True, "0": False}
MISSPELT = pl.Object()


def spelled(raw: Raw, requested: Mapping[str, DType]) -> Raw:
    """Return rows of text with requested columns of other types converted.

    Text that cannot be converted stays text, for validation to reject with its reason.
    """
    here = {name: dtype for name, dtype in requested.items() if name in raw.frame.columns}
    read = [_read(raw.frame[name], dtype.polars()) for name, dtype in here.items() if not _is_nested(dtype)]
    coded = {name: dtype for name, dtype in here.items() if _is_nested(dtype) or dtype.polars() == pl.Binary()}
    read += [_parsed(raw.frame[name], dtype) for name, dtype in coded.items() if _is_nested(dtype)]
    return Raw(revive(raw.frame.with_columns(read), coded), raw.rejects) if here else raw


def _is_nested(dtype: DType) -> bool:
    return dtype.polars().is_nested()


def _parsed(text: pl.Series, dtype: DType) -> pl.Series:
    if text.dtype != pl.String():
        return text
    decimals = with_decimals({text.name: dtype})
    return column_of(text.name, [None if each is None else _value(each, text.name, decimals) for each in text])


def _value(text: str, name: str, decimals: Collection[str]) -> Any:
    try:
        row = {name: parse_value(text.encode())}
        return with_long_numbers(row, b"{%s:%s}" % (orjson.dumps(name), text.encode()), decimals)[name]
    except (ValueError, RecursionError):
        return text


def _read(text: pl.Series, dtype: pl.DataType) -> pl.Series:
    if text.dtype != pl.String() or dtype not in (pl.Float64(), pl.Boolean()):
        return text
    trimmed = text.str.strip_chars()
    if dtype == pl.Boolean():
        values = trimmed.str.to_lowercase().replace_strict(TRUTH, default=None, return_dtype=dtype)
    else:
        values = trimmed.cast(dtype, strict=False)
        if values.is_infinite().any():  # a number beyond the range of floats is refused, as in JSON
            values = values.set(values.is_infinite() & trimmed.str.contains("[0-9]"), None)
    if values.null_count() == text.null_count():
        return values
    mixed = [old if new is None else new for old, new in zip(text, values, strict=True)]
    return pl.Series(text.name, mixed, dtype=MISSPELT)
