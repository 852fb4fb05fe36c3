"""Positions of the readers of a stream, in files beside its log.

They hold back the deletion of events, and tell how many wait.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from umbel.errors import InvalidValue
from umbel.log.segments import ORIGIN, LogPosition
from umbel.state import disk
from umbel.state.stored_json import parse_stored

FOLDER = "readers"


@dataclass(frozen=True, slots=True)
class ReaderPosition:
    """The position of a reader in a log.

    Args:
        title: the description of the reader.
        position: what is before it was read.
        seen_at: seconds since the epoch.
    """

    title: str
    position: LogPosition
    seen_at: float


def note_position(log: Path, reader: str, title: str, position: LogPosition) -> None:
    """Store the position of a reader of a log.

    Args:
        log: the folder of the log.
        reader: the id of the reader, a file name.
        title: its description.
        position: what is before it may be deleted.
    """
    disk.make_folder(log / FOLDER)
    found = {"title": title, "position": position.to_json(), "seen_at": time.time()}
    disk.replace(log / FOLDER / f"{reader}.json", json.dumps(found).encode())


def positions(log: Path) -> dict[str, ReaderPosition]:
    """Return the positions of the readers of a log, by their ids.

    One that cannot be read is the beginning: nothing is deleted that its reader may not have read.
    """
    found = {}
    for path in sorted((log / FOLDER).glob("*.json")):
        try:
            found[path.stem] = _read(path.read_bytes())
        except FileNotFoundError:
            continue  # it is being forgotten
        except (OSError, ValueError, KeyError, TypeError):
            found[path.stem] = ReaderPosition(f"a reader whose position is damaged: {path.name}", ORIGIN, 0.0)
    return found


def _read(text: bytes) -> ReaderPosition:
    data: Mapping[str, dict[str, int]] = parse_stored(text)
    return ReaderPosition(str(data["title"]), LogPosition.from_json(data["position"]), float(str(data["seen_at"])))


def forget(log: Path, reader: str) -> None:
    """Delete the position of a reader that will not come back.

    Raises:
        InvalidValue: there is no such reader.
    """
    known = positions(log)
    if reader not in known:
        raise InvalidValue(f"there is no reader {reader!r}", hint=f"readers: {', '.join(known) or 'none'}")
    disk.remove(log / FOLDER / f"{reader}.json")
