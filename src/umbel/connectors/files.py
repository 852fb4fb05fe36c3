"""Files as a source: which splits a folder has, and what is in a split.

Where a file is cut depends on the file alone. Rows are numbered by file, in the order in which files were first
planned, and by place within the file: `file << 36 | place`, where place grows from row to row.

A file counts as complete once it is there and is never read twice: put files in place by renaming them. Names that
start with a dot or an underscore, and names in `.tmp` or `.part`, are passed over.
"""

from __future__ import annotations

import zlib
from base64 import b85decode, b85encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from umbel.connectors.fileformats import Part, Piece, format_of
from umbel.connectors.localfiles import FilesConnector
from umbel.connectors.rawbatch import RawBatch, lost
from umbel.connectors.splits import Found, Position, Split
from umbel.errors import Transient
from umbel.types.dtype import DType

SPLIT_BYTES = 32 << 20
FILE_SHIFT = 36
_UNFINISHED = (".tmp", ".part")


@dataclass(frozen=True, slots=True)
class FileSource:
    """The reading side of a `FilesConnector`.

    Args:
        connector: which files.
        split_bytes: the size at which files are cut; `_seq` depends on it, so it stays what it was.
    """

    connector: FilesConnector
    split_bytes: int = SPLIT_BYTES

    def plan(self, position: Position, budget: int) -> tuple[Sequence[Found], Position]:
        """Return the splits not read yet, up to a budget in bytes, and the position after them.

        Args:
            position: `{"done": names, packed, "begun": [name, offset] or None}`, None for the beginning.
            budget: stop at about so many bytes.
        """
        done = unpack(position["done"]) if position else []
        begun = position["begun"] if position else None
        found = list[Found]()
        for name in self._new(set(done), begun):
            if budget <= 0:
                break
            offset = begun[1] if begun and begun[0] == name else 0
            pieces, rest = self._take(name, offset, budget)
            file = {"file": name, "number": len(done)}
            found += [({**file, "begin": piece.begin, "end": piece.end}, piece.weight) for piece in pieces]
            budget -= sum(piece.weight for piece in pieces)
            begun = None if rest is None else [name, rest]
            if rest is None:
                done.append(name)
        return found, {"done": pack(done), "begun": begun}

    def open(self, split: Split, wanted: Mapping[str, DType], *, exact: bool) -> Iterator[RawBatch]:
        """Yield the rows of a split.

        Args:
            split: as planned.
            wanted: columns that are asked for, and their types.
            exact: whether no other columns are.

        Raises:
            Transient: the file is there and cannot be read.
        """
        name = str(split["file"])
        part = Part(Path(self.connector.folder, name), name, int(split["begin"]), split["end"])
        number = (int(split["number"]) << FILE_SHIFT) + part.begin
        form = format_of(self.connector.format)
        try:
            for rows in form.read(part, wanted, exact=exact):
                yield RawBatch(rows.raw, number, rows.where, rows.text)
                number += rows.raw.frame.height
        except FileNotFoundError:
            yield RawBatch(lost("the file was deleted before it was read"), number, lambda _: name, lambda _: b"")
        except OSError as error:
            raise Transient(f"{part.path}: {error.strerror}", hint="check the disk and the permissions") from error

    def _new(self, done: set[str], begun: Sequence[Any] | None) -> list[str]:
        folder = Path(self.connector.folder)
        found = (path for path in folder.glob(self.connector.pattern) if _is_complete(path.relative_to(folder)))
        names = sorted(str(path.relative_to(folder)) for path in found if path.is_file())
        new = [name for name in names if name not in done]
        return sorted(new, key=lambda name: begun is None or name != begun[0])

    def _take(self, name: str, offset: int, budget: int) -> tuple[list[Piece], int | None]:
        """Return pieces of a file up to a budget, and where what is left of it begins."""
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
            yield Piece(offset, None, 1, is_last=True)  # whoever opens it says what is wrong


def pack(names: Sequence[str]) -> str:
    """Return names as short text: a position is written with every batch."""
    return b85encode(zlib.compress("\0".join(sorted(names)).encode(errors="surrogateescape"))).decode()


def unpack(text: str) -> list[str]:
    """Return the names that `pack` wrote."""
    names = zlib.decompress(b85decode(text)).decode(errors="surrogateescape")
    return names.split("\0") if names else []


def _is_complete(path: Path) -> bool:
    return path.suffix not in _UNFINISHED and not any(part.startswith((".", "_")) for part in path.parts)
