"""Lookups of a few points, one by one: the same answers as by frames, at a fraction of the cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

import polars as pl

from umbel.aggregates import Aggregate as Algebra
from umbel.operators.aggregate import Aggregate
from umbel.operators.tile_points import Pointwise
from umbel.operators.timeline import ALIVE, version_columns
from umbel.plan.graph import Node
from umbel.query.rows import Column, Plain, series_of
from umbel.state.keys import encode_few, encode_instant, shard_of_key
from umbel.state.port import Store
from umbel.state.rows import RowCodec
from umbel.state.tables import State

INSTANT = pl.Datetime("us", "UTC")


@dataclass(frozen=True, slots=True)
class Few:
    """What was looked up.

    Args:
        columns: of the dataset, aligned with what was asked, all nullable.
        is_found: whether each was found.
    """

    columns: Mapping[str, Column]
    is_found: Sequence[bool]

    @property
    def frame(self) -> pl.DataFrame:
        """The columns as a frame."""
        return pl.DataFrame([series_of(column).alias(name) for name, column in self.columns.items()])

    @property
    def found(self) -> pl.Series:
        """Whether each was found, as a column."""
        return pl.Series("_found", self.is_found, dtype=pl.Boolean)


class FewLookups(Protocol):
    """Answers lookups on one dataset, where there are few."""

    def answer(self, keys: pl.DataFrame, at: pl.Series) -> Few | None:
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
        self._types = [(name, dtype.polars()) for name, dtype in node.operator.schema.keys]

    def columns(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Return the key columns."""
        given = [(keys.get_column(name), dtype) for name, dtype in self._types]
        return pl.DataFrame([each if each.dtype == dtype else each.cast(dtype) for each, dtype in given])


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
        self._fields = [_Field.of(each, types[each.into_field].polars()) for each in operator.aggregates]
        self._names, self._timestamp = operator.schema.names, operator.schema.timestamp

    def answer(self, keys: pl.DataFrame, at: pl.Series) -> Few | None:
        """Return the rows and whether each was found; None when it takes frames to tell."""
        if not self._points.is_able:
            return None
        columns, instants = self._keys.columns(keys), _instants(at)
        told = self._points.values(self._entries(encode_few(columns)), instants.cast(pl.Int64).to_numpy())
        if told is None:
            return None
        is_found, values = told
        return self._shown(columns, instants, is_found.tolist(), values)

    def _entries(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the entries of each key as stored, read in one snapshot of each shard."""
        found: list[bytes | None] = [None] * len(keys)
        for shard, places in by_shard(keys, self._store.shards):
            with self._store.snapshot(shard) as reader:
                read = self._points.read(State(reader, self._owner), [keys[place] for place in places])
            for place, entries in zip(places, read, strict=True):
                found[place] = entries
        return found

    def _shown(self, columns: pl.DataFrame, instants: pl.Series, found: list[bool], values: list[Sequence[Any]]) -> Few:
        shown: dict[str, Column] = {each.name: each for each in columns.iter_columns()}
        shown |= {field.name: field.shown(each, found) for field, each in zip(self._fields, values, strict=True)}
        seen = instants if all(found) else instants.zip_with(pl.Series(found), pl.Series([None], dtype=INSTANT))
        shown[self._timestamp] = seen
        return Few({name: shown[name] for name in self._names}, found)


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
    def of(cls, aggregate: Algebra, dtype: pl.DataType) -> _Field:
        (missing,) = pl.Series([aggregate.missing], dtype=dtype).to_list()
        return cls(aggregate.into_field, dtype, missing)

    def shown(self, values: Sequence[Any], found: list[bool]) -> Plain:
        if all(found):
            return Plain(list(values), self.dtype)
        either = zip(values, found, strict=True)
        return Plain([value if is_found else self.missing for value, is_found in either], self.dtype)


class FewVersions:
    """Lookups on a dataset whose rows have versions.

    Args:
        node: of the dataset.
        store: where its timeline is.
    """

    def __init__(self, node: Node, store: Store) -> None:
        self._owner, self._store, self._keys = node.owner, store, Keys(node)
        schema = node.operator.schema
        self._key_names, self._names = set(schema.key_names), schema.names
        self._codec = RowCodec(version_columns(schema))

    def answer(self, keys: pl.DataFrame, at: pl.Series) -> Few | None:
        """Return the rows and whether each was found; None when it takes frames to tell."""
        columns = self._keys.columns(keys)
        values = self._versions(encode_few(columns), _instants(at).cast(pl.Int64).to_list())
        rows, _ = self._codec.decode([value for value in values if value is not None])
        alive = iter(rows.get_column(ALIVE).to_list())
        found = [value is not None and next(alive) for value in values]
        taken = count()
        places = [None if value is None else next(taken) for value in values]
        others = {name: rows.get_column(name) for name in self._names if name not in self._key_names}
        if not all(found) or len(rows) != len(found):
            alive_at = [place if there else None for place, there in zip(places, found, strict=True)]
            shown = pl.Series(alive_at, dtype=pl.UInt32)
            others = {name: column.gather(shown) for name, column in others.items()}
        fields = [others[name] if name in others else columns.get_column(name) for name in self._names]
        return Few(dict(zip(self._names, fields, strict=True)), found)

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


def _instants(at: pl.Series) -> pl.Series:
    return at if at.dtype == INSTANT else at.cast(INSTANT)
