"""Documents of MongoDB as raw rows, with values of Python.

A value without such a form, as a regular expression, rejects its document, with the field that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import bson
import polars as pl
from bson import json_util
from bson.binary import UUID_SUBTYPE, Binary, UuidRepresentation
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.errors import InvalidBSON
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.timestamp import Timestamp

from umbel.connectors.mongo.brackets import CODEC, decoded, instant, type_name
from umbel.types.raw import Raw, column_of, rejects

_LENIENT = CODEC.with_options(unicode_decode_error_handler="replace")
_SAFE = range(-62_135_596_800_000, 253_402_300_800_000)
"""The milliseconds since the epoch of the years 1 to 9999."""


class _NoForm(Exception):
    """A value that no type of a field has."""


def split(data: bytes) -> Iterator[bytes]:
    """Yield the documents of a batch, as bytes."""
    at = 0
    while at < len(data):
        end = at + int.from_bytes(data[at : at + 4], "little")
        yield data[at:end]
        at = end


def read(raw: bytes) -> Any:
    """Return a document for its cursor and `_id`; empty if it is damaged beyond that."""
    try:
        return bson.decode(raw, codec_options=_LENIENT)
    except InvalidBSON:
        return {}


def read_all(data: bytes, documents: Sequence[bytes]) -> Sequence[Any]:
    """Return the same for all documents of a batch.

    Args:
        data: the batch.
        documents: its documents.
    """
    try:
        return bson.decode_all(data, CODEC)
    except InvalidBSON:
        return [read(each) for each in documents]


def raw_rows(
    documents: Sequence[bytes | None], names: Sequence[str], refuse: Callable[[Any], str | None], *, exact: bool = True
) -> tuple[Raw, Sequence[Any]]:
    """Return documents as rows, and the documents.

    Args:
        documents: as bytes; None for an erased one.
        names: of the columns.
        refuse: returns the reason against a document.
        exact: whether these are all columns, else the other fields there are, too.
    """
    found, errors = list[Any](), dict[int, str]()
    for row, raw in enumerate(documents):
        try:
            found.append({} if raw is None else decoded(raw))
        except InvalidBSON as error:
            found.append(read(raw or b""))
            errors[row] = f"the document is no valid BSON: {error}"[:300]
        reason = None if raw is None or row in errors else refuse(found[row])
        if reason is not None:
            errors[row] = reason
    chosen = dict.fromkeys(names if exact else chain(names, chain.from_iterable(found)))
    columns = {name: _converted(name, [_field(each, name) for each in found], errors) for name in chosen}
    for values in columns.values():
        for row in errors if isinstance(values, list) else ():
            values[row] = None
    series = {name: _series(name, values, errors) for name, values in columns.items()}
    frame = pl.DataFrame(series) if series else pl.DataFrame(height=len(found))
    return Raw(frame, rejects(errors), is_sparse=True), found


def columns_of(documents: Sequence[bytes | None], names: Sequence[str]) -> pl.DataFrame:
    """Return fields of documents, also of rejected ones.

    A value without a form is null.

    Args:
        documents: as bytes; None for an erased one.
        names: of the fields.
    """
    found = [{} if raw is None else read(raw) for raw in documents]
    columns = {name: _converted(name, [_field(each, name) for each in found], {}) for name in names}
    return pl.DataFrame([_series(name, values, {}) for name, values in columns.items()])


def _field(document: Any, name: str) -> Any:
    """Return a field, by a name or a path with dots.

    Of an array of subdocuments it is the list of the fields that are there.
    """
    if name in document or "." not in name:
        return document.get(name)
    first, _, rest = name.partition(".")
    inner = document.get(first)
    if isinstance(inner, list):
        return [_field(each, rest) for each in inner if isinstance(each, dict) and rest.partition(".")[0] in each]
    return _field(inner, rest) if isinstance(inner, dict) else None


def as_json(document: Any) -> bytes:
    """Return a document as Extended JSON."""
    return json_util.dumps(document, json_options=json_util.RELAXED_JSON_OPTIONS, ensure_ascii=False).encode()


def shown(value: Any) -> str:
    """Return an `_id` for messages."""
    return str(value) if isinstance(value, str | ObjectId) else as_json(value).decode()


def _converted(name: str, values: list[Any], errors: dict[int, str]) -> list[Any] | pl.Series:
    """Return the values of a column, and note the rows whose value has no form."""
    kinds = {*map(type, values)} - {type(None)}
    if kinds == {DatetimeMS}:
        times = pl.Series(name, [None if each is None else int(each) for each in values], dtype=pl.Int64)
        if not len(times.drop_nulls()) or (times.min() in _SAFE and times.max() in _SAFE):
            return times.cast(pl.Datetime("ms")).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    if len(kinds) == 1 and kinds <= {str, float, bool, bytes, int}:
        return values
    found = list[Any]()
    for row, value in enumerate(values):
        try:
            found.append(_plain(value))
        except _NoForm as error:
            found.append(None)
            errors.setdefault(row, f"field '{name}': {error}")
    return found


def _series(name: str, values: list[Any] | pl.Series, errors: Mapping[int, str]) -> pl.Series:
    if isinstance(values, list):
        return column_of(name, values)
    return values.scatter([*errors], None) if errors else values


def _plain(value: Any) -> Any:
    """Return a value as Python has it.

    Raises:
        _NoForm: no type of a field has such a value.
    """
    convert = _FORMS.get(type(value))
    if convert is None:
        raise _NoForm(f"a value of the BSON type {type_name(value)} has no form in a field")
    return convert(value)


def _instant(value: DatetimeMS) -> datetime:
    found = instant(int(value))
    if found is None:
        raise _NoForm(f"the instant {int(value)} ms since 1970 is beyond the years 1 to 9999")
    return found


def _decimal(value: Decimal128) -> Any:
    found = value.to_decimal()
    return found if found.is_finite() else float("nan") if found.is_nan() else float(found)


def _binary(value: Binary) -> Any:
    is_uuid = value.subtype == UUID_SUBTYPE and len(value) == 16
    return str(value.as_uuid(UuidRepresentation.STANDARD)) if is_uuid else bytes(value)


def _same(value: Any) -> Any:
    return value


_FORMS: Mapping[type, Callable[[Any], Any]] = {
    **dict.fromkeys((type(None), bool, int, float, str, bytes), _same),
    Int64: int,
    Decimal128: _decimal,
    ObjectId: str,
    DatetimeMS: _instant,
    Timestamp: lambda value: datetime.fromtimestamp(value.time, UTC),
    Binary: _binary,
    DBRef: lambda value: _plain(dict(value.as_doc())),
    list: lambda value: [_plain(each) for each in value],
    dict: lambda value: {name: _plain(each) for name, each in value.items()},
}
