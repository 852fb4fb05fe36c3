"""Time zone names in text, from RFC 2822 and the time zone database."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo

import tzdata

_HOUR = 3600
NAMED = {
    **dict.fromkeys(("UT", "UTC", "GMT", "Z"), 0),
    "EST": -5,
    "EDT": -4,
    "CST": -6,
    "CDT": -5,
    "MST": -7,
    "MDT": -6,
    "PST": -8,
    "PDT": -7,
}
"""Hours from UTC of the zones named in RFC 2822, section 4.3, and of UTC."""
# A single letter (J is none) is equivalent to -0000: the standard before RFC 2822 had their signs wrong.
_STANDARD = {**NAMED, **dict.fromkeys("ABCDEFGHIKLMNOPQRSTUVWXYZ", 0)}
# Abbreviations in use today with several offsets, and the zone chosen here (as for GNU date and Java).
_DECIDED = {"IST": "Asia/Kolkata"}
_SAMPLES = tuple(datetime(2024, month, 1) for month in (1, 7))  # noqa: DTZ001  local times, in each zone
"""A winter and a summer instant: only abbreviations in use then count. Fixed, so that results do not depend on the clock."""


def offset_of(name: str) -> int | None:
    """Return a named zone's UTC offset in seconds, None if unknown or ambiguous.

    >>> offset_of("JST"), offset_of("PDT"), offset_of("XYZ")
    (32400, -25200, None)
    """
    upper = name.upper()
    hours = _STANDARD.get(upper)
    return _database().get(upper) if hours is None else hours * _HOUR


@cache
def _database() -> dict[str, int]:
    """Return the unambiguous abbreviations of the time zone database."""
    found: dict[str, set[int]] = defaultdict(set)
    for zone in (files(tzdata) / "zones").read_text().split():
        for name, offset in _abbreviations(zone).items():
            found[name].add(offset)
    decided = {name: _abbreviations(zone)[name] for name, zone in _DECIDED.items()}
    return {name: next(iter(offsets)) for name, offsets in found.items() if len(offsets) == 1} | decided


def _abbreviations(zone: str) -> dict[str, int]:
    # From the package, not by ZoneInfo(zone): that prefers the database of the system, and machines would differ.
    with files(tzdata).joinpath("zoneinfo", *zone.split("/")).open("rb") as file:
        rules = ZoneInfo.from_file(file)
    local = [each.replace(tzinfo=rules) for each in _SAMPLES]
    named = {str(each.tzname()).upper(): each.utcoffset() for each in local}
    return {name: int(each.total_seconds()) for name, each in named.items() if name.isalpha() and each is not None}
