"""The size of each log of a deployment, and the oldest instant in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from umbel.log.change_files import MONTH
from umbel.log.segments import PREAMBLE_BYTES, segments_in

INGEST, CHANGES, FEATURES = "ingest", "changes", "features"


@dataclass(frozen=True, slots=True)
class LogSize:
    """The size of a log.

    Args:
        kind: `ingest`, `changes` or `features`.
        name: of the log: its folder below that of the kind.
        size: in bytes.
        oldest: the oldest instant in seconds since the epoch, None if unknown: when the first request was received, the month of
            the first change, or the first day of answers.
    """

    kind: str
    name: str
    size: int
    oldest: float | None


def log_sizes(directory: Path) -> Iterator[LogSize]:
    """Yield the sizes of a deployment's logs, without reading them.

    Args:
        directory: umbel's folder; it may be written meanwhile.
    """
    for folder in _folders(directory / INGEST, 2):
        yield LogSize(INGEST, _name(folder), _bytes(folder), _first_received(folder))
    for folder in _folders(directory / CHANGES, 1):
        months = [each.name.partition("=")[2] for each in folder.glob(f"{MONTH}=*") if any(each.iterdir())]
        yield LogSize(CHANGES, folder.name, _bytes(folder), min(map(_instant, months), default=None))
    for folder in _folders(directory / FEATURES, 2):
        days = [each.name for each in folder.iterdir() if each.is_dir()]
        yield LogSize(FEATURES, _name(folder), _bytes(folder), min(map(_instant, days), default=None))


def _folders(root: Path, depth: int) -> list[Path]:
    return sorted(each for each in root.glob("/".join("*" * depth)) if each.is_dir())


def _name(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"


def _instant(day: str) -> float:
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


def _first_received(folder: Path) -> float | None:
    for segment in segments_in(folder):
        try:
            end = segment.path.stat().st_size
            first = next(segment.heads(PREAMBLE_BYTES, end), None) if end > PREAMBLE_BYTES else None
        except FileNotFoundError:  # deleted by retention meanwhile
            continue
        if first is not None:
            return first.received_at / 1e6
    return None


def _bytes(folder: Path) -> int:
    found = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                found += (Path(place) / name).stat().st_size
            except FileNotFoundError:
                continue
    return found
