"""Staged rows: rows of a server in files, for splits that can be opened again.

A server cannot give the rows of an earlier read again: its tables change. So rows are written to numbered files of the
deployment, durably, before the source's position advances; splits are these files. A file has a header with a checksum.
"""

from __future__ import annotations

import io
import json
import os
import struct
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from umbel.errors import Damaged
from umbel.log.reading import RESTORE
from umbel.state import disk
from umbel.state.stored_json import parse_stored
from umbel.types.dtype import nulls

MAGIC = b"umbelrow"
_LENGTHS = struct.Struct("<II")
CHECKSUM, LAST = "crc", "last_part"
OWN = "\0"
"""The beginning of the names of umbel's own columns of staged rows, which no column of a table can have."""
FORM = 2
"""The form of parts: those of the first one, which their headers do not tell, have names of `FORMER`."""
FORMER = {f"{OWN}{name}": f"_{name}" for name in ("op", "committed", "start")}
FORMER_IDENTITY = {f"{OWN}identity": "_identity"}
RETAINED_FOR = 600.0
"""Seconds for which a part stays after every batch that reads it has been planned: one of them may run again."""


def folder_of(directory: Path, key: str) -> Path:
    """Return the folder of the staged rows of a source."""
    readable = "".join(each if each.isalnum() else "-" for each in key.partition("#")[0])
    return directory / "staged" / f"{readable}-{blake2b(key.encode(), digest_size=4).hexdigest()}"


@dataclass(frozen=True, slots=True)
class StagedPart:
    """The header of one file of staged rows.

    Args:
        number: counts from 1.
        first: the number of its first row among all rows of the source.
        rows: how many it has.
        size: of the file in bytes.
        facts: what its reader needs besides: plain JSON.
    """

    number: int
    first: int
    rows: int
    size: int
    facts: Mapping[str, Any]


@dataclass
class UnreadParts:
    """Parts that no batch has read, in order.

    Listing thousands of files for each new one would take longer than writing it.

    Args:
        parts: the parts.
        size: their bytes.
    """

    parts: deque[StagedPart] = field(default_factory=deque)
    size: int = 0

    def add(self, part: StagedPart) -> None:
        """Add a new part."""
        self.parts.append(part)
        self.size += part.size

    def forget(self, until: int) -> None:
        """Leave out the parts up to a number."""
        while self.parts and self.parts[0].number <= until:
            self.size -= self.parts.popleft().size


@dataclass(frozen=True)
class Stage:
    """The staged rows of one source, and the state of its reader.

    One process writes, any number read.

    Args:
        folder: the folder.
    """

    folder: Path

    @cached_property
    def _known(self) -> dict[int, StagedPart]:
        return {}

    @cached_property
    def _written(self) -> list[StagedPart]:
        """The last part written by this process, which then is the only one that writes."""
        return []

    @cached_property
    def _unread(self) -> list[UnreadParts]:
        """The parts after the number of the last `size_after`; none before the first one."""
        return []

    def size_after(self, number: int) -> int:
        """Return the bytes of the parts after a number, for the process that writes.

        Args:
            number: of a part; it never decreases.
        """
        if not self._unread:
            self._unread.append(UnreadParts())
            for each in self.numbers():
                if each > number:
                    self._unread[0].add(self.part(each))
        self._unread[0].forget(number)
        return self._unread[0].size

    def numbers(self) -> list[int]:
        """Return the numbers of the parts, sorted."""
        found = self._listed()
        while (gap := _gap(found)) is not None and self._path(gap).exists():  # written while the folder was listed
            found = self._listed()
        return found

    def check(self) -> None:
        """Check that no part is missing between others.

        Raises:
            Damaged: one is. The first ones expire.
        """
        gap = _gap(self.numbers())
        if gap is not None and self._path(gap - 1).exists():
            raise self._damaged(gap, FileNotFoundError())

    def _listed(self) -> list[int]:
        try:
            names = os.listdir(self.folder)  # noqa: PTH208  thousands of paths would take ten times as long
        except FileNotFoundError:
            return []
        return sorted(int(name[:-5]) for name in names if name.endswith(".rows") and name[:-5].isdigit())

    def part(self, number: int) -> StagedPart:
        """Return the header of a part.

        Raises:
            Damaged: it is missing, or differs from what was written.
        """
        if number not in self._known:
            try:
                with self._path(number).open("rb") as file:
                    header = _header(file.read(len(MAGIC) + _LENGTHS.size), file)
                size = self._path(number).stat().st_size
            except (OSError, ValueError, KeyError) as error:
                raise self._damaged(number, error) from None
            self._known[number] = StagedPart(number, header["first"], header["rows"], size, header["facts"])
        return self._known[number]

    def last(self) -> StagedPart | None:
        """Return the last part, None for none."""
        numbers = self.numbers()
        return self.part(numbers[-1]) if numbers else None

    def redact(self, mask: Callable[[pl.DataFrame], pl.Series]) -> int:
        """Overwrite rows of all parts by nulls; return how many.

        Args:
            mask: returns which rows of a part are to go.
        """
        done = 0
        for number in self.numbers():
            rows = self.read(number)
            is_gone = rows.select(pl.all_horizontal(pl.all().is_null()).alias("gone"))["gone"]
            hits = mask(rows) & ~is_gone
            if hits.any():
                part, time = self.part(number), self._path(number).stat().st_mtime_ns
                content = encoded(_without(rows, hits))
                self._write(number, part.first, content, rows.height, part.facts)
                os.utime(self._path(number), ns=(time, time))
                done += int(hits.sum())
        return done

    def append(self, frame: pl.DataFrame, facts: Mapping[str, Any]) -> StagedPart:
        """Write rows as a new part; return once they are on disk."""
        return self.append_encoded(encoded(frame), frame.height, facts)

    def append_encoded(self, content: bytes, rows: int, facts: Mapping[str, Any]) -> StagedPart:
        """Write rows, as `encoded` returned them, as a new part."""
        before = self._written[-1] if self._written else self.last()
        number, first = (before.number + 1, before.first + before.rows) if before else (1, 0)
        self._write(number, first, content, rows, facts)
        self._written[:] = [self.part(number)]
        for unread in self._unread:
            unread.add(self._written[0])
        return self._written[0]

    def _write(self, number: int, first: int, content: bytes, rows: int, facts: Mapping[str, Any]) -> None:
        described = {"form": FORM, "first": first, "rows": rows, "crc": zlib.crc32(content), "facts": dict(facts)}
        header = json.dumps(described).encode()
        lengths = _LENGTHS.pack(len(header), zlib.crc32(header))
        disk.replace(self._path(number), b"".join((MAGIC, lengths, header, content)))
        self._known.pop(number, None)

    def read(self, number: int, columns: list[str] | None = None) -> pl.DataFrame:
        """Return the rows of a part.

        Args:
            number: of the part.
            columns: the columns to read, None for all.

        Raises:
            Damaged: it is missing, or differs from what was written.
        """
        try:
            with self._path(number).open("rb") as file:
                header = _header(file.read(len(MAGIC) + _LENGTHS.size), file)
                content = file.read()
            if zlib.crc32(content) != header["crc"]:
                raise ValueError("its checksum does not match")
            return decoded(content, columns) if header.get("form") == FORM else _former(content, columns)
        except (OSError, ValueError, KeyError, pl.exceptions.PolarsError) as error:
            raise self._damaged(number, error) from None

    def staged_at(self, number: int) -> float:
        """Return the time a part was written, in seconds since the epoch.

        It is the present one for a part that is gone.
        """
        try:
            return self._path(number).stat().st_mtime
        except FileNotFoundError:
            return time.time()

    def expire(self, before: int, now: float | None = None) -> None:
        """Delete the parts before a number that are no longer needed, except the last one."""
        oldest = (time.time() if now is None else now) - RETAINED_FOR
        for number in self.numbers()[:-1]:
            path = self._path(number)
            if number >= before or path.stat().st_mtime > oldest:
                return
            disk.remove(path)
            self._known.pop(number, None)

    def state(self) -> dict[str, Any]:
        """Return the state of the reader, empty before the first `save`.

        Raises:
            Damaged: it differs from what was saved, or is missing though parts were deleted since; or the last part is missing,
                which never expires.
        """
        try:
            found: dict[str, Any] = parse_stored(self._state.read_bytes())
            checksum = found.pop(CHECKSUM, None)  # none in states of older versions
            if checksum not in (None, _checksum(found)):
                raise ValueError("its checksum does not match")
        except FileNotFoundError:
            numbers = self.numbers()
            if numbers and numbers[0] > 1:
                raise self._unreadable("it is missing") from None
            return {}
        except (ValueError, AttributeError, TypeError) as error:
            raise self._unreadable(error) from None
        last, numbers = found.pop(LAST, 0), self.numbers()  # in this order: a reader that runs only adds some
        if last and last > max(numbers, default=0):
            raise self._damaged(last, FileNotFoundError())
        return found

    def _unreadable(self, why: object) -> Damaged:
        return Damaged(f"{self._state.name} of {self.folder.name} is damaged: {why}", hint=RESTORE)

    def save(self, state: Mapping[str, Any]) -> None:
        """Replace the state of the reader, durably."""
        plain = json.loads(json.dumps(dict(state)))  # with the keys that are read
        plain[LAST] = self._written[-1].number if self._written else max(self.numbers(), default=0)
        disk.replace(self._state, json.dumps({**plain, CHECKSUM: _checksum(plain)}).encode())

    @property
    def _state(self) -> Path:
        return self.folder / "state.json"

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:012d}.rows"

    def _damaged(self, number: int, error: Exception) -> Damaged:
        why = "it is missing" if isinstance(error, FileNotFoundError) else str(error)
        return Damaged(f"staged rows: part {number} of {self.folder.name} cannot be read: {why}", hint=RESTORE)


def _gap(numbers: list[int]) -> int | None:
    """Return the first number that is missing between others, None for none."""
    if not numbers or numbers[-1] - numbers[0] + 1 == len(numbers):
        return None
    return next(each + 1 for each, after in pairwise(numbers) if after != each + 1)


def _checksum(state: Mapping[str, Any]) -> int:
    """Return the checksum of a state, whatever the order of its keys."""
    return zlib.crc32(json.dumps(state, sort_keys=True).encode())


def encoded(frame: pl.DataFrame) -> bytes:
    """Return rows as they are written."""
    body = io.BytesIO()
    frame.write_ipc(body, compression="lz4")
    return body.getvalue()


def _without(rows: pl.DataFrame, gone: pl.Series) -> pl.DataFrame:
    """Return rows with nulls in place of some, in buffers without their values.

    A column of texts shares its buffers with that which it was selected from, and they are written whole.
    """
    body = io.BytesIO()
    rows.filter(~gone).write_ipc(body, compat_level=pl.CompatLevel.oldest())  # which copies each text that is left
    left = decoded(body.getvalue())
    if not left.height:
        return rows.clear(rows.height)
    places = (~gone).cum_sum().cast(pl.Int64) - 1
    return left.select(pl.all().gather(places.zip_with(~gone, nulls(rows.height, pl.Int64()))))


def decoded(content: bytes, columns: list[str] | None = None) -> pl.DataFrame:
    """Return rows that were `encoded`.

    Args:
        content: the rows.
        columns: the columns to return, None for all.
    """
    return pl.read_ipc(io.BytesIO(content), columns=columns, use_pyarrow=False)


def _former(content: bytes, columns: list[str] | None) -> pl.DataFrame:
    """Return rows of the first form, with the names of now."""
    rows = decoded(content)
    names = FORMER if {*FORMER.values()} <= {*rows.columns} else FORMER_IDENTITY
    rows = rows.rename({former: name for name, former in names.items()}, strict=False)
    return rows if columns is None else rows.select(columns)


def _header(start: bytes, file: Any) -> dict[str, Any]:
    if len(start) < len(MAGIC) + _LENGTHS.size or not start.startswith(MAGIC):
        raise ValueError("it is no file of staged rows")
    length, checksum = _LENGTHS.unpack(start[len(MAGIC) :])
    data = file.read(length)
    if zlib.crc32(data) != checksum:
        raise ValueError("the checksum of its header does not match")
    found: dict[str, Any] = parse_stored(data)
    return found
