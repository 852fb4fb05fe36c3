"""Entries of a store, as the tests of its contract write and read them: bytes under keys of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import polars as pl

from umbel.state.collected import INSTANT
from umbel.state.port import Reader, Stamp, Store
from umbel.state.runs.points import RowSlice, frame_of
from umbel.state.tables import State

A, B = "a" * 16, "b" * 16
SHARDS = 2
VALUE = {"value": pl.Binary()}
ZERO = datetime(1970, 1, 1, tzinfo=UTC)


class Entries:
    """A map of an operator, stored in two tables: addressed by key, and by key and one instant.

    Args:
        reader: a transaction or a snapshot.
        state_id: the state of the operator.
        name: the name of the map.
    """

    def __init__(self, reader: Reader, state_id: str = A, name: str = "t") -> None:
        state = State(reader, state_id)
        self.plain, self.timed = state.table(name, VALUE), state.timed(f"{name} at", VALUE)

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, however it is read."""
        found = dict(self.plain.get(_keys(keys)).rows())
        points = _addresses(keys)
        floors = self.timed.floor(points).select("_point", "value").rows()
        values = [found.get(key) for key in keys]
        assert dict(floors) == {number: value for number, value in enumerate(values) if value is not None}
        assert [_single(each) for each in self.plain.groups(keys)] == values
        assert [_single(each) for each in self.timed.latest(keys, [0] * len(keys))] == values
        return values

    def put(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Set the values of keys."""
        rows = _addresses(keys).with_columns(pl.Series("value", values, dtype=pl.Binary))
        self.plain.replace(_keys(keys), rows.drop("_time"))
        self.timed.replace(rows, rows)

    def delete(self, keys: Sequence[bytes]) -> None:
        """Remove keys, there or not."""
        nothing = _addresses([]).with_columns(pl.Series("value", [], dtype=pl.Binary))
        self.plain.replace(_keys(keys), nothing.drop("_time"))
        self.timed.replace(_addresses(keys), nothing)

    def all(self) -> dict[bytes, bytes]:
        """Return the whole map."""
        found = self.timed.all()
        everything = dict(found.drop("_time").rows())
        assert len(everything) == found.height, "a key has one entry"
        assert list(everything) == sorted(everything)
        assert dict(self.plain.get(_keys(list(everything))).rows()) == everything
        return everything


def _keys(keys: Iterable[bytes]) -> pl.Series:
    return pl.Series("_key", list(keys), dtype=pl.Binary)


def _addresses(keys: Sequence[bytes]) -> pl.DataFrame:
    return pl.DataFrame([_keys(keys), pl.Series("_time", [ZERO] * len(keys), dtype=INSTANT)])


def _single(found: RowSlice | None) -> bytes | None:
    return None if found is None else bytes(frame_of([found], VALUE)["value"].item())


def put(store: Store, stamp: Stamp, entries: dict[bytes, bytes | None], *, state_id: str = A, shard: int = 0) -> None:
    """Set (None: delete) the entries of map `t` in one transaction."""
    with store.transaction(shard, [state_id], stamp) as tx:
        retained = {key: value for key, value in entries.items() if value is not None}
        found = Entries(tx, state_id)
        found.put(list(retained), list(retained.values()))
        found.delete([key for key, value in entries.items() if value is None])


def stored_entries(store: Store, state_id: str = A, name: str = "t", shard: int = 0) -> dict[bytes, bytes]:
    """Return the entries of a map, as a new snapshot sees it."""
    with store.snapshot(shard) as reader:
        return Entries(reader, state_id, name).all()
