"""Limits of a deployment, set by environment variables."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from umbel.errors import InvalidType, InvalidValue
from umbel.types.durations import parse_duration

T = TypeVar("T")

_SIZE = re.compile(r"(\d+)\s*(|B|KiB|MiB|GiB|TiB|KB|MB|GB|TB)")
_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_UNITS |= {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
DAY = 86_400_000_000
FARTHEST = 1000 * 365 * DAY
"""The longest distance of an event from processing time, in µs, that instants have room for."""


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise InvalidValue("expected a number of bytes", hint="1073741824, 512MiB, 4GB; 0 turns it off")
    return int(found[1]) * _UNITS[found[2]]


def _seconds(text: str) -> float:
    return 0.0 if text.strip() == "0" else parse_duration(text.strip()) / 1e6


def _number(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text.strip()):
        raise InvalidValue("expected a whole number", hint="100")
    return int(text)


def _ahead(text: str) -> int | None:
    if text.strip() == "forever":
        return None
    ahead = parse_duration(text.strip())
    if ahead > FARTHEST:
        raise InvalidValue("more than 1000 years", hint="1d; forever for no limit")
    return ahead


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a deployment.

    Args:
        backlog_bytes: bytes of accepted and unprocessed events of an endpoint from which on more are refused; 0 for no limit.
        backlog_age: seconds the oldest of them may have waited; 0 for no limit.
        disk_reserve: bytes that must be free on the disk for events to be accepted; 0 for no limit.
        stuck_after: seconds without progress after which a worker that has something to do is stuck.
        dead_letters_per_request: the number of rejected rows of one request that are stored.
        dead_letters_per_batch: the number of rejected rows of one batch that are stored.
        max_ahead: µs that the event time of a live source may be ahead of processing time; None for no limit.
        late_bytes: bytes of late records that are stored for each dataset.
        ingest_bytes: bytes of an endpoint's log from which on events that are read are deleted before their retention; 0 for any.
        feature_log_age: seconds for which days of the feature log are retained; 0 for ever.
        feature_log_bytes: bytes of the feature log from which on its oldest days are deleted; 0 for any.
        change_log_age: seconds for which changes are retained in change logs; 0 for ever.
        change_log_bytes: bytes of a change log from which on its oldest changes are dropped; 0 for any.
    """

    backlog_bytes: int = 1 << 30
    backlog_age: float = 3600.0
    disk_reserve: int = 256 << 20
    stuck_after: float = 600.0
    dead_letters_per_request: int = 100
    dead_letters_per_batch: int = 10_000
    max_ahead: int | None = DAY
    late_bytes: int = 8 << 20
    ingest_bytes: int = 0
    feature_log_age: float = 0.0
    feature_log_bytes: int = 0
    change_log_age: float = 0.0
    change_log_bytes: int = 0

    @classmethod
    def from_environment(cls) -> Limits:
        """Read the limits from environment variables, with defaults.

        Raises:
            InvalidValue: a variable has an invalid value.
        """
        usual = cls()
        return cls(
            _read("UMBEL_BACKLOG_BYTES", _size, usual.backlog_bytes),
            _read("UMBEL_BACKLOG_AGE", _seconds, usual.backlog_age),
            _read("UMBEL_DISK_RESERVE", _size, usual.disk_reserve),
            _read("UMBEL_STUCK_AFTER", _seconds, usual.stuck_after),
            _read("UMBEL_DEAD_LETTERS_PER_REQUEST", _number, usual.dead_letters_per_request),
            _read("UMBEL_DEAD_LETTERS_PER_BATCH", _number, usual.dead_letters_per_batch),
            _read("UMBEL_MAX_AHEAD", _ahead, usual.max_ahead),
            _read("UMBEL_LATE_BYTES", _size, usual.late_bytes),
            _read("UMBEL_INGEST_BYTES", _size, usual.ingest_bytes),
            _read("UMBEL_FEATURE_LOG_AGE", _seconds, usual.feature_log_age),
            _read("UMBEL_FEATURE_LOG_BYTES", _size, usual.feature_log_bytes),
            _read("UMBEL_CHANGE_LOG_AGE", _seconds, usual.change_log_age),
            _read("UMBEL_CHANGE_LOG_BYTES", _size, usual.change_log_bytes),
        )


def _read(name: str, parse: Callable[[str], T], default: T) -> T:
    text = os.environ.get(name, "")
    if not text.strip():
        return default
    try:
        return parse(text)
    except (InvalidValue, InvalidType) as error:
        raise InvalidValue(
            f"the environment variable {name} is {text!r:.80}: {error.message}", hint=error.hint
        ) from None


def disk_trouble(directory: Path, reserve: int) -> tuple[str, str]:
    """Return why a folder takes no events, and the remedy; empty if it does.

    Args:
        directory: the folder.
        reserve: bytes that must be free.
    """
    try:
        disk = os.statvfs(directory)
    except OSError as error:
        return f"the folder of events cannot be used: {error.strerror}", "see that its disk is there"
    if disk.f_flag & os.ST_RDONLY:
        return "the disk is read-only", "see the log of the system, and make it writable"
    free = disk.f_bavail * disk.f_frsize
    if free >= reserve:
        return "", ""
    reason = f"the disk is nearly full: {free:,} bytes are free, {reserve:,} are reserved"
    return reason, "make room on the disk, or set UMBEL_DISK_RESERVE"
