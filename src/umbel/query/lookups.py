"""Lookups: the row of a key as of an instant, from the state (online) or from the history (offline)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import polars as pl

from umbel.errors import InvalidValue, UnknownName, did_you_mean
from umbel.operators.aggregate import Aggregate
from umbel.operators.points import CHANGED, FOUND, HISTORY
from umbel.operators.timeline import ALIVE, KEY, TIME, version_columns
from umbel.plan.graph import Node
from umbel.query.few import Few, FewLookups, few_lookups
from umbel.query.rows import Column, Instants
from umbel.state.keys import encode_keys, shard_of
from umbel.state.port import Reader, Store
from umbel.state.tables import State

History = Callable[[Node], pl.DataFrame]
"""Returns the changes a terminal aggregate has consumed."""

ROW = "_row"
FEW = 256
"""Up to how many points are answered one by one."""


class Outputs(Protocol):
    """Datasets and the nodes whose changes are theirs: a graph, or what a branch sees of it."""

    @property
    def outputs(self) -> Mapping[str, Node]:
        """The nodes, by dataset."""


class Lookups:
    """Answer lookups on the datasets of a graph.

    Args:
        graph: the deployed graph.
        store: where its state is.
        history: where the changes behind a terminal aggregate are read from.
    """

    def __init__(self, graph: Outputs, store: Store, history: History) -> None:
        self._graph, self._store, self._history = graph, store, history
        self._few: dict[str, FewLookups] = {}

    def online(self, dataset: str, keys: pl.DataFrame, at: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
        """Return the row of each key as of each instant, from the state the write path maintains.

        Args:
            dataset: its name.
            keys: one column per key field.
            at: one instant per row of `keys`.

        Returns:
            The rows, aligned with `keys`, all columns nullable; and whether each was found.
        """
        node = self._node(dataset)
        if not keys.height:
            return pl.DataFrame(schema=node.operator.schema.polars()), pl.Series("_found", dtype=pl.Boolean)
        few = self.few(dataset, [keys[name] for name in node.operator.schema.key_names], Instants.of(at))
        if few is not None:
            return few.frame, few.found
        points = _points(node, keys, at)
        if node.operator.is_terminal:
            return self._answer(node, points)
        return _aligned(node, points, self._floor(node, points))

    def few(self, dataset: str, keys: Sequence[Column], at: Instants) -> Few | None:
        """Return what `online` does in a short way; None where there is none, or too many points for it.

        Args:
            dataset: its name.
            keys: a column for each key field, in their order.
            at: one instant per row.
        """
        if not 0 < len(at) <= FEW:
            return None
        return self._quick(dataset).answer(keys, at)

    def _quick(self, dataset: str) -> FewLookups:
        found = self._few.get(dataset)
        if found is None:
            found = self._few[dataset] = few_lookups(self._node(dataset), self._store)
        return found

    def offline(self, dataset: str, keys: pl.DataFrame, at: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
        """Return the row of each key as of each instant, whatever lies between that instant and now.

        The state answers where it knows the answer, which is then the history's: one meaning, whoever asks.
        """
        return self.online(dataset, keys, at)

    def _node(self, dataset: str) -> Node:
        node = self._graph.outputs.get(dataset)
        if node is None:
            raise UnknownName(
                f"dataset '{dataset}' is not committed{did_you_mean(dataset, self._graph.outputs)}",
                hint="commit it first",
            )
        if not node.operator.schema.is_keyed:
            raise InvalidValue(
                f"dataset '{dataset}' has no key fields, so it cannot be looked up",
                hint="mark its keys: field(key=True)",
            )
        return node

    def _floor(self, node: Node, points: pl.DataFrame) -> pl.DataFrame:
        columns = version_columns(node.operator.schema)
        found = []
        for part, reader in self._by_shard(points):
            state = State(reader, node.owner).table("timeline", columns)
            hits = state.floor(part.select(KEY, TIME)).filter(ALIVE)
            found.append(hits.with_columns(part[ROW].gather(hits["_point"]).alias(ROW)))
        return pl.concat(found)

    def _by_shard(self, points: pl.DataFrame) -> Iterator[tuple[pl.DataFrame, Reader]]:
        shards = shard_of(points[KEY], self._store.shards)
        for shard in shards.unique().sort():
            with self._store.snapshot(shard) as reader:
                yield points.filter(shards == shard), reader

    def _answer(self, node: Node, points: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
        """Answer from the state of an aggregate, and from its history where the state does not know."""
        operator = node.operator
        assert isinstance(operator, Aggregate)
        known = [
            operator.lookup(State(reader, node.owner), part.select(KEY, TIME)).with_columns(part[ROW])
            for part, reader in self._by_shard(points)
        ]
        found = pl.concat(known)
        lost = points.join(found.filter(HISTORY), on=ROW, how="semi", maintain_order="left")
        if lost.height:
            told = operator.replay(self._history(node), lost.drop(KEY)).with_columns(lost[ROW])
            found = pl.concat([found.filter(~pl.col(HISTORY)).drop(HISTORY), told.select(found.drop(HISTORY).columns)])
        rows = points.join(found, on=ROW, how="left", maintain_order="left")
        shown = rows.with_columns(pl.col(CHANGED).alias(operator.schema.timestamp))
        return shown.select(operator.schema.names), rows[FOUND]


def _points(node: Node, keys: pl.DataFrame, at: pl.Series) -> pl.DataFrame:
    schema = node.operator.schema
    columns = keys.select(pl.col(name).cast(dtype.polars()) for name, dtype in schema.keys)
    instants = at.cast(pl.Datetime("us", "UTC")).alias(TIME)
    return columns.with_columns(encode_keys(columns).alias(KEY), instants).with_row_index(ROW)


def _aligned(node: Node, points: pl.DataFrame, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    schema = node.operator.schema
    others = rows.select(
        ROW, *(name for name in schema.names if name not in schema.key_names), pl.lit(value=True).alias("_found")
    )
    joined = points.select(ROW, *schema.key_names).join(others, on=ROW, how="left", maintain_order="left")
    found = joined["_found"].fill_null(value=False)
    instead = [
        pl.when(found).then(name).otherwise(pl.Series([value], dtype=schema.dtypes[name].polars()).first()).alias(name)
        for name, value in node.operator.missing.items()
    ]
    return joined.select(schema.names).with_columns(instead), found
