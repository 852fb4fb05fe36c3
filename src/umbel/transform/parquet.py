"""Parquet of lines of JSON: columns of the smallest types that fit all values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import polars as pl

from umbel.transform.values import dump, read

PIECE = 4 << 20
"""Bytes that are read at once."""
MOST_NESTED = 32
"""Levels of lists and objects that are columns; what is deeper is JSON in a text."""
MOST_FIELDS = 1_000
"""Fields of an object in a column that are columns; objects that have more, in all records, are JSON in a text."""
MOST_COLUMNS = 10_000
"""Fields that records may have: each takes memory in each part of a file."""
FIRST = 2_000
"""Records that show by themselves if there are many fields: to find those of all takes the square of their number."""
CELLS = 4 << 20
"""Values, present or not, that are made at once where most are not."""
_HALF = re.compile(rb"(?<!\\)((?:\\\\)*)\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_INT, _LONG_INT, _HUGE_INT, _FLOAT = pl.Int64(), pl.UInt64(), pl.Int128(), pl.Float64()
"""Types of numbers: integers that are floats, too, other ones of 64 bits, floats of more than 64 bits, floats."""
_UNITED = {
    frozenset({_INT, _LONG_INT}): _LONG_INT,
    frozenset({_INT, _HUGE_INT}): _HUGE_INT,
    frozenset({_INT, _FLOAT}): _FLOAT,
    frozenset({_HUGE_INT, _FLOAT}): _FLOAT,
}
_SCALARS: dict[type, pl.DataType] = {bool: pl.Boolean(), float: _FLOAT, str: pl.String(), type(None): pl.Null()}
_EXACT = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""Integers that are floats, too."""
_READ: dict[Any, Any] = {
    pl.Null: None,
    pl.Boolean: bool | None,
    pl.Int64: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None,
    pl.Float64: _EXACT | float | None,
    pl.String: str | None,
}


class _OtherType(Exception):
    """A type that a column is not to have."""


def write_parquet(lines: Path, target: Path) -> None:
    """Write the records of a file of compact JSON.

    Columns take the smallest type that fits all values; where these have no common type, or one that few programs read, it is
    text, with JSON of what is none. Halves of characters, which Parquet has not, become U+FFFD.

    Raises:
        PolarsError: no record has a field.
    """
    if not lines.stat().st_size:
        pl.DataFrame().write_parquet(target)
    elif not _is_written_by_polars(lines, target):
        _write_by_record(lines, target)


def _is_written_by_polars(lines: Path, target: Path) -> bool:
    """Return False where Polars reads the records otherwise, or not at all."""
    first, frame = (pl.scan_ndjson(lines, infer_schema_length=number) for number in (FIRST, None))
    tried = target.with_name(f"{target.name}.tried")  # Polars may write to it even after an error
    try:
        if _is_wide(lines, first.collect_schema()) or _is_wide(lines, schema := frame.collect_schema()):
            return False
        decoder: Any = msgspec.json.Decoder(_object(schema.items(), MOST_NESTED + 1))
        for piece in _pieces(lines):
            decoder.decode_lines(piece)  # a number in a column of texts, for example, is refused
        frame.sink_parquet(tried)
        tried.replace(target)
    except (pl.exceptions.PolarsError, _OtherType, ValueError, RecursionError):
        return False
    finally:
        tried.unlink(missing_ok=True)
    return True


def _is_wide(lines: Path, schema: pl.Schema) -> bool:
    """Return whether objects have too many fields, or records miss most fields.

    A record may take 8 bytes for each column, present or not.
    """
    columns = sum(_columns(each) for each in schema.values())
    if columns > MOST_FIELDS and any(_has_many(each) for each in schema.values()):
        return True
    return columns * sum(piece.count(b"\n") for piece in _pieces(lines)) > max(CELLS, 4 * lines.stat().st_size)


def _has_many(dtype: Any) -> bool:
    """Return whether an object has too many fields for columns of their own."""
    if isinstance(dtype, pl.List):
        return _has_many(dtype.inner)
    found = dtype.fields if isinstance(dtype, pl.Struct) else ()
    return len(found) > MOST_FIELDS or any(_has_many(each.dtype) for each in found)


def _columns(dtype: Any) -> int:
    """Return the number of columns of a type in Parquet."""
    if isinstance(dtype, pl.List):
        return _columns(dtype.inner)
    return sum(_columns(each.dtype) for each in dtype.fields) if isinstance(dtype, pl.Struct) else 1


def _object(fields: Iterable[tuple[str, Any]], depth: int) -> Any:
    """Return a type that reads objects with values of these types only."""
    members = [
        (f"f{number}", _read(dtype, depth - 1), msgspec.field(name=name, default=None))
        for number, (name, dtype) in enumerate(fields)
    ]
    if not members:
        raise _OtherType
    return msgspec.defstruct("Fields", members, gc=False, forbid_unknown_fields=True)


def _read(dtype: Any, depth: int) -> Any:
    """Return a type that reads values of a column, nested in `depth` levels."""
    if depth and isinstance(dtype, pl.List):
        return list[_read(dtype.inner, depth - 1)] | None  # type: ignore[misc]
    if depth and isinstance(dtype, pl.Struct):
        return _object(((each.name, each.dtype) for each in dtype.fields), depth) | None
    found = _READ.get(dtype.base_type(), _OtherType)
    if found is _OtherType:
        raise _OtherType
    return found


def _write_by_record(lines: Path, target: Path) -> None:
    import pyarrow.parquet as pq

    schema: dict[str, pl.DataType] = {}
    for rows in _rows(lines):
        for row in rows:
            for name, value in row.items():
                schema[name] = _united(schema.get(name, pl.Null()), _type_of(value, MOST_NESTED))
    if not schema:
        raise pl.exceptions.NoDataError("they have no fields")
    if len(schema) > MOST_COLUMNS:
        raise pl.exceptions.SchemaError(f"they have {len(schema)} fields, more than {MOST_COLUMNS}")
    schema = {name: _finished(dtype) for name, dtype in schema.items()}
    with pq.ParquetWriter(target, pl.DataFrame(schema=schema).to_arrow().schema) as writer:
        most = max(1, CELLS // sum(map(_columns, schema.values())))
        for rows in _parts(_rows(lines), most):
            columns = {name: [_fitted(row.get(name), dtype) for row in rows] for name, dtype in schema.items()}
            writer.write_table(pl.DataFrame(columns, schema=schema).to_arrow())


def _type_of(value: Any, depth: int) -> pl.DataType:
    """Return the smallest type of a value, nested in at most `depth` levels."""
    if type(value) is int:
        return _int_type(value)
    if depth and type(value) is list:
        inner: pl.DataType = pl.Null()
        for each in value:
            inner = _united(inner, _type_of(each, depth - 1))
        return pl.List(inner)
    if depth and type(value) is dict:
        return (
            pl.Struct({name: _type_of(each, depth - 1) for name, each in value.items()})
            if len(value) <= MOST_FIELDS
            else pl.String()
        )
    return _SCALARS.get(type(value), pl.String())


def _int_type(value: int) -> pl.DataType:
    is_long = not -(2**63) <= value < 2**63
    try:
        is_float = float(value) == value
    except OverflowError:
        is_float = False
    if is_float:
        return _HUGE_INT if is_long else _INT
    return pl.String() if is_long else _LONG_INT


def _united(first: Any, second: Any) -> pl.DataType:
    """Return the smallest type that fits the values of two types."""
    if second in (first, pl.Null):
        return first  # type: ignore[no-any-return]
    if first == pl.Null:
        return second  # type: ignore[no-any-return]
    if isinstance(first, pl.List) and isinstance(second, pl.List):
        return pl.List(_united(first.inner, second.inner))
    if isinstance(first, pl.Struct) and isinstance(second, pl.Struct):
        fields = {each.name: each.dtype for each in first.fields}
        for each in second.fields:
            fields[each.name] = _united(fields.get(each.name, pl.Null()), each.dtype)
        return pl.Struct(fields) if len(fields) <= MOST_FIELDS else pl.String()
    return _UNITED.get(frozenset({first, second}), pl.String())


def _finished(dtype: Any) -> pl.DataType:
    """Return the type of a column.

    Objects without fields and integers of more than 64 bits, which Parquet has not, are texts.
    """
    if isinstance(dtype, pl.List):
        return pl.List(_finished(dtype.inner))
    if isinstance(dtype, pl.Struct):
        return pl.Struct({each.name: _finished(each.dtype) for each in dtype.fields}) if dtype.fields else pl.String()
    return pl.String() if dtype == _HUGE_INT else _INT if dtype == _LONG_INT else dtype


def _fitted(value: Any, dtype: Any) -> Any:
    """Return a value as one of a type that fits it."""
    if value is None:
        return None
    if dtype == pl.String:
        return value if type(value) is str else dump(value).decode()
    if isinstance(dtype, pl.List):
        return [_fitted(each, dtype.inner) for each in value]
    if isinstance(dtype, pl.Struct):
        return {each.name: _fitted(value.get(each.name), each.dtype) for each in dtype.fields}
    return float(value) if dtype == pl.Float64 else value


def _rows(lines: Path) -> Iterator[list[dict[str, Any]]]:
    for piece in _pieces(lines):
        yield [read(line) for line in _plain(piece).split(b"\n") if line]


def _parts(pieces: Iterable[list[Any]], most: int) -> Iterator[list[Any]]:
    for rows in pieces:
        yield from (rows[begin : begin + most] for begin in range(0, len(rows), most))


def _plain(piece: bytes) -> bytes:
    return _HALF.sub(rb"\1\\ufffd", piece)


def _pieces(lines: Path) -> Iterable[bytes]:
    with lines.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece + file.readline()
