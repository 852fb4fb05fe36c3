"""Lookups: a key's row as of an instant, from state or history.

The state answers online lookups, the history offline ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import polars as pl

from umbel.changes.change_filter import ChangeFilter
from umbel.changes.versions import ALIVE, KEY, TIME, version_columns
from umbel.errors import InvalidValue, UnknownName, did_you_mean
from umbel.graph.graph import GraphNode
from umbel.operators.aggregate import LookedUpAggregation
from umbel.operators.answering import answering
from umbel.operators.operator import ALWAYS
from umbel.query.completeness import Complete, Completeness, check_instants, emitted_since, first_of, replayed_since
from umbel.query.point_lookup import PointLookup, PointLookups, point_lookups
from umbel.query.rows import Column, Fields, Instants, as_keys
from umbel.state.keys import encode_keys, shard_of
from umbel.state.port import Reader, Store
from umbel.state.snapshots import Snapshots
from umbel.state.tables import State
from umbel.windowing.points import CHANGED, FOUND, HISTORY
from umbel.windowing.stored_answer import StoredAnswer

History = Callable[[GraphNode, ChangeFilter], pl.DataFrame]
"""Returns those changes consumed by a terminal aggregate that are needed, and possibly others."""

ROW = "_at_row"
KNOWN = 1024
"""The maximum number of point lookups that are retained, by dataset and fields."""
POINT_LOOKUP_ROWS = 256
"""The maximum number of rows answered by point lookups."""
POINTS_AT_ONCE = 1 << 14
"""Points of a shard that are answered at once: what is stored for their keys is in memory several times meanwhile."""


class Outputs(Protocol):
    """Datasets and their output nodes: a graph, or a branch's view of it."""

    @property
    def outputs(self) -> Mapping[str, GraphNode]:
        """The output nodes by dataset."""


class Lookups:
    """Answers lookups on the datasets of a graph.

    Args:
        graph: the deployed graph.
        store: the state store.
        history: reads the input changes of a terminal aggregate.
        known: tells from which instants on answers are right.
    """

    def __init__(self, graph: Outputs, store: Store, history: History, known: Completeness | None = None) -> None:
        self._graph, self._store, self._history, self._known = graph, store, history, known or Complete()
        self._point_lookups: dict[tuple[str, Fields], PointLookups] = {}
        self._aggregations: dict[tuple[str, Fields], LookedUpAggregation] = {}

    def online(
        self, dataset: str, keys: pl.DataFrame, at: pl.Series, fields: Fields = None
    ) -> tuple[pl.DataFrame, pl.Series]:
        """Return the row of each key as of each instant, from the state.

        Args:
            dataset: its name.
            keys: one column per key field.
            at: one instant per row of `keys`.
            fields: those requested; an aggregate that is not has no column.

        Returns:
            The rows, aligned with `keys`, all columns nullable; and a mask of the rows found.
        """
        node = self._node(dataset)
        if not keys.height:
            return pl.DataFrame(schema=node.operator.schema.polars()), pl.Series(FOUND, dtype=pl.Boolean)
        self._check(node, first_of(at))
        point_lookup = self.point_lookup(
            dataset, {name: keys[name] for name in node.operator.schema.key_names}, Instants.of(at), fields
        )
        if point_lookup is not None:
            return point_lookup.frame, point_lookup.found
        points = _points(node, keys, at)
        if node.operator.is_terminal:
            return self._answer(node, points, fields)
        return _aligned(node, points, self._floor(node, points))

    def point_lookup(
        self,
        dataset: str,
        keys: Mapping[str, Column],
        at: Instants,
        fields: Fields = None,
        snapshots: Snapshots | None = None,
    ) -> PointLookup | None:
        """Return the result of `online` by point lookups, or None.

        None if unsupported, or if there are too many points.

        Args:
            dataset: its name.
            keys: a column for each key field, by its name.
            at: one instant per row.
            fields: those requested.
            snapshots: those to read; by default its own.
        """
        if snapshots is None:
            with Snapshots() as own:
                return self.point_lookup(dataset, keys, at, fields, own)
        if not 0 < len(at) <= POINT_LOOKUP_ROWS:
            return None
        self._check(self._node(dataset), int(at.micros.min()))
        return self._quick(dataset, fields).answer(keys, at, snapshots)

    def _check(self, node: GraphNode, first: int) -> None:
        """Refuse an answer from state that is right only from a later instant on."""
        check_instants(node.dataset or node.state_id, self._known.of_state(node.state_id), first)

    def _quick(self, dataset: str, fields: Fields) -> PointLookups:
        found = self._point_lookups.get((dataset, fields))
        if found is None:
            if len(self._point_lookups) == KNOWN:
                self._point_lookups = {}
            found = self._point_lookups[dataset, fields] = point_lookups(self._node(dataset), self._store, fields)
        return found

    def offline(
        self, dataset: str, keys: pl.DataFrame, at: pl.Series, fields: Fields = None
    ) -> tuple[pl.DataFrame, pl.Series]:
        """Return the row of each key as of any past instant.

        The state answers if it covers the instant; its answer equals that of the history.
        """
        return self.online(dataset, keys, at, fields)

    def _node(self, dataset: str) -> GraphNode:
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

    def _floor(self, node: GraphNode, points: pl.DataFrame) -> pl.DataFrame:
        columns = version_columns(node.operator.schema)
        found = []
        for part, reader in self._by_shard(points):
            state = State(reader, node.state_id).timed("versions", columns)
            hits = state.floor(part.select(KEY, TIME)).filter(ALIVE)
            found.append(hits.with_columns(part[ROW].gather(hits["_point"]).alias(ROW)))
        return pl.concat(found)

    def _by_shard(self, points: pl.DataFrame) -> Iterator[tuple[pl.DataFrame, Reader]]:
        shards = shard_of(points[KEY], self._store.shards)
        for shard in shards.unique().sort():
            with self._store.snapshot(shard) as reader:
                mine = points.filter(shards == shard)
                if mine.height > POINTS_AT_ONCE:
                    mine = mine.sort(KEY)  # so that what is stored for a key is read once
                for part in mine.iter_slices(POINTS_AT_ONCE):
                    yield part, reader

    def _answer(self, node: GraphNode, points: pl.DataFrame, fields: Fields) -> tuple[pl.DataFrame, pl.Series]:
        """Answer from an aggregate's state, or its history where state is insufficient.

        Points that are equal are answered once.
        """
        distinct = points.unique((KEY, TIME), keep="first", maintain_order=True)
        if distinct.height == points.height:
            return self._answer_each(node, points, fields)
        distinct = distinct.drop(ROW).with_row_index(ROW)
        rows, found = self._answer_each(node, distinct, fields)
        places = points.select(KEY, TIME).join(
            distinct.select(KEY, TIME, ROW), on=(KEY, TIME), how="left", nulls_equal=True, maintain_order="left"
        )[ROW]
        return rows[places], found[places]

    def _answer_each(self, node: GraphNode, points: pl.DataFrame, fields: Fields) -> tuple[pl.DataFrame, pl.Series]:
        operator = self._aggregation(node, fields)
        known = [
            (operator.stored_answer(State(reader, node.state_id), part.select(KEY, TIME)), part)
            for part, reader in self._by_shard(points)
        ]
        found = pl.concat(self._completed(node, operator, known))
        lost = points.join(found.filter(HISTORY), on=ROW, how="semi", maintain_order="left")
        if lost.height:
            changes = self._history(node, ChangeFilter(_groups(node, lost), operator.instant))
            # asked after the changes are read: more may be dropped meanwhile
            since, first = replayed_since(node, self._known), first_of(lost[TIME])
            check_instants(node.dataset or node.state_id, since, first, "from history")
            report = operator.replay(changes, lost.drop(KEY)).with_columns(lost[ROW])
            found = pl.concat(
                [found.filter(~pl.col(HISTORY)).drop(HISTORY), report.select(found.drop(HISTORY).columns)]
            )
        rows = points.join(found, on=ROW, how="left", maintain_order="left")
        shown = rows.rename({CHANGED: operator.schema.timestamp}) if operator.answered.has_timestamp else rows
        return shown.select(name for name in operator.schema.names if name in shown.columns), rows[FOUND]

    def _aggregation(self, node: GraphNode, fields: Fields) -> LookedUpAggregation:
        assert isinstance(node.operator, LookedUpAggregation)
        found = self._aggregations.get((node.state_id, fields))
        if found is None:
            if len(self._aggregations) == KNOWN:
                self._aggregations = {}
            found = self._aggregations[node.state_id, fields] = answering(node.operator, fields)
        return found

    def _completed(
        self, node: GraphNode, operator: LookedUpAggregation, known: Sequence[tuple[StoredAnswer, pl.DataFrame]]
    ) -> list[pl.DataFrame]:
        """Return the reports of points, some of them completed from a part of the history.

        Points beside a change that is not in effect yet at their instant are answered so: the clocks of producers are ahead.
        """
        reports = [answer.report for answer, _ in known]
        pending = [(place, each.completion) for place, (each, _) in enumerate(known) if each.completion is not None]
        if pending:
            since, until = min(each.since for _, each in pending), max(each.until for _, each in pending)
            groups = pl.concat([_groups(node, known[place][1].filter(each.points)) for place, each in pending])
            changes = self._history(node, ChangeFilter(groups, operator.instant, since, until))
            if self._has_all(node, operator, since):
                for place, each in pending:
                    reports[place] = each.report(changes)
        return [report.with_columns(part[ROW]) for report, (_, part) in zip(reports, known, strict=True)]

    def _has_all(self, node: GraphNode, operator: LookedUpAggregation, since: int) -> bool:
        """Return whether all changes from an instant on can still be read."""
        retained = max((emitted_since(each, self._known) for each in node.parents), default=ALWAYS)
        return retained == ALWAYS or (operator.along is None and retained <= since)


def _groups(node: GraphNode, points: pl.DataFrame) -> pl.DataFrame:
    """Return the distinct groups of points."""
    assert isinstance(node.operator, LookedUpAggregation)
    return points.select(node.operator.keys).unique()


def _points(node: GraphNode, keys: pl.DataFrame, at: pl.Series) -> pl.DataFrame:
    schema = node.operator.schema
    columns = pl.DataFrame([as_keys(keys[name], dtype.polars()) for name, dtype in schema.keys])
    instants = at.cast(pl.Datetime("us", "UTC")).alias(TIME)
    return columns.with_columns(encode_keys(columns).alias(KEY), instants).with_row_index(ROW)


def _aligned(node: GraphNode, points: pl.DataFrame, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    schema = node.operator.schema
    others = rows.select(
        ROW, *(name for name in schema.names if name not in schema.key_names), pl.lit(value=True).alias(FOUND)
    )
    joined = points.select(ROW, *schema.key_names).join(others, on=ROW, how="left", maintain_order="left")
    found = joined[FOUND].fill_null(value=False)
    instead = [
        pl.when(found).then(name).otherwise(pl.Series([value], dtype=schema.dtypes[name].polars()).first()).alias(name)
        for name, value in node.operator.missing.items()
    ]
    return joined.select(schema.names).with_columns(instead), found
