"""Pipelines twice over: each step is added to what umbel runs and to what the naive reference computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import polars as pl

from tests import reference_operators as naive
from tests.aggregating import instant
from tests.laws.values import stored
from tests.reference import Change
from tests.reference_operators import Flow, Match
from umbel.api.node import Building, Node
from umbel.connectors import Webhook
from umbel.definitions.records import DatasetDefinition, SourceDefinition
from umbel.expr import col
from umbel.operators.leaf import Leaf
from umbel.types.schema import AT, SEQ, WEIGHT, Schema
from umbel.types.windows import Continuous, Session, Tumbling

HISTORY = 2 * 365 * 86_400_000_000


@dataclass
class World:
    """What the reference knows.

    Args:
        flows: of the datasets.
        seen: the largest instant each operator has seen, by its id, where an engine has seen more than there is in the end.
        stream_times: the largest instant there is in the end.
        watermarks: of the operators that emit final results, by their ids: up to where they have emitted them.
    """

    flows: dict[str, Flow]
    seen: Mapping[str, int] = field(default_factory=dict)
    stream_times: dict[str, int] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)

    def stream_time(self, operator: str, flow: Flow) -> int:
        """Return up to where a window has seen rows."""
        newest = naive.newest_time(flow)
        if newest is not None:
            self.stream_times[operator] = newest
        return max(self.seen.get(operator, -(2**62)), -(2**62) if newest is None else newest)


Naive = Callable[[World], Flow]


@dataclass(frozen=True)
class Step:
    """What is done to rows: for umbel, for the reference, and as text."""

    text: str
    umbel: Any
    plain: Any


@dataclass(frozen=True)
class Twin:
    """Rows on their way through a pipeline, twice.

    Args:
        node: as umbel has them.
        plain: as the reference computes them.
        text: how they are made.
        queried: what answers for them if they end in an aggregate that is queried: its input, as the reference computes it.
        declared: the columns of the dataset they end in, in an order of its own; None for that of the pipeline.
    """

    node: Node
    plain: Naive
    text: str
    queried: Naive | None = None
    declared: Schema | None = None

    @property
    def dataset(self) -> Schema:
        """The columns of the dataset they end in."""
        return self.declared or self.schema

    @property
    def schema(self) -> Schema:
        """The columns."""
        return self.node.operator.schema

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns."""
        return tuple(self.schema.key_names)

    @classmethod
    def of(cls, name: str, schema: Schema, *, appends: bool) -> Twin:
        """Return the rows of a dataset."""
        leaf = Leaf(dataset=name, version=1, columns=schema, appends=appends)
        return cls(Node(leaf, Building("P")), lambda world: world.flows[name], name)

    def _then(self, node: Node, plain: Callable[[Flow], Flow], text: str) -> Twin:
        return Twin(node, lambda world: plain(self.plain(world)), f"{self.text}.{text}")

    def _rows(self, node: Node, function: Any, text: str, keys: tuple[str, ...] = ()) -> Twin:
        return self._then(node, lambda flow: naive.each_row(flow, function, keys), text)

    # ---- row-wise

    def filter(self, step: Step) -> Twin:
        node = self.node.filter(step.umbel)
        return self._rows(node, lambda row, _: [row] if step.plain(row) else [], f"filter({step.text})")

    def assign(self, name: str, dtype: Any, step: Step) -> Twin:
        if callable(step.umbel):
            node, text = self.node.assign(name, dtype, step.umbel), f"assign({name!r}, {dtype}, {step.text})"
        else:
            node, text = self.node.assign(**{name: step.umbel.astype(dtype)}), f"assign({name}={step.text})"
        return self._rows(node, lambda row, _: [{**row, name: step.plain(row)}], text)

    def transform(self, schema: Mapping[str, Any] | None, step: Step) -> Twin:
        node = self.node.transform(step.umbel, schema=schema)
        return self._rows(node, lambda row, _: [step.plain(row)], f"transform({step.text})")

    def swapped(self, one: str, other: str) -> Twin:
        types = self.schema.dtypes
        both = {one: col(other).astype(types[other].annotation()), other: col(one).astype(types[one].annotation())}

        def swap(row: naive.Values, _: int) -> list[naive.Values]:
            return [{**row, one: row[other], other: row[one]}]

        return self._rows(self.node.assign(**both), swap, f"assign({one}={other}, {other}={one})")

    def moved(self, micros: int) -> Twin:
        """Transform the timestamp."""
        name = self.schema.timestamp

        def run(df: Any) -> Any:
            return df.assign(**{name: df[name] + timedelta(microseconds=micros)})

        def later(each: Change) -> Change:
            time = each.time + micros
            return replace(each, time=time, at=time if each.at == each.time else each.at)

        node = self.node.transform(run)
        return self._then(node, lambda flow: Flow(list(map(later, flow.changes)), flow.keys), f"moved by {micros} µs")

    def select(self, names: Sequence[str]) -> Twin:
        def chosen(row: naive.Values, _: int) -> list[naive.Values]:
            return [{name: row[name] for name in row if name in names}]

        return self._rows(self.node.select(*names), chosen, f"select({', '.join(names)})")

    def drop(self, names: Sequence[str]) -> Twin:
        def left(row: naive.Values, _: int) -> list[naive.Values]:
            return [{name: row[name] for name in row if name not in names}]

        return self._rows(self.node.drop(*names), left, f"drop({', '.join(names)})")

    def rename(self, names: Mapping[str, str]) -> Twin:
        def renamed(row: naive.Values, _: int) -> list[naive.Values]:
            return [{names.get(name, name): value for name, value in row.items()}]

        node = self.node.rename(names)
        return self._rows(node, renamed, f"rename({dict(names)})", tuple(node.operator.schema.key_names))

    def dropnull(self, names: Sequence[str]) -> Twin:
        def known(row: naive.Values, _: int) -> list[naive.Values]:
            return [row] if all(row[name] is not None for name in names) else []

        return self._rows(self.node.dropnull(*names), known, f"dropnull({', '.join(names)})")

    def explode(self, names: Sequence[str]) -> Twin:
        return self._rows(self.node.explode(*names), naive.exploded(names), f"explode({', '.join(names)})")

    def union(self, other: Twin) -> Twin:
        return Twin(
            self.node + other.node,
            lambda world: naive.union([self.plain(world), other.plain(world)]),
            f"({self.text} + {other.text})",
        )

    def changelog(self, marker: str, *, marks_deletes: bool) -> Twin:
        node = self.node.changelog(**{"delete" if marks_deletes else "insert": marker})
        text = f"changelog({'delete' if marks_deletes else 'insert'}={marker!r})"
        return self._then(node, lambda flow: naive.changelog(flow, marker, marks_deletes=marks_deletes), text)

    # ---- keyed

    def latest(self, *keys: str) -> Twin:
        node = self.node.groupby(*keys).latest()
        return self._then(node, lambda flow: naive.latest(flow, keys), f"groupby{keys}.latest()")

    def first(self, *keys: str) -> Twin:
        node = self.node.groupby(*keys).first()
        return self._then(node, lambda flow: naive.first(flow, keys), f"groupby{keys}.first()")

    def dedup(self, by: Sequence[str], window: Any = None) -> Twin:
        bucket = window.duration_us if isinstance(window, Tumbling) else None
        gap = window.gap_us if isinstance(window, Session) else None
        node, text = self.node.dedup(*by, window=window), f"dedup({', '.join(by)}, window={window})"
        return self._then(node, lambda flow: naive.dedup(flow, by, bucket, gap), text)

    def join(self, right: Twin, left_on: Sequence[str], fields: Sequence[str], **options: Any) -> Twin:
        """Join with a dataset.

        Args:
            right: rows of a dataset.
            left_on: the columns that hold its keys.
            fields: its columns in the result.
            options: `how` and `within` of the join, the latter in seconds, None for forever.
        """
        back, ahead = options.get("within", (None, 0))
        reach = (back and back * 10**6, ahead * 10**6)
        match = Match(tuple(left_on), tuple(fields), right.schema.timestamp, options["how"] == "inner", *reach)
        within = ("forever" if back is None else f"{back}s", f"{ahead}s")
        on = {"left_on": list(left_on), "right_on": list(right.keys)}
        node = self.node.join(right.node, options["how"], within=within, fields=list(fields), **on)
        run = naive.overlaps if self.schema.is_keyed else naive.as_of
        text = f"{self.text}.join({right.text}, {options['how']!r}, {on}, within={within}, fields={list(fields)})"
        return Twin(node, lambda world: run(self.plain(world), right.plain(world), match), text)

    def aggregate(
        self,
        keys: Sequence[str],
        aggregates: Sequence[Any],
        window: Any = None,
        along: str | None = None,
        emit: str = "eager",
    ) -> Twin:
        node = self.node.groupby(*keys, window=window).aggregate(*aggregates, along=along, emit=emit)
        options = f"along={along}, emit={emit}"
        text = f"{self.text}.groupby({', '.join(keys)}, window={window}).aggregate({aggregates}, {options})"
        operator = node.operator
        moving = isinstance(aggregates[0].window, Continuous)

        def read(world: World) -> Flow:
            return self.plain(world) if along is None else naive.along(self.plain(world), along)

        if operator.is_terminal:
            return Twin(node, lambda world: Flow([], tuple(keys)), text, queried=read)

        def emitted(world: World) -> Flow:
            flow = read(world)
            seen = world.watermarks.get(operator.id)
            if seen is None:
                seen = world.stream_time(operator.id, flow)
                seen = naive.EVER if moving or isinstance(window, Session) else seen  # nothing is final
            if moving:
                return naive.slid(flow, tuple(keys), aggregates, seen)
            if isinstance(window, Session):
                over = seen if emit == "final" else naive.EVER
                return naive.by_session(flow, tuple(keys), aggregates, window.gap_us, over)
            if window is not None:
                return naive.by_window(flow, tuple(keys), aggregates, window, seen)
            return naive.aggregated(flow, tuple(keys), aggregates, seen)

        return Twin(node, emitted, text)


@dataclass(frozen=True)
class Source:
    """A dataset with a source.

    Args:
        schema: its columns.
        rows: in the order of the source; `at` is the instant, weight −1 a delete, `seq` is given later.
        deletes: whether rows can be deletes.
        stacked: how many sources feed it, by turns.
    """

    schema: Schema
    rows: tuple[Change, ...]
    deletes: bool = False
    stacked: int = 1

    def definition(self, name: str, disorder: int) -> DatasetDefinition:
        """Return it as committed; disorder in µs."""
        cdc = "debezium" if self.deletes else "upsert" if self.schema.is_keyed else "append"
        sources = tuple(
            SourceDefinition(connector=Webhook(name="web").endpoint(f"{name}{n}"), disorder=disorder, cdc=cdc, every=0)
            for n in range(self.stacked)
        )
        keyed = self.schema.is_keyed
        ingestion = "debezium" if self.deletes else "upsert"
        return DatasetDefinition(
            name=name,
            version=1,
            schema=self.schema,
            history=HISTORY,
            online=keyed,
            offline=keyed,
            sources=sources,
            ingestion=ingestion,
        )

    def flow(self) -> Flow:
        """Return its changes by the reference."""
        keys = tuple(self.schema.key_names)
        return naive.upserted(self.rows, keys) if keys else Flow(list(self.rows))

    @property
    def is_ordered(self) -> bool:
        """Whether its rows must come in their order: they are changes of a database, which end what was before them."""
        return any(abs(row.weight) != 1 for row in self.rows)


@dataclass(frozen=True)
class Program:
    """Datasets with sources, and pipelines over them.

    Args:
        sources: by name.
        derived: by name; each reads sources and earlier ones.
        disorder: how much older than the newest a row of a source may be when it comes, seconds.
        shift: how many µs its instants are later than those drawn.
    """

    sources: dict[str, Source]
    derived: dict[str, Twin]
    disorder: int = 0
    shift: int = 0

    @classmethod
    def numbered(
        cls, sources: Mapping[str, Source], derived: dict[str, Twin], disorder: int = 0, shift: int = 0
    ) -> Program:
        """Return a program whose rows have their places in the sources."""
        number, placed = 0, {}
        for name, source in sources.items():
            rows = tuple(replace(row, seq=number + place) for place, row in enumerate(source.rows))
            placed[name] = replace(source, rows=rows)
            number += len(rows)
        return cls(placed, derived, disorder, shift)

    def definitions(self, *, sources_only: bool = False) -> list[DatasetDefinition]:
        """Return what is committed."""
        fed = [source.definition(name, self.disorder * 10**6) for name, source in self.sources.items()]
        made = [] if sources_only else [self._definition(name, twin) for name, twin in self.derived.items()]
        return [*fed, *made]

    @staticmethod
    def _definition(name: str, twin: Twin) -> DatasetDefinition:
        keyed = twin.schema.is_keyed
        return DatasetDefinition(
            name=name,
            version=1,
            schema=twin.dataset,
            history=HISTORY,
            online=keyed,
            offline=keyed,
            output=twin.node.operator,
        )

    def world(self, watermarks: Mapping[str, int], seen: Mapping[str, int] | None = None) -> World:
        """Return what the reference computes."""
        flows = {name: source.flow() for name, source in self.sources.items()}
        world = World(flows, seen or {}, watermarks=watermarks)
        for name, twin in self.derived.items():
            world.flows[name] = replace(twin.plain(world), keys=tuple(twin.dataset.key_names))
        return world

    def frame(self, name: str, rows: Sequence[Change] | None = None) -> pl.DataFrame:
        """Return rows of a source as changes."""
        source = self.sources[name]
        schema = source.schema
        report = [
            {
                **{name: stored(row.values.get(name), dtype) for name, dtype in (*schema.keys, *schema.values)},
                schema.timestamp: instant(row.time),
                AT: instant(row.at),
                WEIGHT: row.weight,
                SEQ: row.seq,
            }
            for row in (source.rows if rows is None else rows)
        ]
        return pl.DataFrame(report, schema=schema.changes(), orient="row")

    def __repr__(self) -> str:
        """Return how to write it down."""
        lines = [f"disorder={self.disorder}s"]
        for name, source in self.sources.items():
            lines += [
                f"{name}: {row.values} {_clock(row.time)} at {_clock(row.at)} {row.weight:+}" for row in source.rows
            ]
        return "\n".join(["Program:", *lines, *map(_line, self.derived.items())])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


def _line(named: tuple[str, Twin]) -> str:
    name, twin = named
    return f"{name} = {twin.text} as {', '.join((*twin.dataset.key_names, '|', *twin.dataset.names))}"


def _clock(micros: int) -> str:
    return f"{(micros - 1_700_000_040_000_000) / 10**6:g}s"
