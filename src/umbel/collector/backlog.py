"""Back-pressure and retention of a collector: looked at once a second, by a thread."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

from umbel.collector.streams import Streams
from umbel.collector.totals import StreamBacklog, Totals
from umbel.errors import Overloaded
from umbel.log.collected import LETTERS, SYSTEM
from umbel.log.readers import positions
from umbel.log.reading import IngestReader
from umbel.log.segments import ORIGIN, LogPosition, segments_in
from umbel.log.tail import Tail
from umbel.runtime.limits import Limits, disk_trouble

EXPIRE_EVERY = 60.0
"""Seconds between two looks for events that are past their retention."""
END = LogPosition(1 << 62, 0, 0)


class CollectorBacklog:
    """The backlog of all streams of a process, and the room on the disk.

    Args:
        directory: the collector's folder.
        streams: the streams.
        limits: bytes of backlog, and the disk reserve.
        totals: is told the backlog.
        retention: µs for which events are retained; None for a process that deletes none.
    """

    def __init__(
        self, directory: Path, streams: Streams, limits: Limits, totals: Totals, retention: int | None
    ) -> None:
        self._directory, self._streams, self._limits, self._totals = directory, streams, limits, totals
        self._retention, self._expired_at = retention, 0.0
        self.full = self._remedy = ""
        """Why no events are accepted now, and what to do; empty if they are."""

    def check(self, refused: str) -> None:
        """Refuse events while there is no room for more, or too many wait.

        Args:
            refused: the reason of the stream.

        Raises:
            Overloaded: the reason.
        """
        if self.full:
            raise Overloaded(self.full, hint=self._remedy)
        if refused:
            raise Overloaded(
                refused, hint="send it again after Retry-After seconds; umbel collect streams shows readers"
            )

    def look(self) -> None:
        """Measure the backlog of each stream and the free disk; delete old events."""
        self.full, self._remedy = disk_trouble(self._directory, self._limits.disk_reserve)
        streams = list(self._streams.opened.values())
        found = {each.name: self._waiting(each.name, each.log) for each in streams}
        for each in streams:
            each.refused = found[each.name].refused
            each.measure_letters()
        self._totals.waiting = found
        self._totals.refusals = bool(self.full) + sum(bool(each.refused) for each in found.values())
        if self._retention is not None and time.monotonic() - self._expired_at > EXPIRE_EVERY:
            self._expired_at = time.monotonic()
            for each in streams:
                self._expire(each.name, each.log, self._retention)

    def _waiting(self, name: str, log: Path) -> StreamBacklog:
        waiting = waiting_in(log)
        limit = self._limits.backlog_bytes
        if not limit or waiting.bytes < limit:
            return waiting
        reason = f"stream '{name}': {waiting.bytes:,} bytes of events wait to be read, the limit is {limit:,}"
        return StreamBacklog(waiting.rows, waiting.bytes, waiting.stored, waiting.is_read, reason)

    def _expire(self, name: str, log: Path, retention: int) -> None:
        read = min((each.position for each in positions(log).values()), default=END)
        before = time.time_ns() // 1000 - retention
        IngestReader(self._directory, SYSTEM, name).expire(before, min(read, end_of_log(log)))
        letters = IngestReader(self._directory, LETTERS, name)
        letters.expire(before, end_of_log(letters.directory))


def end_of_log(log: Path) -> LogPosition:
    """Return the end of a log, approximately, without locking it."""
    if not log.is_dir():
        return ORIGIN
    with closing(Tail(log)) as tail:
        hint = tail.hint()
        if hint is not None:
            return hint
        with tail.locked():
            return tail.end()


def waiting_in(log: Path) -> StreamBacklog:
    """Return the events of a log that its slowest reader has not read."""
    end, readers = end_of_log(log), positions(log).values()
    sizes = {each.number: each.path.stat().st_size for each in segments_in(log) if each.path.exists()}
    stored = sum(sizes.values())
    if not readers:
        return StreamBacklog(stored=stored)
    at = min(each.position for each in readers)
    if at >= end:
        return StreamBacklog(stored=stored, is_read=True)
    between = sum(size for number, size in sizes.items() if at.segment <= number < end.segment)
    return StreamBacklog(max(0, end.row - at.row), between + end.offset - at.offset, stored, is_read=True)
