"""The reading side of files, in a folder or a bucket.

The cuts of a file depend on the file alone. Rows are numbered by file, in the order in which files were first
planned, and by position within the file: `file << 36 | position`, where the position increases from row to row.

A file counts as complete once it is listed and is never read twice. One that is appended to, overwritten or deleted after it was
planned, or while it is being read, is a rejected record: it is not read again, and each change is reported once, with the facts
before and after it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from umbel.connectors.lag import SourceLag
from umbel.connectors.packed_names import pack, pack_stamps, unpack, unpack_stamps
from umbel.connectors.splits import Found, Landmark, Position, SourceSize, Split, SplitSource
from umbel.errors import InvalidValue, Transient
from umbel.formats.declarations import CSV
from umbel.formats.files import format_of
from umbel.formats.pieces import FilePart, Piece
from umbel.formats.raw_batch import RawBatch, lost
from umbel.formats.stored import FileLostError, LocalFile, Stamp, StoredFile, is_packed, printable
from umbel.types.dtype import DType

log = logging.getLogger("umbel.work")

SPLIT_BYTES = 32 << 20
LEAST_SPLIT = 1 << 10
FILE_SHIFT = 36
MOST_FILES = 1 << 20
"""Files of one source: more would have numbers of the next source."""
CHANGED = "changed_files"
"""The name of the count of files that changed after they were read."""


class FileListing(Protocol):
    """The files of one folder or bucket that match a pattern; can be pickled."""

    is_costly: ClassVar[bool]
    """True if listing again must wait until all that is listed is planned."""

    @property
    def failure_domain(self) -> object:
        """The system they are in, as of `SplitSource`; None for a folder."""

    @property
    def trouble(self) -> str:
        """The reason why none can be listed; empty if they can."""

    def listed(self, start: str) -> tuple[dict[str, Stamp], str]:
        """Return the complete files behind a name, and the name to go on from.

        The latter is empty if these are all. The start of all names is the empty one.

        Raises:
            Transient: the storage does not answer.
        """

    def file(self, name: str, stamp: Stamp | None) -> StoredFile:
        """Return a file of which reading fails if its stamp is another by then.

        A storage that cannot tell reads what there is.
        """

    def spelled(self, stamp: Stamp) -> str:
        """Describe a stamp."""

    def examine(self) -> None:
        """Check at commit that the files can be listed."""


class NameOrder(Protocol):
    """The relation between the names of files and the order in which they appear."""

    sorts_rows: ClassVar[bool]
    """True if the rows of files sort by time as their names do."""

    def newest(self, names: Iterable[str], before: str) -> str:
        """Return the name of the newest file, given that of earlier ones; empty for none.

        A file from the future is none, or those of today would not be looked for any more.
        """

    def floor(self, newest: str) -> str:
        """Return the name up to which no new files appear, given the newest one."""

    def is_ahead(self, name: str) -> bool:
        """Return True for the name of a file from the future."""


@dataclass
class FileSource(SplitSource):
    """The reading side of files.

    Args:
        store: the files.
        format: "json", "parquet", "avro" or CSV.
        split_bytes: the size of a split in bytes, of which a small batch reads less.
        order: what their names say of their order; None for nothing.
    """

    store: FileListing
    format: str | CSV
    split_bytes: int = SPLIT_BYTES
    order: NameOrder | None = None
    _listed: dict[str, Stamp] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Listed files of which some are not planned yet."""
    _resume: str = field(default="", init=False, repr=False, compare=False)
    """Where the next listing begins, empty for the start."""
    _seen: dict[str, int] | None = field(default=None, init=False, repr=False, compare=False)
    """The sizes of the listed files that were not read before the last plan, None before the first one."""
    _is_listed: bool = field(default=False, init=False, repr=False, compare=False)
    """True once a listing has come to its end."""
    _reached: tuple[Position, _Known] | None = field(default=None, init=False, repr=False, compare=False)
    """The position of the last plan with its files: reading these from it takes longer than the listing of many."""

    opens_at_once: ClassVar[bool] = True

    @property
    def failure_domain(self) -> object:
        return self.store.failure_domain

    @property
    def loads_unordered(self) -> bool:
        return self.order is None or not self.order.sorts_rows

    @property
    def is_listing(self) -> bool:
        return bool(self._resume)

    @property
    def is_loading(self) -> bool:
        return self.is_listing and not self._is_listed

    @property
    def trouble(self) -> str:
        return self.store.trouble or self._hidden_files(self._reached[1].newest if self._reached else "")

    def examine(self) -> None:
        self.store.examine()

    def plan(self, position: Position, budget: int) -> tuple[Sequence[Found], Position]:
        """Return the unread splits up to a byte budget, and the position after them.

        Args:
            position: `{"done": names, packed, "begun": [name, offset] or None, "stamps": of the files of which something
                was planned, packed, "count": of all files done, "newest": of them}`, None for the beginning.
            budget: approximate limit in bytes.
        """
        known, self._reached = self._known_at(position), None
        listed, before, facts = self._files(known), frozenset(known.done), known.facts
        found = list(self._reported(listed, known))
        for name in _new(listed, known.done, known.begun):
            if budget <= 0:
                break
            begun = known.begun
            offset = begun[1] if begun and begun[0] == name else 0
            if self.order and self.order.is_ahead(name):
                log.warning(
                    "%s: its date is in the future: it is read, and files of today are looked for as before", name
                )
            stamp = known.stamps.setdefault(name, listed.get(name, (0, 0)))  # a change during splitting counts, too
            pieces, rest = self._take(name, stamp, offset, budget)
            split = {"file": name, "number": known.count, "stamp": list(stamp)}
            found += [({**split, "begin": piece.begin, "end": piece.end}, piece.weight) for piece in pieces]
            budget -= sum(piece.weight for piece in pieces)
            known.advance(name, rest)
        self._seen = {name: stamp[0] for name, stamp in listed.items() if name not in before}
        unplanned = {name: stamp for name, stamp in listed.items() if name not in known.done}
        self._listed = unplanned if self.store.is_costly else {}
        known.forget(self.order)
        reached = position if position and not found and known.facts == facts else known.position
        self._reached = reached, known
        return found, reached

    def measure(self, position: Position) -> SourceSize:
        """Return the bytes of the files that are unread, by a listing."""
        known, size, start, is_over = _Known.of(position), 0, "", False
        while not is_over:
            found, start = self.store.listed(start)
            size += sum(stamp[0] for name, stamp in found.items() if name not in known.done)
            is_over = not start
        if known.begun is not None and size:
            size -= min(size, int(known.begun[1]))
        return SourceSize(bytes=size)

    def lag(self, position: Position) -> SourceLag:
        """Return the bytes of the files that the last `plan` knew, beyond a position."""
        if self._seen is None:
            return SourceLag()
        known = self._known_at(position)
        left = {name: size for name, size in self._seen.items() if name not in known.done}
        if known.begun and known.begun[0] in left:
            left[known.begun[0]] = max(0, left[known.begun[0]] - int(known.begun[1]))
        return SourceLag(bytes=sum(left.values()))

    def open(self, split: Split, requested: Mapping[str, DType], *, exact: bool) -> Iterator[RawBatch]:
        """Yield the rows of a split.

        Args:
            split: as planned.
            requested: the requested columns and their types.
            exact: True if only these columns are returned.

        Raises:
            Transient: the file exists and cannot be read.
        """
        name, stamp = printable(str(split["file"])), split.get("stamp")
        stored = self.store.file(str(split["file"]), tuple(stamp) if stamp else None)
        if isinstance(stored, LocalFile) and not split["begin"] and split["end"] and not is_packed(stored):
            stored = replace(stored, may_grow=self.format == "json" or isinstance(self.format, CSV))
        part = FilePart(stored, name, int(split["begin"]), split["end"])
        number = (int(split["number"]) << FILE_SHIFT) + part.begin
        if "changed" in split:
            last = number | ((1 << FILE_SHIFT) - 1)  # the number is that of the next new file
            yield self._changed(name, last, split["changed"])
            return
        try:
            for rows in format_of(self.format).read(part, requested, exact=exact):
                yield RawBatch(rows.raw, number, rows.where, rows.text)
                number += rows.raw.frame.height
        except FileNotFoundError:
            yield _unread(name, number, "the file was deleted before it was read")
        except FileLostError as error:
            yield _unread(name, number, str(error))
        except OSError as error:
            raise Transient(f"{name}: {error.strerror}", hint="check the disk and the permissions") from error

    def landmark_of(self, split: Split) -> Landmark | None:
        """Return the file, and where in it the split begins."""
        if "changed" in split:
            return None
        first = (int(split["number"]) << FILE_SHIFT) + int(split["begin"])
        return first, f"{split['begin']} {printable(str(split['file']))}"

    def location_of(self, number: int, landmark: Landmark | None) -> str:
        """Return the file of a row, and the number of the row.

        That in the file, or in the part of it that was read with the row.
        """
        if landmark is None or landmark[0] >> FILE_SHIFT != number >> FILE_SHIFT:
            return f"file {number >> FILE_SHIFT}"
        begin, _, name = landmark[1].partition(" ")
        return f"{name}: row {number - landmark[0]}" + (f" of the part from {begin}" if begin != "0" else "")

    def _known_at(self, position: Position) -> _Known:
        reached = self._reached
        return reached[1] if reached is not None and reached[0] == position else _Known.of(position)

    def _files(self, known: _Known) -> dict[str, Stamp]:
        """Return listed files: those that wait since the last listing, or of a new one."""
        floor = self.order.floor(known.newest) if self.order and known.newest else ""
        waiting = {name: stamp for name, stamp in self._listed.items() if name not in known.done and name > floor}
        if not waiting:
            waiting, self._resume = self.store.listed(self._resume or floor)
            self._is_listed |= not self._resume
        return waiting

    def _hidden_files(self, newest: str) -> str:
        """Return the trouble with a newest file from the future, which older versions accepted."""
        if not self.order or not newest or not self.order.is_ahead(newest):
            return ""
        return (
            f"the date of '{printable(newest)}' is in the future, and an older version read it, or the clock was set back: "
            f"files before '{self.order.floor(newest)}' are not looked for until then"
        )

    def _reported(self, listed: Mapping[str, Stamp], known: _Known) -> Iterator[Found]:
        """Yield a split for each file that changed since a part of it was planned.

        The rest of one that is planned in part is left out: it is of another version.
        """
        for name, stamp in listed.items():
            was = known.stamps.get(name)
            if was is None and name in known.done:
                known.stamps[name] = stamp  # written by an older version
            elif was is not None and was != stamp:
                is_begun = known.begun is not None and known.begun[0] == name
                change = {"was": list(was), "now": list(stamp), "partly": is_begun}
                yield {"file": name, "number": known.count, "begin": 0, "end": 0, "changed": change}, 1
                known.stamps[name] = stamp
                if is_begun:
                    known.advance(name, None)

    def _take(self, name: str, stamp: Stamp, offset: int, budget: int) -> tuple[list[Piece], int | None]:
        """Return splits of a file up to a budget, and the next offset.

        The offset is None if nothing of the file is left.
        """
        taken = list[Piece]()
        for piece in self._pieces(name, stamp, offset, min(self.split_bytes, max(budget, LEAST_SPLIT))):
            taken.append(piece)
            budget -= piece.weight
            if budget <= 0 and not piece.is_last:
                return taken, piece.end
        return taken, None

    def _pieces(self, name: str, stamp: Stamp, offset: int, size: int) -> Iterator[Piece]:
        try:
            yield from format_of(self.format).pieces(self.store.file(name, stamp), offset, size)
        except (OSError, FileLostError):
            yield Piece(offset, None, 1, is_last=True)  # opening the split reports the error

    def _changed(self, name: str, number: int, change: Mapping[str, Any]) -> RawBatch:
        """Return the rejected record that reports a change."""
        was, now = change["was"], change["now"]
        before, after = (self.store.spelled((each[0], each[1])) for each in (was, now))
        how, rest = ("appended to" if now[0] > was[0] else "rewritten"), "it is not read again"
        what = f"the file was {how}, it seems, after it was read"
        if change.get("partly"):
            what, rest = "the file was changed while it was read", "the rest of it is not read"
        reason = f"{what}: it had {before}, and has {after}; {rest}"
        raw = json.dumps({"file": name, "was": before, "now": after}).encode()
        where = f"{name}: {after}"
        return RawBatch(lost(reason), number, lambda _: where, lambda _: raw, counts={CHANGED: 1})


@dataclass
class _Known:
    """The files that were planned, as far as they may be listed again.

    Args:
        done: the names of the completely planned files that may be listed again.
        begun: the name of the partly planned file and the next offset in it.
        stamps: of the files done and begun.
        count: of the completely planned files.
        newest: the name of the newest of them, where names have an order.
    """

    done: set[str]
    begun: Sequence[Any] | None
    stamps: dict[str, Stamp]
    count: int
    newest: str

    @classmethod
    def of(cls, position: Position) -> _Known:
        if not position:
            return cls(set(), None, {}, 0, "")
        done = unpack(position["done"])
        count, newest = position.get("count", len(done)), position.get("newest", "")
        return cls(set(done), position["begun"], unpack_stamps(position.get("stamps")), count, newest)

    def advance(self, name: str, rest: int | None) -> None:
        """Note that a file was planned up to an offset, None for all of it.

        Raises:
            InvalidValue: there are too many files.
        """
        self.begun = None if rest is None else [name, rest]
        if rest is None:
            self.done.add(name)
            self.count += 1
        if self.count >= MOST_FILES:
            raise InvalidValue(
                f"a source reads {MOST_FILES - 1} files at most, and there are more",
                hint="give each year or month a source of its own, or write fewer and larger files",
            )

    def forget(self, order: NameOrder | None) -> None:
        """Forget the files that will not be listed again."""
        if order is None or not self.done:
            return
        self.newest = order.newest(self.done, self.newest)
        floor = order.floor(self.newest) if self.newest else ""
        self.done = {name for name in self.done if name > floor}
        begun = self.begun[0] if self.begun else None
        self.stamps = {name: each for name, each in self.stamps.items() if name > floor or name == begun}

    @property
    def facts(self) -> tuple[Any, ...]:
        """The values of which some differ after a change of these files without a split."""
        return self.count, self.begun, self.newest, len(self.done), len(self.stamps)

    @property
    def position(self) -> Position:
        return {
            "done": pack(sorted(self.done)),
            "begun": self.begun,
            "stamps": pack_stamps(self.stamps),
            "count": self.count,
            "newest": self.newest,
        }


def _new(listed: Iterable[str], done: set[str], begun: Sequence[Any] | None) -> list[str]:
    """Return the files not planned completely, starting with the partly planned one."""
    first = [str(begun[0])] if begun else []
    return first + sorted(name for name in listed if name not in done and name not in first)


def _unread(name: str, number: int, reason: str) -> RawBatch:
    return RawBatch(lost(reason), number, lambda _: name, lambda _: b"")
