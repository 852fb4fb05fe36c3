"""Checksums of a change log's files: in their names or, after compaction, in `_sums.json`."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from umbel.state import disk
from umbel.state.stored_json import parse_stored

SUMS = "_sums.json"
MOST_SEEN = 10_000
_SUM = re.compile(r"-([0-9a-f]{8})\.parquet$")
_SEEN: dict[tuple[str, int, int, int], str] = {}
"""The checksums of files read before, by path, inode, size and modification time."""


class FileSums:
    """The checksums of the files below a folder.

    Args:
        folder: the folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def noted(self) -> dict[str, str] | None:
        """The checksums recorded in `_sums.json`; None if it cannot be read."""
        try:
            sums = parse_stored((self._folder / SUMS).read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError:
            return None
        return sums if isinstance(sums, dict) else None

    def error(self, name: str) -> str | None:
        """Return the problem with a file, None if there is none.

        Files of umbel 0.1 have no checksum.
        """
        report = _SUM.search(name)
        if report is None and self.noted is None:
            return f"{SUMS} cannot be read"
        due = report.group(1) if report else (self.noted or {}).get(name)
        try:
            found = sum_of(self._folder / name)
        except FileNotFoundError:
            return f"{name} is missing"
        return f"{name} is not as it was written" if due is not None and found != due else None

    def note(self, names: Iterable[str]) -> None:
        """Record the checksums of files without one in their names; remove all other records."""
        known = self.noted or {}
        sums = {name: known.get(name) or sum_of(self._folder / name) for name in names if not _SUM.search(name)}
        disk.replace(self._folder / SUMS, json.dumps(sums).encode())


def sum_of(path: Path) -> str:
    """Return a file's checksum, cached while inode, size and modification time are unchanged."""
    stat = path.stat()
    key = (str(path), stat.st_ino, stat.st_size, stat.st_mtime_ns)
    if key not in _SEEN:
        found = 0
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                found = zlib.crc32(piece, found)
        if len(_SEEN) >= MOST_SEEN:
            _SEEN.clear()
        _SEEN[key] = f"{found:08x}"
    return _SEEN[key]
