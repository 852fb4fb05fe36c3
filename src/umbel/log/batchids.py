"""Which batch ids an ingest log holds, so that a repeated POST is stored once.

An LMDB environment beside the segments maps the digest of each id to its record. It is written after the record is
durable and says up to where it knows the log, so after a crash it reads the few records it has not seen. An id is
remembered as long as the segment that holds its record. A log whose clients send no ids has no such directory.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from weakref import WeakValueDictionary

import lmdb

from umbel.log.records import Head, Receipt
from umbel.log.segments import ORIGIN, PREAMBLE_BYTES, LogPosition, Segment, segments_in

_PLACE = struct.Struct("<QQQI")
_THROUGH = b"through"
_MAP_BYTES = 1 << 38
_OPENING = threading.Lock()
_OPEN: WeakValueDictionary[str, lmdb.Environment] = WeakValueDictionary()


class BatchIds:
    """The ids in one log. Every method is called by the holder of the log's lock."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._opened: lmdb.Environment | None = None

    @property
    def _environment(self) -> lmdb.Environment:
        if self._opened is None:
            self._opened = _open(self._directory / "ids")
        return self._opened

    def find(self, end: LogPosition, digests: Iterable[bytes]) -> dict[bytes, Receipt]:
        """Return the earlier record of each digest that has one.

        Args:
            end: where the log ends.
            digests: the ids asked for.
        """
        self._catch_up(end)
        with self._environment.begin() as transaction:
            found = {digest: transaction.get(digest) for digest in digests}
        return {digest: _receipt(place) for digest, place in found.items() if place is not None}

    def add(self, places: Mapping[bytes, Receipt], through: LogPosition) -> None:
        """Remember where ids stand, and that everything before `through` is known."""
        with self._environment.begin(write=True) as transaction:
            for digest, place in places.items():
                transaction.put(digest, _PLACE.pack(place.segment, place.offset, place.row, place.rows))
            transaction.put(_THROUGH, _PLACE.pack(through.segment, through.offset, through.row, 0))

    def forget(self, segment: Segment) -> None:
        """Remove the ids whose records are in a segment that is about to be deleted."""
        if not (self._directory / "ids").is_dir():
            return
        digests = [head.digest for head in segment.heads(PREAMBLE_BYTES, segment.path.stat().st_size) if head.digest]
        with self._environment.begin(write=True) as transaction:
            for digest in digests:
                transaction.delete(digest)

    def _catch_up(self, end: LogPosition) -> None:
        with self._environment.begin() as transaction:
            stored = transaction.get(_THROUGH)
        known = LogPosition(*_PLACE.unpack(stored)[:3]) if stored else ORIGIN
        if known < end:
            heads = ((segment, head) for segment, head in self._heads(known, end) if head.digest)
            self.add({head.digest: _place(segment, head) for segment, head in heads if head.digest}, end)

    def _heads(self, begin: LogPosition, end: LogPosition) -> Iterator[tuple[Segment, Head]]:
        for segment in segments_in(self._directory):
            if begin.segment <= segment.number <= end.segment:
                start = begin.offset if segment.number == begin.segment else PREAMBLE_BYTES
                stop = end.offset if segment.number == end.segment else segment.path.stat().st_size
                yield from ((segment, head) for head in segment.heads(start, stop))

    def close(self) -> None:
        """Release the environment; it is closed when its last user has."""
        self._opened = None


def _open(directory: Path) -> lmdb.Environment:
    # A process may open an environment once only. LMDB's own locks are not needed: the log's lock is held.
    with _OPENING:
        found = _OPEN.get(str(directory))
        if found is None:
            found = _OPEN[str(directory)] = lmdb.open(str(directory), map_size=_MAP_BYTES, lock=False)
        return found


def _place(segment: Segment, head: Head) -> Receipt:
    return Receipt(segment.number, head.offset, head.row, head.rows)


def _receipt(place: bytes) -> Receipt:
    segment, offset, row, rows = _PLACE.unpack(place)
    return Receipt(segment, offset, row, rows, is_duplicate=True)
