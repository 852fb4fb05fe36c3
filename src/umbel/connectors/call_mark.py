"""Marks of calls into the code of connectors, readable after the process has died.

Code that ends its process, by a crash of a native library for example, ends it as soon as it is started again, and nothing else
gets on. So after two such ends it rests, ever longer, and the others go on meanwhile.
"""

from __future__ import annotations

import atexit
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from umbel.errors import Transient
from umbel.state import disk
from umbel.state.stored_json import parse_stored

FREE = 1
"""How often a process may end during calls before these rest: anything may have ended it."""
REST, LONGEST_REST = 60.0, 900.0
"""Seconds of the first rest, and the longest after doubling, from the last call on.

A worker that is started again may need half of the first one.
"""
LONGEST_SUBJECT, WIDTH = 80, 512
"""Characters of a subject that are stored, and the bytes of a mark: each character may take six."""


@dataclass
class CallMark:
    """The mark of calls, in a file.

    It is there while one runs, or has ended its process.

    Args:
        path: of the file.
        verb: says in messages what the calls do.
    """

    path: Path
    verb: str = "read"
    _file: int = field(default=-1, init=False)
    _before: tuple[int, str] = field(default=(0, ""), init=False)

    def check(self, title: str) -> None:
        """Check that a call may begin.

        Args:
            title: of the connector, for the message.

        Raises:
            Transient: calls rest.
        """
        (ended, subject), called_at = self._read()
        rest = min(LONGEST_REST, REST * 2.0 ** min(ended - FREE - 1, 10))
        ends_at = called_at + rest
        if ended > FREE and 0 < ends_at - time.time() <= rest:  # one that ends later has ended: the clock was set back
            raise Transient(
                f"{title}: the process has ended {ended} times in a row while {subject or 'it'} was {self.verb}; "
                f"it is {self.verb} again at {datetime.fromtimestamp(ends_at, UTC):%H:%M:%S} UTC, and others go on",
                hint="see whether its code, or a library it uses, ends the process: the log of the worker may say more",
            )

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Mark the calls in a block."""
        disk.make_folder(self.path.parent)
        self._before = self._read()[0]
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.note("")
        atexit.register(self._clear)  # no call is the reason for an end in order
        try:
            yield
        finally:
            atexit.unregister(self._clear)
            self._clear()

    def note(self, subject: str) -> None:
        """Note what is called now, inside the block."""
        shown = subject[:LONGEST_SUBJECT]
        ended, before = self._before
        text = json.dumps([1 + ended if shown == before else 1, shown])
        os.pwrite(self._file, text.encode().ljust(WIDTH), 0)

    def succeed(self, subject: str) -> None:
        """Note that a call has returned what will not be read again.

        Its earlier ends count no more.
        """
        if subject[:LONGEST_SUBJECT] == self._before[1]:
            self._before = (0, "")

    def _read(self) -> tuple[tuple[int, str], float]:
        """Return the number of ends in a row, their subject, and its time."""
        try:
            ended, subject = parse_stored(self.path.read_bytes())
            return (int(ended), str(subject)), self.path.stat().st_mtime
        except (OSError, ValueError, TypeError):
            return (0, ""), 0.0

    def _clear(self) -> None:
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
            os.close(self._file)
