"""Lookups of a few points, one by one: the same answers as by frames, at a fraction of the cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, Protocol

import numpy as np
import polars as pl

from umbel.operators.aggregate import Aggregate
from umbel.operators.tile_points import Pointwise
from umbel.operators.timeline import ALIVE, version_columns
from umbel.plan.graph import Node
from umbel.state.keys import encode_few, encode_instant, shard_of_key
from umbel.state.port import Store
from umbel.state.records import Records
from umbel.state.rows import RowCodec
from umbel.state.tables import State

INSTANT = pl.Datetime("us", "UTC")
Answer = tuple[pl.DataFrame, pl.Series]


class FewLookups(Protocol):
    """Answers lookups on one dataset, where there are few."""

    def answer(self, keys: pl.DataFrame, at: pl.Series) -> Answer | None:
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
        values = dict(operator.schema.values)
        self._fields = [(each.into_field, values[each.into_field].polars()) for each in operator.aggregates]
        self._names, self._timestamp = operator.schema.names, operator.schema.timestamp

    def answer(self, keys: pl.DataFrame, at: pl.Series) -> Answer | None:
        """Return the rows and whether each was found; None when it takes frames to tell."""
        if not self._points.is_able:
            return None
        columns = self._keys.columns(keys)
        instants = _instants(at)
        entries = self._entries(encode_few(columns))
        rows: list[list[Any]] = []
        found: list[bool] = []
        with np.errstate(all="ignore"):
            for held, instant in zip(entries, instants.cast(pl.Int64).to_list(), strict=True):
                told = self._points.values(held, instant)
                if told is None:
                    return None
                found.append(told[0])
                rows.append(told[1])
        return self._shown(columns, instants, rows, found)

    def _entries(self, keys: list[bytes]) -> list[Records | None]:
        """Return the entries of each key, read in one snapshot of each shard."""
        found: list[Records | None] = [None] * len(keys)
        for shard, places in by_shard(keys, self._store.shards):
            with self._store.snapshot(shard) as reader:
                read = self._points.read(State(reader, self._owner), [keys[place] for place in places])
            for place, entries in zip(places, read, strict=True):
                found[place] = entries
        return found

    def _shown(self, columns: pl.DataFrame, instants: pl.Series, rows: list[list[Any]], found: list[bool]) -> Answer:
        is_found = pl.Series("_found", found)
        shown = {each.name: each for each in columns.iter_columns()}
        for (name, dtype), values in zip(self._fields, zip(*rows, strict=True), strict=True):
            shown[name] = _column(name, values, dtype)
        seen = instants if all(found) else instants.zip_with(is_found, pl.Series([None], dtype=INSTANT))
        shown[self._timestamp] = seen.alias(self._timestamp)
        return pl.DataFrame([shown[name] for name in self._names]), is_found


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

    def answer(self, keys: pl.DataFrame, at: pl.Series) -> Answer | None:
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
        return pl.DataFrame(fields), pl.Series("_found", found)

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


def _column(name: str, values: Sequence[Any], dtype: pl.DataType) -> pl.Series:
    """Return values as a column; whole numbers and floats need not be told their type, which takes longer."""
    kind = float if dtype == pl.Float64 else int if dtype == pl.Int64 else None
    if all(type(value) is kind for value in values):
        return pl.Series(name, values)
    return pl.Series(name, values, dtype, strict=False)


def _instants(at: pl.Series) -> pl.Series:
    return at if at.dtype == INSTANT else at.cast(INSTANT)
