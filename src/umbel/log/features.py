"""The feature log: rows of features as queries were answered, to learn from later.

`<folder>/<branch>/<workflow>/<day>/*.ndjson`: an object per line, the instant first, then what it was for, then the features by
their names. Days are those of the instants, in UTC. Every writer has files of its own; a line that a crash cut short has no end
and is not read. Days may be deleted at any time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

from umbel.log.segments import sync_directory

SEGMENT_BYTES = 64 << 20
BLOCK = 1 << 20
LONGEST = 255
"""Bytes of the longest name of a folder that file systems take."""
ENDING = ".ndjson"
START = b'{"timestamp":"'
_SHOWN = 64
_SPELLED = "%Y-%m-%dT%H:%M:%S.%fZ"
_WIDTH = len("2024-01-01T00:00:00.000000Z")


def spelled(at: datetime) -> str:
    """Return an instant as lines have it: always of one width, so that text compares as time does."""
    return at.astimezone(UTC).strftime(_SPELLED).rjust(_WIDTH, "0")


class FeatureLog:
    """The feature log in a folder.

    Args:
        folder: where it is.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = f"{time.time_ns():020d}-{uuid4().hex[:8]}"
        self._segment = 0

    def append(self, branch: str, workflow: str, day: str, lines: Sequence[bytes]) -> None:
        """Write lines of one day; they are on disk on return.

        Args:
            branch: that was asked.
            workflow: what it was asked for.
            day: `YYYY-MM-DD`.
            lines: each ends in a line break.

        Raises:
            OSError: they could not be written, or not all of them.
        """
        folder = self._place(branch, workflow) / day
        path = folder / f"{self._own}-{self._segment:05d}{ENDING}"
        folder.mkdir(parents=True, exist_ok=True)
        before = None
        try:
            with path.open("ab") as file:
                before = file.tell()
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
        except OSError:
            if before is not None:
                self._cut(path, before)
            raise
        if not before:
            for each in (folder, *folder.parents[:3]):
                sync_directory(each)
        if size >= SEGMENT_BYTES:
            self._segment += 1

    def workflows(self, branch: str) -> list[str]:
        """Return the folders of the workflows of a branch, sorted."""
        folder = self._folder / _quoted(branch)
        return sorted(each.name for each in folder.iterdir() if each.is_dir()) if folder.exists() else []

    def read(
        self, branch: str, workflow: str | None = None, since: datetime | None = None, until: datetime | None = None
    ) -> Iterator[bytes]:
        """Yield whole lines in blocks, day by day.

        Args:
            branch: that was asked.
            workflow: what it was asked for; everything when None.
            since: the first instant; None for the first there is.
            until: the instant before which it ends; None for the last there is.
        """
        names = self.workflows(branch) if workflow is None else [_quoted(workflow)]
        for name in names:
            folder = self._folder / _quoted(branch) / name
            days = sorted(each for each in folder.iterdir() if each.is_dir()) if folder.exists() else []
            for day in days:
                yield from _of_day(day, since, until)

    def _cut(self, path: Path, size: int) -> None:
        """Take back what could not be written as a whole; if that fails too, go on in another file, behind no line cut short."""
        try:
            if size:
                os.truncate(path, size)
            else:
                path.unlink()
        except OSError:
            self._segment += 1

    def _place(self, branch: str, workflow: str) -> Path:
        return self._folder / _quoted(branch) / _quoted(workflow)


def _quoted(name: str) -> str:
    """Return a name as that of a folder; of a long one its beginning and a hash."""
    quoted = quote(name, safe="").replace(".", "%2E")
    return quoted if len(quoted) <= LONGEST else f"{quoted[:_SHOWN]}={sha256(name.encode()).hexdigest()}"


def _of_day(folder: Path, since: datetime | None, until: datetime | None) -> Iterator[bytes]:
    begun = spelled(since) if since else ""
    ended = spelled(until) if until else "\x7f"
    first, last = f"{folder.name}T00:00:00.000000Z", f"{_next(folder.name)}T00:00:00.000000Z"
    if last <= begun or first >= ended:
        return
    is_whole = begun <= first and last <= ended
    low, high = begun.encode(), ended.encode()
    for file in sorted(folder.glob(f"*{ENDING}")):
        for block in _blocks(file):
            found = block if is_whole else b"".join(_within(block, low, high))
            if found:
                yield found


def _within(block: bytes, low: bytes, high: bytes) -> Iterator[bytes]:
    begin = len(START)
    return (line for line in block.splitlines(keepends=True) if low <= line[begin : begin + _WIDTH] < high)


def _blocks(path: Path) -> Iterator[bytes]:
    """Yield the whole lines of a file in blocks; none of one that was deleted."""
    held = b""
    with suppress(FileNotFoundError), path.open("rb") as file:
        while piece := file.read(BLOCK):
            held += piece
            end = held.rfind(b"\n") + 1
            if end:
                yield held[:end]
            held = held[end:]


def _next(day: str) -> str:
    try:
        return f"{datetime.fromisoformat(day) + timedelta(days=1):%Y-%m-%d}".rjust(10, "0")
    except OverflowError:
        return "\x7f"
