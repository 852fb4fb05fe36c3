"""Rows of Arrow as lines of JSON: each value in one form."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as of

from umbel.errors import InvalidValue
from umbel.transform.native import instant_texts
from umbel.transform.parts import Lines, split
from umbel.transform.values import dump

_FIRST, _END = -62_135_596_800, 253_402_300_800
"""The years 1 to 9999, which RFC 3339 and Python have, in seconds."""
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6}
_BYTES = (of.is_binary, of.is_large_binary, of.is_binary_view, of.is_fixed_size_binary)
_LISTS = (of.is_list, of.is_large_list, of.is_fixed_size_list, of.is_list_view, of.is_large_list_view)
_TEXTS = (of.is_string, of.is_large_string, of.is_string_view)
_NUMBERS = (of.is_integer, of.is_floating, of.is_decimal)
_TIMES = (of.is_timestamp, of.is_date, of.is_time, of.is_duration)
_SCALARS = (of.is_null, of.is_boolean, *_TEXTS, *_NUMBERS, *_TIMES)


def check_columns(schema: pa.Schema) -> None:
    """Check that JSON has values for all columns.

    Raises:
        InvalidValue: one has bytes, for example, or the name of another one.
    """
    _check_names(schema.names, "there are two columns")
    for column in schema:
        _check(column.type, f"column '{column.name}'")


def parts_of(name: str, batch: pa.RecordBatch) -> Iterator[Lines]:
    """Yield rows as JSON objects, in parts.

    A row with an instant outside of the years 1 to 9999 is an error. Instants are RFC 3339 in UTC, durations ISO 8601; NaN and
    infinities are numbers.

    Args:
        name: of the input.
        batch: of columns that are checked.
    """
    found = _Conversion(batch)
    data = found.lines()
    if not found.far:
        yield Lines(name, data)
        return
    lines, begin = split(data), 0
    for row, error in sorted(found.far.items()):
        if row > begin:
            yield Lines(name, b"\n".join(lines[begin:row]) + b"\n")
        yield Lines(name, lines[row], error=error)
        begin = row + 1
    if begin < len(lines):
        yield Lines(name, b"\n".join(lines[begin:]) + b"\n")


def _time_texts(times: pl.Expr) -> pl.Expr:
    whole, parts = times.dt.to_string("%H:%M:%S"), times.dt.to_string("%H:%M:%S%.6f")
    return pl.when(times.dt.nanosecond() < 1000).then(whole).otherwise(parts)


def _check(kind: Any, column: str) -> None:
    if isinstance(kind, pa.BaseExtensionType) and kind != pa.uuid():
        _check(kind.storage_type, column)
    elif of.is_dictionary(kind):
        _check(kind.value_type, column)
    elif any(test(kind) for test in _BYTES):
        hint = "cast it to a text, base64 for example"
        raise InvalidValue(f"{column} has values of type {kind}: JSON has no bytes", hint=hint)
    elif of.is_map(kind) and of.is_nested(kind.key_type):
        raise InvalidValue(f"{column} has keys of type {kind.key_type}: those of JSON are texts")
    elif of.is_nested(kind) and not of.is_union(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        if of.is_struct(kind):
            _check_names([each.name for each in fields], f"{column} has two fields")
        for each in fields:
            _check(each.type, column)
    elif kind != pa.uuid() and not any(test(kind) for test in _SCALARS):
        raise InvalidValue(f"{column} has values of type {kind}, which JSON has not", hint="cast it to a text")


def _check_names(names: list[str], message: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InvalidValue(f"{message} '{name}'", hint="rename one of them")


class _Conversion:
    """Columns with the values that JSON has.

    Args:
        batch: the rows.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.far: dict[int, str] = {}
        """Why rows cannot be written, by their number."""
        self._is_finite, self._name = True, ""
        numbers = pa.array(np.arange(batch.num_rows))
        self._columns: dict[str, Any] = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            self._name = name
            self._columns[name] = pl.Series(name, self._plain(column, numbers))

    def lines(self) -> bytes:
        """Return the rows, each as a line."""
        frame = pl.DataFrame(self._columns)
        if not self._is_finite:  # Polars writes null
            return b"".join(dump(row) + b"\n" for row in frame.iter_rows(named=True))
        target = io.BytesIO()
        frame.write_ndjson(target)
        return target.getvalue()

    def _plain(self, array: Any, rows: Any) -> Any:
        """Return the values as those of JSON.

        Args:
            array: the values.
            rows: the number of the row of each.
        """
        kind = array.type
        if kind == pa.uuid():
            return pa.array([each and str(each) for each in array.to_pylist()], pa.string())
        if isinstance(kind, pa.BaseExtensionType):
            return self._plain(array.storage, rows)
        if of.is_dictionary(kind):
            return self._plain(array.dictionary_decode(), rows)
        if of.is_map(kind):
            return self._map(array.cast(pa.list_(kind.field(0))), rows)
        if any(test(kind) for test in _LISTS):
            values = self._plain(pc.list_flatten(array), rows.take(pc.list_parent_indices(array)))
            return pa.LargeListArray.from_arrays(_offsets(array), values, mask=array.is_null())
        if of.is_struct(kind) and kind.num_fields:
            fields = [self._plain(each, rows) for each in array.flatten()]
            return pa.StructArray.from_arrays(fields, [each.name for each in kind], mask=array.is_null())
        if of.is_floating(kind):
            array = array.cast(pa.float64())
            self._is_finite &= pc.all(pc.is_finite(array)).as_py() is not False
            return array
        return _texts(self._near(array, rows)) if of.is_timestamp(kind) or of.is_date(kind) else _texts(array)

    def _map(self, entries: Any, rows: Any) -> Any:
        keys, values = pc.list_flatten(entries).flatten()
        rows = rows.take(pc.list_parent_indices(entries))
        texts = pl.Series(self._plain(keys, rows)).cast(pl.String).to_arrow()
        offsets = _offsets(entries).cast(pa.int32())
        return pa.MapArray.from_arrays(offsets, texts, self._plain(values, rows), mask=entries.is_null())

    def _near(self, array: Any, rows: Any) -> Any:
        """Return instants or days with null for those of other years, whose rows are noted."""
        kind = array.type
        unit = getattr(kind, "unit", "ms")
        if of.is_date32(kind):
            numbers, first, end = array.view(pa.int32()), _FIRST // 86400, _END // 86400
        elif unit in _PER_SECOND:
            numbers = array.view(pa.int64())
            first, end = _FIRST * _PER_SECOND[unit], _END * _PER_SECOND[unit]
        else:  # nanoseconds, which are all of them near
            return array
        is_far = pc.or_(pc.less(numbers, first), pc.greater_equal(numbers, end)).fill_null(False)
        if not is_far.true_count:
            return array
        for row, number in zip(rows.filter(is_far).to_pylist(), numbers.filter(is_far).to_pylist(), strict=True):
            self.far[row] = f"column '{self._name}': {number} as {kind} is not in the years 1 to 9999"
        return pc.if_else(is_far, pa.scalar(None, kind), array)


def _offsets(lists: Any) -> pa.Array:
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
    return pa.array(np.fromiter(chain([0], np.cumsum(lengths)), np.int64, len(lengths) + 1))


def _texts(array: Any) -> Any:
    """Return scalars with texts for those that JSON has not."""
    kind, value = array.type, pl.col("value")
    if of.is_timestamp(kind):
        array, texts = array.view(pa.timestamp(kind.unit)), instant_texts(value.dt.cast_time_unit("us"))  # in UTC
    elif of.is_date(kind):
        array, texts = array.cast(pa.date32()), value.dt.to_string("%Y-%m-%d")
    elif of.is_time(kind):
        texts = _time_texts(value)
    elif of.is_duration(kind):
        texts = value.dt.to_string("iso")
    elif of.is_decimal256(kind):
        return pa.array([None if each is None else f"{each:f}" for each in array.to_pylist()], pa.string())
    elif of.is_decimal(kind):
        texts = value.cast(pl.String)
    else:
        return array
    return pl.Series("value", array).to_frame().select(texts).to_series().to_arrow()
