"""The files of a shard in an object store, such as S3.

The store has to refuse a put where the name is taken. Objects cannot be appended to and know no locks, so each record of the
journal is an object of its own: of two writers that start from the same end, one wins. Runs are kept as files in a cache of
this machine, and mapped from there.
"""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

import obstore
import pyarrow as pa
from obstore import exceptions

from umbel.errors import Damaged, InvalidValue, Terminal, Transient, UmbelError
from umbel.state.failpoints import reach
from umbel.state.port import ConcurrentWrite
from umbel.state.runs.journal import FOLDER, file_numbers, journal_name
from umbel.state.runs.manifest import JournalPosition
from umbel.state.runs.records import UNREADABLE, JournalRecord, PlacedRecord, payload_at, place_of
from umbel.state.runs.run import REMEDY
from umbel.state.runs.shard_names import FOREIGN, KnownStore, StoreIdentity, is_foreign, shard_name
from umbel.state.runs.storage_clock import StorageClock
from umbel.state.runs.storage_errors import no_bucket, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from obstore.store import ObjectStore

    from umbel.state.runs.cache import RunCache
    from umbel.state.runs.files import ShardJournal

GRACE = 3600.0
"""Seconds for which an object that no manifest names is left: a process may be about to publish it."""
LONG = 500
"""Records of the journal from which on they are flushed into runs: each is an object to read for whoever starts anew."""
PROBES = "probes"
"""The folder of the objects by which it is found out what the storage does."""
PINS = "pins"
"""The folder of the objects that let maintenance delete nothing."""
_FIRST = JournalPosition().offset
_CONDITIONAL = (
    "have the state on S3, on a server that refuses such puts (a newer version may do), or in a folder: --store"
)
_AT_ONCE = 16
"""Objects that are read at once."""


class ObjectClient:
    """A client of an object store.

    Its threads do not survive a fork: a process whose parent has used one cannot use any.

    Args:
        title: of the bucket, for messages.
        connect: returns a store of `obstore` whose root is that of the state.
    """

    used_in: ClassVar[int | None] = None
    """The process that has used one, None for none."""

    def __init__(self, title: str, connect: Callable[[], ObjectStore]) -> None:
        self.title, self._connect = title, connect
        self.clock = StorageClock()

    @cached_property
    def _store(self) -> ObjectStore:
        return self._connect()

    @property
    def store(self) -> ObjectStore:
        """The store of `obstore`.

        Raises:
            Terminal: the parent of this process has used one before the fork.
        """
        process = os.getpid()
        if ObjectClient.used_in not in (None, process):
            raise Terminal(
                f"{self.title}: this process is a fork of one that uses buckets", hint="start a new process instead"
            )
        ObjectClient.used_in = process
        return self._store

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Translate the store's errors into umbel's; a missing object remains a FileNotFoundError.

        Raises:
            Transient: access is denied, or the store does not answer, or fails.
        """
        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise no_bucket(self.title) from None
            raise
        except (exceptions.BaseError, PermissionError) as error:
            raise translated(self.title, error) from None


class ObjectFiles:
    """The files of a shard below a prefix of an object store.

    Args:
        client: of the store.
        prefix: of the shard, empty for none.
        cache: of runs on this machine.
    """

    has_locks = False
    grace = GRACE

    def __init__(self, client: ObjectClient, prefix: str, cache: RunCache) -> None:
        self._client, self._prefix, self._cache = client, f"{prefix}/" if prefix else "", cache
        self.store: StoreIdentity = KnownStore()

    def __str__(self) -> str:
        return f"{self._client.title}/{self._prefix}".rstrip("/")

    def journal(self, file_bytes: int) -> ShardJournal:
        return ObjectJournal(self)

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        try:
            with self._client.explained():
                if end is None and not start:
                    return bytes(obstore.get(self._client.store, self._prefix + name).bytes())
                length = (self.size(name) or 0) if end is None else end
                return bytes(obstore.get_range(self._client.store, self._prefix + name, start=start, end=length))
        except FileNotFoundError:  # the client's text has the time it took: no two of one object would be equal
            raise FileNotFoundError(errno.ENOENT, "there is no such object", f"{self}/{name}") from None

    def size(self, name: str) -> int | None:
        try:
            with self._client.explained():
                return int(obstore.head(self._client.store, self._prefix + name)["size"])
        except FileNotFoundError:
            return None

    def map(self, name: str) -> pa.Buffer:
        return self._cache.mapped(name.rpartition("/")[2], lambda: self.read(name))

    def put(self, name: str, data: bytes | memoryview) -> None:
        self.put_uncached(name, data)
        self._cache.add(name.rpartition("/")[2], data)

    def put_uncached(self, name: str, data: bytes | memoryview | Iterator[bytes]) -> None:
        """Write a whole object, from an iterator in parts; it appears after the last one."""
        reach("before a write")
        with self._writing():
            is_whole = isinstance(data, bytes | memoryview)
            obstore.put(self._client.store, self._prefix + name, data, use_multipart=not is_whole, max_concurrency=2)

    def put_new(self, name: str, data: bytes | memoryview) -> bool:
        reach("before a name")
        with self._writing():
            try:
                obstore.put(self._client.store, self._prefix + name, data, mode="create", use_multipart=False)
                return True
            except exceptions.AlreadyExistsError:
                pass
        with suppress(FileNotFoundError):
            # The client tries again after an answer that was lost: the object may be the one just put.
            return self.read(name) == data
        return False

    def check_puts(self) -> None:
        """Refuse a storage that replaces an object where a put must not.

        Raises:
            InvalidValue: it does, or knows no such puts.
        """
        name = f"{PROBES}/{uuid4().hex}"
        try:
            if not self.put_new(name, b"first") or self.put_new(name, b"second"):
                report = "the storage replaces an object by a put that must not (If-None-Match: *)"
                raise InvalidValue(f"{self}: {report}: of two writers one would be lost", hint=_CONDITIONAL)
        except Transient as error:
            if "501 Not Implemented" not in str(error):
                raise
            report = "the storage has no puts that fail where the name is taken (If-None-Match: *)"
            raise InvalidValue(f"{self}: {report}", hint=_CONDITIONAL) from error
        finally:
            with suppress(UmbelError):
                self.delete(name)

    def list(self, folder: str) -> list[str]:
        return sorted(name for name, _, _ in self.listed(folder))

    def listed(self, folder: str) -> Sequence[tuple[str, int, datetime]]:
        """Return name, size and time of the last change of the objects in a folder."""
        return [(name, size, changed) for name, size, changed, _ in self.stamped(folder)]

    def stamped(self, folder: str) -> Sequence[tuple[str, int, datetime, str]]:
        """Return the same, and the tag that the storage gives to each content.

        Args:
            folder: the folder; empty for all below the prefix.
        """
        prefix = f"{self._prefix}{folder}/" if folder else self._prefix
        with self._client.explained():
            pages: Any = obstore.list(self._client.store, prefix or None)
            found = [each for page in pages for each in page]
        return [
            (each["path"].removeprefix(prefix), each["size"], each["last_modified"], each["e_tag"] or "")
            for each in found
        ]

    def forget(self, name: str) -> None:
        self._cache.remove(name.rpartition("/")[2])

    def is_cut(self, name: str, size: int) -> bool:
        return self._cache.is_cut(name.rpartition("/")[2], size)

    def delete(self, name: str) -> None:
        reach("before a removal")
        try:
            with self._client.explained():
                obstore.delete(self._client.store, self._prefix + name)
        except FileNotFoundError:
            pass
        self._cache.remove(name.rpartition("/")[2])

    def sweep(self, folder: str) -> None:
        """Do nothing: an object is there as a whole or not at all."""

    def deletable(self, folder: str) -> Sequence[str]:
        found = {name: changed for name, _, changed in self.listed(folder)}
        until = self._client.clock.before(found.values(), self.grace)
        return sorted(name for name, changed in found.items() if changed < until)

    def is_pinned(self) -> bool:
        pins = [changed for _, _, changed in self.listed(PINS)]
        if not pins:
            return False
        others = (changed for folder in ("runs", FOLDER) for _, _, changed in self.listed(folder))
        return max(pins) > self._client.clock.before((*pins, *others), self.grace)

    @contextmanager
    def pinned(self, content: bytes) -> Iterator[str]:
        """Let maintenance delete nothing during a block.

        Yields the name of the object that says so. One that is left behind ends by itself.

        Args:
            content: of that object.
        """
        name, is_over = f"{PINS}/{uuid4().hex}", threading.Event()

        def renew() -> None:
            while not is_over.wait(self.grace / 8):
                with suppress(UmbelError):  # the next one comes long before the pin ends
                    self.put_uncached(name, content)

        self.put_uncached(name, content)
        thread = threading.Thread(target=renew, name="state-pin", daemon=True)
        thread.start()
        try:
            yield name
        finally:
            is_over.set()
            thread.join()
            with suppress(UmbelError):
                self.delete(name)

    @contextmanager
    def locked(self, name: str, *, wait: bool = True) -> Iterator[bool]:
        yield True

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with self._client.explained():
                yield
        except FileNotFoundError:
            raise no_bucket(self._client.title) from None


class ObjectJournal:
    """The journal of a shard in an object store: one numbered object per record.

    Args:
        files: of the shard.
    """

    def __init__(self, files: ObjectFiles) -> None:
        self._files, self._shard = files, shard_name(files)
        self._is_checked = False

    def create(self) -> None:
        """Do nothing: a journal without records has no objects."""

    def begin(self, number: int) -> JournalPosition:
        """Return the position before the record with a number: an object of its own."""
        return JournalPosition(number)

    def since(self, at: JournalPosition) -> tuple[list[PlacedRecord], JournalPosition]:
        """Return the records after a position, and the end of the journal.

        Raises:
            Damaged: a record differs from its checksum.
        """
        number, found = at.next_object, list[PlacedRecord]()
        while (placed := self._placed(number)) is not None:
            found.append(placed)
            number += 1
            if len(found) == _AT_ONCE:
                found += self._rest(number)
                number += len(found) - _AT_ONCE
        return (found, JournalPosition(found[-1].number, found[-1].end)) if found else ([], at)

    def read(self, number: int, start: int, end: int) -> list[PlacedRecord]:
        """Return the record of an object.

        Raises:
            Damaged: it differs from its checksum, or is of another store.
            FileNotFoundError: it is not there.
        """
        data = self._files.read(journal_name(number))
        payload = payload_at(data, 0, place_of(self._shard, number, _FIRST))
        if payload is None:
            report = f"the object {self._files}/{journal_name(number)} of the state differs from its checksum"
            raise Damaged(f"{report}, or is from elsewhere", hint=REMEDY)
        try:
            record = JournalRecord.unpack(payload)
        except UNREADABLE as error:
            report = f"the object {self._files}/{journal_name(number)} of the state cannot be read: {error}"
            raise Damaged(report, hint=REMEDY) from error
        if is_foreign(self._files.store, record.mark):
            raise Damaged(f"the object {self._files}/{journal_name(number)} is damaged: {FOREIGN}", hint=REMEDY)
        return [PlacedRecord(number, _FIRST, _FIRST + len(data), record)]

    def recover(self, at: JournalPosition) -> bool:
        """Return False: a record is there as a whole or not at all.

        Raises:
            Damaged: a record is missing before a later one.
        """
        if not self._is_checked:
            numbers, first = file_numbers(self._files), at.next_object
            later = [number for number in numbers if number >= first]
            if later != list(range(first, first + len(later))):
                lost = journal_name(next(number for number in range(first, later[-1]) if number not in later))
                raise Damaged(f"the state {self._files} lacks {lost}", hint=REMEDY)
            self._is_checked = True
        return False

    def append(self, at: JournalPosition, record: JournalRecord) -> PlacedRecord:
        """Put a record.

        Raises:
            ConcurrentWrite: another process has put this record.
            Transient: the storage fails.
        """
        number = at.next_object
        data = record.pack(place_of(self._shard, number, _FIRST))
        if not self._files.put_new(journal_name(number), data):
            raise ConcurrentWrite(f"another process has written to {self._files} meanwhile")
        return PlacedRecord(number, _FIRST, _FIRST + len(data), record)

    def is_long(self, start: JournalPosition, end: JournalPosition) -> bool:
        """Return True if a range has so many records that it takes seconds to read."""
        return end.number - start.number >= LONG

    def delete(self, before: int, apart_from: set[int]) -> None:
        """Delete the records with lower numbers than `before`, apart from some."""
        for number in file_numbers(self._files):
            if number < before and number not in apart_from:
                self._files.delete(journal_name(number))

    def size(self) -> int:
        """Return the size of all records in bytes."""
        return sum(size for _, size, _ in self._files.listed(FOLDER))

    def _placed(self, number: int) -> PlacedRecord | None:
        try:
            return self.read(number, 0, 0)[0]
        except FileNotFoundError:
            return None

    def _rest(self, first: int) -> list[PlacedRecord]:
        """Return the records from a number on, many read at once."""
        numbers = [number for number in file_numbers(self._files) if number >= first]
        if numbers != list(range(first, first + len(numbers))):  # deleted meanwhile, after a newer manifest; or lost
            raise FileNotFoundError(f"record {first} of the journal")
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return [placed for (placed,) in pool.map(lambda number: self.read(number, 0, 0), numbers)]
