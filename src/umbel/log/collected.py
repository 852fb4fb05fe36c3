"""The folder of a collector: two logs for each stream, events and dead letters."""

from __future__ import annotations

import re
from pathlib import Path

from umbel.errors import InvalidValue
from umbel.log.segments import directory_of

SYSTEM, LETTERS = "collect", "collect-dead"
"""The names of logs in the folder `ingest`: of accepted events, and of dead letters."""
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")


def check_name(stream: str) -> None:
    """Check the name of a stream.

    Raises:
        InvalidValue: it has other characters than letters, digits, `_` and `-`, or is too long.
    """
    if not NAME.fullmatch(stream):
        raise InvalidValue(
            f"{stream[:100]!r} cannot be the name of a stream",
            hint="a letter, then up to 99 letters, digits, _ and -",
        )


def log_of(directory: Path, stream: str) -> Path:
    """Return the folder of a stream's log."""
    return directory_of(directory, SYSTEM, stream)


def streams_in(directory: Path) -> list[str]:
    """Return the names of the streams that a folder has events of."""
    folder = directory / "ingest" / SYSTEM
    return sorted(each.name for each in folder.iterdir() if NAME.fullmatch(each.name)) if folder.is_dir() else []
