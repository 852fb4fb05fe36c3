"""Read an ingest log in ranges, while servers append to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

from umbel.errors import Damaged, Terminal
from umbel.log.appender import MARK
from umbel.log.batch_ids import BatchIds
from umbel.log.records import Gap, LogRecord
from umbel.log.segments import (
    ANY_LOG,
    FOREIGN,
    ORIGIN,
    PREAMBLE_BYTES,
    LogPosition,
    Segment,
    directory_of,
    end_of,
    is_same_log,
    read_oldest,
    segments_in,
    write_oldest,
)
from umbel.log.tail import Tail
from umbel.state import disk

SPLIT_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class LogRange:
    """Records of one segment from `begin` up to `end`."""

    begin: LogPosition
    end: LogPosition

    @property
    def rows(self) -> int:
        """Number of rows in the range."""
        return self.end.row - self.begin.row

    @property
    def bytes(self) -> int:
        """Size of the range in bytes."""
        return self.end.offset - self.begin.offset


@dataclass(frozen=True, slots=True)
class Damage:
    """An unreadable range of a log.

    Args:
        path: of the segment file.
        offset: of the first damaged byte in it.
        size: bytes up to the next readable record; 0 where bytes are missing.
        row: the number of the first row that is lost.
        rows: number of lost rows, at most.
        is_missing: True if the file, or its end, is missing.
    """

    path: Path
    offset: int
    size: int
    row: int
    rows: int
    is_missing: bool = False

    def __str__(self) -> str:
        lost = f"up to {self.rows} rows are lost, from row {self.row} on"
        if self.is_missing:
            return f"the ingest log is damaged: {named(self.path)} is missing from byte {self.offset} on; {lost}"
        return f"the ingest log is damaged: {named(self.path)}, {self.size} bytes from byte {self.offset} on; {lost}"

    def raw(self, most: int) -> bytes:
        """Return the damaged bytes, or the first of them."""
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(min(self.size, most))
        return b""


RESTORE = "restore umbel's folder as a whole from one backup: its logs, state and catalog belong together; umbel check tells more"


def named(path: Path) -> str:
    """Return the path of a log's directory or file relative to umbel's folder."""
    return "/".join(
        path.parts[len(path.parts) - 1 - path.parts[::-1].index("ingest") :]
        if "ingest" in path.parts
        else path.parts[-1:]
    )


def _refuse(damage: Damage) -> None:
    raise Damaged(str(damage), hint=RESTORE)


class IngestReader:
    """The reader of one endpoint's log.

    Args:
        root: umbel's directory.
        webhook: name of the webhook.
        endpoint: name of the endpoint.
        split_bytes: approximate size of a range, in bytes.
    """

    def __init__(self, root: Path, webhook: str, endpoint: str, *, split_bytes: int = SPLIT_BYTES) -> None:
        self.directory = directory_of(root, webhook, endpoint)
        self._split_bytes = split_bytes
        self._synced = ORIGIN

    def start(self) -> LogPosition:
        """Return the position of the oldest retained record, even if it is missing."""
        oldest = read_oldest(self.directory)
        if oldest is not None:
            return oldest
        for segment in segments_in(self.directory):
            row = segment.first_row()
            if row is not None:
                return LogPosition(segment.number, PREAMBLE_BYTES, row)
        return ORIGIN

    def end(self) -> LogPosition:
        """Return the position after the last record; everything before it is durable."""
        if not self.directory.is_dir():
            return ORIGIN
        tail = Tail(self.directory)
        try:
            hint = tail.hint()
            end = hint if hint is not None and tail.reaches(hint) else _locked_end(tail)
        finally:
            tail.close()
        if end != self._synced:
            # A record may be in the file and not on disk yet: it could be read now and then lost in a power failure, as if it
            # had never existed. After this sync it cannot.
            disk.sync_file(Segment(self.directory, end.segment).path)
            self._synced = end
        return end

    def check(self, start: LogPosition) -> None:
        """Verify that reading can continue at a position.

        Raises:
            Damaged: the log ends before it, or has other records there than the position expects.
            Terminal: the records after it were deleted.
        """
        self._check(self._retained(start), self.end())

    def _check(self, start: LogPosition, end: LogPosition) -> None:
        if (start.segment, start.offset) > (end.segment, end.offset):
            report = f"segment {start.segment}, byte {start.offset}, row {start.row}"
            raise Damaged(
                f"the ingest log {named(self.directory)} was read up to {report}, and ends before that, "
                f"at segment {end.segment}, byte {end.offset}, row {end.row}: accepted rows are missing",
                hint=RESTORE,
            )
        segment = Segment(self.directory, start.segment)
        row = segment.row_at(start.offset) if start > ORIGIN and segment.path.exists() else None
        if row is not None and row != start.row:
            raise Damaged(
                f"the ingest log {named(self.directory)} is not the one that was read: at segment {start.segment}, "
                f"byte {start.offset}, it has row {row} where row {start.row} comes next",
                hint=RESTORE,
            )
        if segment.path.exists() and segment.path.stat().st_size >= start.offset:  # else nothing of it is read
            self._check_log(start.log, start.segment)

    def _check_log(self, log: int, number: int) -> None:
        segment = Segment(self.directory, number)
        if log and not is_same_log(log, segment.log()):
            raise Damaged(
                f"the ingest log {named(self.directory)} is not the one that was read: {segment.path.name} {FOREIGN}",
                hint=RESTORE,
            )

    def plan(
        self, start: LogPosition, *, rows: int | None = None, bytes: int | None = None
    ) -> tuple[list[LogRange], LogPosition]:
        """Return ranges from `start` on, and their end position.

        They end at the first record at which a limit is reached.

        Args:
            start: a position from `start`, `end` or an earlier plan.
            rows: stop at the first record that makes so many rows.
            bytes: stop at about so many bytes.
        """
        end = self.advance(start, rows=rows, bytes=bytes)
        found = Segment(self.directory, end.segment).log()
        log = start.log if found in (None, 0, ANY_LOG) else found
        return self.ranges(start, end), replace(end, log=log or 0)

    def advance(self, start: LogPosition, *, rows: int | None = None, bytes: int | None = None) -> LogPosition:
        """Return the end position of a plan with these limits."""
        start, end, taken = self._retained(start), self.end(), 0
        self._check(start, end)
        for piece in self._pieces(start, end):
            if piece.begin.segment != start.segment and piece.begin.offset == PREAMBLE_BYTES:
                self._check_log(start.log, piece.begin.segment)
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

    def open(self, part: LogRange, damaged: Callable[[Damage], None] = _refuse) -> Iterator[LogRecord]:
        """Yield the records of a range.

        Args:
            part: the range.
            damaged: called with each unreadable range, before the record after it is yielded.

        Raises:
            Damaged: a part cannot be read, and `damaged` is not provided.
        """
        segment = Segment(self.directory, part.begin.segment)
        row, at, gap = part.begin.row, part.begin.offset, None
        for each in segment.walk(at, part.end.offset, row) if segment.path.exists() else ():
            at = each.end
            if isinstance(each, Gap):
                if gap is not None:
                    damaged(_damage(segment, gap, row, row := row + (gap.rows or 0)))
                gap = each
                continue
            if gap is not None or each.row > row:
                damaged(_damage(segment, gap or Gap(each.offset, 0), row, each.row))
            row, gap = each.row + each.entry.rows, None
            yield each
        if gap is not None or row < part.end.row or at < part.end.offset:
            damaged(_damage(segment, gap or Gap(at, 0), row, part.end.row, is_missing=gap is None))

    def _past(self, before: int, read: LogPosition, most: int) -> list[Segment]:
        """Return the segments to delete: the oldest ones, so that the remaining ones are consecutive."""
        found = [(segment, segment.path.stat()) for segment in segments_in(self.directory)]
        left = sum(stat.st_size for _, stat in found)

        def is_past(each: tuple[Segment, os.stat_result]) -> bool:
            nonlocal left
            is_too_much, left = 0 < most < left, left - each[1].st_size
            return each[1].st_mtime_ns // 1000 < before or is_too_much

        return [segment for segment, _ in takewhile(is_past, (each for each in found if each[0].number < read.segment))]

    def has(self, part: LogRange) -> bool:
        """Return True if the file has all bytes of a range."""
        path = Segment(self.directory, part.begin.segment).path
        return path.exists() and path.stat().st_size >= part.end.offset

    def expire(self, before: int, read: LogPosition, most: int = 0) -> list[int]:
        """Delete the segments that are read and past retention; return their numbers.

        Args:
            before: microseconds since the epoch; a segment written to later is retained, unless there are too many bytes.
            read: the position up to which every reader is done.
            most: bytes of the log from which on the oldest segments are deleted that are read; 0 for any number.
        """
        if not self.directory.is_dir():
            return []
        tail, ids = Tail(self.directory), BatchIds(self.directory)
        try:
            with tail.locked():
                done = self._past(before, read, most)
                if done:
                    row = self._next_row(done[-1], read)
                    write_oldest(self.directory, LogPosition(done[-1].number + 1, PREAMBLE_BYTES, row))
                for segment in done:
                    ids.forget(segment)
                    disk.remove(segment.index)  # before the segment: without that nobody looks for it any more
                    disk.remove(segment.path)
        finally:
            tail.close()
            ids.close()
        return [segment.number for segment in done]

    def _pieces(self, start: LogPosition, end: LogPosition) -> Iterator[LogRange]:
        """Yield the ranges between neighbouring marks of the sparse index."""
        begin = start
        while begin.segment <= end.segment:
            segment = Segment(self.directory, begin.segment)
            if not segment.path.exists():
                stop = LogPosition(segment.number, begin.offset, self._next_row(segment, end))
            else:
                stop = end if segment.number == end.segment else self._segment_end(segment, end)
            if stop.offset <= begin.offset and begin.row < stop.row:  # all that comes next in it is missing
                yield LogRange(begin, LogPosition(segment.number, begin.offset, stop.row))
            for mark in (*_marks(segment, begin, stop), stop):
                if mark.offset > begin.offset:
                    yield LogRange(begin, mark)
                    begin = mark
            begin = LogPosition(segment.number + 1, PREAMBLE_BYTES, max(stop.row, begin.row))

    def _segment_end(self, segment: Segment, end: LogPosition) -> LogPosition:
        after = Segment(self.directory, segment.number + 1)
        row = after.first_row() if after.path.exists() else None
        if row is None:  # then the next segment does not have the row at which this one ends
            found = end_of(segment)
            row = self._next_row(segment, end) if found is None else found.row
        return LogPosition(segment.number, segment.path.stat().st_size, row)

    def _next_row(self, segment: Segment, end: LogPosition) -> int:
        """Return the first row after a segment, even if later segments are missing."""
        after = (each for each in segments_in(self.directory) if segment.number < each.number <= end.segment)
        return next((row for each in after if (row := each.first_row()) is not None), end.row)

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
                f"rows {start.row} to {oldest.row} of the ingest log {named(self.directory)} were deleted before being read",
                hint=RESTORE,
            )
        return max(start, oldest)


def _locked_end(tail: Tail) -> LogPosition:
    with tail.locked():
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
    # After a power loss the index, which is never synced, may contain anything.
    return segment.row_at(mark.offset) == mark.row


def _damage(segment: Segment, gap: Gap, row: int, until: int, *, is_missing: bool = False) -> Damage:
    return Damage(segment.path, gap.offset, gap.size, row, max(until - row, 0), is_missing)
