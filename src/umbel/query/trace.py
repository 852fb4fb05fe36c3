"""Traces: looked-up rows, followed to the positions of rows in sources.

A row is followed upstream as far as each row there is made of one row: through row-wise operators, joins (the left side), and
operators that choose among rows. Rows that an aggregation made are traced by a trace of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl

from umbel.changes.change_filter import ChangeFilter
from umbel.graph.graph import GraphNode
from umbel.operators.aggregate import (
    WINDOW as WINDOW_KEY,
)
from umbel.operators.aggregate import (
    Aggregation,
    ContinuousAggregation,
    EmittedAggregation,
    LookedUpAggregation,
)
from umbel.operators.index import Index
from umbel.operators.join import Join
from umbel.query.encode import column_to_json, to_json
from umbel.query.erasure import Erased
from umbel.query.execute import QueryEngine, repeated
from umbel.query.history import LogPart, inputs, logged_inputs
from umbel.query.recording import RecordedLookup, RecordingLookups
from umbel.query.rows import INSTANT, as_keys
from umbel.state.keys import encode_keys, shard_of
from umbel.state.tables import State
from umbel.types.dtypes import Datetime, DType, Optional
from umbel.types.schema import AT, SEQ, WEIGHT, Schema
from umbel.types.windows import SECOND, Continuous, Session
from umbel.windowing.points import TIME
from umbel.windowing.tiles import middle
from umbel.windowing.tiling import BASE, FIRST, LAST, UNTIL, WINDOW, leaving, micros

if TYPE_CHECKING:
    from umbel.query.arrange import QueryPlan
    from umbel.query.lookups import Outputs
    from umbel.query.session import LookupSource
    from umbel.state.port import Store

SHOWN = 20
"""Rows, and tiles, that one list shows unless another number is requested."""
MOST_SHOWN = 10_000
"""The largest number of them that can be requested."""
MOST_LOOKUPS = 50
"""Looked-up rows that one trace describes."""
COMPUTED, JOINED = "computed", "joined"
"""Why a trace does not follow the rows of a dataset: an aggregation made them, or they are the right side of a join."""


class Provenance(Protocol):
    """Reads change logs, and says where rows come from."""

    def read(self, node: GraphNode, part: LogPart) -> pl.DataFrame:
        """Return logged changes of a node."""

    def arrivals(self, node: GraphNode, numbers: pl.Series) -> Mapping[int, int | None]:
        """Return the micro-batches in which rows of a logged node arrived, by `_seq`.

        Only of rows that have one of the numbers. None if micro-batches are not noted.
        """

    def positions(self, leaf: GraphNode, numbers: Sequence[int]) -> Sequence[str]:
        """Return the positions in their source of rows of a dataset that has sources."""

    def guarding(self) -> AbstractContextManager[None]:
        """Return a context in which user functions reject the rows that they rejected before."""


@dataclass(frozen=True, slots=True)
class Point:
    """A key of a dataset as of an instant.

    Args:
        node: of the dataset.
        keys: one row, in storage types.
        at: in µs.
        fields: the requested value fields.
    """

    node: GraphNode
    keys: pl.DataFrame
    at: int
    fields: frozenset[str]


@dataclass(frozen=True, slots=True)
class Tracer:
    """Describes looked-up rows as JSON values.

    Args:
        graph: the datasets.
        store: their state.
        provenance: reads their history.
        erased: the erased keys, whose rows are not shown.
        limit: the largest number of rows and of tiles that one list shows, the newest.
    """

    graph: Outputs
    store: Store
    provenance: Provenance
    erased: Erased
    limit: int

    def recording(self, source: LookupSource) -> RecordingLookups:
        """Return lookups that another source answers, to be traced."""
        timestamps = {name: node.operator.schema.timestamp for name, node in self.graph.outputs.items()}
        return RecordingLookups(source, timestamps)

    def trace(self, lookups: Iterable[RecordedLookup]) -> list[dict[str, Any]]:
        """Return a description of each looked-up row, at most `MOST_LOOKUPS`."""
        rows = ((each, row) for each in lookups for row in range(each.keys.height))
        return [self._described(each, row) for (each, row), _ in zip(rows, range(MOST_LOOKUPS), strict=False)]

    def _described(self, lookup: RecordedLookup, row: int) -> dict[str, Any]:
        node = self.graph.outputs[lookup.dataset]
        schema = node.operator.schema
        keys = pl.DataFrame([as_keys(lookup.keys[name].slice(row, 1), each.polars()) for name, each in schema.keys])
        fields = {*schema.value_names} if lookup.fields is None else {*lookup.fields} & {*schema.value_names}
        point = Point(node, keys, micros(lookup.at[row]), frozenset(fields))
        answered = lookup.rows.slice(row, 1)
        shown = [name for name in schema.dtypes if name in {*fields, schema.timestamp} and name in answered.columns]
        stops = {*_stops(_aggregation(node) or node)}
        return {
            "dataset": lookup.dataset,
            "keys": _one(_json(keys, schema)),
            "at": _instants(lookup.at.slice(row, 1))[0],
            "found": bool(lookup.found[row]),
            "values": _one(_json(answered.select(shown), schema)),
            "tiles": self._tiles(point) if isinstance(node.operator, ContinuousAggregation) else [],
            "rows": [*self._rows(point)],
            **{why: sorted({name for each, name in stops if each == why}) for why in (COMPUTED, JOINED)},
        }

    def _rows(self, point: Point) -> Iterator[dict[str, Any]]:
        """Yield the changes behind a row: those of its dataset, and those that it aggregates."""
        node, operator = point.node, point.node.operator
        if isinstance(operator, LookedUpAggregation):
            yield from self._aggregated(point, node, point.at)
            return
        is_of_key = [pl.col(name).is_in(point.keys[name].implode(), nulls_equal=True) for name in point.keys.columns]
        changes = self._read(node, LogPart(pl.all_horizontal(is_of_key))).filter(_at_most(AT, point.at))
        yield self._shown(node, f"dataset '{node.dataset}'", changes)
        made = _aggregation(node)
        begun = changes.filter(pl.col(WEIGHT) > 0).sort(AT, SEQ).tail(1)
        if made is not None and begun.height:
            yield from self._aggregated(point, made, micros(begun[operator.schema.timestamp][0]))

    def _aggregated(self, point: Point, node: GraphNode, latest: int) -> Iterator[dict[str, Any]]:
        """Yield the rows of a group that are in a window, as of a point.

        Args:
            point: has the group's key.
            node: the aggregation.
            latest: the latest instant of a row, µs.
        """
        operator = node.operator
        assert isinstance(operator, Aggregation)
        is_known = {*operator.keys} <= {*point.keys.columns}
        if not is_known or not all(each.is_logged for each in logged_inputs(node)):
            return
        groups, instant = point.keys.select(operator.keys), operator.along or operator.parents[0].schema.timestamp
        since, until = _span(point, operator, latest)
        with self.provenance.guarding():
            found = list(inputs(node, self._read, ChangeFilter(groups, instant, since, until)))
        for parent, changes in found:
            is_of_group = [pl.col(name).eq_missing(pl.lit(groups[name]).first()) for name in operator.keys]
            is_in_span = [_at_most(instant, until), _at_most(AT, point.at)]
            if since is not None:
                is_in_span.append(pl.col(instant).dt.epoch("us") >= since)
            yield self._shown(parent, parent.operator.subject, changes.filter(*is_of_group, *is_in_span))

    def _read(self, node: GraphNode, part: LogPart) -> pl.DataFrame:
        changes = self.provenance.read(node, part)
        return self.erased.without(node.dataset, changes) if node.dataset else changes

    def _shown(self, node: GraphNode, of: str, changes: pl.DataFrame) -> dict[str, Any]:
        """Return the newest of some changes of a node, with their positions."""
        schema, newest = node.operator.schema, changes.sort(AT, SEQ, maintain_order=True).tail(self.limit)
        batches, sources = self._sources(node, newest[SEQ])
        return {
            "of": of,
            "count": changes.height,
            "data": _json(newest.select(schema.names), schema),
            "at": _instants(newest[AT]),
            "weight": newest[WEIGHT].to_list(),
            "batch": batches,
            "source": sources,
        }

    def _sources(self, node: GraphNode, numbers: pl.Series) -> tuple[list[int | None], list[list[str]]]:
        """Return the micro-batch of rows of a node, and their positions in sources."""
        batches: dict[int, int | None] = {}
        positions: dict[int, list[str]] = {}
        for leaf in dict.fromkeys(_leaves(node)) if len(numbers) else ():
            logged = _logged(leaf)
            known = dict.fromkeys(numbers) if logged is None else self.provenance.arrivals(logged, numbers.unique())
            batches |= known
            for number, position in zip(known, self.provenance.positions(leaf, [*known]), strict=True):
                positions.setdefault(number, []).append(position)
        return [batches.get(each) for each in numbers], [positions.get(each, []) for each in numbers]

    def _tiles(self, point: Point) -> list[dict[str, Any]]:
        """Return the tiles of each window that a value is assembled from."""
        operator = point.node.operator
        assert isinstance(operator, ContinuousAggregation)
        encoded = encode_keys(point.keys)
        with self.store.snapshot(int(shard_of(encoded, self.store.shards)[0])) as reader:
            entries = operator.tiles.stored(State(reader, point.node.state_id)).numbered(encoded)
        entries = entries.filter(operator.tiles.has_rows())
        windows = enumerate(operator.tiles.windows)
        found = (self._tiles_of(point, operator, number, window, entries) for number, window in windows)
        return [each for each in found if each["values"]]

    def _tiles_of(
        self, point: Point, operator: ContinuousAggregation, number: int, window: Continuous, entries: pl.DataFrame
    ) -> dict[str, Any]:
        own = entries.filter(pl.col(WINDOW).is_in([number, BASE] if window.is_forever else [number]))
        position, entered = middle(own[FIRST].to_numpy(), own[LAST].to_numpy()), UNTIL if operator.is_keyed else FIRST
        is_left = pl.Series(leaving(position, operator.tiles.lengths[number]) <= point.at)
        there = own.filter(~is_left, (pl.col(entered) <= point.at) | (pl.col(WINDOW) == BASE)).sort(FIRST)
        newest = there.tail(self.limit).with_columns(pl.lit(point.at).cast(INSTANT).alias(TIME))
        answered = [each for each in operator.aggregates if each.window == window and each.into_field in point.fields]
        values = operator.partials.results(newest, answered, for_emission=True)
        types = {each.into_field: Optional(operator.schema.dtypes[each.into_field].base) for each in answered}
        return {
            "window": window.duration,
            "count": there.height,
            "first": _instants(newest[FIRST].cast(INSTANT)),
            "last": _instants(newest[LAST].cast(INSTANT)),
            "rows": newest[WEIGHT].to_list(),
            "is_cut": newest.select((pl.col(LAST) > point.at) & (pl.col(WINDOW) != BASE)).to_series().to_list(),
            "values": to_json({each.name: each for each in values}, types),
        }


def trace_query(
    engine: QueryEngine, tracer: Tracer, plan: QueryPlan, columns: Mapping[str, pl.Series], at: datetime | None
) -> dict[str, Any]:
    """Return the answer of a query of one row, with traces of its lookups.

    Args:
        engine: answers it.
        tracer: describes its lookups.
        plan: of the query, online.
        columns: the inputs, one row.
        at: the instant to answer for; now when None.
    """
    recording, instant = tracer.recording(engine.source), at or datetime.now(UTC)
    answer = engine.over(recording).online(plan, columns, 1, instant)
    return _trace(repeated(instant, 1), _one(answer.to_json()), tracer.trace(recording.made))


def trace_row(
    engine: QueryEngine, tracer: Tracer, dataset: str, keys: pl.DataFrame, at: datetime | None
) -> dict[str, Any]:
    """Return a trace of the row of one key of a dataset.

    As of an instant, or of now when that is None.
    """
    recording = tracer.recording(engine.source)
    engine.over(recording).lookup(dataset, keys, None if at is None else repeated(at, 1))
    return _trace(recording.made[0].at, {}, tracer.trace(recording.made))


def _trace(at: pl.Series, values: Mapping[str, Any], lookups: list[dict[str, Any]]) -> dict[str, Any]:
    return {"at": _instants(at)[0], "values": values, "lookups": lookups}


def _at_most(name: str, until: int) -> pl.Expr:
    return pl.col(name).dt.epoch("us") <= until


def _json(rows: pl.DataFrame, schema: Schema) -> dict[str, list[Any]]:
    types: dict[str, DType] = {name: Optional(schema.dtypes[name].base) for name in rows.columns}
    return to_json(rows.to_dict(), types)


def _one(columns: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    return {name: values[0] for name, values in columns.items()}


def _instants(at: pl.Series) -> list[Any]:
    return column_to_json(at, Optional(Datetime()))


def _span(point: Point, operator: Aggregation, latest: int) -> tuple[int | None, int]:
    """Return the first and the last instant of the rows in any window, µs.

    None for no limit.
    """
    if operator.window is not None and WINDOW_KEY in point.keys.columns:
        begin, end = point.keys[WINDOW_KEY][0].values()
        return micros(begin), micros(end) - 1
    of_fields = {each.window for each in operator.aggregates if each.into_field in point.fields}
    requested = [each for each in operator.windows if each in of_fields] or operator.windows
    lengths = [None if isinstance(each, Session) else each.duration_us for each in requested]
    until = latest - isinstance(operator, EmittedAggregation)  # its windows end before the instant of their result
    known = [each for each in lengths if each is not None]
    if len(known) < len(lengths):
        return None, until
    # rows leave continuous windows at whole seconds
    begun = latest // SECOND * SECOND if isinstance(operator, ContinuousAggregation) else latest - operator.lookback
    return begun - max(known, default=0), until


def _aggregation(node: GraphNode) -> GraphNode | None:
    """Return the aggregation that emitted the rows of a node, None if there is none."""
    while not isinstance(node.operator, Aggregation):
        if len(node.parents) != 1 or not node.operator.keeps_values:
            return None
        (node,) = node.parents
    return node


def _leaves(node: GraphNode) -> Iterator[GraphNode]:
    """Yield the datasets with sources that each row of a node has one row of."""
    operator = node.operator
    if not node.parents:
        yield node
    elif not isinstance(operator, Aggregation):
        for parent in node.parents[:1] if isinstance(operator, Join) else node.parents:
            yield from _leaves(parent)


def _stops(node: GraphNode, name: str | None = None) -> Iterator[tuple[str, str]]:
    """Yield the datasets upstream of a node where its trace ends, and why.

    Args:
        node: the node.
        name: of the nearest dataset downstream.
    """
    for place, parent in enumerate(node.parents):
        own = parent.dataset or name or parent.state_id
        if isinstance(node.operator, Join) and place:
            yield JOINED, own
        elif isinstance(parent.operator, Aggregation):
            yield COMPUTED, own
        else:
            yield from _stops(parent, own)


def _logged(leaf: GraphNode) -> GraphNode | None:
    """Return the node with the change log of a dataset that has sources."""
    if leaf.is_logged:
        return leaf
    return next((each for each, _ in leaf.readers if isinstance(each.operator, Index) and each.is_logged), None)
