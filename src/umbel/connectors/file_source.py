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

from umbel.connectors.known_files import FILE_SHIFT, KnownFiles, NameOrder
from umbel.connectors.lag import SourceLag
from umbel.connectors.splits import Found, Landmark, Position, SourceSize, Split, SplitSource
from umbel.errors import Transient
from umbel.formats.declarations import CSV
from umbel.formats.files import format_of
from umbel.formats.pieces import START, Anchor, FilePart, Piece
from umbel.formats.raw_batch import RawBatch, lost
from umbel.formats.stored import FileLostError, LocalFile, Stamp, StoredFile, is_packed, printable
from umbel.types.dtype import DType

log = logging.getLogger("umbel.work")

SPLIT_BYTES = 32 << 20
LEAST_SPLIT = 1 << 10
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

    def fetch_ahead(self, files: Sequence[StoredFile]) -> None:
        """Fetch small files that are read next, several at once; errors wait until then."""

    def spelled(self, stamp: Stamp) -> str:
        """Describe a stamp."""

    def examine(self) -> None:
        """Check at commit that the files can be listed."""


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
    _reached: tuple[Position, KnownFiles] | None = field(default=None, init=False, repr=False, compare=False)
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
            position: `{"done": names, packed, "begun": [name, offset, its anchor] or None, "stamps": of the files of which
                something was planned, packed, "count": of all files done, "newest": of them}`, None for the beginning.
            budget: approximate limit in bytes.
        """
        known, self._reached = self._known_at(position), None
        listed, before, facts = self._files(known), frozenset(known.done), known.facts
        found = list(self._reported(listed, known))
        for name in _new(listed, known.done, known.begun):
            if budget <= 0:
                break
            if self.order and self.order.is_ahead(name):
                log.warning(
                    "%s: its date is in the future: it is read, and files of today are looked for as before", name
                )
            stamp = known.stamps.setdefault(name, listed.get(name, (0, 0)))  # a change during splitting counts, too
            pieces = self._take(name, stamp, *known.reached_in(name), budget)
            split = {"file": name, "number": known.count, "stamp": list(stamp)}
            found += [({**split, **_bounds(piece)}, piece.weight) for piece in pieces]
            budget -= sum(piece.weight for piece in pieces)
            known.advance(name, pieces[-1] if pieces else None)
        self._seen = {name: stamp[0] for name, stamp in listed.items() if name not in before}
        unplanned = {name: stamp for name, stamp in listed.items() if name not in known.done}
        self._listed = unplanned if self.store.is_costly else {}
        known.forget(self.order)
        reached = position if position and not found and known.facts == facts else known.position
        self._reached = reached, known
        return found, reached

    def measure(self, position: Position) -> SourceSize:
        """Return the bytes of the files that are unread, by a listing."""
        known, size, start, is_over = KnownFiles.of(position), 0, "", False
        while not is_over:
            found, start = self.store.listed(start)
            size += sum(stamp[0] for name, stamp in found.items() if name not in known.done)
            is_over = not start
        return SourceSize(bytes=size - min(max(size - 1, 0), known.begun_bytes))

    def lag(self, position: Position) -> SourceLag:
        """Return the bytes of the files that the last `plan` knew, beyond a position."""
        if self._seen is None:
            return SourceLag()
        known = self._known_at(position)
        left = {name: size for name, size in self._seen.items() if name not in known.done}
        if known.begun and known.begun[0] in left:
            left[known.begun[0]] = max(1, left[known.begun[0]] - known.begun_bytes)
        return SourceLag(bytes=sum(left.values()))

    def open_all(self, splits: Sequence[Split], requested: Mapping[str, DType], *, exact: bool) -> Iterator[RawBatch]:
        stored = [self._stored(split) for split in splits]
        if len(stored) > 1:
            self.store.fetch_ahead([each for split, each in zip(splits, stored, strict=True) if "changed" not in split])
        for split, each in zip(splits, stored, strict=True):
            yield from self._rows(split, each, requested, exact=exact)

    def open(self, split: Split, requested: Mapping[str, DType], *, exact: bool) -> Iterator[RawBatch]:
        """Yield the rows of a split.

        Args:
            split: as planned.
            requested: the requested columns and their types.
            exact: True if only these columns are returned.

        Raises:
            Transient: the file exists and cannot be read.
        """
        return self.open_all([split], requested, exact=exact)

    def _stored(self, split: Split) -> StoredFile:
        stamp = split.get("stamp")
        stored = self.store.file(str(split["file"]), tuple(stamp) if stamp else None)
        if isinstance(stored, LocalFile) and not split["begin"] and split["end"] and not is_packed(stored):
            return replace(stored, may_grow=self.format == "json" or isinstance(self.format, CSV))
        return stored

    def _rows(
        self, split: Split, stored: StoredFile, requested: Mapping[str, DType], *, exact: bool
    ) -> Iterator[RawBatch]:
        name = printable(str(split["file"]))
        part = FilePart(stored, name, int(split["begin"]), split["end"], Anchor(*split.get("anchor", ())))
        number = (int(split["number"]) << FILE_SHIFT) + part.begin
        if "changed" in split:
            last = number | ((1 << FILE_SHIFT) - 1)  # the number is that of the next new file
            yield self._changed(name, last, split["changed"])
            return
        try:
            for rows in format_of(self.format).read(part, requested, exact=exact):
                yield RawBatch(rows.raw, number, rows.where, rows.text)
                number += rows.raw.frame.height + rows.lost
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

        That in the file, or, of text, behind the byte from which on it was read with the row.
        """
        if landmark is None or landmark[0] >> FILE_SHIFT != number >> FILE_SHIFT:
            return f"file {number >> FILE_SHIFT}"
        begin, _, name = landmark[1].partition(" ")
        if format_of(self.format).counts_rows:
            return f"{name}: row {int(begin) + number - landmark[0]}"
        return f"{name}: row {number - landmark[0]}" + (f" from byte {begin} on" if begin != "0" else "")

    def _known_at(self, position: Position) -> KnownFiles:
        reached = self._reached
        return reached[1] if reached is not None and reached[0] == position else KnownFiles.of(position)

    def _files(self, known: KnownFiles) -> dict[str, Stamp]:
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

    def _reported(self, listed: Mapping[str, Stamp], known: KnownFiles) -> Iterator[Found]:
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

    def _take(self, name: str, stamp: Stamp, offset: int, anchor: Anchor, budget: int) -> list[Piece]:
        """Return pieces of a file from an offset on, up to a budget.

        Of a compressed file it is one: what comes before a piece has to be decompressed for each.
        """
        taken, size = list[Piece](), max(budget, LEAST_SPLIT)
        for piece in self._pieces(name, stamp, offset, size, anchor):
            taken.append(piece)
            budget -= piece.weight
            if budget <= 0:
                break
        return taken

    def _pieces(self, name: str, stamp: Stamp, offset: int, size: int, anchor: Anchor) -> Iterator[Piece]:
        try:
            stored = self.store.file(name, stamp)
            most = size if is_packed(stored) else min(size, self.split_bytes)
            yield from format_of(self.format).pieces(stored, offset, most, anchor)
        except (OSError, FileLostError):
            yield Piece(offset, None, 1, is_last=True, anchor=anchor)  # opening the split reports the error

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


def _bounds(piece: Piece) -> dict[str, Any]:
    """Return the bounds of a piece as of a split."""
    anchor = {} if piece.anchor == START else {"anchor": [piece.anchor.byte, piece.anchor.skipped]}
    return {"begin": piece.begin, "end": piece.end, **anchor}


def _new(listed: Iterable[str], done: set[str], begun: Sequence[Any] | None) -> list[str]:
    """Return the files not planned completely, starting with the partly planned one."""
    first = [str(begun[0])] if begun else []
    return first + sorted(name for name in listed if name not in done and name not in first)


def _unread(name: str, number: int, reason: str) -> RawBatch:
    return RawBatch(lost(reason), number, lambda _: name, lambda _: b"")
