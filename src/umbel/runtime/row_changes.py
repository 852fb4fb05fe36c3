"""Changes of the current rows of a dataset, made of its change log.

The ends of versions are in a log with the instants of the ends; without their instants the beginning and the end of a version
cancel out, so that the sum of all changes of a log is the current rows, and that of some batches is their difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import polars as pl

from umbel.connectors.sinks import RowChange
from umbel.query.encode import to_json
from umbel.types.schema import AT, SEQ, WEIGHT, Schema


def row_changes(changes: pl.DataFrame, schema: Schema) -> list[RowChange]:
    """Return the changes of the current rows of a dataset.

    Args:
        changes: of some batches, all of each.
        schema: of the dataset.
    """
    summed = changes.group_by(schema.names, maintain_order=True).agg(
        pl.col(WEIGHT).sum(), pl.col(AT).max(), pl.col(SEQ).max()
    )
    net = summed.filter(pl.col(WEIGHT) != 0).sort(AT, SEQ, maintain_order=True)
    values = to_json({name: net[name] for name in schema.names}, schema.dtypes)
    rows = [dict(zip(schema.names, row, strict=True)) for row in zip(*values.values(), strict=True)]
    ats = net[AT].dt.epoch("us").to_list()
    weighted = list(zip(rows, net[WEIGHT].to_list(), ats, strict=True))
    if schema.is_keyed:
        return _updates(weighted, schema.key_names)
    found = [[_plain(row, weight, at)] * abs(weight) for row, weight, at in weighted]
    return [change for each in found for change in each]


def _plain(row: Mapping[str, Any], weight: int, at: int) -> RowChange:
    return RowChange(None, None, row, at) if weight > 0 else RowChange(None, row, None, at)


def _updates(weighted: Sequence[tuple[Mapping[str, Any], int, int]], keys: Sequence[str]) -> list[RowChange]:
    """Return one change for each key, of what its row was and what it is."""
    before, after, instants = dict[bytes, Any](), dict[bytes, Any](), dict[bytes, int]()
    for row, weight, at in weighted:
        key = orjson.dumps([row[name] for name in keys])
        (after if weight > 0 else before)[key] = row
        instants[key] = max(at, instants.get(key, at))
    found = []
    for key, at in instants.items():
        row = after.get(key) or before[key]
        found.append(RowChange({name: row[name] for name in keys}, before.get(key), after.get(key), at))
    return found


def in_order(rows: list[RowChange]) -> list[RowChange]:
    """Return changes in an order that is the same each time."""
    return sorted(rows, key=lambda each: (each.at, orjson.dumps([each.key, each.before, each.after])))


def by_identity(changes: Sequence[RowChange]) -> dict[bytes, RowChange]:
    """Return changes by their keys, or by their rows where there are no keys."""
    return {_identity(each): each for each in changes}


def remaining(changes: Sequence[RowChange], sent: Mapping[bytes, RowChange]) -> list[RowChange]:
    """Return what some changes are without erased rows.

    Args:
        changes: with erased rows.
        sent: by identity, all that are without.
    """
    return [sent[name] for each in changes if (name := _identity(each)) in sent]


def _identity(change: RowChange) -> bytes:
    return orjson.dumps(change.key or [change.before, change.after])
