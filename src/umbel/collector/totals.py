"""Metrics of a collector, in Prometheus' text format, merged over its processes."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess

SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that names the folder in which the processes share counters."""
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class StreamBacklog:
    """The events of a stream that its slowest reader has not read.

    Args:
        rows: their number.
        bytes: their size in the log.
        stored: bytes of all events in the log.
        is_read: True if the stream has a reader.
        refused: why more are refused now; empty if they are accepted.
    """

    rows: int = 0
    bytes: int = 0
    stored: int = 0
    is_read: bool = False
    refused: str = ""


@dataclass(slots=True)
class Totals:
    """The counters of a process.

    Counting is a number added in a dictionary; `add_up` moves the sums to the metrics.
    """

    waiting: Mapping[str, StreamBacklog] = field(default_factory=dict)
    """The backlog of each stream, measured every second."""
    refusals: int = 0
    """The number of reasons for which events are refused now."""
    _events: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    _bytes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _requests: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    _metrics: tuple[Counter, Counter, Counter, Histogram] | None = None

    def counted(self, stream: str, outcome: str, events: int, bytes: int = 0) -> None:
        """Count events of a request.

        Args:
            stream: their name.
            outcome: `accepted`, `repeated`, `rejected` or `letters_dropped`.
            events: their number.
            bytes: of the body.
        """
        self._events[stream, outcome] += events
        self._bytes[stream] += bytes

    def answered(self, status: int, seconds: float) -> None:
        """Count a response, and the time from the end of the request's head to it."""
        self._requests[status] += 1
        self._made()[3].observe(seconds)

    def _made(self) -> tuple[Counter, Counter, Counter, Histogram]:
        if self._metrics is None:
            self._metrics = self._make()
        return self._metrics

    def _make(self) -> tuple[Counter, Counter, Counter, Histogram]:
        own = self._registry
        report = "Events by stream and what came of them."
        events = Counter("umbel_collect_events", report, ["stream", "outcome"], registry=own)
        size = Counter("umbel_collect_bytes", "Bytes of accepted requests, decompressed.", ["stream"], registry=own)
        requests = Counter("umbel_collect_requests", "Requests by status.", ["status"], registry=own)
        report = "Time to answer a request: to receive the body, and to have the events on disk."
        seconds = Histogram("umbel_collect_seconds", report, buckets=BUCKETS, registry=own)
        return events, size, requests, seconds

    def add_up(self) -> None:
        """Move what was counted to the metrics."""
        events, size, requests, _ = self._made()
        counted, received, statuses = dict(self._events), dict(self._bytes), dict(self._requests)
        for each in (self._events, self._bytes, self._requests):
            each.clear()
        for (stream, outcome), count in counted.items():
            events.labels(stream, outcome).inc(count)
        for stream, count in received.items():
            size.labels(stream).inc(count)
        for status, count in statuses.items():
            requests.labels(str(status)).inc(count)

    def text(self) -> bytes:
        """Return all metrics as text."""
        self.add_up()
        found = self._registry
        if os.environ.get(SHARED):
            found = CollectorRegistry()
            multiprocess.MultiProcessCollector(found)  # type: ignore[no-untyped-call]
        waiting = of_backlog(self.waiting.items(), self.refusals)
        return bytes(generate_latest(found) + generate_latest(waiting) + generate_latest(REGISTRY))


def of_backlog(waiting: Iterable[tuple[str, StreamBacklog]], refusals: int) -> CollectorRegistry:
    """Return the metrics of the backlog; every process measures the same."""
    own = CollectorRegistry()
    report = "Events that the slowest reader of a stream has not read; 0 without a reader."
    rows = Gauge("umbel_collect_backlog_rows", report, ["stream"], registry=own)
    size = Gauge("umbel_collect_backlog_bytes", "Bytes of them.", ["stream"], registry=own)
    stored = Gauge("umbel_collect_stored_bytes", "Bytes of events in a stream's log.", ["stream"], registry=own)
    report = "Why events are refused now: the number of reasons."
    Gauge("umbel_collect_refused", report, registry=own).set(refusals)
    for stream, each in waiting:
        rows.labels(stream).set(each.rows)
        size.labels(stream).set(each.bytes)
        stored.labels(stream).set(each.stored)
    return own
