"""Durable appends of record groups to an ingest log, from any number of processes."""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import lmdb

from umbel.errors import Transient
from umbel.log.batch_ids import BatchIds
from umbel.log.records import Entry, Receipt, are_same_rows, pack
from umbel.log.segments import PREAMBLE_BYTES, LogPosition, Segment
from umbel.log.tail import Tail
from umbel.state import disk

SEGMENT_BYTES = 64 << 20
INDEX_BYTES = 1 << 20
MARK = struct.Struct("<QQq")
"""One entry of the sparse index beside a segment: byte offset, row, time of receipt (µs)."""


class Appender:
    """One process's writer of an endpoint's log. Not for use by several threads at once.

    Args:
        directory: the log's directory, see `segments.directory_of`.
        segment_bytes: size in bytes from which on a segment is followed by a new one.
    """

    def __init__(self, directory: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._directory, self._segment_bytes = directory, segment_bytes
        self._tail = Tail(directory)
        self._ids = BatchIds(directory)
        self._number, self._file = 0, -1
        self._marked = 0
        self._is_broken = False

    @property
    def is_broken(self) -> bool:
        """True once a sync has failed: only a new process may append."""
        return self._is_broken

    def append(self, entries: Sequence[Entry]) -> list[Receipt]:
        """Write records in order, make them durable, and return their positions.

        Raises:
            Transient: the disk write failed. Nothing of the group was acknowledged.
        """
        if self._is_broken:
            raise Transient(f"the ingest log {self._directory} failed to sync", hint="restart the server process")
        try:
            return self._append(entries)
        except (OSError, lmdb.Error) as error:
            number = errno.ENOSPC if isinstance(error, lmdb.DiskError) else getattr(error, "errno", None)
            hint = disk.remedy_of(number)
            raise Transient(f"the ingest log {self._directory} cannot be written: {error}", hint=hint) from error

    def _append(self, entries: Sequence[Entry]) -> list[Receipt]:
        with self._tail.locked():
            start = self._open(self._tail.end())
            if any(entry.digest for entry in entries):
                return self._append_once(start, entries)
            receipts = self._write(start, entries)
        self._sync()
        return receipts

    def _append_once(self, start: LogPosition, entries: Sequence[Entry]) -> list[Receipt]:
        # Ids are stored only once their records are durable: an id without its record would swallow the client's retry.
        known = self._ids.find(start, {entry.digest for entry in entries if entry.digest})
        receipts = iter(self._write(start, _unseen(entries, set(known))))
        self._sync()
        answers, added = [], {}
        for entry in entries:
            if entry.digest is None:
                answers.append(next(receipts))
            elif entry.digest in known:
                answers.append(self._compared(known[entry.digest], entry))
            else:
                answers.append(next(receipts))
                added[entry.digest] = known[entry.digest] = answers[-1].repeated()
        # Where the disk is full, say, the records are stored all the same, and the next `find` reads their ids.
        with suppress(lmdb.Error):
            self._ids.add(added, self._tail.end())
        return answers

    def _compared(self, receipt: Receipt, entry: Entry) -> Receipt:
        """Return the receipt of an earlier batch, marked if a repetition has other rows."""
        segment = Segment(self._directory, receipt.segment)
        earlier = next(segment.found(receipt.offset), None) if segment.path.exists() else None
        if earlier is None or earlier.offset != receipt.offset:
            return receipt  # it was deleted or damaged since
        return replace(receipt, has_other_rows=not are_same_rows(earlier.entry, entry))

    def _open(self, end: LogPosition) -> LogPosition:
        if end.offset >= self._segment_bytes:
            self._use(Segment(self._directory, end.segment))
            self._sync()
            end = LogPosition(end.segment + 1, PREAMBLE_BYTES, end.row)
            disk.close(Segment(self._directory, end.segment).create(end.row))
            self._tail.move(end)
        self._use(Segment(self._directory, end.segment))
        return end

    def _use(self, segment: Segment) -> None:
        if segment.number != self._number:
            file = segment.open()
            if self._file >= 0:
                disk.close(self._file)
            self._number, self._file = segment.number, file

    def _write(self, start: LogPosition, entries: Sequence[Entry]) -> list[Receipt]:
        receipts, pieces = [], []
        offset, row = start.offset, start.row
        for entry in entries:
            piece = pack(entry, row)
            receipts.append(Receipt(start.segment, offset, row, entry.rows))
            pieces.append(piece)
            offset, row = offset + len(piece), row + entry.rows
        if entries:
            self._mark(start, offset, entries[0].received_at)  # before the records: where it fails, none is stored
            self._put(start, b"".join(pieces))
            self._tail.move(LogPosition(start.segment, offset, row))
        return receipts

    def _put(self, start: LogPosition, data: bytes) -> None:
        try:
            disk.write(self._file, data, start.offset)
        except OSError:
            disk.cut(self._file, start.offset)
            raise

    def _mark(self, start: LogPosition, end: int, received_at: int) -> None:
        if start.offset // INDEX_BYTES == end // INDEX_BYTES:
            return
        with Segment(self._directory, start.segment).index.open("ab") as index:
            index.write(MARK.pack(start.offset, start.row, received_at))

    def _sync(self) -> None:
        try:
            disk.sync(self._file)
        except OSError:
            # The kernel drops the pages it failed to write: a second sync would report success for lost data.
            self._is_broken = True
            raise

    def close(self) -> None:
        """Release files. Nothing is pending between calls."""
        self._tail.close()
        self._ids.close()
        if self._file >= 0:
            disk.close(self._file)
            self._file = -1


def _unseen(entries: Sequence[Entry], seen: set[bytes]) -> list[Entry]:
    fresh = []
    for entry in entries:
        if entry.digest is None or entry.digest not in seen:
            fresh.append(entry)
        if entry.digest is not None:
            seen.add(entry.digest)
    return fresh
