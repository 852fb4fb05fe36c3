"""Arrow IPC streams as JSON rows.

A stream comes from a client: it is checked before its values are read, and what it may expand to is bounded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import orjson
import polars as pl
from polars.exceptions import PanicException

from umbel.client.plain import plain
from umbel.errors import InvalidType, InvalidValue
from umbel.request_errors import TooLarge
from umbel.types.arrow import polars_of
from umbel.types.json_values import UNTYPED_NAN

if TYPE_CHECKING:
    import pyarrow as pa

MOST_VALUES = 16 << 20
"""Rows times columns of a body: as many as fit in one of JSON."""
MOST_JSON = 128 << 20
"""Bytes of the rows of a body as JSON."""
_PER_VALUE = 4
"""Bytes of a JSON member beside its name and value: quotes, colon and comma."""
_END = b"\xff\xff\xff\xff\0\0\0\0"
_COMPRESSION = 3
"""The place of the compression among the members of a record batch's description."""
_AS_IS = frozenset(
    {pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64}
    | {pl.Boolean, pl.String, pl.Null, pl.Date}
)
"""Types that Polars writes to JSON as umbel does."""


def rows_of_stream(data: bytes) -> tuple[bytes, int]:
    """Return the rows of an Arrow IPC stream as a JSON list, and their number.

    Raises:
        InvalidValue: it is no such stream, is cut or damaged, or has compressed buffers.
        InvalidType: a column has a type without a JSON form.
        TooLarge: it expands to more than a body may have.
    """
    import pyarrow as pa

    errors = (pa.ArrowException, OSError, struct.error, UnicodeError, pl.exceptions.PolarsError, PanicException)
    try:
        _check_messages(data)
        with pa.ipc.open_stream(pa.BufferReader(data)) as stream:
            _check_schema(stream.schema)
            pieces, rows = list[bytes](), 0
            for piece, count in _pieces(stream):
                pieces.append(piece)
                rows += count
    except errors as error:
        raise _broken(str(error).partition("\n")[0][:300]) from None
    return b"[%b]" % b",".join(pieces), rows


def check_expansion(names: Iterable[str], rows: int, text: int = 0) -> None:
    """Refuse columns whose rows are too large as JSON.

    Args:
        names: of the columns; each row repeats them.
        rows: how many there are.
        text: bytes of the values.

    Raises:
        TooLarge: they are.
    """
    sizes = [len(name.encode(errors="replace")) + _PER_VALUE for name in names]
    if rows * len(sizes) > MOST_VALUES or rows * sum(sizes) + text > MOST_JSON:
        raise TooLarge(
            f"{rows:,} rows of {len(sizes):,} columns are too large in one request",
            hint=f"at most {MOST_VALUES:,} values, or {MOST_JSON >> 20} MiB as JSON rows: send them in parts",
        )


def _broken(reason: str) -> InvalidValue:
    return InvalidValue(f"the body is not an Arrow IPC stream: {reason}", hint="pyarrow.ipc.new_stream writes one")


def _check_messages(data: bytes) -> None:
    """Refuse a stream without an end, or with compressed buffers.

    The sender would choose how much these expand to.
    """
    import pyarrow as pa

    if not data.endswith(_END):
        raise _broken("it is cut: it has no end-of-stream marker")
    source = pa.BufferReader(data)
    for message in pa.ipc.MessageReader.open_stream(source):
        if message.type != "schema" and _is_compressed(bytes(message.metadata), is_dictionary="dict" in message.type):
            raise InvalidValue(
                "the Arrow stream has compressed buffers", hint="write it uncompressed; Content-Encoding: gzip or zstd"
            )
    if source.tell() != len(data):
        raise _broken("there are bytes after its end")


def _is_compressed(metadata: bytes, *, is_dictionary: bool) -> bool:
    """Return whether the buffers of a message are compressed; see Arrow's Message.fbs."""
    (root,) = struct.unpack_from("<I", metadata)
    batch = _member(metadata, root, 2)
    if is_dictionary and batch is not None:
        batch = _member(metadata, batch, 1)
    return batch is not None and _member(metadata, batch, _COMPRESSION) is not None


def _member(data: bytes, table: int, place: int) -> int | None:
    """Return the position of a table's member in flatbuffers, None without it."""
    (back,) = struct.unpack_from("<i", data, table)
    (size,) = struct.unpack_from("<H", data, table - back)
    at = 4 + 2 * place
    offset = struct.unpack_from("<H", data, table - back + at)[0] if at < size else 0
    return table + offset + int(struct.unpack_from("<I", data, table + offset)[0]) if offset else None


def _check_schema(schema: pa.Schema) -> None:
    names = schema.names
    if twice := sorted({name for name in names if names.count(name) > 1} if len(names) < 10_000 else ()):
        raise InvalidValue(f"columns that occur more than once: {', '.join(twice)[:300]}", hint="rename or drop one")
    for field in schema:
        if (kind := _unfit(field.type)) is not None:
            raise InvalidType(
                f"column '{field.name}' of the Arrow stream has the type {kind}, which is not read",
                hint="send numbers, text, instants, dates, decimals, bytes, lists, structs and maps of them",
            )


def _unfit(kind: pa.DataType, *, in_map: bool = False) -> pa.DataType | None:
    """Return the first type that is not read, None for none.

    Such types have no JSON form, or could expand without bounds.
    """
    import pyarrow.types as of

    if isinstance(kind, _extension()):
        return _unfit(kind.storage_type, in_map=in_map)
    if of.is_dictionary(kind):
        is_text = (
            of.is_string(kind.value_type) or of.is_large_string(kind.value_type) or of.is_string_view(kind.value_type)
        )
        return None if is_text and not in_map else kind
    if of.is_list(kind) or of.is_large_list(kind) or (of.is_fixed_size_list(kind) and kind.list_size):
        return kind if of.is_null(kind.value_type) else _unfit(kind.value_type, in_map=in_map)
    if of.is_map(kind):
        return _unfit(kind.key_type, in_map=True) or _unfit(kind.item_type, in_map=True)
    if of.is_struct(kind):
        inner = [kind.field(at) for at in range(kind.num_fields)]
        return next((found for each in inner if (found := _unfit(each.type, in_map=in_map))), None) if inner else kind
    is_view = of.is_string_view(kind) or of.is_binary_view(kind)
    if is_view or of.is_boolean(kind) or of.is_integer(kind) or of.is_floating(kind) or of.is_null(kind):
        return kind if is_view and in_map else None
    is_known = of.is_string(kind) or of.is_large_string(kind) or of.is_binary(kind) or of.is_large_binary(kind)
    is_bytes = of.is_fixed_size_binary(kind) and kind.byte_width
    return None if is_known or is_bytes or of.is_decimal(kind) or of.is_date(kind) or of.is_timestamp(kind) else kind


def _extension() -> Any:
    import pyarrow as pa

    return pa.BaseExtensionType


def _pieces(stream: Iterable[pa.RecordBatch]) -> Iterator[tuple[bytes, int]]:
    """Yield the rows of each batch as JSON without brackets, and their number."""
    total, text = 0, 0
    for batch in stream:
        batch.validate(full=True)
        total += batch.num_rows
        check_expansion(batch.schema.names, total, text + sum(_expanded(column) for column in batch.columns))
        frame = polars_of(batch)
        text += sum(_text_size(column) for column in frame)
        check_expansion(batch.schema.names, total, text)
        if batch.num_rows:
            yield _written(frame) if frame.width else b",".join([b"{}"] * batch.num_rows), batch.num_rows


def _expanded(array: pa.Array) -> int:
    """Return the bytes of the texts that the dictionaries in a column stand for.

    Polars writes each of them out, so that they are counted before.
    """
    import pyarrow.compute as pc
    import pyarrow.types as of

    if isinstance(array.type, _extension()):
        return _expanded(array.storage)
    if of.is_dictionary(array.type):
        lengths = pc.binary_length(array.dictionary.cast("large_string")).cast("int64")
        return int(pc.sum(lengths.take(array.indices)).as_py() or 0)
    if of.is_list(array.type) or of.is_large_list(array.type) or of.is_fixed_size_list(array.type):
        return _expanded(array.flatten())
    return sum(_expanded(each) for each in array.flatten()) if of.is_struct(array.type) else 0


def _text_size(column: pl.Series) -> int:
    """Return the bytes of all texts of a column.

    A view or dictionary may refer to one text many times.
    """
    kind = column.dtype
    if kind in (pl.Categorical, pl.Enum):
        return _text_size(column.cast(pl.String))
    if kind == pl.String:
        return int(column.str.len_bytes().sum())
    if kind == pl.Binary:
        return int(column.bin.size().sum())
    if isinstance(kind, pl.List | pl.Array):
        return _text_size(column.explode())
    if isinstance(kind, pl.Struct):
        return sum(_text_size(column.struct.field(each.name)) for each in kind.fields)
    return 0


def _written(frame: pl.DataFrame) -> bytes:
    fast = [_fast(column) for column in frame]
    if all(each is not None for each in fast):
        return pl.DataFrame([each for each in fast if each is not None]).write_json().encode()[1:-1]
    lists: Mapping[str, list[Any]] = {column.name: _plain(column) for column in frame}
    return orjson.dumps([dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)])[1:-1]


def _plain(column: pl.Series) -> list[Any]:
    try:
        return [plain(value, UNTYPED_NAN) for value in column.to_list()]
    except InvalidType as error:
        raise InvalidType(f"column '{column.name}' of the Arrow stream: {error.message}", hint=error.hint) from None


def _fast(column: pl.Series) -> pl.Series | None:
    """Return a column that Polars writes as `plain` would, None if there is none."""
    kind = column.dtype
    if kind in _AS_IS:
        return column
    if kind in (pl.Float32, pl.Float64):
        return column.cast(pl.Float64) if column.is_finite().all() else None
    if kind in (pl.Categorical, pl.Enum) or isinstance(kind, pl.Decimal):
        return column.cast(pl.String)
    if kind == pl.Binary:
        return column.bin.encode("base64")
    if isinstance(kind, pl.Datetime):
        return _instants(column, kind)
    return column if _is_simple(column) else None


def _instants(column: pl.Series, kind: pl.Datetime) -> pl.Series:
    if kind.time_zone is None:
        return column.dt.to_string("%Y-%m-%dT%H:%M:%S%.6f")
    return column.dt.convert_time_zone("UTC").dt.to_string("%Y-%m-%dT%H:%M:%S%.6fZ")


def _is_simple(column: pl.Series) -> bool:
    """Return whether Polars writes all values of lists and structs unchanged."""
    kind = column.dtype
    if isinstance(kind, pl.List | pl.Array):
        return _is_simple(column.explode())
    if isinstance(kind, pl.Struct):
        return all(_is_simple(column.struct.field(each.name)) for each in kind.fields)
    return kind in _AS_IS or (kind == pl.Float64 and bool(column.is_finite().all()))
