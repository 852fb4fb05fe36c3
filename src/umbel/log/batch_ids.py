"""Index of batch ids in an ingest log, for deduplication of repeated POSTs.

An LMDB environment beside the segments maps the digest of each id to its record. It is written after the record is
durable and stores the position up to which it covers the log, so after a crash it reads the remaining records, and all of
them after it was damaged. An id is stored as long as the segment with its record. A log whose clients send no ids has no such
directory.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from weakref import WeakValueDictionary

import lmdb

from umbel.log.environments import HARM, erase_environment, open_environment
from umbel.log.records import Head, Receipt
from umbel.log.segments import ORIGIN, PREAMBLE_BYTES, LogPosition, Segment, segments_in

_LOCATION = struct.Struct("<QQQI")
_THROUGH = b"through"
_OPENING = threading.Lock()
_OPEN: WeakValueDictionary[str, lmdb.Environment] = WeakValueDictionary()
_log = logging.getLogger("umbel.log")


class BatchIds:
    """The ids in one log. The caller of every method must have the log's lock."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._folder = directory, directory / "ids"
        self._opened: lmdb.Environment | None = None

    @property
    def _environment(self) -> lmdb.Environment:
        self._opened = _open(self._folder)  # another user of it may have begun anew
        return self._opened

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
        self._catch_up(end)
        with self._environment.begin() as transaction:
            found = {digest: transaction.get(digest) for digest in digests}
        return {digest: _receipt(location) for digest, location in found.items() if location is not None}

    def add(self, locations: Mapping[bytes, Receipt], through: LogPosition) -> None:
        """Store the records of ids, and the position through which the index is complete."""
        with self._environment.begin(write=True) as transaction:
            for digest, location in locations.items():
                transaction.put(digest, _LOCATION.pack(location.segment, location.offset, location.row, location.rows))
            transaction.put(_THROUGH, _LOCATION.pack(through.segment, through.offset, through.row, 0))

    def forget(self, segment: Segment) -> None:
        """Delete the ids of records in a segment that is about to be deleted."""
        if not self._folder.is_dir():
            return
        digests = [head.digest for head in segment.heads(PREAMBLE_BYTES, segment.path.stat().st_size) if head.digest]
        try:
            with self._environment.begin(write=True) as transaction:
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

    def _catch_up(self, end: LogPosition) -> None:
        with self._environment.begin() as transaction:
            stored = transaction.get(_THROUGH)
        known = LogPosition(*_LOCATION.unpack(stored)[:3]) if stored else ORIGIN
        if known < end:
            heads = ((segment, head) for segment, head in self._heads(known, end) if head.digest)
            self.add({head.digest: _location(segment, head) for segment, head in heads if head.digest}, end)

    def _heads(self, begin: LogPosition, end: LogPosition) -> Iterator[tuple[Segment, Head]]:
        for segment in segments_in(self._directory):
            if begin.segment <= segment.number <= end.segment:
                start = begin.offset if segment.number == begin.segment else PREAMBLE_BYTES
                stop = end.offset if segment.number == end.segment else segment.path.stat().st_size
                yield from ((segment, head) for head in segment.heads(start, stop))

    def close(self) -> None:
        """Release the environment; it is closed with its last user."""
        self._opened = None


def _open(directory: Path) -> lmdb.Environment:
    # A process may open an environment once only. LMDB's own locks are not needed: the caller has the log's lock.
    with _OPENING:
        found = _OPEN.get(str(directory))
        if found is None:
            found = _OPEN[str(directory)] = open_environment(directory)
        return found


def _location(segment: Segment, head: Head) -> Receipt:
    return Receipt(segment.number, head.offset, head.row, head.rows)


def _receipt(location: bytes) -> Receipt:
    segment, offset, row, rows = _LOCATION.unpack(location)
    return Receipt(segment, offset, row, rows, is_duplicate=True)
