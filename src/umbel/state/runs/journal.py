"""The journal of a shard in a folder: one appended record per transaction.

Files are numbered; each begins with a header of 64 bytes: how far its records are committed, whether the next file goes
on, and a mark of the store, which files of older versions get with their next record. The header is written after the records
are synced, and synced with the next ones: after a crash of the machine it may be behind, never ahead. So a record before its
end that fails its checksum is damage; after it, it is a write that was cut.
"""

from __future__ import annotations

import re
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from umbel.errors import Damaged, Transient
from umbel.state.runs.manifest import JournalPosition
from umbel.state.runs.records import RECORD_BYTES, UNREADABLE, JournalRecord, PlacedRecord, payload_at, place_of
from umbel.state.runs.run import REMEDY
from umbel.state.runs.shard_names import FOREIGN, MARK_BYTES, is_foreign, known_mark, shard_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from umbel.state.runs.files import AppendableFiles, ShardFiles

HEADER_BYTES = 64
JOURNAL_BYTES = 64 << 20
"""Size from which on a file is followed by the next one."""

FOLDER = "journal"
_HEADER, _MARK = struct.Struct("<8sQII"), struct.Struct(f"<{MARK_BYTES}sI")
_MAGIC = b"umbeljr1"
_ATTEMPTS = 50
_NAME = re.compile(r"\d{12,}\.log")


@dataclass(frozen=True, slots=True)
class JournalHeader:
    """The header of a journal file.

    Args:
        end: of the committed records.
        is_full: True if the next file goes on.
        mark: of the store, as `store_mark` returns it; empty if it is not known.
    """

    end: int
    is_full: bool
    mark: bytes = b""

    def pack(self) -> bytes:
        """Return the bytes with which a file begins that ends here."""
        return self.written().ljust(HEADER_BYTES, b"\0")

    def written(self) -> bytes:
        """Return the bytes that replace those of an earlier header.

        Without a mark the one that is there stays.
        """
        body = _HEADER.pack(_MAGIC, self.end, self.is_full, 0)[:-4]
        mark = _MARK.pack(self.mark, zlib.crc32(self.mark)) if self.mark else b""
        return body + struct.pack("<I", zlib.crc32(body)) + mark

    @classmethod
    def unpack(cls, data: bytes) -> JournalHeader | None:
        """Return the header of a file's first bytes, None if they are cut or damaged."""
        if len(data) != HEADER_BYTES:
            return None
        magic, end, is_full, crc = _HEADER.unpack_from(data)
        mark, check = _MARK.unpack_from(data, _HEADER.size)
        if magic != _MAGIC or zlib.crc32(data[: _HEADER.size - 4]) != crc:
            return None
        if not check and not any(mark):
            return cls(end, bool(is_full))
        return cls(end, bool(is_full), mark) if zlib.crc32(mark) == check else None


class Journal:
    """The journal of one shard.

    Args:
        files: of the shard.
        file_bytes: size from which on a file is followed by the next one.
    """

    def __init__(self, files: AppendableFiles, file_bytes: int = JOURNAL_BYTES) -> None:
        self._files, self._file_bytes = files, file_bytes
        self._shard = shard_name(files)

    def create(self) -> None:
        """Create the first file, unless there is one. The writers' lock must be held."""
        if not file_numbers(self._files):
            self.begin(1)

    def header(self, number: int) -> JournalHeader | None:
        """Return the header of a file, None if there is no such file.

        Raises:
            Damaged: the header differs from its checksum, or the file is that of another store.
        """
        for _ in range(_ATTEMPTS):  # the writer may be writing it
            try:
                data = self._files.read(journal_name(number), 0, HEADER_BYTES)
            except FileNotFoundError:
                return None
            found = JournalHeader.unpack(data)
            if found is not None:
                if is_foreign(self._files.store, found.mark):
                    raise self._damaged(number, 0, FOREIGN)
                return found
        raise self._damaged(number, 0, "its header differs from its checksum")

    def read(self, number: int, start: int, end: int) -> list[PlacedRecord]:
        """Return the committed records of a range of a file.

        Raises:
            Damaged: a record differs from its checksum.
        """
        if end <= start:
            return []
        data = self._files.read(journal_name(number), start, end)
        found, at = list[PlacedRecord](), 0
        while at < end - start:
            payload = self._payload(data, at, number, start)
            if payload is None:
                raise self._damaged(number, start + at, "a record differs from its checksum, or is from elsewhere")
            after = at + RECORD_BYTES + len(payload)
            try:
                record = JournalRecord.unpack(payload)
            except UNREADABLE as error:  # as older versions have written some
                raise self._damaged(number, start + at, f"a record cannot be read: {error}") from error
            found.append(PlacedRecord(number, start + at, start + after, record))
            at = after
        return found

    def since(self, at: JournalPosition) -> tuple[list[PlacedRecord], JournalPosition]:
        """Return the committed records after a position, and the end of the journal.

        Raises:
            Damaged: a record differs from its checksum.
            FileNotFoundError: the journal has no file of the position's number.
        """
        found = list[PlacedRecord]()
        while (header := self.header(at.number)) is not None:
            found += self.read(at.number, at.offset, header.end)
            at = JournalPosition(at.number, max(at.offset, header.end))
            if not header.is_full:
                return found, at
            at = JournalPosition(at.number + 1)
        raise FileNotFoundError(f"file {at.number} of the journal")

    def sound(self, number: int, start: int, end: int) -> int:
        """Return the offset up to which the records of a range are undamaged."""
        data, at = self._files.read(journal_name(number), start, end), 0
        while (payload := self._payload(data, at, number, start)) is not None:
            at += RECORD_BYTES + len(payload)
        return start + at

    def begin(self, number: int) -> JournalPosition:
        """Create an empty file, from which the journal goes on; return its beginning."""
        self._files.put(
            journal_name(number), JournalHeader(HEADER_BYTES, is_full=False, mark=known_mark(self._files.store)).pack()
        )
        return JournalPosition(number)

    def recover(self, at: JournalPosition) -> bool:
        """Commit or cut off an unfinished write; return True if a record was committed.

        The writers' lock must be held.

        Args:
            at: any position; the last file follows it.
        """
        number, header = at.number, self.header(at.number)
        while header is not None and header.is_full:
            following = self.header(number + 1)
            if following is None:
                return False
            number, header = number + 1, following
        size = self._files.size(journal_name(number))
        if header is None or size is None or size == header.end:
            return False
        if size < header.end:
            raise self._damaged(number, size, "it is cut")
        data, end = self._files.read(journal_name(number), header.end, size), 0
        while (payload := self._payload(data, end, number, header.end)) is not None:
            end += RECORD_BYTES + len(payload)
        if header.end + end < size:
            self._files.cut(journal_name(number), header.end + end)
        if end:
            # Its writer may have died before the sync: written again, it is durable before anybody sees it.
            self._files.append(journal_name(number), header.end, data[:end])
            self._commit(number, header.end + end)
        return end > 0

    def append(self, at: JournalPosition, record: JournalRecord) -> PlacedRecord:
        """Write a record durably. The writers' lock must be held, and the journal recovered.

        Args:
            at: the end of the journal.
            record: the writes.

        Raises:
            Transient: the disk is full or fails; the record is not in the journal.
        """
        at = self._with_room(at)
        data = record.pack(place_of(self._shard, at.number, at.offset))
        end = at.offset + len(data)
        try:
            self._files.append(journal_name(at.number), at.offset, data)
        except Exception:
            with suppress(OSError, Transient):
                self._files.cut(journal_name(at.number), at.offset)
            raise
        self._commit(at.number, end)
        return PlacedRecord(at.number, at.offset, end, record)

    def is_long(self, start: JournalPosition, end: JournalPosition) -> bool:
        """Return False: any number of records of a file are read at once."""
        return False

    def delete(self, before: int, apart_from: set[int]) -> None:
        """Delete the files with lower numbers than `before`, apart from some."""
        for number in file_numbers(self._files):
            if number < before and number not in apart_from:
                self._files.delete(journal_name(number))

    def size(self) -> int:
        """Return the size of all files in bytes."""
        return sum(self._files.size(journal_name(number)) or 0 for number in file_numbers(self._files))

    def committed(self, at: JournalPosition) -> Iterator[tuple[str, JournalHeader]]:
        """Yield the names and headers of the files from a position on."""
        number = at.number
        while (header := self.header(number)) is not None:
            yield journal_name(number), header
            if not header.is_full:
                return
            number += 1

    def _with_room(self, at: JournalPosition) -> JournalPosition:
        header = self.header(at.number)
        if header is None:
            self.begin(at.number)
        elif at.offset >= self._file_bytes or header.is_full:
            following = self.begin(at.number + 1)
            # Synced at once: a record in the next file would not be found behind a header that was lost.
            full = JournalHeader(at.offset, is_full=True, mark=known_mark(self._files.store))
            self._files.append(journal_name(at.number), 0, full.written())
            return following
        return at

    def _payload(self, data: bytes, at: int, number: int, start: int) -> bytes | None:
        """Return the payload of a record; the bytes begin at `start` of the file."""
        return payload_at(data, at, place_of(self._shard, number, start + at))

    def _commit(self, number: int, end: int) -> None:
        header = JournalHeader(end, is_full=False, mark=known_mark(self._files.store))
        self._files.note(journal_name(number), 0, header.written())

    def _damaged(self, number: int, at: int, reason: str) -> Damaged:
        return Damaged(f"the file {journal_name(number)} of the state is damaged at byte {at}: {reason}", hint=REMEDY)


def journal_name(number: int) -> str:
    """Return the name of a file of the journal."""
    return f"{FOLDER}/{number:012d}.log"


def file_numbers(files: ShardFiles) -> list[int]:
    """Return the numbers of the journal's files, ascending.

    Files of other names in its folder are left out.
    """
    return [int(name.partition(".")[0]) for name in files.list(FOLDER) if _NAME.fullmatch(name)]


def numbers_of(names: Iterable[str]) -> list[int]:
    """Return the numbers of the journal's files among names of files of a shard."""
    inside = (name.removeprefix(f"{FOLDER}/") for name in names if name.startswith(f"{FOLDER}/"))
    return [int(name.partition(".")[0]) for name in inside if _NAME.fullmatch(name)]
