"""Stage execution: the flow of changes through a graph, shared by every runner.

A runner passes each stage its input frames and moves its output to the later stages; the process it runs in and the transport of
the frames are the runner's choice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Self

import polars as pl

from umbel.functions.guarding import applied
from umbel.graph.corrections import as_corrections
from umbel.graph.graph import GraphNode
from umbel.operators.operator import Clock, Keyed, RowWise
from umbel.state.port import OldState, Reader
from umbel.state.tables import State
from umbel.types.schema import AT, SEQ, WEIGHT
from umbel.windowing.tiling import instant_of, micros

FARTHEST = 31 * 86_400_000_000
"""The distance up to which watermarks wait for rows that are moved back, µs: one row of the year 1970 must not hold them."""

Edge = tuple[int, int]
"""The number of the reading node, and the index of its input."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The distance by which an operator has moved rows back.

    Args:
        back: µs at the most, 0 if it has moved none of them back; rows moved further than `FARTHEST` do not count.
        oldest: the least of their new timestamps.
        newest: the largest one.
    """

    back: int
    oldest: datetime
    newest: datetime

    @classmethod
    def of(cls, before: pl.DataFrame, after: pl.DataFrame, names: tuple[str, str]) -> Self:
        """Return it for rows that an operator has read and made.

        Args:
            before: the rows that it read.
            after: those that it made, in the same order; those that it fails on are missing.
            names: of their timestamps.
        """
        old, new = before.select(SEQ, pl.col(names[0]).alias("old")), after.select(SEQ, pl.col(names[1]).alias("new"))
        if len(old) == len(new):
            pairs = old.with_columns(new["new"])
        else:
            pairs = old.group_by(SEQ).agg(pl.max("old")).join(new.group_by(SEQ).agg(pl.min("new")), on=SEQ)
        distance, made = (pl.col("old") - pl.col("new")).dt.total_microseconds(), pl.col("new")
        usual = distance.filter(distance.is_between(0, FARTHEST)).max().fill_null(0)
        back, oldest, newest = pairs.select(usual, made.min().alias("oldest"), made.max().alias("newest")).row(0)
        return cls(back, oldest, newest)

    def beside(self, other: Moved) -> Moved:
        """Return it for the rows of both."""
        oldest, newest = min(self.oldest, other.oldest), max(self.newest, other.newest)
        return Moved(max(self.back, other.back), oldest, newest)

    @property
    def plain(self) -> list[int]:
        """Its arguments as plain data."""
        return [self.back, micros(self.oldest), micros(self.newest)]

    @classmethod
    def of_plain(cls, plain: Sequence[int]) -> Self:
        """Restore it from its `plain`."""
        return cls(plain[0], *map(instant_of, plain[1:]))


@dataclass(slots=True)
class StageOutput:
    """The output of a stage.

    Args:
        frames: changes for later stages, by edge.
        local: changes for later nodes of the same stage and shard, by edge.
        logged: changes for the change logs, by node number.
        seen: the largest event time among the rows for each timed node, by node number.
        moved: how far back operators have moved rows, by node number.
        made: the rows that operators have made, by node number.
    """

    frames: dict[Edge, list[pl.DataFrame]] = field(default_factory=lambda: defaultdict(list))
    local: dict[Edge, list[pl.DataFrame]] = field(default_factory=lambda: defaultdict(list))
    logged: dict[int, list[pl.DataFrame]] = field(default_factory=lambda: defaultdict(list))
    seen: dict[int, datetime] = field(default_factory=dict)
    moved: dict[int, Moved] = field(default_factory=dict)
    made: Counter[int] = field(default_factory=Counter)

    def add(self, other: StageOutput) -> None:
        """Merge what other rows have made in the same stage."""
        for edge, frames in other.frames.items():
            self.frames[edge].extend(frames)
        for number, frames in other.logged.items():
            self.logged[number].extend(frames)
        add_seen(self.seen, other.seen)
        add_moved(self.moved, other.moved)
        self.made.update(other.made)

    def saw(self, node: GraphNode, position: int, rows: pl.DataFrame) -> None:
        """Record the largest event time among rows that a node is going to read."""
        inserted = rows.filter(pl.col(WEIGHT) > 0) if AT in rows.columns else rows  # has `_weight`, too
        latest = inserted[node.parents[position].operator.schema.timestamp].max()
        if isinstance(latest, datetime):
            add_seen(self.seen, {node.number: latest})


def add_moved(into: dict[int, Moved], moved: Mapping[int, Moved]) -> None:
    """Merge the moves of other rows, by node number."""
    for number, each in moved.items():
        into[number] = each.beside(into[number]) if number in into else each


def add_seen(into: dict[int, datetime], seen: Mapping[int, datetime]) -> None:
    """Merge the largest event times of other rows, by node number."""
    for number, at in seen.items():
        into[number] = max(at, into.get(number, at))


class PlannedState(State):
    """The state of an operator, with access to its datasets' version histories.

    These are found by the ids of the dataset leaves.
    """

    def __init__(self, reader: Reader, node: GraphNode) -> None:
        super().__init__(reader, node.state_id)
        self._reader_of_all, self._aliases = reader, node.aliases

    def of(self, state_id: str) -> State:
        """Return the state of a plan leaf, or of another state id."""
        return State(self._reader_of_all, self._aliases.get(state_id, state_id))


def define_folded(nodes: Iterable[GraphNode], reader: Reader) -> None:
    """Define the tables that operators merge by functions of their own.

    A shard writes the rows of all tables as runs at once: a process that did not know a table, since no rows have arrived for
    it, would retain those of all others in memory and in the journal. Tables stored by another version are left as they are.

    Args:
        nodes: all nodes of a graph.
        reader: the open transaction of a shard.
    """
    for node in nodes:
        for name, schema in node.operator.folded.items() if isinstance(node.operator, Keyed) else ():
            with suppress(OldState):
                reader.define(f"{node.state_id}/{name}", schema)


def emit(node: GraphNode, rows: pl.DataFrame, output: StageOutput, stage: int = 0) -> None:
    """Route a node's changes to its readers, through the row-wise operators in between.

    Args:
        node: the node.
        rows: its changes.
        output: extended in place.
        stage: the stage that runs; its own later nodes read the changes in the same shard.
    """
    if rows.is_empty():
        return
    output.made[node.number] += rows.height
    if node.is_logged:
        output.logged[node.number].append(rows)
    for reader, position in node.readers:
        operator = reader.operator
        if isinstance(operator, RowWise):
            made = applied(operator, rows)
            if operator.moves_rows and not made.is_empty():
                names = node.operator.schema.timestamp, operator.schema.timestamp
                add_moved(output.moved, {reader.number: Moved.of(rows, made, names)})
            emit(reader, made, output, stage)
        elif isinstance(operator, Keyed):
            frames = output.local if reader.stage == stage else output.frames
            exchanged = operator.called(partial(operator.partial, as_corrections(node, rows)))
            if operator.is_timed:
                output.saw(reader, position, exchanged)
            frames[reader.number, position].append(exchanged)


def run_shard(
    nodes: list[GraphNode],
    inbox: Mapping[Edge, pl.DataFrame],
    reader: Reader,
    clocks: Mapping[int, Clock],
    output: StageOutput,
    due: Mapping[int, datetime],
) -> None:
    """Run the keyed nodes of one stage over one shard's input.

    Args:
        nodes: the stage's keyed nodes, parents first.
        inbox: the stage's input: one frame of changes per edge; edges without changes may be omitted.
        reader: the shard's open transaction.
        clocks: as of the batch before, by node number.
        output: the stage's output, extended in place.
        due: the stream time of the nodes whose timers fire, those up to that time; see `due`.
    """
    for node in nodes:
        operator, state, clock = node.operator, PlannedState(reader, node), clocks.get(node.number, Clock())
        assert isinstance(operator, Keyed)
        frames = tuple(_arrived(node, position, inbox, output.local) for position in range(len(node.parents)))
        if not all(frame.is_empty() for frame in frames):
            made = operator.called(partial(operator.step, frames, state, clock))
            emit(node, operator.checked(made), output, node.stage)
        if node.number in due:
            made = operator.called(partial(operator.tick, state, replace(clock, stream_time=due[node.number])))
            emit(node, operator.checked(made), output, node.stage)


def _arrived(
    node: GraphNode, position: int, inbox: Mapping[Edge, pl.DataFrame], local: Mapping[Edge, list[pl.DataFrame]]
) -> pl.DataFrame:
    """Return the changes that a node reads from one input.

    They are of earlier stages, and of nodes before it in the stage.
    """
    edge = (node.number, position)
    frames = [*([inbox[edge]] if edge in inbox else []), *local.get(edge, ())]
    return pl.concat(frames) if frames else node.parents[position].operator.schema.empty()


def due(nodes: Iterable[GraphNode], seen: Mapping[int, datetime], clocks: Mapping[int, Clock]) -> dict[int, datetime]:
    """Return the stream time of the timed nodes whose stream time advances, by number.

    It advances to the newest row of all shards, or to the watermark for nodes with results that wait for it. A timed node reads
    from earlier stages only, so all its rows are known when its stage begins.

    Args:
        nodes: some nodes; those that are not timed are left out.
        seen: the largest event time among the rows for each node.
        clocks: as of the batch before.
    """
    found = dict[int, datetime]()
    for node in nodes:
        clock = clocks.get(node.number, Clock())
        if node.is_timed:
            at = clock.watermark if node.is_final and clock.waits else seen.get(node.number)
            if at is not None and (clock.stream_time is None or at > clock.stream_time):
                found[node.number] = at
    return found
