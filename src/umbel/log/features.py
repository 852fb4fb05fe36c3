"""The feature log: feature rows of answered queries, as training data.

`<folder>/<branch>/<workflow>/<day>/*.ndjson`: an object per line, the instant first, then the queried subject, then the features
by
their names, then a checksum of the line. Days are those of the instants, in UTC. Every writer has files of its own; a line that
was cut by a crash has no end and is not read. A damaged line is skipped and reported. Days may be deleted at any time.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

from umbel.state import disk

SEGMENT_BYTES = 64 << 20
BLOCK = 1 << 20
LONGEST = 255
"""Bytes of the longest folder name that file systems accept."""
ENDING, SEALED = ".ndjson", ".sum.ndjson"
"""Files with checksums have the longer ending; umbel 0.1 wrote none."""
START = b'{"timestamp":"'
_SHOWN = 64
_SUM, _SUM_END = b',"#":"', b'"}\n'
_SUM_BYTES = len(_SUM) + 8 + len(_SUM_END)
_SPELLED = "%Y-%m-%dT%H:%M:%S.%fZ"
_WIDTH = len("2024-01-01T00:00:00.000000Z")

log = logging.getLogger("umbel")


def spelled(at: datetime) -> str:
    """Return an instant as text of fixed width, so that text sorts by time."""
    return at.astimezone(UTC).strftime(_SPELLED).rjust(_WIDTH, "0")


def sealed(line: bytes) -> bytes:
    """Return a line with its checksum in a member named `#`.

    No feature has such a name.
    """
    return b"%b%b%08x%b" % (line[:-2], _SUM, zlib.crc32(line), _SUM_END)


def opened(line: bytes) -> bytes | None:
    """Return a line without its checksum, None if it is damaged."""
    whole = line[: max(len(line) - _SUM_BYTES, 0)] + b"}\n"
    return whole if line == sealed(whole) else None


@dataclass(frozen=True, slots=True)
class DamagedLine:
    """A line of the feature log that cannot be read.

    Args:
        path: of its file.
        offset: of its first byte.
        size: in bytes.
    """

    path: Path
    offset: int
    size: int

    def __str__(self) -> str:
        location = "/".join(self.path.parts[-5:])
        return f"the feature log is damaged: {location}, {self.size} bytes from byte {self.offset} on"


Tell = Callable[[DamagedLine], None]


def _log_damage(damage: DamagedLine) -> None:
    log.error("%s", damage)


class FeatureLog:
    """The feature log in a folder.

    Args:
        folder: the folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = f"{time.time_ns():020d}-{uuid4().hex[:8]}"
        self._segment = 0

    def append(self, branch: str, workflow: str, day: str, lines: Sequence[bytes]) -> None:
        """Write the lines of one day; they are on disk on return.

        Args:
            branch: the branch queried.
            workflow: the workflow of the query.
            day: `YYYY-MM-DD`.
            lines: each ends in a line break.

        Raises:
            OSError: they could not be written, or not all of them.
        """
        folder = self._location(branch, workflow) / day
        path = folder / f"{self._own}-{self._segment:05d}{SEALED}"
        disk.make_folder(folder)
        file, data = disk.open_file(path, disk.CREATE), b"".join(map(sealed, lines))
        before = os.fstat(file).st_size
        size = before + len(data)
        try:
            disk.write(file, data, before)
            disk.sync(file)
        except OSError:
            self._cut(path, before)
            raise
        finally:
            disk.close(file)
        if not before:
            disk.sync_directory(folder)
        if size >= SEGMENT_BYTES:
            self._segment += 1

    def workflows(self, branch: str) -> list[str]:
        """Return the folders of the workflows of a branch, sorted."""
        folder = self._folder / _quoted(branch)
        return sorted(each.name for each in folder.iterdir() if each.is_dir()) if folder.exists() else []

    def read(
        self,
        branch: str,
        workflow: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        damaged: Tell = _log_damage,
    ) -> Iterator[bytes]:
        """Yield whole lines in blocks, day by day.

        Args:
            branch: the branch queried.
            workflow: the workflow of the query; all workflows when None.
            since: the first instant; None for the first there is.
            until: the exclusive end; None for the last there is.
            damaged: called with each line that cannot be read; the line is skipped.
        """
        names = self.workflows(branch) if workflow is None else [_quoted(workflow)]
        for name in names:
            folder = self._folder / _quoted(branch) / name
            for day in sorted(folder.iterdir()) if folder.exists() else ():
                if _is_day(day):
                    yield from _of_day(day, since, until, damaged)

    def expire(self, before: datetime | None, most: int = 0) -> list[str]:
        """Delete days, the oldest first, of all workflows; return their names. Today stays.

        Args:
            before: days that end by then are deleted; None for none.
            most: bytes of the log from which on days are deleted; 0 for any number.
        """
        days: dict[str, list[Path]] = {}
        for folder in self._folder.glob("*/*/*"):
            if _is_day(folder):
                days.setdefault(folder.name, []).append(folder)
        sizes = {day: sum(map(_size, found)) for day, found in days.items()}
        left, today, gone = sum(sizes.values()), spelled(datetime.now(UTC))[:10], list[str]()
        for day in sorted(each for each in days if each < today):
            is_past = before is not None and f"{_next(day)}T00:00:00.000000Z" <= spelled(before)
            if not is_past and not 0 < most < left:
                break
            for folder in days[day]:
                if folder.is_symlink():  # a day that was moved elsewhere stays there
                    folder.unlink()
                else:
                    shutil.rmtree(folder)
            left -= sizes[day]
            gone.append(day)
        return gone

    def _cut(self, path: Path, size: int) -> None:
        """Truncate a partial write; if that fails, too, continue in a new file.

        So no line is ever written after a partial line.
        """
        try:
            if size:
                os.truncate(path, size)
            else:
                path.unlink()
        except OSError:
            self._segment += 1

    def _location(self, branch: str, workflow: str) -> Path:
        return self._folder / _quoted(branch) / _quoted(workflow)


def _quoted(name: str) -> str:
    """Return a name escaped as a folder name, a long one as prefix and hash."""
    quoted = quote(name, safe="").replace(".", "%2E")
    return quoted if len(quoted) <= LONGEST else f"{quoted[:_SHOWN]}={sha256(name.encode()).hexdigest()}"


def _is_day(folder: Path) -> bool:
    """Return True for the folder of a day.

    Others may have put something beside them, such as snapshots.
    """
    try:
        return str(date.fromisoformat(folder.name)) == folder.name and folder.is_dir()
    except ValueError:
        return False


def _size(day: Path) -> int:
    """Return the bytes in a folder.

    Others may delete files meanwhile, or have put links into it.
    """
    found = 0
    for file in day.iterdir():
        with suppress(FileNotFoundError):
            found += file.lstat().st_size
    return found


def _of_day(folder: Path, since: datetime | None, until: datetime | None, damaged: Tell) -> Iterator[bytes]:
    begun = spelled(since) if since else ""
    ended = spelled(until) if until else "\x7f"
    first, last = f"{folder.name}T00:00:00.000000Z", f"{_next(folder.name)}T00:00:00.000000Z"
    if last <= begun or first >= ended:
        return
    is_whole = begun <= first and last <= ended
    low, high = begun.encode(), ended.encode()
    for file in sorted(folder.glob(f"*{ENDING}")):
        for lines in _lines(file, damaged):
            block = b"".join(lines)
            found = block if is_whole else b"".join(_within(block, low, high))
            if found:
                yield found


def _within(block: bytes, low: bytes, high: bytes) -> Iterator[bytes]:
    begin = len(START)
    return (line for line in block.splitlines(keepends=True) if low <= line[begin : begin + _WIDTH] < high)


def _lines(path: Path, damaged: Tell) -> Iterator[list[bytes]]:
    """Yield the undamaged lines of a file, a block at a time."""
    offset = 0
    if path.is_dir():
        damaged(DamagedLine(path, 0, 0))
        return
    for block in _blocks(path):
        if not path.name.endswith(SEALED):
            yield [block]
            continue
        found = []
        for line in block[:-1].split(b"\n"):
            line += b"\n"  # noqa: PLW2901
            whole = opened(line)
            if whole is None:
                # where a line break is lost, the text after it is a line of its own
                behind = max(line.rfind(START), 0)
                whole = opened(line[behind:]) if behind else None
                damaged(DamagedLine(path, offset, len(line) if whole is None else behind))
            found += [] if whole is None else [whole]
            offset += len(line)
        yield found


def _blocks(path: Path) -> Iterator[bytes]:
    """Yield the whole lines of a file in blocks; none if the file was deleted.

    A last line with another byte in place of its line break was not cut by a crash, and is among them.
    """
    begun = list[bytes]()
    with suppress(FileNotFoundError), path.open("rb") as file:
        while piece := file.read(BLOCK):
            end = piece.rfind(b"\n") + 1
            if end:
                yield b"".join((*begun, piece[:end]))
                begun = []
            begun.append(piece[end:])
    locked = b"".join(begun)
    if opened(locked[:-1] + b"\n") is not None:
        yield locked[:-2] + b"\0\n"  # a line of the same length, and damaged


def _next(day: str) -> str:
    try:
        return f"{datetime.fromisoformat(day) + timedelta(days=1):%Y-%m-%d}".rjust(10, "0")
    except OverflowError:
        return "\x7f"
