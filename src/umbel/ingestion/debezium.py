"""Debezium messages: decoding of database row changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from umbel.types.dtype import describe
from umbel.types.dtypes import Datetime, DType, Optional
from umbel.types.epochs import EPOCH, FIRST, LAST, YEARS
from umbel.types.json_values import revive
from umbel.types.raw import from_records, rejects
from umbel.types.schema import AT, Schema
from umbel.types.validate import Validated, ingested

UPSERTS = frozenset("cru")
DELETE = "d"
INSTANT = Datetime().polars()


@dataclass(frozen=True, slots=True)
class OpenedMessages:
    """Decoded Debezium messages.

    Args:
        frame: one raw row per message: the row after the change, or before its deletion.
        deletions: row number to the instant of deletion, None if the message does not have it.
        errors: row number to the reason the message is invalid.
    """

    frame: pl.DataFrame
    deletions: dict[int, datetime | None] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)


def open_messages(frame: pl.DataFrame, columns: Mapping[str, DType]) -> OpenedMessages:
    """Decode a frame of Debezium messages.

    They have `op`, `before` and `after`, at the top level or below `payload`.

    Args:
        frame: one row per message.
        columns: the dataset's columns.
    """
    messages = [_payload(row) for row in frame.iter_rows(named=True)]
    errors = {row: why for row, why in enumerate(map(_error, messages)) if why}
    deletions = {n: _instant(each) for n, each in enumerate(messages) if n not in errors and each["op"] == DELETE}
    sides = (("before" if row in deletions else "after", each) for row, each in enumerate(messages))
    rows = [{} if row in errors else each[side] for row, (side, each) in enumerate(sides)]
    return OpenedMessages(revive(from_records(rows, columns).frame, columns), deletions, errors)


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
    millis = _millis(message) if kind == DELETE else None
    return "" if millis is None or FIRST <= millis * 1_000 <= LAST else f"ts_ms is {describe(millis)}: {YEARS}"


def _instant(message: Mapping[str, Any]) -> datetime | None:
    """Return the instant of a database change, in ms in the message."""
    millis = _millis(message)
    return None if millis is None else EPOCH + timedelta(milliseconds=millis)


def _millis(message: Mapping[str, Any]) -> int | float | None:
    source = message.get("source")
    millis = (source.get("ts_ms") if isinstance(source, Mapping) else None) or message.get("ts_ms")
    return millis if isinstance(millis, int | float) and not isinstance(millis, bool) else None


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
