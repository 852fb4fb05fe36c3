"""Index of batch ids in an ingest log, for deduplication of repeated POSTs.

An LMDB environment beside the segments maps the digest of each id to its record, and has the identity of the log. It is written
after the record is durable and stores the position up to which it covers the log, so after a crash it reads the remaining
records, and all of them after it was damaged. An id is stored as long as the segment with its record. A log whose clients send
no ids has no such directory.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from weakref import WeakValueDictionary

import lmdb

from umbel.log.environments import HARM, MappedEnvironment, entry_of, erase_environment, sealed, unsealed
from umbel.log.records import Head, Receipt
from umbel.log.segments import ANY_LOG, ORIGIN, PREAMBLE_BYTES, LogPosition, Segment, segments_in

LOCATION = struct.Struct("<QQQI")
"""Segment, offset and row of a record, and how many rows it has."""
IDS = "ids"
"""The name of their folder."""
_THROUGH, _LOG = b"through", b"log"
_OPENING = threading.Lock()
_OPEN: WeakValueDictionary[str, MappedEnvironment] = WeakValueDictionary()
_log = logging.getLogger("umbel.log")


class BatchIds:
    """The ids in one log. The caller of every method must have the log's lock."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._folder = directory, directory / IDS
        self._opened: MappedEnvironment | None = None

    def _current(self) -> MappedEnvironment:
        before, self._opened = self._opened, _open(self._folder)  # another user of it may have begun anew
        if self._opened is not before:
            self._check_log(self._opened)
        return self._opened

    def _check_log(self, environment: MappedEnvironment) -> None:
        """Note whose ids these are, or refuse those of another log.

        Raises:
            ValueError: they are of another one.
        """
        segments = segments_in(self._directory)
        log = segments[-1].log() if segments else None
        if log in (None, 0, ANY_LOG):  # not known
            return
        with environment.lmdb.begin() as transaction:
            stored = transaction.get(_LOG)
        if stored is not None and _opened(_LOG, stored)[0] != log:
            raise ValueError("they are those of another log")
        if stored is None:
            with suppress(lmdb.DiskError, lmdb.MapFullError), environment.writing() as transaction:
                transaction.put(_LOG, sealed(_LOG, LOCATION.pack(log, 0, 0, 0)))

    def find(self, end: LogPosition, digests: Iterable[bytes]) -> dict[bytes, Receipt]:
        """Return the earlier record of each digest that has one.

        Args:
            end: the end of the log.
            digests: the ids to look up.
        """
        requested = list(digests)
        try:
            return self._found(end, requested)
        except HARM as error:
            self._begin_anew(error)
            return self._found(end, requested)

    def _found(self, end: LogPosition, digests: Iterable[bytes]) -> dict[bytes, Receipt]:
        environment = self._current()
        with environment.lmdb.begin() as transaction:
            known = _through(transaction)
            if known >= end:
                return _receipts(transaction, digests)
        self._catch_up(environment, known, end)
        with environment.lmdb.begin() as transaction:
            return _receipts(transaction, digests)

    def add(self, locations: Mapping[bytes, Receipt], through: LogPosition) -> None:
        """Store the records of ids, and the position through which the index is complete."""
        try:
            _add(self._opened or self._current(), locations, through)
        except HARM as error:
            self._begin_anew(error)

    def forget(self, segment: Segment) -> None:
        """Delete the ids of records in a segment that is about to be deleted."""
        if not self._folder.is_dir():
            return
        digests = [head.digest for head in segment.heads(PREAMBLE_BYTES, segment.path.stat().st_size) if head.digest]
        try:
            with self._current().writing() as transaction:
                for digest in digests:
                    transaction.delete(digest)
        except HARM as error:
            self._begin_anew(error)

    def _begin_anew(self, error: Exception) -> None:
        """Erase the damaged ids: the next look at them reads those of all records again."""
        _log.warning("the ids in %s are damaged, and read from its records again: %s", self._directory, error)
        self._opened = None
        with _OPENING:
            found = _OPEN.pop(str(self._folder), None)
            if found is not None:
                found.close()
            erase_environment(self._folder)

    def _catch_up(self, environment: MappedEnvironment, known: LogPosition, end: LogPosition) -> None:
        heads = ((segment, head) for segment, head in self._heads(known, end) if head.digest)
        _add(environment, {head.digest: _location(segment, head) for segment, head in heads if head.digest}, end)

    def _heads(self, begin: LogPosition, end: LogPosition) -> Iterator[tuple[Segment, Head]]:
        for segment in segments_in(self._directory):
            if begin.segment <= segment.number <= end.segment:
                start = begin.offset if segment.number == begin.segment else PREAMBLE_BYTES
                stop = end.offset if segment.number == end.segment else segment.path.stat().st_size
                yield from ((segment, head) for head in segment.heads(start, stop))

    def close(self) -> None:
        """Release the environment; it is closed with its last user."""
        self._opened = None


def _open(directory: Path) -> MappedEnvironment:
    # A process may open an environment once only. LMDB's own locks are not needed: the caller has the log's lock.
    with _OPENING:
        found = _OPEN.get(str(directory))
        if found is not None and not found.is_current():
            found.close()
            found = None
        if found is None:
            found = _OPEN[str(directory)] = MappedEnvironment(directory)
        return found


def _add(environment: MappedEnvironment, locations: Mapping[bytes, Receipt], through: LogPosition) -> None:
    with environment.lmdb.begin(write=True) as transaction:
        for digest, location in locations.items():
            numbers = location.segment, location.offset, location.row, location.rows
            transaction.put(digest, sealed(digest, LOCATION.pack(*numbers)))
        end = through.segment, through.offset, through.row, 0
        transaction.put(_THROUGH, sealed(_THROUGH, LOCATION.pack(*end)))


def _location(segment: Segment, head: Head) -> Receipt:
    return Receipt(segment.number, head.offset, head.row, head.rows)


def _through(transaction: lmdb.Transaction) -> LogPosition:
    """Return the position up to which the log is covered."""
    stored = transaction.get(_THROUGH)
    return LogPosition(*_opened(_THROUGH, stored)[:3]) if stored else ORIGIN


def _opened(key: bytes, stored: bytes | memoryview) -> tuple[int, int, int, int]:
    return _place(unsealed(key, stored, LOCATION.size))


def _place(value: bytes) -> tuple[int, int, int, int]:
    segment, offset, row, rows = LOCATION.unpack(value)
    return segment, offset, row, rows


def _receipts(transaction: lmdb.Transaction, digests: Iterable[bytes]) -> dict[bytes, Receipt]:
    cursor = transaction.cursor()
    found = {digest: entry_of(cursor, digest, LOCATION.size) for digest in digests}
    return {digest: Receipt(*_place(each), is_duplicate=True) for digest, each in found.items() if each}
