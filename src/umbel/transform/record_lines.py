"""Lines of records in one piece of bytes, cut apart only where needed."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import cached_property

from umbel.formats.chunks import MAX_ROW
from umbel.transform.parts import split

PIECE_BYTES = 1 << 19
"""Bytes that are decoded at once: the objects made of them stay in the caches of the processor."""
MOST_DIGITS = sys.get_int_max_str_digits() or MAX_ROW
"""Digits of an integer that Python reads."""
_OPENING, _CLOSING = b"{}"
_IN_ROW = 8
_STRIDE = max(1, MOST_DIGITS // _IN_ROW)
"""Distance of the bytes looked at to find a longer number: at least `_IN_ROW` of them, one after the other, are its digits."""
_DIGITS = re.compile(rb"[0-9]{%d}" % _IN_ROW)


class RecordLines:
    """The lines of a batch.

    Args:
        data: the lines, each ended by a newline, except perhaps the last.
        is_whole: True if it is not decoded in pieces.
    """

    def __init__(self, data: bytes | bytearray | memoryview, *, is_whole: bool = False) -> None:
        self.data = data
        self._is_whole = is_whole or len(data) <= PIECE_BYTES

    @classmethod
    def of(cls, lines: Sequence[bytes]) -> RecordLines:
        """Return lines that have been cut apart."""
        found = cls(b"\n".join(lines), is_whole=True)
        found.cut = list(lines)
        return found

    @cached_property
    def cut(self) -> list[bytes]:
        """The lines, one by one."""
        return split(bytes(self.data))

    @property
    def pieces(self) -> Sequence[RecordLines]:
        """The same lines in pieces of about `PIECE_BYTES`, uncopied."""
        return (self,) if self._is_whole else self._pieces

    @cached_property
    def _pieces(self) -> Sequence[RecordLines]:
        data = self.data if isinstance(self.data, bytes | bytearray) else bytes(self.data)
        begin, found = 0, list[RecordLines]()
        view = memoryview(data)
        while begin < len(data):
            end = data.rfind(b"\n", begin, begin + PIECE_BYTES) + 1 or data.find(b"\n", begin + PIECE_BYTES) + 1
            end = end or len(data)
            found.append(RecordLines(view[begin:end], is_whole=True))
            begin = end
        return found

    @cached_property
    def objects(self) -> int:
        """The number of lines if each is in braces, else 0.

        No JSON has a newline between `}` and `{`: if there are as many objects as lines, each line is one.
        """
        if not self._is_whole:
            return sum(map(len, self.pieces)) if all(each.objects for each in self.pieces) else 0
        data = self._bytes
        if not data.startswith(b"{") or not data.endswith((b"}", b"}\n")):
            return 0
        find, count, last = data.find, 1, len(data) - 1
        end = find(b"\n")
        while -1 < end < last:  # faster than `bytes.count` of three characters
            if data[end - 1] != _CLOSING or data[end + 1] != _OPENING:
                return 0
            count += 1
            end = find(b"\n", end + 1)
        return count

    @property
    def _bytes(self) -> bytes | bytearray:
        """The lines as bytes; a piece is copied."""
        return bytes(self.data) if isinstance(self.data, memoryview) else self.data

    @property
    def is_utf8(self) -> bool:
        """True if it is UTF-8."""
        data = self._bytes
        if not data.isascii():
            try:
                data.decode()
            except UnicodeDecodeError:
                return False
        return True

    @property
    def may_have_long_numbers(self) -> bool:
        """False if no line has a number of more digits than Python reads."""
        return _DIGITS.search(self._bytes[::_STRIDE]) is not None

    @property
    def has_blank_lines(self) -> bool:
        """True if a line is empty or white space."""
        return any(not each.objects and not all(map(bytes.strip, each.cut)) for each in self.pieces)

    def line(self, row: int) -> bytes:
        """Return a line by its number."""
        for piece in self.pieces:
            if row < len(piece):
                return piece.cut[row]
            row -= len(piece)
        raise IndexError(row)

    def __len__(self) -> int:
        if not self._is_whole:
            return sum(map(len, self.pieces))
        return self.objects or len(self.cut)
