"""Files as a source: the splits of a folder, and the rows of a split.

The cuts of a file depend on the file alone. Rows are numbered by file, in the order in which files were first
planned, and by position within the file: `file << 36 | position`, where the position increases from row to row.

A file counts as complete once it exists and is never read twice: create files by renaming them into the folder. Names that
start with a dot or an underscore, and names in `.tmp` or `.part`, are skipped.

A file that is appended to or rewritten after it was planned, or while it is being read, is a rejected record: it is
not read again, and each change is reported once, with the sizes and instants before and after it.
"""

from __future__ import annotations

import json
import struct
import zlib
from base64 import b85decode, b85encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISREG
from typing import Any, ClassVar

from umbel.connectors.splits import Found, Position, Split, SplitSource
from umbel.definitions.arguments import DataConnector, DataSource
from umbel.errors import Transient
from umbel.formats.declarations import CSV, check_format
from umbel.formats.files import FilePart, Piece, format_of
from umbel.formats.raw_batch import RawBatch, lost
from umbel.types.dtype import DType

FORMATS = ("json", "parquet")


@dataclass(frozen=True, kw_only=True)
class FilesConnector(DataConnector):
    """The files of one folder that match a pattern.

    Args:
        folder: absolute path of the folder.
        pattern: a pattern of files in it, with `*` and `**`; also gzipped ones.
        format: "json" (one object per line), "parquet" or CSV.
    """

    folder: str
    pattern: str
    format: str | CSV

    @property
    def nests(self) -> bool:
        return self.format == "json"

    def reader(self, directory: Path) -> FileSource:
        return FileSource(self)


@dataclass(frozen=True, kw_only=True)
class Files(DataSource):
    """A folder of files; new files are ingested as they appear.

    A file must not change once it exists: a changed one is not read again, and is reported as a rejected record.

    Args:
        folder: its path.
    """

    folder: str

    needs: ClassVar[str] = "which files: .path(...)"

    def path(self, pattern: str, format: Any = "json") -> FilesConnector:
        """Return the connector for the files that match a pattern such as `2013/*.json.gz`.

        Args:
            pattern: relative to the folder, with `*` and `**`.
            format: "json", "parquet" or CSV(...).
        """
        check_format(f"Files '{self.name}', path '{pattern}'", format, FORMATS, CSV)
        return FilesConnector(source=self, folder=str(Path(self.folder).absolute()), pattern=pattern, format=format)


SPLIT_BYTES = 32 << 20
FILE_SHIFT = 36
CHANGED = "changed_files"
"""The name of the count of files that changed after they were read."""
Stamp = tuple[int, int]
"""The size of a file in bytes, and its modification time in µs since the epoch."""
_UNFINISHED = (".tmp", ".part")


@dataclass(frozen=True, slots=True)
class FileSource(SplitSource):
    """The reading side of a `FilesConnector`.

    Args:
        connector: the folder, pattern and format.
        split_bytes: the size of a split in bytes; `_seq` depends on it, so it must not change.
    """

    connector: FilesConnector
    split_bytes: int = SPLIT_BYTES

    def plan(self, position: Position, budget: int) -> tuple[Sequence[Found], Position]:
        """Return the unread splits up to a byte budget, and the position after them.

        Args:
            position: `{"done": names, packed, "begun": [name, offset] or None, "stamps": of the files of which something
                was planned, packed}`, None for the beginning.
            budget: approximate limit in bytes.
        """
        done = unpack(position["done"]) if position else []
        begun = position["begun"] if position else None
        listed, stamps = self._listed(), unpack_stamps(position.get("stamps")) if position else {}
        stamps |= {
            name: listed[name] for name in done if name in listed and name not in stamps
        }  # written by an older version
        found = list[Found]()
        for name in _changes(listed, stamps):
            change = {"was": list(stamps[name]), "now": list(listed[name])}
            found.append(({"file": name, "number": len(done), "begin": 0, "end": 0, "changed": change}, 1))
            stamps[name] = listed[name]
        for name in _new(listed, set(done), begun):
            if budget <= 0:
                break
            offset = begun[1] if begun and begun[0] == name else 0
            stamps.setdefault(name, listed[name])  # as listed: a change during splitting counts, too
            pieces, rest = self._take(name, offset, budget)
            file = {"file": name, "number": len(done)}
            found += [({**file, "begin": piece.begin, "end": piece.end}, piece.weight) for piece in pieces]
            budget -= sum(piece.weight for piece in pieces)
            begun = None if rest is None else [name, rest]
            if rest is None:
                done.append(name)
        return found, {"done": pack(done), "begun": begun, "stamps": pack_stamps(stamps)}

    def open(self, split: Split, requested: Mapping[str, DType], *, exact: bool) -> Iterator[RawBatch]:
        """Yield the rows of a split.

        Args:
            split: as planned.
            requested: the requested columns and their types.
            exact: True if only these columns are returned.

        Raises:
            Transient: the file exists and cannot be read.
        """
        name = str(split["file"])
        part = FilePart(Path(self.connector.folder, name), name, int(split["begin"]), split["end"])
        number = (int(split["number"]) << FILE_SHIFT) + part.begin
        if "changed" in split:
            yield _changed(name, number, split["changed"]["was"], split["changed"]["now"])
            return
        form = format_of(self.connector.format)
        try:
            for rows in form.read(part, requested, exact=exact):
                yield RawBatch(rows.raw, number, rows.where, rows.text)
                number += rows.raw.frame.height
        except FileNotFoundError:
            yield RawBatch(lost("the file was deleted before it was read"), number, lambda _: name, lambda _: b"")
        except OSError as error:
            raise Transient(f"{part.path}: {error.strerror}", hint="check the disk and the permissions") from error

    def _listed(self) -> dict[str, Stamp]:
        """Return the complete files by name, with their stamps."""
        folder = Path(self.connector.folder)
        found = (path for path in folder.glob(self.connector.pattern) if _is_complete(path.relative_to(folder)))
        stamps = {str(path.relative_to(folder)): _stamp(path) for path in found}
        return {name: stamp for name, stamp in sorted(stamps.items()) if stamp is not None}

    def _take(self, name: str, offset: int, budget: int) -> tuple[list[Piece], int | None]:
        """Return splits of a file up to a budget, and the next offset.

        The offset is None if nothing of the file is left.
        """
        taken = list[Piece]()
        for piece in self._pieces(name, offset):
            taken.append(piece)
            budget -= piece.weight
            if budget <= 0 and not piece.is_last:
                return taken, piece.end
        return taken, None

    def _pieces(self, name: str, offset: int) -> Iterator[Piece]:
        try:
            yield from format_of(self.connector.format).pieces(
                Path(self.connector.folder, name), offset, self.split_bytes
            )
        except OSError:
            yield Piece(offset, None, 1, is_last=True)  # opening the split reports the error


def _changes(listed: Mapping[str, Stamp], stamps: Mapping[str, Stamp]) -> list[str]:
    """Return the files that changed since a part of them was planned."""
    return [name for name, stamp in listed.items() if stamps.get(name, stamp) != stamp]


def _new(listed: Iterable[str], done: set[str], begun: Sequence[Any] | None) -> list[str]:
    """Return the files not planned completely, starting with the partly planned one."""
    new = [name for name in listed if name not in done]
    return sorted(new, key=lambda name: begun is None or name != begun[0])


def _stamp(path: Path) -> Stamp | None:
    """Return the stamp that identifies a file's content, None for no file."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return (facts.st_size, facts.st_mtime_ns // 1000) if S_ISREG(facts.st_mode) else None


def _changed(name: str, number: int, was: Sequence[int], now: Sequence[int]) -> RawBatch:
    """Return the rejected record that reports a change."""
    before, after = _spelled(was), _spelled(now)
    how = "appended to" if now[0] > was[0] else "rewritten"
    reason = f"the file was {how}, it seems, after it was read: it had {before}, and has {after}; it is not read again"
    raw = json.dumps({"file": name, "was": before, "now": after}).encode()
    where = f"{name}: {after}"
    return RawBatch(lost(reason), number, lambda _: where, lambda _: raw, counts={CHANGED: 1})


def _spelled(stamp: Sequence[int]) -> str:
    return f"{stamp[0]} bytes, modified at {datetime.fromtimestamp(stamp[1] / 1e6, UTC).isoformat()}"


def pack_stamps(stamps: Mapping[str, Stamp]) -> str:
    """Return stamps as compressed text."""
    names = sorted(stamps)
    numbers = b"".join(struct.pack("<Qq", *stamps[name]) for name in names)
    return b85encode(zlib.compress("\0".join(names).encode(errors="surrogateescape") + b"\0\0" + numbers)).decode()


def unpack_stamps(text: str | None) -> dict[str, Stamp]:
    """Return the stamps written by `pack_stamps`.

    Empty for a position of an older version.
    """
    if text is None:
        return {}
    names, _, numbers = zlib.decompress(b85decode(text)).partition(b"\0\0")
    found = struct.iter_unpack("<Qq", numbers)
    return dict(zip(names.decode(errors="surrogateescape").split("\0"), found, strict=False)) if names else {}


def pack(names: Sequence[str]) -> str:
    """Return names as compressed text, since a position is written with every batch."""
    return b85encode(zlib.compress("\0".join(sorted(names)).encode(errors="surrogateescape"))).decode()


def unpack(text: str) -> list[str]:
    """Return the names written by `pack`."""
    names = zlib.decompress(b85decode(text)).decode(errors="surrogateescape")
    return names.split("\0") if names else []


def _is_complete(path: Path) -> bool:
    return path.suffix not in _UNFINISHED and not any(part.startswith((".", "_")) for part in path.parts)
