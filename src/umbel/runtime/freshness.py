"""Lag: the accepted events that are not processed yet."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from umbel.connectors.webhook import WebhookConnector
from umbel.functions.fingerprint import fingerprint
from umbel.log.appender import MARK
from umbel.log.segments import ORIGIN, PREAMBLE_BYTES, LogPosition, Segment, directory_of, segments_in
from umbel.log.tail import Tail
from umbel.runtime.deployment import JOB, Deployment
from umbel.runtime.switching import new_sources, waiting_branches

Endpoint = tuple[str, str]
"""The names of a webhook and of one of its endpoints."""

LITTLE = 16 << 20
"""Bytes of lag up to which it makes no difference whether they are history."""


@dataclass(frozen=True, slots=True)
class Lag:
    """Accepted events that are not processed.

    Args:
        rows: the number of events.
        bytes: their size in the log.
        seconds: the waiting time of the oldest of them.
    """

    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0

    @staticmethod
    def total(lags: Iterable[Lag]) -> Lag:
        """Return the total lag of several endpoints."""
        every = list(lags)
        seconds = max((each.seconds for each in every), default=0.0)
        return Lag(sum(each.rows for each in every), sum(each.bytes for each in every), seconds)

    def __str__(self) -> str:
        if not self.rows:
            return "up to date"
        return f"{self.rows:,} rows, {_spelled(self.bytes)} and {self.seconds:,.1f} s behind"


def lags(deployment: Deployment) -> dict[Endpoint, Lag]:
    """Return the lag of every endpoint, for the dataset furthest behind."""
    return {each: max(found, key=lambda lag: lag.bytes) for each, found in _by_reader(deployment).items()}


def backlogs(deployment: Deployment) -> dict[Endpoint, Lag]:
    """Return the backlog of every endpoint: events that no dataset has processed.

    A dataset that is added later also reads older events retained in the log; these are no backlog and cause no back-pressure.
    """
    found = _by_reader(deployment, is_backlog=True)
    return {each: min(readers, key=lambda lag: lag.bytes) for each, readers in found.items()}


def behind(deployment: Deployment) -> float:
    """Return the age in seconds of the oldest unprocessed event; 0 for none."""
    return Lag.total(lags(deployment).values()).seconds


def _by_reader(deployment: Deployment, *, is_backlog: bool = False) -> dict[Endpoint, list[Lag]]:
    """Return the lag of every source of an endpoint.

    Sources of commits that do not serve yet are left out, because theirs is a backfill, unless the backlog is requested. There
    are none where logs and positions are on another machine.
    """
    if deployment.is_away:
        return {}
    positions, found = _positions(deployment), dict[Endpoint, list[Lag]]()
    latest = deployment.catalog.latest()
    graph = deployment.graph(latest)
    new = {source.key for each in waiting_branches(deployment.catalog, latest) for source in new_sources(graph, each)}
    for each in graph.sources():
        if each.key in new and not is_backlog:
            continue
        connector = each.definition.connector
        if not isinstance(connector, WebhookConnector):
            continue
        endpoint = connector.source_name, connector.endpoint
        log = _Log(directory_of(deployment.directory, *endpoint))
        position = None if positions is None else positions.get(each.key)
        at = None if position is None else LogPosition.from_json(position)
        lag = log.lag(at)
        if is_backlog and positions is not None and (at is None or lag.bytes > LITTLE):
            lag = log.lag(_without_history(deployment, each.key, log, at))
        found.setdefault(endpoint, []).append(lag)
    return found


def _positions(deployment: Deployment) -> Mapping[str, Any] | None:
    """Return the position each source is processed up to, None before any."""
    last = deployment.catalog.progress(JOB, sys.maxsize)
    return deployment.plans().read(last.state["plan"]).positions if last and "plan" in last.state else None


def _without_history(deployment: Deployment, source: str, log: _Log, at: LogPosition | None) -> LogPosition | None:
    """Return the start of a source's backlog.

    It is not before the end that the log had when the source was first seen.
    """
    name = f"backlog since {fingerprint(source)}"[:64]
    begun = deployment.catalog.noted(name)
    if begun is None and at is None:
        begun = deployment.catalog.setting(name, log.end().to_json())
    return at if begun is None else max(at or ORIGIN, LogPosition.from_json(begun))


@dataclass(frozen=True, slots=True)
class _Log:
    """An endpoint's log, inspected without locking, syncing or reading rows.

    Args:
        directory: of the log.
    """

    directory: Path

    def end(self) -> LogPosition:
        """Return its approximate end."""
        if not self.directory.is_dir():
            return ORIGIN
        with closing(Tail(self.directory)) as tail:
            hint = tail.hint()
        if hint is not None:
            return hint
        last = segments_in(self.directory)[-1:]  # no server has appended since the machine started
        return next((_behind_last(each) for each in last), ORIGIN)

    def lag(self, position: LogPosition | None) -> Lag:
        """Return the lag after a position, or of the whole log."""
        try:
            return self._lag(position)
        except FileNotFoundError:  # a segment expires while it is looked at
            return self._lag(position)

    def _lag(self, position: LogPosition | None) -> Lag:
        segments = segments_in(self.directory)
        if not segments:
            return Lag()
        oldest = LogPosition(segments[0].number, PREAMBLE_BYTES, segments[0].first_row() or 0)
        at, end = max(position or oldest, oldest), self.end()
        if end <= at:
            return Lag()
        between = sum(each.path.stat().st_size for each in segments if at.segment <= each.number < end.segment)
        return Lag(max(0, end.row - at.row), between + end.offset - at.offset, self._waited(segments, at, end))

    def _waited(self, segments: Iterable[Segment], at: LogPosition, end: LogPosition) -> float:
        for each in segments:
            if at.segment <= each.number <= end.segment:
                begin = at.offset if each.number == at.segment else PREAMBLE_BYTES
                stop = end.offset if each.number == end.segment else each.path.stat().st_size
                head = next(each.heads(begin, stop), None)
                if head is not None:
                    return max(0.0, time.time() - head.received_at / 1e6)
        return 0.0


def _behind_last(segment: Segment) -> LogPosition:
    """Return the approximate end of a segment: the last mark of its index.

    No more of the segment than the bytes after that mark has to be read.
    """
    size, at, row = segment.path.stat().st_size, PREAMBLE_BYTES, segment.first_row() or 0
    marks = segment.index.read_bytes() if segment.index.exists() else b""
    for offset, first, _ in MARK.iter_unpack(marks[: len(marks) // MARK.size * MARK.size]):
        if at < offset < size and first >= row:
            at, row = offset, first
    for head in segment.heads(at, size):
        row = max(row, head.row + head.rows)
    return LogPosition(segment.number, size, row)


def _spelled(size: int) -> str:
    return f"{size:,} B" if size < 1 << 20 else f"{size / (1 << 20):,.1f} MiB"
