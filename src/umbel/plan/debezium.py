"""Debezium's envelopes: what a change of a row in a database means here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import polars as pl

from umbel.types.dtypes import Datetime, DType, Optional
from umbel.types.jsonvalues import revive
from umbel.types.raw import from_records, rejects
from umbel.types.schema import AT, Schema
from umbel.types.validate import Validated

UPSERTS = frozenset("cru")
DELETE = "d"
INSTANT = Datetime().polars()


@dataclass(frozen=True, slots=True)
class Opened:
    """Envelopes, opened.

    Args:
        frame: one raw row per envelope: the row after the change, or before its deletion.
        deletions: row number to when it was deleted, None where the envelope does not tell.
        faults: row number to why it is no envelope.
    """

    frame: pl.DataFrame
    deletions: dict[int, datetime | None] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)


def open_envelopes(frame: pl.DataFrame, columns: Mapping[str, DType]) -> Opened:
    """Open a frame of envelopes with `op`, `before` and `after`, at the top or below `payload`.

    Args:
        frame: one row per envelope.
        columns: those of the dataset.
    """
    envelopes = [_payload(row) for row in frame.iter_rows(named=True)]
    faults = {row: why for row, why in enumerate(map(_fault, envelopes)) if why}
    deletions = {n: _instant(each) for n, each in enumerate(envelopes) if n not in faults and each["op"] == DELETE}
    sides = (("before" if row in deletions else "after", each) for row, each in enumerate(envelopes))
    rows = [{} if row in faults else each[side] for row, (side, each) in enumerate(sides)]
    return Opened(revive(from_records(rows, columns).frame, columns), deletions, faults)


def _payload(row: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = row.get("payload")
    return inner if row.get("op") is None and isinstance(inner, Mapping) else row


def _fault(envelope: Mapping[str, Any]) -> str:
    kind = envelope.get("op")
    if kind != DELETE and kind not in UPSERTS:
        return f"op must be one of c, r, u, d, found {kind!r}"
    side = "before" if kind == DELETE else "after"
    return "" if isinstance(envelope.get(side), Mapping) else f"'{side}' is missing in an envelope with op '{kind}'"


def _instant(envelope: Mapping[str, Any]) -> datetime | None:
    """Return when the database made the change, as Debezium tells it: in milliseconds."""
    source = envelope.get("source")
    told = (source.get("ts_ms") if isinstance(source, Mapping) else None) or envelope.get("ts_ms")
    return datetime.fromtimestamp(told / 1000, UTC) if isinstance(told, int | float) else None


def validate_deletions(
    frame: pl.DataFrame, deletions: Mapping[int, datetime | None], refused: set[int], schema: Schema
) -> Validated:
    """Bring the deleted rows of a raw frame to storage form, with the instant of the deletion as `_at`.

    Only the keys must fit: databases may tell no more of a deleted row.

    Args:
        frame: raw rows, deleted ones among them.
        deletions: row number to when it was deleted.
        refused: rows that are out already.
        schema: of the dataset.
    """
    numbers = [row for row in deletions if row not in refused]
    part = frame[numbers]
    columns = {name: (Optional(dtype).ingest(part[name]), dtype) for name, dtype in schema.dtypes.items()}
    values = {name: _nulled(checked.values, checked.faults).alias(name) for name, (checked, _) in columns.items()}
    told = pl.Series([deletions[row] for row in numbers], dtype=INSTANT)
    made = pl.DataFrame(values).with_columns(told.alias(AT))
    began = pl.col(schema.timestamp)
    made = made.with_columns(pl.max_horizontal(AT, began).alias(AT), began.fill_null(pl.col(AT)))
    faults = {name: dict(_key_faults(name, made, columns[name][0].faults)) for name in schema.key_names}
    faults[schema.timestamp] = dict.fromkeys(made[AT].is_null().arg_true().to_list(), "when it was deleted is not told")
    bad = sorted({row for reasons in faults.values() for row in reasons})
    good = [row for row in range(part.height) if row not in set(bad)]
    lifted = [rejects({numbers[row]: why for row, why in reasons.items()}, name) for name, reasons in faults.items()]
    return Validated(made[good], pl.Series([numbers[row] for row in good], dtype=pl.UInt32), pl.concat(lifted))


def _nulled(values: pl.Series, faults: Mapping[int, str]) -> pl.Series:
    return values.set(pl.Series(range(len(values)), dtype=pl.Int64).is_in(list(faults)), None) if faults else values


def _key_faults(name: str, made: pl.DataFrame, faults: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    yield from faults.items()
    yield from ((row, "null in a key") for row in made[name].is_null().arg_true().to_list() if row not in faults)
