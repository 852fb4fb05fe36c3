"""Lossless conversion between values and JSON, both ways.

Numbers, booleans, text, lists and null are JSON's own. NaN and infinities are the texts "NaN", "Infinity"
and "-Infinity"; instants are RFC 3339 in UTC, days ISO 8601; decimals are text; bytes are base64; structs, windows and
dictionaries are objects.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import singledispatch
from typing import Any, Protocol

import polars as pl

from umbel.errors import InvalidType, InvalidValue, misspelt
from umbel.query.rows import Column, Plain
from umbel.types import dtypes
from umbel.types.json_values import Turn, each, lenient, reader

Writers = Mapping[str, Turn | None]
"""The JSON encoder of each column's values; None for values that are JSON already."""


class Listed(Protocol):
    """A column in storage types: a Polars series or an equivalent list."""

    def to_list(self) -> list[Any]:
        """Return the values."""


_SHOWN_ERRORS = 5


def to_json(columns: Mapping[str, Listed], types: Mapping[str, dtypes.DType]) -> dict[str, list[Any]]:
    """Return columns in storage types as lists of JSON values.

    >>> to_json({"x": pl.Series([1.5, float("nan"), None])}, {"x": dtypes.Float()})
    {'x': [1.5, 'NaN', None]}
    """
    return written(columns, writers(types))


def writers(types: Mapping[str, dtypes.DType]) -> Writers:
    """Return the JSON encoders of columns, for repeated use."""
    return {name: writer(dtype) for name, dtype in types.items()}


def written(columns: Mapping[str, Listed], turns: Writers) -> dict[str, list[Any]]:
    """Return columns in storage types as lists of JSON values; see `to_json`."""
    lists = {name: column.to_list() for name, column in columns.items()}
    return {name: values if turns[name] is None else each(turns[name], values) for name, values in lists.items()}


def column_to_json(column: Listed, dtype: dtypes.DType) -> list[Any]:
    """Return one column as a list of JSON values."""
    return each(writer(dtype), column.to_list())


def from_json(data: Any, types: Mapping[str, dtypes.DType], what: str = "data") -> pl.DataFrame:
    """Return the requested columns of JSON data in storage types.

    Args:
        data: an object of lists, or a list of row objects. Other columns are ignored.
        types: the requested columns, with their types.
        what: the decoded argument, for messages.

    Raises:
        InvalidType: the data is not a table.
        InvalidValue: a column is missing, or values do not belong to its type.
    """
    raw = requested_columns(data, types, what)
    return pl.DataFrame([column_from_json(raw[name], dtype, name, what) for name, dtype in types.items()])


def requested_columns(data: Any, types: Iterable[str], what: str = "data") -> dict[str, list[Any]]:
    """Return the named columns of JSON data as lists of JSON values.

    All have the same length; see `from_json`.
    """
    raw, requested = columns_of(data, what), list(types)
    missing = [name for name in requested if name not in raw]
    if not missing:
        return {name: raw[name] for name in requested}
    meant = misspelt(missing, (name for name in raw if name not in requested))
    if isinstance(data, list) and not meant:  # a row object may omit nulls
        raw |= {name: [None] * len(data) for name in missing}
        return {name: raw[name] for name in requested}
    raise InvalidValue(f"{what}: missing columns {missing}; present: {sorted(raw)}{meant}", hint="give all of them")


def columns_from_json(
    raw: Mapping[str, Sequence[Any]], types: Mapping[str, dtypes.DType], what: str = "data"
) -> dict[str, pl.Series]:
    """Return lists of JSON values as columns in the storage types."""
    return {name: column_from_json(raw[name], dtype, name, what) for name, dtype in types.items()}


def rows_from_json(raw: Mapping[str, list[Any]], types: Mapping[str, dtypes.DType]) -> dict[str, Column]:
    """Return the result of `columns_from_json`, with plain lists where possible.

    Values stored in their JSON form stay Python lists, without a Polars column.
    """
    return {
        name: Plain(raw[name], dtype.polars()) if dtype.takes(raw[name]) else column_from_json(raw[name], dtype, name)
        for name, dtype in types.items()
    }


def column_from_json(values: Sequence[Any], dtype: dtypes.DType, name: str = "", what: str = "data") -> pl.Series:
    """Return JSON values as a column in the storage type."""
    try:
        revived = each(reader(dtype), values)
    except InvalidValue as error:
        raise InvalidValue(f"{what}: column '{name}': {error.message}", hint=error.hint) from error
    checked = dtype.ingest(revived)
    if checked.errors:
        shown = [f"row {row}: {reason}" for row, reason in sorted(checked.errors.items())[:_SHOWN_ERRORS]]
        raise InvalidValue(
            f"{what}: column '{name}' of type {dtype}: {'; '.join(shown)}", hint="give values of that type, in each row"
        )
    return checked.values.alias(name)


def revived(columns: Mapping[str, list[Any]], types: Mapping[str, dtypes.DType]) -> dict[str, list[Any]]:
    """Return JSON columns with values converted to their types' input form.

    Validation checks them later; no value is refused here.

    Args:
        columns: the result of `columns_of`; columns without a type are unchanged.
        types: of the known columns.
    """
    return {name: each(lenient(reader(types[name])) if name in types else None, v) for name, v in columns.items()}


def columns_of(data: Any, what: str = "data") -> dict[str, list[Any]]:
    """Return a JSON table of either form as lists by column.

    A missing value of a row object is null.
    """
    if isinstance(data, Mapping):
        for name, values in data.items():
            if not isinstance(values, list):
                raise _no_list(name, values, what)
        return _same_lengths(dict(data), what)
    if isinstance(data, list) and all(isinstance(row, Mapping) for row in data):
        names = dict.fromkeys(name for row in data for name in row)
        return {name: [row.get(name) for row in data] for name in names}
    raise InvalidType(
        f"{what}: expected an object of lists or a list of objects, got {type(data).__name__}",
        hint='{"uid": [1, 2]} or [{"uid": 1}, {"uid": 2}]',
    )


def _no_list(name: str, values: Any, what: str) -> InvalidType:
    return InvalidType(f"{what}: column '{name}': expected a list, got {type(values).__name__}", hint='{"uid": [1, 2]}')


def _same_lengths(columns: dict[str, list[Any]], what: str) -> dict[str, list[Any]]:
    if len(set(map(len, columns.values()))) > 1:
        lengths = {name: len(values) for name, values in columns.items()}
        raise InvalidValue(f"{what}: columns differ in length: {lengths}", hint="give every column as many values")
    return columns


# ---- writing ---------------------------------------------------------------------------------------------------------


@singledispatch
def writer(dtype: dtypes.DType) -> Turn | None:
    """Return the JSON encoder of a type's values, None for identity."""
    return None


@writer.register
def _(dtype: dtypes.Optional | dtypes.Restricted) -> Turn | None:
    return writer(dtype.of)


@writer.register
def _(dtype: dtypes.Float) -> Turn | None:
    return _write_float


def _write_float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


@writer.register
def _(dtype: dtypes.Decimal) -> Turn | None:
    return lambda value: f"{value:f}"


@writer.register
def _(dtype: dtypes.Bytes) -> Turn | None:
    return lambda value: base64.b64encode(value).decode()


@writer.register
def _(dtype: dtypes.Datetime) -> Turn | None:
    return lambda value: value.isoformat().replace("+00:00", "Z")


@writer.register
def _(dtype: dtypes.Date) -> Turn | None:
    return lambda value: value.isoformat()


@writer.register
def _(dtype: dtypes.List) -> Turn | None:
    turn = writer(dtype.of)
    return turn and (lambda values: each(turn, values))


@writer.register
def _(dtype: dtypes.Embedding) -> Turn | None:
    return lambda values: each(_write_float, values)


@writer.register
def _(dtype: dtypes.Dict) -> Turn | None:
    turn = writer(dtype.of)
    return lambda pairs: dict(
        zip([pair["key"] for pair in pairs], each(turn, [pair["value"] for pair in pairs]), strict=True)
    )


@writer.register
def _(dtype: dtypes.Record) -> Turn | None:
    turns = {name: writer(of) for name, of in dtype.members()}
    return lambda record: {name: each(turn, (record[name],))[0] for name, turn in turns.items()}
