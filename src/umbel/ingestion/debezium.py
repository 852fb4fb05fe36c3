"""Debezium messages: decoding of database row changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from umbel.types.dtype import describe
from umbel.types.dtypes import Date, Datetime, DType, Optional
from umbel.types.epochs import EPOCH, FIRST, LAST, SECOND, YEARS
from umbel.types.json_values import revive
from umbel.types.raw import from_records, rejects
from umbel.types.schema import AT, Schema
from umbel.types.validate import Validated, ingested

UPSERTS = frozenset("cru")
UPDATE, DELETE = "u", "d"
INSTANT = Datetime().polars()
_UNITS = {"ts_us": 1, "ts_ms": 1_000}
"""The fields with the time of a change, and their units in µs; the first that is there counts."""
_DAY, _ISO_DAY = 86_400 * SECOND, len("2024-01-31Z")
_NO_BEFORE = (
    "'before' is missing in an envelope with op 'u', and a dataset without keys takes the row before an update back"
)


@dataclass(frozen=True, slots=True)
class OpenedMessages:
    """Decoded Debezium messages.

    Args:
        frame: one raw row per change: the row after it, or before its deletion.
        deletions: row number to the instant of deletion, None if the message does not have it.
        errors: row number to the reason the message is invalid.
        updates: row number to the instant of an update of a row with a key, None if the message does not have it.
        starts: instants before which the rows are not in force, null for none; None for none at all.
        numbers: the number of the message of each row; None where each message is one row.
    """

    frame: pl.DataFrame
    deletions: dict[int, datetime | None] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    updates: dict[int, datetime | None] = field(default_factory=dict)
    starts: pl.Series | None = None
    numbers: pl.Series | None = None


def open_messages(frame: pl.DataFrame, schema: Schema) -> OpenedMessages:
    """Decode a frame of Debezium messages.

    They have `op`, `before` and `after`, at the top level or below `payload`. Of a dataset without keys an update is the
    deletion of the row before it, and then the row after it.

    Args:
        frame: one row per message.
        schema: of the dataset.
    """
    messages = [_payload(row) for row in frame.iter_rows(named=True)]
    if schema.is_keyed or all(message.get("op") != UPDATE for message in messages):
        return _opened(messages, schema.dtypes)
    parts = [(number, part) for number, each in enumerate(messages) for part in _parts(each)]
    opened = _opened([part for _, part in parts], schema.dtypes)
    ends = {n: part for n, (number, part) in enumerate(parts) if part is not messages[number]}
    starts = {n + 1: _instant(part) for n, part in ends.items() if n not in opened.errors}
    nothing = {n: _NO_BEFORE for n, part in ends.items() if not isinstance(part.get("before"), Mapping)}
    return replace(
        opened,
        errors={**opened.errors, **nothing},
        starts=pl.Series([starts.get(n) for n in range(len(parts))], dtype=INSTANT),
        numbers=pl.Series([number for number, _ in parts], dtype=pl.UInt32),
    )


def _parts(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the deletion that is part of an update, and the message itself."""
    if message.get("op") == UPDATE:
        yield {**message, "op": DELETE}
    yield message


def _opened(messages: Sequence[Mapping[str, Any]], columns: Mapping[str, DType]) -> OpenedMessages:
    errors = {row: why for row, why in enumerate(map(_error, messages)) if why}
    deletions = {n: _instant(each) for n, each in enumerate(messages) if n not in errors and each["op"] == DELETE}
    sides = (("before" if row in deletions else "after", each) for row, each in enumerate(messages))
    days = [name for name, dtype in columns.items() if isinstance(dtype.plain, Date)]
    rows = [{} if row in errors else _with_days(each[side], days) for row, (side, each) in enumerate(sides)]
    updates = {n: _updated(each) for n, each in enumerate(messages) if n not in errors and each["op"] == UPDATE}
    return OpenedMessages(revive(from_records(rows, columns).frame, columns), deletions, errors, updates)


def _with_days(row: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """Return a row with its days as dates.

    Debezium counts days since the epoch, or writes `2024-01-31Z`.
    """
    return {**row, **{name: _day(row[name]) for name in names if name in row}} if names else row


def _day(value: Any) -> Any:
    if isinstance(value, str):
        return value.removesuffix("Z") if len(value) == _ISO_DAY else value
    if not isinstance(value, int) or isinstance(value, bool) or not FIRST <= value * _DAY <= LAST:
        return value
    return (EPOCH + timedelta(days=value)).date()


def _payload(row: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = row.get("payload")
    return inner if row.get("op") is None and isinstance(inner, Mapping) else row


def _error(message: Mapping[str, Any]) -> str:
    kind = message.get("op")
    if not isinstance(kind, str) or (kind != DELETE and kind not in UPSERTS):
        return f"op must be one of c, r, u, d, found {describe(kind)}"
    side = "before" if kind == DELETE else "after"
    if not isinstance(message.get(side), Mapping):
        return f"'{side}' is missing in an envelope with op '{kind}'"
    name, number, unit = _time(message) if kind == DELETE else ("", None, 1)
    return "" if number is None or FIRST <= number * unit <= LAST else f"{name} is {describe(number)}: {YEARS}"


def _instant(message: Mapping[str, Any]) -> datetime | None:
    """Return the instant of a database change."""
    _, number, unit = _time(message)
    return None if number is None else EPOCH + timedelta(microseconds=number * unit)


def _updated(message: Mapping[str, Any]) -> datetime | None:
    """Return the instant of an update, of which the message need not have one."""
    _, number, unit = _time(message)
    return _instant(message) if number is not None and FIRST <= number * unit <= LAST else None


def _time(message: Mapping[str, Any]) -> tuple[str, int | float | None, int]:
    """Return the field with the time of a database change, the number, and its unit.

    The unit is in µs. A time in µs tells apart changes of a row within a millisecond.
    """
    source = message.get("source")
    for part in (source, message) if isinstance(source, Mapping) else (message,):
        for name, unit in _UNITS.items():
            number = part.get(name)
            if isinstance(number, int | float) and not isinstance(number, bool) and (number or part is message):
                return name, number, unit
    return "", None, 1


def validate_deletions(
    frame: pl.DataFrame, deletions: Mapping[int, datetime | None], refused: set[int], schema: Schema
) -> Validated:
    """Convert the deleted rows of a raw frame to storage types.

    The instant of the deletion is the column `_at`.

    Only the keys must be valid: databases may report no more of a deleted row.

    Args:
        frame: raw rows, including deleted ones.
        deletions: row number to the instant of deletion.
        refused: the numbers of rows already rejected.
        schema: of the dataset.
    """
    numbers = [row for row in deletions if row not in refused]
    part = frame[numbers] if frame.width else pl.DataFrame(height=len(numbers))
    columns = {name: (ingested(part, name, Optional(dtype)), dtype) for name, dtype in schema.dtypes.items()}
    values = {name: _nulled(checked.values, checked.errors).alias(name) for name, (checked, _) in columns.items()}
    instant = pl.Series([deletions[row] for row in numbers], dtype=INSTANT)
    made = pl.DataFrame(values).with_columns(instant.alias(AT))
    began = pl.col(schema.timestamp)
    made = made.with_columns(pl.max_horizontal(AT, began).alias(AT), began.fill_null(pl.col(AT)))
    errors = {name: dict(_key_errors(name, made, columns[name][0].errors)) for name in schema.key_names}
    errors[schema.timestamp] = dict.fromkeys(
        made[AT].is_null().arg_true().to_list(), "the time of the deletion is missing"
    )
    bad = sorted({row for reasons in errors.values() for row in reasons})
    good = [row for row in range(part.height) if row not in set(bad)]
    lifted = [rejects({numbers[row]: why for row, why in reasons.items()}, name) for name, reasons in errors.items()]
    return Validated(made[good], pl.Series([numbers[row] for row in good], dtype=pl.UInt32), pl.concat(lifted))


def _nulled(values: pl.Series, errors: Mapping[int, str]) -> pl.Series:
    return values.set(pl.Series(range(len(values)), dtype=pl.Int64).is_in(list(errors)), None) if errors else values


def _key_errors(name: str, made: pl.DataFrame, errors: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    yield from errors.items()
    yield from ((row, "null in a key") for row in made[name].is_null().arg_true().to_list() if row not in errors)
