"""Values as JSON, both ways and without loss.

Numbers, booleans, text, lists and null are what JSON has for them. NaN and infinities are the texts "NaN", "Infinity"
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

from umbel.errors import InvalidType, InvalidValue, did_you_mean
from umbel.query.rows import Column, Plain
from umbel.types import dtypes
from umbel.types.jsonvalues import Turn, each, lenient, reader

Writers = Mapping[str, Turn | None]
"""For each column what makes JSON of a value; None where it is JSON already."""


class Listed(Protocol):
    """A column in storage types: a Polars series, or what has its values."""

    def to_list(self) -> list[Any]:
        """Return the values."""


_SHOWN_FAULTS = 5


def to_json(columns: Mapping[str, Listed], types: Mapping[str, dtypes.DType]) -> dict[str, list[Any]]:
    """Return columns in storage types as lists of JSON values.

    >>> to_json({"x": pl.Series([1.5, float("nan"), None])}, {"x": dtypes.Float()})
    {'x': [1.5, 'NaN', None]}
    """
    return written(columns, writers(types))


def writers(types: Mapping[str, dtypes.DType]) -> Writers:
    """Return what makes JSON of the values of each column, for many times."""
    return {name: writer(dtype) for name, dtype in types.items()}


def written(columns: Mapping[str, Listed], turns: Writers) -> dict[str, list[Any]]:
    """Return columns in storage types as lists of JSON values; see `to_json`."""
    return {name: each(turns[name], column.to_list()) for name, column in columns.items()}


def column_to_json(column: Listed, dtype: dtypes.DType) -> list[Any]:
    """Return one column as a list of JSON values."""
    return each(writer(dtype), column.to_list())


def from_json(data: Any, types: Mapping[str, dtypes.DType], what: str = "data") -> pl.DataFrame:
    """Return the named columns of JSON data in storage types.

    Args:
        data: an object of lists, or a list of row objects. Other columns are ignored.
        types: the columns wanted, with their types.
        what: what is decoded, for messages.

    Raises:
        InvalidType: the data is no table.
        InvalidValue: a column is missing, or values do not belong to its type.
    """
    raw = wanted_columns(data, types, what)
    return pl.DataFrame([column_from_json(raw[name], dtype, name, what) for name, dtype in types.items()])


def wanted_columns(data: Any, types: Iterable[str], what: str = "data") -> dict[str, list[Any]]:
    """Return the named columns of JSON data as lists of JSON values, all of one length; see `from_json`."""
    raw = columns_of(data, what)
    if isinstance(data, list):  # a row object may leave out what is null
        raw = {**{name: [None] * len(data) for name in types}, **raw}
    missing = [name for name in types if name not in raw]
    if missing:
        raise InvalidValue(
            f"{what}: missing columns {missing}; present: {sorted(raw)}{did_you_mean(missing[0], raw)}",
            hint="give all of them",
        )
    return {name: raw[name] for name in types}


def columns_from_json(
    raw: Mapping[str, Sequence[Any]], types: Mapping[str, dtypes.DType], what: str = "data"
) -> dict[str, pl.Series]:
    """Return lists of JSON values as columns in the storage types."""
    return {name: column_from_json(raw[name], dtype, name, what) for name, dtype in types.items()}


def few_from_json(raw: Mapping[str, list[Any]], types: Mapping[str, dtypes.DType]) -> dict[str, Column]:
    """Return what `columns_from_json` does; of values that are stored as they are, no Polars columns."""
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
    if checked.faults:
        shown = [f"row {row}: {reason}" for row, reason in sorted(checked.faults.items())[:_SHOWN_FAULTS]]
        raise InvalidValue(f"{what}: column '{name}' of type {dtype}: {'; '.join(shown)}")
    return checked.values.alias(name)


def revived(columns: Mapping[str, list[Any]], types: Mapping[str, dtypes.DType]) -> dict[str, list[Any]]:
    """Return columns of JSON values in what their types take in, for validation to judge; no value is refused here.

    Args:
        columns: as `columns_of` returns them; columns without a type stay as they are.
        types: of the columns known.
    """
    return {name: each(lenient(reader(types[name])) if name in types else None, v) for name, v in columns.items()}


def columns_of(data: Any, what: str = "data") -> dict[str, list[Any]]:
    """Return a table in JSON, in either form, as lists by column; a row without a column has null there."""
    if isinstance(data, Mapping):
        return _same_lengths({name: _list(name, values, what) for name, values in data.items()}, what)
    if isinstance(data, list) and all(isinstance(row, Mapping) for row in data):
        names = dict.fromkeys(name for row in data for name in row)
        return {name: [row.get(name) for row in data] for name in names}
    raise InvalidType(
        f"{what}: expected an object of lists or a list of objects, got {type(data).__name__}",
        hint='{"uid": [1, 2]} or [{"uid": 1}, {"uid": 2}]',
    )


def _list(name: str, values: Any, what: str) -> list[Any]:
    if not isinstance(values, list):
        raise InvalidType(
            f"{what}: column '{name}': expected a list, got {type(values).__name__}", hint='{"uid": [1, 2]}'
        )
    return values


def _same_lengths(columns: dict[str, list[Any]], what: str) -> dict[str, list[Any]]:
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidValue(f"{what}: columns differ in length: {lengths}", hint="give every column as many values")
    return columns


# ---- writing ---------------------------------------------------------------------------------------------------------


@singledispatch
def writer(dtype: dtypes.DType) -> Turn | None:
    """Return what makes JSON of a value as read from Polars; None when it is JSON already."""
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
