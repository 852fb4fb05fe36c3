"""Reading an ingest log in ranges, while servers append to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from umbel.errors import Terminal
from umbel.log.appender import MARK
from umbel.log.batchids import BatchIds
from umbel.log.records import Record
from umbel.log.segments import ORIGIN, PREAMBLE_BYTES, LogPosition, Segment, directory_of, segments_in
from umbel.log.tail import Tail

SPLIT_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class LogRange:
    """Records of one segment from `begin` up to `end`."""

    begin: LogPosition
    end: LogPosition

    @property
    def rows(self) -> int:
        """How many rows its records have."""
        return self.end.row - self.begin.row

    @property
    def bytes(self) -> int:
        """How many bytes of the segment it takes."""
        return self.end.offset - self.begin.offset


class IngestReader:
    """The reading side of one endpoint's log.

    Args:
        root: umbel's directory.
        webhook: name of the webhook.
        endpoint: name of the endpoint.
        split_bytes: ranges are cut at about this size.
    """

    def __init__(self, root: Path, webhook: str, endpoint: str, *, split_bytes: int = SPLIT_BYTES) -> None:
        self.directory = directory_of(root, webhook, endpoint)
        self._split_bytes = split_bytes
        self._synced = ORIGIN

    def start(self) -> LogPosition:
        """Return the position of the oldest record retained."""
        for segment in segments_in(self.directory):
            row = segment.first_row()
            if row is not None:
                return LogPosition(segment.number, PREAMBLE_BYTES, row)
        return ORIGIN

    def end(self) -> LogPosition:
        """Return the position behind the last record, everything before it made durable."""
        if not self.directory.is_dir():
            return ORIGIN
        tail = Tail(self.directory)
        try:
            end = tail.hint() or _locked_end(tail)
        finally:
            tail.close()
        if end != self._synced:
            # A record may be in the file and not on disk yet: read now and lost with the power, it would never
            # have been. After this sync it cannot.
            _sync(Segment(self.directory, end.segment).path)
            self._synced = end
        return end

    def plan(
        self, start: LogPosition, *, rows: int | None = None, bytes: int | None = None
    ) -> tuple[list[LogRange], LogPosition]:
        """Return ranges from `start` on, and where they end, at the first record at which a limit is reached.

        Args:
            start: a position from `start`, `end` or an earlier plan.
            rows: stop at the first record that makes so many rows.
            bytes: stop at about so many bytes.
        """
        end = self.advance(start, rows=rows, bytes=bytes)
        return self.ranges(start, end), end

    def advance(self, start: LogPosition, *, rows: int | None = None, bytes: int | None = None) -> LogPosition:
        """Return where a plan with these limits ends."""
        start, end, taken = self._retained(start), self.end(), 0
        for piece in self._pieces(start, end):
            if rows is not None and piece.end.row - start.row >= rows:
                return self._exact(piece, start.row + rows)
            taken += piece.bytes
            if bytes is not None and taken >= bytes:
                return piece.end
        return max(start, end)

    def ranges(self, start: LogPosition, end: LogPosition) -> list[LogRange]:
        """Return the ranges between two positions, about `split_bytes` each; the same at every call."""
        merged: list[LogRange] = []
        for piece in self._pieces(self._retained(start), end):
            last = merged[-1] if merged else None
            if last and last.end == piece.begin and last.bytes < self._split_bytes:
                merged[-1] = LogRange(last.begin, piece.end)
            else:
                merged.append(piece)
        return merged

    def open(self, part: LogRange) -> Iterator[Record]:
        """Yield the records of a range.

        Raises:
            Terminal: the file is damaged within the range.
        """
        at = part.begin
        for record in Segment(self.directory, at.segment).records(at.offset, part.end.offset):
            at = LogPosition(at.segment, record.end, record.row + record.entry.rows)
            yield record
        if at.offset < part.end.offset:
            raise Terminal(
                f"the ingest log {self.directory} is damaged: segment {at.segment}, byte {at.offset}",
                hint="restore the segment from a backup",
            )

    def expire(self, before: int, read: LogPosition) -> list[int]:
        """Delete the segments that are read and were last written long ago; return their numbers.

        Args:
            before: microseconds since the epoch; a segment written to later stays.
            read: the position up to which every reader is done.
        """
        if not self.directory.is_dir():
            return []
        tail, ids = Tail(self.directory), BatchIds(self.directory)
        try:
            with tail.held():
                past = (segment for segment in segments_in(self.directory) if segment.number < read.segment)
                # The oldest ones only, so that those that stay follow each other.
                done = list(takewhile(lambda segment: segment.path.stat().st_mtime_ns // 1000 < before, past))
                for segment in done:
                    ids.forget(segment)
                    segment.path.unlink()
                    segment.index.unlink(missing_ok=True)
        finally:
            tail.close()
            ids.close()
        return [segment.number for segment in done]

    def _pieces(self, start: LogPosition, end: LogPosition) -> Iterator[LogRange]:
        """Yield the ranges between neighbouring marks of the sparse index."""
        begin = start
        while begin.segment <= end.segment:
            segment = Segment(self.directory, begin.segment)
            stop = end if segment.number == end.segment else self._segment_end(segment)
            for mark in (*_marks(segment, begin, stop), stop):
                if mark.offset > begin.offset:
                    yield LogRange(begin, mark)
                    begin = mark
            begin = LogPosition(segment.number + 1, PREAMBLE_BYTES, stop.row)

    def _segment_end(self, segment: Segment) -> LogPosition:
        row = Segment(self.directory, segment.number + 1).first_row()
        if row is None:
            raise Terminal(f"the ingest log {self.directory} lacks the start of segment {segment.number + 1}")
        return LogPosition(segment.number, segment.path.stat().st_size, row)

    def _exact(self, piece: LogRange, row: int) -> LogPosition:
        segment = Segment(self.directory, piece.begin.segment)
        for head in segment.heads(piece.begin.offset, piece.end.offset):
            if head.row + head.rows >= row:
                return LogPosition(segment.number, head.end, head.row + head.rows)
        return piece.end

    def _retained(self, start: LogPosition) -> LogPosition:
        oldest = self.start()
        if start != ORIGIN and start < oldest:
            raise Terminal(
                f"rows {start.row} to {oldest.row} of the ingest log {self.directory} were deleted before being read",
                hint="start the source again from IngestReader.start()",
            )
        return max(start, oldest)


def _locked_end(tail: Tail) -> LogPosition:
    with tail.held():
        return tail.end()


def _marks(segment: Segment, begin: LogPosition, end: LogPosition) -> Iterator[LogPosition]:
    if not segment.index.exists():
        return
    data = segment.index.read_bytes()
    last = begin
    for offset, row, _ in MARK.iter_unpack(data[: len(data) // MARK.size * MARK.size]):
        mark = LogPosition(segment.number, offset, row)
        if last.offset < mark.offset < end.offset and last.row <= mark.row <= end.row and _is_record(segment, mark):
            yield mark
            last = mark


def _is_record(segment: Segment, mark: LogPosition) -> bool:
    # After a power loss the index, which is never synced, may hold anything.
    return any(head.row == mark.row for head in segment.heads(mark.offset, mark.offset + 1))


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(file)
    finally:
        os.close(file)
