"""Event time between batches: watermarks of sources, stream times of nodes, operators' clocks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from umbel.graph.graph import Graph, GraphNode
from umbel.graph.stages import Moved
from umbel.operators.operator import Clock
from umbel.runtime.plans import BatchPlan
from umbel.windowing.tiling import instant_of, micros

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
FIRST = datetime(2, 1, 1, tzinfo=UTC)
"""The first watermark, a year after the first instant: operators look a little further back."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The event times of rows taken from a source.

    Args:
        source: its key.
        partition: of the source, None if it has none.
        oldest: the least event time.
        newest: the largest.
    """

    source: str
    partition: str | None
    oldest: datetime
    newest: datetime


@dataclass(frozen=True, slots=True)
class Ramp:
    """The way of a watermark over rows that were loaded without one.

    It has as many steps as batches loaded them, so no batch has the final results of all.

    Args:
        oldest: the least event time of these rows.
        steps: the number of batches.
        done: the number of the step that the next batch has.
    """

    oldest: datetime
    steps: int = 1
    done: int = 1

    def reached(self, newest: datetime) -> datetime:
        """Return the event time reached on the way to the newest one."""
        return self.oldest + (newest - self.oldest) * self.done / self.steps

    @property
    def plain(self) -> list[int]:
        """Its arguments as plain data."""
        return [micros(self.oldest), self.steps, self.done]

    @classmethod
    def of(cls, plain: Sequence[int]) -> Self:
        """Restore it from its `plain`."""
        return cls(instant_of(plain[0]), *plain[1:])


@dataclass(slots=True)
class EventTimeProgress:
    """Event time as of the end of a batch.

    Args:
        newest: the event time that each source has reached, by its key: the largest one taken, or for a source with partitions
            the least of those that the unread ones have reached.
        stream_times: the largest event time each timed node has read, or the watermark its results have waited for, by its state
            id.
        ended: the keys of the sources that are at their end.
        loading: the keys of the sources whose first rows are read in no order; they have no watermark yet.
        unread: for each source the partitions with rows that no batch has read.
        partitions: the largest event time taken from each partition of each source.
        ramps: of the sources that were loaded without a watermark.
        moved: how far back operators have moved all rows so far, by their state ids.
    """

    newest: dict[str, datetime] = field(default_factory=dict)
    stream_times: dict[str, datetime] = field(default_factory=dict)
    ended: frozenset[str] = frozenset()
    loading: frozenset[str] = frozenset()
    unread: Mapping[str, Collection[str]] = field(default_factory=dict)
    partitions: dict[str, dict[str, datetime]] = field(default_factory=dict)
    ramps: dict[str, Ramp] = field(default_factory=dict)
    moved: dict[str, Moved] = field(default_factory=dict)

    @classmethod
    def of(cls, state: Mapping[str, Any], plan: BatchPlan | None = None) -> Self:
        """Restore progress from `state`, with what a plan says of its sources."""
        newest, stream_times = (_instants(state.get(name, {})) for name in ("newest", "stream_times"))
        partitions = {source: _instants(each) for source, each in state.get("partitions", {}).items()}
        ended, loading, unread = (plan.ended, plan.loading, plan.unread) if plan else ((), (), {})
        ramps = {source: Ramp.of(each) for source, each in state.get("ramps", {}).items()}
        moved = {owner: Moved.of_plain(each) for owner, each in state.get("moved", {}).items()}
        return cls(newest, stream_times, frozenset(ended), frozenset(loading), unread, partitions, ramps, moved)

    @property
    def state(self) -> dict[str, Any]:
        """The progress as JSON-compatible data."""
        partitions = {source: _plain(each) for source, each in self.partitions.items()}
        ramps = {source: each.plain for source, each in self.ramps.items()}
        return {
            "newest": _plain(self.newest),
            "stream_times": _plain(self.stream_times),
            **({"partitions": partitions} if partitions else {}),
            **({"ramps": ramps} if ramps else {}),
            **({"moved": {owner: each.plain for owner, each in self.moved.items()}} if self.moved else {}),
        }

    def saw(self, taken: Collection[Taken], read: Collection[str], *, has_final: bool) -> None:
        """Advance the event times that sources have reached.

        Args:
            taken: from the sources.
            read: the keys of the sources that were read; of others without an entry in `unread` it is not known which partitions
                are.
            has_final: whether results wait for watermarks.
        """
        if has_final:
            self.ramps = self._ramps(taken)
        for each in taken:
            source, newest = each.source, each.newest
            if each.partition is not None:
                reached = self.partitions.setdefault(source, {})
                reached[each.partition] = max(newest, reached.get(each.partition, newest))
            elif source not in self.partitions:  # a replay is of no partition
                self.newest[source] = max(newest, self.newest.get(source, newest))
        for source in self.partitions.keys() & {*read, *self.unread}:
            reached = self.partitions[source]
            behind = [reached.get(each) for each in self.unread.get(source, ())]
            least = _least(behind) if behind else max(reached.values())
            if least is not None:
                self.newest[source] = max(least, self.newest.get(source, least))

    def _ramps(self, taken: Collection[Taken]) -> dict[str, Ramp]:
        """Return the ramps after a batch.

        They are a step longer where it loaded rows, else a step further.
        """
        found = {source: each for source, each in self.ramps.items() if source in self.loading}
        for source in {each.source for each in taken} & self.loading:
            oldest = min(each.oldest for each in taken if each.source == source)
            ramp = found.get(source)
            found[source] = Ramp(min(oldest, ramp.oldest), ramp.steps + 1) if ramp else Ramp(oldest)
        left = {source: each for source, each in self.ramps.items() if source not in found and each.done < each.steps}
        return found | {source: replace(each, done=each.done + 1) for source, each in left.items()}

    def watermarks(self, graph: Graph) -> dict[str, datetime]:
        """Return each source's watermark: its newest event time less its disorder.

        Sources without rows so far have none, and neither have those that are loading.
        """
        found = {
            each.key: _earlier(self._reached(each.key), each.definition.disorder)
            for each in graph.sources()
            if each.key in self.newest and each.key not in self.loading
        }
        return {source: mark for source, mark in found.items() if mark is not None}

    def _reached(self, source: str) -> datetime:
        newest = self.newest[source]
        return self.ramps[source].reached(newest) if source in self.ramps else newest

    def clocks(self, graph: Graph) -> dict[int, Clock]:
        """Return the clock of every keyed node."""
        marks = self._marks(graph)
        clocks = {}
        for node in (each for each in graph.nodes if each.is_keyed):
            parents = tuple(marks.after[parent.number] for parent in node.parents)
            stream_time = self.stream_times.get(node.state_id)
            clocks[node.number] = Clock(marks.before[node.number], stream_time, parents, waits=True)
        return clocks

    def until(self, instant: datetime) -> Self:
        """Return the progress where no source has reached more than an instant, nor its end."""
        newest = {source: min(self._reached(source), instant) for source in self.newest}
        return replace(self, newest=newest, ramps={}, ended=frozenset())

    def move(self, graph: Graph, moved: Mapping[int, Moved]) -> list[tuple[GraphNode, Moved, datetime]]:
        """Record by how much operators have moved rows back.

        The watermarks of their results lag by that from now on. Batches with rows behind these do not count.

        Args:
            graph: of the batch.
            moved: the rows of the batch, by node number.

        Returns:
            Those that have moved rows behind the watermark of their result, with that watermark.
        """
        behind = list[tuple[GraphNode, Moved, datetime]]()
        if not moved:
            return behind
        before = self._marks(graph).after
        for number, each in moved.items():
            node = graph.nodes[number]
            known, mark = self.moved.get(node.state_id), before[number]
            found = each if known is None else each.beside(known)
            if known is not None and mark is not None and each.oldest < mark:
                behind.append((node, each, mark))
                found = replace(found, back=known.back)
            self.moved[node.state_id] = found
        return behind

    def _marks(self, graph: Graph) -> _Marks:
        reached, found = self.watermarks(graph), _Marks()
        for each in graph.sources():
            found.keys.setdefault(graph.entries[each.dataset].number, set()).add(each.key)
        for node in graph.nodes:
            found.before[node.number] = self._watermark(node, reached, found)
            found.after[node.number] = self._passed_on(node, found)
        return found

    def advance_stream_times(self, graph: Graph, stream_times: Mapping[int, datetime]) -> None:
        """Set stream times by node number."""
        self.stream_times.update({graph.nodes[number].state_id: instant for number, instant in stream_times.items()})

    def _passed_on(self, node: GraphNode, marks: _Marks) -> datetime | None:
        """Return a node's output watermark from its input watermark."""
        operator, mark = node.operator, marks.before[node.number]
        if node.operator.moves_rows:
            moved = self.moved.get(node.state_id)
            if moved is None:
                marks.silent.add(node.number)
            if mark is None or moved is None:
                return None
            lagging, reached = _earlier(mark, moved.back), min(mark, moved.newest)
            return reached if node.number in marks.ended and reached > (lagging or FIRST) else lagging
        stream_time = self.stream_times.get(node.state_id)
        if node.is_timed:  # its results come out only when it has read so far
            mark = None if mark is None or stream_time is None else min(mark, stream_time)
        return None if mark is None or operator.delay is None else _earlier(mark, operator.delay)

    def _watermark(self, node: GraphNode, reached: Mapping[str, datetime], marks: _Marks) -> datetime | None:
        """Return the watermark of a node's input; note whether it has ended or is silent."""
        if node.parents:
            parents = {parent.number for parent in node.parents}
            if parents <= marks.ended:
                marks.ended.add(node.number)
            if parents <= marks.silent:
                marks.silent.add(node.number)
            return _least(marks.after[parent] for parent in (parents - marks.silent or parents))
        keys = marks.keys.get(node.number, set())
        if keys and keys <= self.ended:  # all there ever was has been read
            marks.ended.add(node.number)
            return max((self._reached(key) for key in keys if key in self.newest), default=None)
        return _least(reached.get(key) for key in keys - self.ended)


@dataclass(slots=True)
class _Marks:
    """The watermarks of the nodes of a graph, by number.

    Args:
        before: of their input; None while there is none.
        after: of their output.
        ended: the nodes whose sources are all at their end.
        silent: the nodes that have had no rows so far, as these come through an operator that moves rows and has read none. It is
            not known yet how far back it moves them, and the watermarks of others do not wait for it.
        keys: of the sources of the nodes that have some.
    """

    before: dict[int, datetime | None] = field(default_factory=dict)
    after: dict[int, datetime | None] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    silent: set[int] = field(default_factory=set)
    keys: dict[int, set[str]] = field(default_factory=dict)


def is_due(graph: Graph, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether a batch without rows may emit final results: event time advanced."""
    return before != after and any(node.is_final for node in graph.nodes)


def _earlier(instant: datetime, distance: int) -> datetime | None:
    """Return the instant so many µs before another, None if there is none."""
    return instant - distance * MICROSECOND if distance < (instant - FIRST) // MICROSECOND else None


def _least(instants: Iterable[datetime | None]) -> datetime | None:
    known = list(instants)
    return None if not known or any(instant is None for instant in known) else min(filter(None, known))


def _instants(plain: Mapping[str, int]) -> dict[str, datetime]:
    return {key: instant_of(value) for key, value in plain.items()}


def _plain(instants: Mapping[str, datetime]) -> dict[str, int]:
    return {key: micros(instant) for key, instant in instants.items()}
