"""The ways a program runs: in one call, streamed in batches of any kind, and from history, as a backfill does."""

from __future__ import annotations

import math
import random
import shutil
import tempfile
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from tests.aggregating import micros
from tests.laws.twins import Program
from tests.laws.values import micros_of
from tests.reference import Change
from tests.reference_operators import EVER
from umbel.graph.execution import BatchResult, InProcess, Writer
from umbel.graph.graph import Graph, GraphNode
from umbel.graph.stages import Edge, StageOutput, add_seen, due, emit, run_shard
from umbel.local.runner import LocalRunner
from umbel.operators.operator import Clock, Keyed
from umbel.query.history import LogPart, replay
from umbel.query.lookups import Lookups
from umbel.runtime.backfill_input import hand_on
from umbel.runtime.changelogs import ChangeLogs
from umbel.runtime.progress import EventTimeProgress, Taken
from umbel.spark.backfill_step import BEFORE_ALL, clocks_of_step
from umbel.spark.packets import StageInput, address, announced, batches
from umbel.state.file import FileStore
from umbel.state.memory import MemoryStore
from umbel.state.port import Stamp, Store
from umbel.state.runs.maintenance import maintain
from umbel.state.runs.shard import ShardOptions
from umbel.types.schema import AT, WEIGHT

Logs = dict[str, list[pl.DataFrame]]
Piece = tuple[str, int, list[Change]]
"""A dataset, which of its sources, and rows of it."""
IN_FILES = 0.3
"""How many of the programs have their state in files."""
SMALL = ShardOptions(journal_bytes=3000, part_rows=5, fan=2)
"""Sizes with which a few rows make files, runs of several parts and merges."""


@dataclass(frozen=True)
class Outcome:
    """What became of a program.

    Args:
        graph: what ran.
        lookups: answers from the state.
        logs: the change logs, by the owner of the node.
        stream_times: how far each operator saw, by its id.
        watermarks: up to where operators have emitted final results, by their ids.
    """

    graph: Graph
    lookups: Lookups
    logs: Mapping[str, Sequence[pl.DataFrame]]
    stream_times: dict[str, int]
    watermarks: dict[str, int] = field(default_factory=dict)

    def lookup(self, dataset: str, keys: pl.DataFrame, at: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
        """Return the rows of keys as of instants, and whether they were found."""
        return self.lookups.online(dataset, keys, at)

    def changes(self, dataset: str) -> Counter[tuple[Any, ...]]:
        """Return the net changes of a dataset: values, effect, weight.

        Each row that ends is one that began, to the last digit of its floats.
        """
        node = self.graph.outputs[dataset]
        names = [*sorted(node.operator.schema.names), AT]
        found: Counter[tuple[Any, ...]] = Counter()
        frames = self.logs.get(node.state_id, [])
        if frames:
            rows = pl.concat(frame.select(*names[:-1], WEIGHT) for frame in frames).group_by(names[:-1]).sum()
            ended = rows.filter(pl.col(WEIGHT) < 0)
            assert ended.is_empty(), f"{dataset}: rows end that did not begin: {ended}"
        for frame in frames:
            for row in frame.select(*names, WEIGHT).iter_rows():
                found[tuple(map(comparable, row[:-1]))] += row[-1]
        return Counter({row: count for row, count in found.items() if count})


def comparable(value: Any) -> Any:
    """Return a value so that it can be counted and compared: floats to six digits, NaN by its name."""
    value = micros_of(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        return round(float(f"{value:.12g}"), 6) + 0.0  # sums of floats differ in their last digits by their order
    return tuple(map(comparable, value)) if isinstance(value, list | tuple) else value


# ---- in one call -----------------------------------------------------------------------------------------------------


def in_one_call(program: Program) -> Outcome:
    """Run a program in process, each source in one call."""
    runner = LocalRunner(program.definitions())
    for name in program.sources:
        frame = program.frame(name)
        runner.ingest(name, frame.select(reversed(frame.columns)))
    logs = {node.state_id: [runner._logged(node)] for node in runner.graph.nodes}
    stream_times = {runner.graph.nodes[number].operator.id: micros(at) for number, at in runner._stream_times.items()}
    return Outcome(runner.graph, runner.lookups, logs, stream_times)


# ---- streamed --------------------------------------------------------------------------------------------------------


class _KilledError(Exception):
    pass


@dataclass
class LogFiles:
    """Change logs in files.

    Args:
        logs: the change logs.
        chance: decides how changes are written, and when tails are moved into tables.
    """

    logs: ChangeLogs
    chance: random.Random
    tails: dict[str, int] = field(default_factory=dict)

    def write(self, node: GraphNode, frames: Sequence[pl.DataFrame], batch: int) -> None:
        """Write the changes of a batch to a tail, as those of small batches, or as parts of a table."""
        if batch != BEFORE_ALL and self.chance.random() < 0.5:
            self.logs.keep(node, batch, frames, self.tails.get(node.log, -1))
            self.tails[node.log] = batch
        else:
            cut = self.chance.randint(0, len(frames))
            parts = [
                self.logs.write_part(node, Stamp(1, batch), str(number), each)
                for number, each in enumerate((frames[:cut], frames[cut:]))
                if each
            ]
            self.logs.commit(batch, parts, {node.log: node})
        if self.chance.random() < 0.3:
            self.logs.flush(node, everything=True)


@dataclass
class Live:
    """A job that is fed batch by batch, with the watermarks of its sources.

    Args:
        program: what runs.
        shards: of the state.
        churn: decides whether state and change logs are in memory or in files, when these are flushed, merged and opened anew,
            and which batches are killed and run again; in memory, and none, when None.
    """

    program: Program
    shards: int
    churn: random.Random | None = None
    store: Store = field(init=False)
    folder: Path | None = None
    files: LogFiles | None = None
    graph: Graph = field(init=False)
    time: EventTimeProgress = field(default_factory=EventTimeProgress)
    logs: Logs = field(default_factory=lambda: defaultdict(list))
    numbers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    batch: int = 0

    def __post_init__(self) -> None:
        if self.churn is not None and self.churn.random() < IN_FILES:
            self.folder = Path(tempfile.mkdtemp())
            weakref.finalize(self, shutil.rmtree, self.folder)
            self.files = LogFiles(ChangeLogs(self.folder / "logs"), self.churn)
        self.store = self._opened()
        self.graph = Graph(self.program.definitions())

    def _opened(self) -> Store:
        if self.folder is None:
            return MemoryStore(shards=self.shards)
        return FileStore(self.folder / "state", self.shards, SMALL, is_synced=False)

    def maintain(self) -> None:
        """Flush and merge state in files, or open it as another process would, now and then."""
        if self.churn is None or not isinstance(self.store, FileStore):
            return
        for shard in self.store._shards:
            if self.churn.random() < 0.7:
                assert maintain(shard, flush_bytes=self.churn.choice((0, 1)))
        if self.churn.random() < 0.3:
            self.store.close()
            self.store = self._opened()

    def feed(self, pieces: Iterable[Piece], *, is_loading: bool = False) -> None:
        """Run a batch over some rows of some sources.

        Args:
            pieces: the rows.
            is_loading: whether the sources have no watermark yet.
        """
        entered, taken, read = list[tuple[GraphNode, pl.DataFrame]](), list[Taken](), set[str]()
        keys = {(source.dataset, source.ordinal): source.key for source in self.graph.sources()}
        self.time.loading = frozenset(keys.values()) if is_loading else frozenset()
        watermarks = self.time.watermarks(self.graph)
        for name, ordinal, rows in pieces:
            changes = self.program.frame(name, rows)
            mark = watermarks.get(keys[name, ordinal])
            assert mark is None or (changes[AT] >= mark).all(), "the rows come within the disorder"
            entered.append((self.graph.entries[name], changes))
            key, times = keys[name, ordinal], changes[AT].to_list()
            read.add(key)
            taken += [Taken(key, None, min(times), max(times))] if times else []
        clocks = self.time.clocks(self.graph)
        self.keep(self.run(entered, clocks), clocks)
        self.time.saw(taken, read, has_final=any(node.is_final for node in self.graph.nodes))
        self.batch += 1
        self.maintain()

    def run(self, entered: Sequence[tuple[GraphNode, pl.DataFrame]], clocks: Mapping[int, Clock]) -> BatchResult:
        """Run a batch, now and then again after it was killed behind any stage or before it was noted."""

        def once(write: Writer | None = None) -> BatchResult:
            output = StageOutput()
            for node, changes in entered:
                emit(node, changes, output)
            return InProcess(self.graph, self.store).run(output, Stamp(1, self.batch), clocks, write)

        while self.churn is not None and self.churn.random() < 0.2:
            with suppress(_KilledError):
                once(self._kill)
            self.maintain()
        return once()

    def _kill(self, number: int, changes: Sequence[pl.DataFrame]) -> None:
        assert self.churn is not None
        if self.churn.random() < 0.5:
            raise _KilledError

    def keep(self, result: BatchResult, clocks: Mapping[int, Clock], *, is_backfill: bool = False) -> None:
        """Keep the event times and change logs of a batch, or of a backfill."""
        self.time.move(self.graph, result.moved)
        self.time.advance_stream_times(self.graph, due(self.graph.nodes, result.seen, clocks))
        for number, frames in result.logged.items():
            owner = self.graph.nodes[number].state_id
            self.logs[owner] += frames
            self.numbers[owner] += [self.batch] * len(frames)
            if self.files is not None and frames:
                self.files.write(self.graph.nodes[number], frames, BEFORE_ALL if is_backfill else self.batch)

    def log(self, node: GraphNode, first: int = 0, last: int | None = None) -> pl.DataFrame:
        """Return the change log of a node, or of some batches alone."""
        if self.files is not None:
            return self.files.logs.read(node, first=first or None, until=None if last is None else last - 1)
        numbered = zip(self.numbers[node.state_id], self.logs[node.state_id], strict=True)
        frames = [frame for number, frame in numbered if first <= number and (last is None or number < last)]
        return pl.concat(frames) if frames else node.operator.schema.empty()

    def part(self, node: GraphNode, part: LogPart) -> pl.DataFrame:
        """Return a part of the change log of a node."""
        return part.taken(self.log(node)) if self.files is None else self.files.logs.part(node, part)

    def outcome(self) -> Outcome:
        """Return what became of it."""
        lookups = Lookups(self.graph, self.store, lambda node, changes: replay(node, self.part, changes))
        owners = {node.state_id: node.operator.id for node in self.graph.nodes}
        stream_times = {owners[owner]: micros(at) for owner, at in self.time.stream_times.items()}
        final = {node.operator.id for node in self.graph.nodes if is_final(node)}
        return Outcome(
            self.graph, lookups, self.logs, stream_times, {each: stream_times.get(each, -EVER) for each in final}
        )


def is_final(node: GraphNode) -> bool:
    """Return whether the results of a node wait for the watermark."""
    return isinstance(node.operator, Keyed) and node.operator.is_final


def arrivals(program: Program, chance: random.Random) -> list[list[Piece]]:
    """Return batches of the rows of all sources, in an order that keeps within the disorder."""
    queues = {}
    for name, source in program.sources.items():
        for ordinal in range(source.stacked):
            rows = source.rows[ordinal :: source.stacked]
            delayed = [(row.at + chance.randint(0, program.disorder) * 10**6, chance.random(), row) for row in rows]
            in_time = [row for _, _, row in sorted(delayed, key=lambda each: each[:2])]
            queues[name, ordinal] = list(rows) if source.is_ordered else in_time
    found: list[list[Piece]] = [[] for _ in range(chance.choice((1, 2, 2, 3, 6)))]
    for name, rows in queues.items():
        cuts = sorted(chance.randint(0, len(rows)) for _ in found[1:])
        for batch, first, last in zip(found, [0, *cuts], [*cuts, len(rows)], strict=True):
            cut = chance.choice((first, chance.randint(first, last)))
            batch += [(*name, piece) for piece in (rows[first:cut], rows[cut:last]) if piece]
    for batch in found:
        chance.shuffle(batch)
    return [batch for batch in found if batch]


def streamed(program: Program, chance: random.Random) -> Outcome:
    """Run a program as a stream in batches of any size, on one or more shards; about half of them load a history."""
    live = Live(program, chance.choice((1, 1, 2)), copy(chance))
    parts = arrivals(program, chance)
    for number, batch in enumerate(parts):
        live.feed(batch, is_loading=number < len(parts) // 2)
    return live.outcome()


# ---- from history ----------------------------------------------------------------------------------------------------


def at_rest(program: Program, chance: random.Random, *, live_after: bool = False) -> Outcome:
    """Run a program whose pipelines are committed when rows are there: from the history, by the stages of a backfill.

    Args:
        program: what runs.
        chance: decides on batches and shards.
        live_after: whether more rows come after it.
    """
    live = Live(program, chance.choice((1, 2, 2, 3)), copy(chance))
    parts = arrivals(program, chance)
    cut = chance.randint(0, len(parts)) if live_after else len(parts)
    live.graph = Graph(program.definitions(sources_only=True))
    for batch in parts[:cut]:
        live.feed(batch)
    old = {node.state_id for node in live.graph.nodes}
    live.graph = Graph(program.definitions())
    _backfill(live, frozenset(node.state_id for node in live.graph.nodes) - old, chance)
    for batch in parts[cut:]:
        live.feed(batch)
    return live.outcome()


def _backfill(live: Live, fresh: frozenset[str], chance: random.Random) -> None:
    """Compute new operators from history, a stretch of it after the other."""
    graph, result = live.graph, BatchResult()
    cuts = sorted({0, live.batch, *(chance.randint(0, live.batch) for _ in range(chance.choice((0, 1, 2))))})
    for step, (first, last) in enumerate(pairwise(cuts)):
        stamp = Stamp(1, BEFORE_ALL - len(cuts) + step)
        packets: list[Any] = []
        clocks = clocks_of_step(graph, result.seen)
        for node in graph.history_of(fresh):
            output = StageOutput()
            hand_on(node, live.log(node, first, last), fresh, output)
            result.add(output)
            packets += [*address(graph, output, live.shards), *announced(output.seen, live.shards)]
        for stage in range(1, graph.depth + 1):
            packets = _merged(live, packets, stage, fresh, stamp, result, clocks, chance)
        live.maintain()
    clocks = live.time.clocks(graph)
    made = InProcess(graph, live.store, fresh).run(StageOutput(seen=result.seen), Stamp(1, BEFORE_ALL), clocks)
    for number, frames in made.logged.items():
        result.logged[number] += frames
    result.seen = {number: at for number, at in made.seen.items() if graph.nodes[number].state_id in fresh}
    mine = {number: clock for number, clock in clocks.items() if graph.nodes[number].state_id in fresh}
    live.keep(result, mine, is_backfill=True)


def _merged(
    live: Live,
    packets: list[Any],
    stage: int,
    fresh: frozenset[str],
    stamp: Stamp,
    result: BatchResult,
    clocks: Mapping[int, Clock],
    chance: random.Random,
) -> list[Any]:
    """Run a stage as tasks would: each gets the envelopes of one shard, in any order."""
    nodes = live.graph.stage(stage, fresh)
    onward = []
    for shard in range(live.shards):
        mine = [envelope for envelope in packets if envelope[2] == shard]
        chance.shuffle(mine)
        arrived = StageInput.sort(batches(mine), {node.number for node in nodes})
        onward += arrived.onward
        fired, output = due(nodes, arrived.seen, clocks), StageOutput()
        if shard in arrived.blobs or fired:
            inbox = arrived.open(shard)
            with live.store.transaction(shard, [node.state_id for node in nodes], stamp) as transaction:
                run_shard(nodes, inbox, transaction, clocks, output, fired)
            result.add(output)
            onward += address(live.graph, output, live.shards)
        add_seen(output.seen, arrived.seen)
        onward += announced(output.seen, live.shards)
    return onward


__all__ = ["Edge", "Outcome", "at_rest", "comparable", "in_one_call", "streamed"]
