"""Lines of records in one piece of bytes, cut apart only where needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from umbel.transform.parts import split

_NEWLINE, _OPENING, _CLOSING = b"\n{}"


class RecordLines:
    """The lines of a batch.

    Args:
        data: the lines, each ended by a newline, except perhaps the last.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data

    @classmethod
    def of(cls, lines: Sequence[bytes]) -> RecordLines:
        """Return lines that have been cut apart."""
        found = cls(b"\n".join(lines))
        found.cut = list(lines)
        return found

    @cached_property
    def cut(self) -> list[bytes]:
        """The lines, one by one."""
        return split(self.data)

    @cached_property
    def objects(self) -> int:
        """The number of lines if each is in braces, else 0.

        No JSON has a newline between `}` and `{`: if there are as many objects as lines, each line is one.
        """
        signs = np.frombuffer(self.data, np.uint8)
        if not signs.size or signs[0] != _OPENING or signs[-1] not in {_CLOSING, _NEWLINE}:
            return 0
        ends = np.flatnonzero(signs == _NEWLINE)
        inner = ends[:-1] if signs[-1] == _NEWLINE else ends
        is_each = (signs[inner + 1] == _OPENING).all() and (signs[ends - 1] == _CLOSING).all()
        return len(inner) + 1 if is_each else 0

    def __len__(self) -> int:
        return self.objects or len(self.cut)
