"""Point lookups: answer a small number of keys individually, without data frames.

The answers equal those of the vectorised lookups, at a fraction of the cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol, TypeVar

import numpy as np
import polars as pl

from umbel.changes.runs import Ints
from umbel.changes.versions import ALIVE, KEY, TIME, version_columns
from umbel.graph.graph import GraphNode
from umbel.operators.aggregate import ContinuousAggregation, LookedUpAggregation
from umbel.operators.answering import answering
from umbel.query.rows import INSTANT, Column, Fields, Instants, Plain, as_keys, is_same, series_of
from umbel.state.keys import encode_points, shard_of_key
from umbel.state.port import Store
from umbel.state.runs.points import RowSlice, frame_of
from umbel.state.snapshots import Snapshots
from umbel.state.tables import State, TimedTable
from umbel.windowing.points import FOUND
from umbel.windowing.tile_points import Pointwise

_POINT = "_point"
ONE_BY_ONE = 128
"""Up to so many versions are looked up one by one; for 64, together takes more than twice as long, for 200 as long."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PointLookup:
    """The result of a point lookup.

    Args:
        names: the columns of the dataset.
        columns: the columns, all nullable, aligned with the requested keys; without the one of the instants.
        is_found: True for each row found.
        changed: the instants (µs) of the rows' last change; the column `timestamp`, if it is not in `columns`.
        timestamp: the name of that column.
    """

    names: Sequence[str]
    columns: Mapping[str, Column]
    is_found: list[bool]
    changed: Callable[[], Ints] | None = None
    timestamp: str = ""

    def column(self, name: str) -> Column:
        """Return a column."""
        if self.changed is None or name != self.timestamp:
            return self.columns[name]
        return pl.Series(name, self.changed()).set(~self.found, None).cast(INSTANT)

    @property
    def frame(self) -> pl.DataFrame:
        """The columns as a frame."""
        return pl.DataFrame([series_of(self.column(name)).alias(name) for name in self.names])

    @property
    def found(self) -> pl.Series:
        """A mask of the rows found, as a column."""
        return pl.Series(FOUND, self.is_found, dtype=pl.Boolean)


class PointLookups(Protocol):
    """Answers point lookups on one dataset."""

    def answer(self, keys: Mapping[str, Column], at: Instants, snapshots: Snapshots) -> PointLookup | None:
        """Return the rows with a found mask; None if it takes data frames."""


def point_lookups(node: GraphNode, store: Store, fields: Fields = None) -> PointLookups:
    """Return the point lookups of some fields of the dataset of a node."""
    operator = node.operator
    if not operator.is_terminal:
        return PointVersions(node, store, fields)
    assert isinstance(operator, LookedUpAggregation)
    operator = answering(operator, fields)
    return PointWindowValues(node, operator, store) if isinstance(operator, ContinuousAggregation) else NoPointLookups()


class NoPointLookups:
    """Leaves all lookups to data frames."""

    def answer(self, keys: Mapping[str, Column], at: Instants, snapshots: Snapshots) -> PointLookup | None:
        """Return None."""
        return None


class Keys:
    """Converts lookup keys to their stored types and bytes."""

    def __init__(self, node: GraphNode) -> None:
        self.names = node.operator.schema.key_names
        self._types = [dtype.polars() for _, dtype in node.operator.schema.keys]

    def columns(self, keys: Mapping[str, Column]) -> dict[str, Column]:
        """Return the key columns in their stored order and types."""
        provided = ((name, keys[name], dtype) for name, dtype in zip(self.names, self._types, strict=True))
        return {
            name: key if is_same(key.dtype, dtype) else as_keys(series_of(key), dtype) for name, key, dtype in provided
        }

    def encoded(self, columns: Mapping[str, Column]) -> list[bytes]:
        """Return the keys in their stored encoding."""
        return encode_points([each.to_list() for each in columns.values()], self._types)


class PointWindowValues:
    """Point lookups on an aggregation with continuous windows.

    Args:
        node: the aggregation's node.
        operator: its operator.
        store: the state store.
    """

    def __init__(self, node: GraphNode, operator: ContinuousAggregation, store: Store) -> None:
        self._state_id, self._store, self._keys = node.state_id, store, Keys(node)
        self._points = Pointwise(operator.tiles, operator.answered.aggregates)
        types = dict(operator.schema.values)
        self._fields = [
            _Field.of(each.into_field, types[each.into_field].polars(), each.missing)
            for each in operator.answered.aggregates
        ]
        self._timestamp = operator.schema.timestamp
        requested = {*self._keys.names, *(each.name for each in self._fields)}
        if operator.answered.has_timestamp:
            requested.add(self._timestamp)
        self._names = [name for name in operator.schema.names if name in requested]

    def answer(self, keys: Mapping[str, Column], at: Instants, snapshots: Snapshots) -> PointLookup | None:
        """Return the rows with a found mask; None if it takes data frames."""
        if not self._points.is_able:
            return None
        columns = self._keys.columns(keys)
        distinct, instants, places = _distinct(self._keys.encoded(columns), at.micros)
        report = self._points.values(self._entries(distinct, snapshots), instants)
        if report is None:
            return None
        found: list[bool] = report.found.tolist()
        every = all(found)
        for field, each in zip(self._fields, report.values, strict=True):
            values = list(each) if every else field.masked(each, found)
            columns[field.name] = Plain(_at(values, places), field.dtype)
        changed = lambda: report.changed if places is None else report.changed[places]  # noqa: E731
        return PointLookup(self._names, columns, _at(found, places), changed, self._timestamp)

    def _entries(self, keys: list[bytes], snapshots: Snapshots) -> list[list[RowSlice]]:
        """Return the stored state entries of each key."""
        store = self._store
        if len(keys) == 1:
            reader = snapshots.of(store, shard_of_key(keys[0], store.shards))
            return self._points.read(State(reader, self._state_id), keys)
        found: list[list[RowSlice]] = [[]] * len(keys)
        for shard, positions in by_shard(keys, store.shards):
            state = State(snapshots.of(store, shard), self._state_id)
            read = self._points.read(state, [keys[position] for position in positions])
            for position, entries in zip(positions, read, strict=True):
                found[position] = entries
        return found


@dataclass(frozen=True, slots=True)
class _Field:
    """The output column of an aggregate.

    Args:
        name: the field.
        dtype: its storage type.
        missing: the value for an unknown key.
    """

    name: str
    dtype: pl.DataType
    missing: Any

    @classmethod
    def of(cls, name: str, dtype: pl.DataType, missing: Any) -> _Field:
        (stored,) = pl.Series([missing], dtype=dtype).to_list()
        return cls(name, dtype, stored)

    def masked(self, values: Iterable[Any], found: list[bool]) -> list[Any]:
        """Return values of the field, with `missing` for keys not found."""
        return [value if is_found else self.missing for value, is_found in zip(values, found, strict=True)]


class PointVersions:
    """Point lookups on a dataset with a version history.

    Args:
        node: the dataset's node.
        store: the state store with its version history.
        fields: those requested; all when None. Others are not read.
    """

    def __init__(self, node: GraphNode, store: Store, fields: Fields = None) -> None:
        self._state_id, self._store, self._keys = node.state_id, store, Keys(node)
        schema = node.operator.schema
        self._columns = version_columns(schema)
        others = [name for name in schema.names if name not in self._keys.names and (fields is None or name in fields)]
        self._names = [name for name in schema.names if name in self._keys.names or name in others]
        self._read = {name: self._columns[name] for name in (*others, ALIVE)}
        self._nulls = {name: pl.Series(name, [None], schema.dtypes[name].polars()) for name in others}
        missing = {name: each for name, each in node.operator.missing.items() if name in others}
        self._fields = [_Field.of(name, schema.dtypes[name].polars(), each) for name, each in missing.items()]

    def answer(self, keys: Mapping[str, Column], at: Instants, snapshots: Snapshots) -> PointLookup:
        """Return the rows with a found mask."""
        columns = self._keys.columns(keys)
        rows, is_known = self._versions(self._keys.encoded(columns), at.micros.tolist(), snapshots)
        alive = iter(rows.get_column(ALIVE).to_list())
        found = [each and next(alive) for each in is_known]
        taken = count()
        positions = [next(taken) if each else None for each in is_known]
        if not any(found):
            others = {name: null.new_from_index(0, len(found)) for name, null in self._nulls.items()}
        else:
            if self._nulls and (not all(found) or len(rows) != len(found)):
                alive_at = [position if there else None for position, there in zip(positions, found, strict=True)]
                rows = rows.select(pl.col(*self._nulls).gather(pl.Series(alive_at, dtype=pl.UInt32)))
            others = {name: rows.get_column(name) for name in self._nulls}
        if not all(found):
            for field in self._fields:
                others[field.name] = pl.Series(field.masked(others[field.name], found), dtype=field.dtype)
        return PointLookup(self._names, {**columns, **others}, found)

    def _versions(
        self, keys: list[bytes], instants: list[int], snapshots: Snapshots
    ) -> tuple[pl.DataFrame, list[bool]]:
        """Return the versions current at the instants of their keys, in order.

        Also which keys have one.
        """
        if len(keys) > ONE_BY_ONE:
            return self._many_versions(keys, instants, snapshots)
        found: list[RowSlice | None] = [None] * len(keys)
        for shard, positions in by_shard(keys, self._store.shards):
            table = self._table(shard, snapshots)
            read = table.latest(
                [keys[position] for position in positions], [instants[position] for position in positions]
            )
            for position, entry in zip(positions, read, strict=True):
                found[position] = entry
        known = [each for each in found if each is not None]
        return frame_of(known, self._read), [each is not None for each in found]

    def _many_versions(
        self, keys: list[bytes], instants: list[int], snapshots: Snapshots
    ) -> tuple[pl.DataFrame, list[bool]]:
        points = pl.DataFrame({KEY: pl.Series(keys, dtype=pl.Binary), TIME: pl.Series(instants).cast(INSTANT)})
        is_known, parts = [False] * len(keys), []
        for shard, positions in by_shard(keys, self._store.shards):
            places = pl.Series(_POINT, positions, pl.UInt32)
            hits = self._table(shard, snapshots).floor(points[positions])
            parts.append(hits.with_columns(places.gather(hits[_POINT])))
        rows = pl.concat(parts).sort(_POINT)
        for position in rows[_POINT].to_list():
            is_known[position] = True
        return rows, is_known

    def _table(self, shard: int, snapshots: Snapshots) -> TimedTable:
        return State(snapshots.of(self._store, shard), self._state_id).timed("versions", self._columns)


def _distinct(keys: list[bytes], instants: Ints) -> tuple[list[bytes], Ints, list[int] | None]:
    """Return the distinct keys with their instants, and the place of each key among them.

    The places are None if all are distinct. Rows of a ranking have the user in common, and their instant.
    """
    places: dict[tuple[bytes, int], int] = {}
    found = [places.setdefault(each, len(places)) for each in zip(keys, instants.tolist(), strict=True)]
    if len(places) == len(keys):
        return keys, instants, None
    chosen, at = zip(*places, strict=True)
    return list(chosen), np.array(at), found


def _at(values: list[T], places: list[int] | None) -> list[T]:
    return values if places is None else [values[place] for place in places]


def by_shard(keys: list[bytes], shards: int) -> Iterable[tuple[int, list[int]]]:
    """Return the positions of the keys by shard."""
    if len(keys) == 1:
        return [(shard_of_key(keys[0], shards), [0])]
    positions: dict[int, list[int]] = {}
    for position, key in enumerate(keys):
        positions.setdefault(shard_of_key(key, shards), []).append(position)
    return positions.items()
