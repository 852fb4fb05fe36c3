"""The files of a source that were planned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from umbel.connectors.packed_names import pack, pack_stamps, unpack, unpack_stamps
from umbel.connectors.splits import Position
from umbel.errors import InvalidValue
from umbel.formats.pieces import START, Anchor, Piece
from umbel.formats.stored import Stamp

FILE_SHIFT = 36
MOST_FILES = 1 << 20
"""Files of one source: more would have numbers of the next source."""


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
class KnownFiles:
    """The files that were planned, as far as they may be listed again.

    Args:
        done: the names of the completely planned files that may be listed again.
        begun: the name of the partly planned file, the next offset in it, and the anchor of that, if it has one.
        stamps: of the files done and begun.
        count: of the completely planned files, a very large one counts as several.
        newest: the name of the newest of them, where names have an order.
    """

    done: set[str]
    begun: Sequence[Any] | None
    stamps: dict[str, Stamp]
    count: int
    newest: str

    @classmethod
    def of(cls, position: Position) -> KnownFiles:
        """Return the files of a position, which may be of an older version."""
        if not position:
            return cls(set(), None, {}, 0, "")
        done = unpack(position["done"])
        count, newest = position.get("count", len(done)), position.get("newest", "")
        return cls(set(done), position["begun"], unpack_stamps(position.get("stamps")), count, newest)

    def reached_in(self, name: str) -> tuple[int, Anchor]:
        """Return the offset up to which a file was planned, and its place."""
        if not self.begun or self.begun[0] != name:
            return 0, START
        return self.begun[1], Anchor(*self.begun[2:])

    @property
    def begun_bytes(self) -> int:
        """About how many bytes of the partly planned file were planned."""
        if self.begun is None:
            return 0
        return int(self.begun[2] if len(self.begun) > 2 else self.begun[1])

    def advance(self, name: str, piece: Piece | None) -> None:
        """Note that a file was planned up to the end of a piece.

        Args:
            name: of the file.
            piece: the last one that was planned; None if the file has none.

        Raises:
            InvalidValue: there are too many files.
        """
        if piece is not None and not piece.is_last:
            anchor = [] if piece.rest == START else [piece.rest.byte, piece.rest.skipped]
            self.begun = [name, piece.end, *anchor]
        else:
            self.begun = None
            self.done.add(name)
            self.count += 1 if piece is None else 1 + (_end_of(piece) - 1 >> FILE_SHIFT)
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


def _end_of(piece: Piece) -> int:
    """Return the end of the numbers of a piece, as far as it is known."""
    return piece.begin + piece.weight if piece.end is None else piece.end
