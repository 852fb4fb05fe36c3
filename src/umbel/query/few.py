"""Lookups of a few points, one by one: the same answers as by frames, at a fraction of the cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

import polars as pl

from umbel.operators.aggregate import Aggregate
from umbel.operators.runs import Ints
from umbel.operators.tile_points import Pointwise
from umbel.operators.timeline import ALIVE, version_columns
from umbel.plan.graph import Node
from umbel.query.rows import INSTANT, Column, Instants, Plain, is_same, series_of
from umbel.state.keys import encode_few, encode_instant, shard_of_key
from umbel.state.port import Store
from umbel.state.rows import RowCodec
from umbel.state.tables import State


@dataclass(frozen=True, slots=True)
class Few:
    """What was looked up.

    Args:
        names: the columns of the dataset.
        columns: those, all nullable, aligned with what was asked; without that of the instants.
        is_found: whether each was found.
        changed: since when the values of each have been these, µs; column `timestamp`, where it is not among the others.
        timestamp: its name.
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
        """Whether each was found, as a column."""
        return pl.Series("_found", self.is_found, dtype=pl.Boolean)


class FewLookups(Protocol):
    """Answers lookups on one dataset, where there are few."""

    def answer(self, keys: Sequence[Column], at: Instants) -> Few | None:
        """Return the rows and whether each was found; None when it takes frames to tell."""


def few_lookups(node: Node, store: Store) -> FewLookups:
    """Return what answers lookups of few points on the dataset of a node."""
    operator = node.operator
    if not operator.is_terminal:
        return FewVersions(node, store)
    assert isinstance(operator, Aggregate)
    return FewValues(node, operator, store)


class Keys:
    """Brings the keys of lookups into the types and bytes they are stored with."""

    def __init__(self, node: Node) -> None:
        self._names = node.operator.schema.key_names
        self._types = [dtype.polars() for _, dtype in node.operator.schema.keys]

    def columns(self, keys: Sequence[Column]) -> dict[str, Column]:
        """Return the key columns by their names."""
        given = zip(self._names, keys, self._types, strict=True)
        return {name: key if is_same(key.dtype, dtype) else series_of(key).cast(dtype) for name, key, dtype in given}

    def encoded(self, columns: Mapping[str, Column]) -> list[bytes]:
        """Return the keys as they are stored."""
        return encode_few([each.to_list() for each in columns.values()], self._types)


class FewValues:
    """Lookups on an aggregation with continuous windows.

    Args:
        node: of the aggregation.
        operator: its operator.
        store: where its state is.
    """

    def __init__(self, node: Node, operator: Aggregate, store: Store) -> None:
        self._owner, self._store, self._keys = node.owner, store, Keys(node)
        self._points = Pointwise(operator.tiles)
        types = dict(operator.schema.values)
        self._fields = [
            _Field.of(each.into_field, types[each.into_field].polars(), each.missing) for each in operator.aggregates
        ]
        self._names, self._timestamp = operator.schema.names, operator.schema.timestamp

    def answer(self, keys: Sequence[Column], at: Instants) -> Few | None:
        """Return the rows and whether each was found; None when it takes frames to tell."""
        if not self._points.is_able:
            return None
        columns = self._keys.columns(keys)
        told = self._points.values(self._entries(self._keys.encoded(columns)), at.micros)
        if told is None:
            return None
        found: list[bool] = told.found.tolist()
        every = all(found)
        for field, each in zip(self._fields, told.values, strict=True):
            columns[field.name] = Plain(list(each) if every else field.masked(each, found), field.dtype)
        return Few(self._names, columns, found, lambda: told.changed, self._timestamp)

    def _entries(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the entries of each key as stored, read in one snapshot of each shard."""
        if len(keys) == 1:
            with self._store.snapshot(shard_of_key(keys[0], self._store.shards)) as reader:
                return self._points.read(State(reader, self._owner), keys)
        found: list[bytes | None] = [None] * len(keys)
        for shard, places in by_shard(keys, self._store.shards):
            with self._store.snapshot(shard) as reader:
                read = self._points.read(State(reader, self._owner), [keys[place] for place in places])
            for place, entries in zip(places, read, strict=True):
                found[place] = entries
        return found


@dataclass(frozen=True, slots=True)
class _Field:
    """The column of an aggregate.

    Args:
        name: the field.
        dtype: its storage type.
        missing: the value of a key never seen.
    """

    name: str
    dtype: pl.DataType
    missing: Any

    @classmethod
    def of(cls, name: str, dtype: pl.DataType, missing: Any) -> _Field:
        (stored,) = pl.Series([missing], dtype=dtype).to_list()
        return cls(name, dtype, stored)

    def masked(self, values: Iterable[Any], found: list[bool]) -> list[Any]:
        """Return values of the field; where nothing was found, that of a key never seen."""
        return [value if is_found else self.missing for value, is_found in zip(values, found, strict=True)]


class FewVersions:
    """Lookups on a dataset whose rows have versions.

    Args:
        node: of the dataset.
        store: where its timeline is.
    """

    def __init__(self, node: Node, store: Store) -> None:
        self._owner, self._store, self._keys = node.owner, store, Keys(node)
        schema = node.operator.schema
        self._names = schema.names
        self._codec = RowCodec(version_columns(schema))
        types = {name: schema.dtypes[name].polars() for name in node.operator.missing}
        self._fields = [_Field.of(name, types[name], each) for name, each in node.operator.missing.items()]

    def answer(self, keys: Sequence[Column], at: Instants) -> Few:
        """Return the rows and whether each was found."""
        columns = self._keys.columns(keys)
        values = self._versions(self._keys.encoded(columns), at.micros.tolist())
        rows, _ = self._codec.decode([value for value in values if value is not None])
        alive = iter(rows.get_column(ALIVE).to_list())
        found = [value is not None and next(alive) for value in values]
        taken = count()
        places = [None if value is None else next(taken) for value in values]
        others = {name: rows.get_column(name) for name in self._names if name not in columns}
        if not all(found) or len(rows) != len(found):
            alive_at = [place if there else None for place, there in zip(places, found, strict=True)]
            shown = pl.Series(alive_at, dtype=pl.UInt32)
            others = {name: column.gather(shown) for name, column in others.items()}
            for field in self._fields:
                others[field.name] = pl.Series(field.masked(others[field.name], found), dtype=field.dtype)
        return Few(self._names, {**columns, **others}, found)

    def _versions(self, keys: list[bytes], instants: list[int]) -> list[bytes | None]:
        """Return the version of each key that is current at an instant, as stored."""
        found: list[bytes | None] = [None] * len(keys)
        for shard, places in by_shard(keys, self._store.shards):
            spans = [(keys[place], keys[place] + encode_instant(instants[place]) + b"\x00") for place in places]
            with self._store.snapshot(shard) as reader:
                read = reader.scan(self._owner, "timeline", spans, limit=1, reverse=True)
            for place, entries in zip(places, read, strict=True):
                found[place] = entries[0][1] if entries else None
        return found


def by_shard(keys: list[bytes], shards: int) -> Iterable[tuple[int, list[int]]]:
    """Return the places of the keys by the shard they belong to."""
    if len(keys) == 1:
        return [(shard_of_key(keys[0], shards), [0])]
    places: dict[int, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(shard_of_key(key, shards), []).append(place)
    return places.items()
