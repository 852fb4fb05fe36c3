"""The order in which the names of files say that files appear."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ClassVar

_UNITS = (
    ("Y", timedelta(days=366)),
    ("m", timedelta(days=31)),
    ("d", timedelta(days=1)),
    ("H", timedelta(hours=1)),
    ("M", timedelta(minutes=1)),
    ("S", timedelta(seconds=1)),
)
"""Specifiers from coarse to fine, with their longest duration."""
_DAY_OF_YEAR = ("j", timedelta(days=1))
AHEAD = timedelta(days=2)
"""The longest time from now to a file's date, for the clocks and time zones of its writers; a later date is an error."""


@dataclass(frozen=True, slots=True)
class Presorted:
    """Names that sort by the time at which files appear."""

    sorts_rows: ClassVar[bool] = True

    def newest(self, names: Iterable[str], before: str) -> str:
        return max([*names, before])

    def floor(self, newest: str) -> str:
        return newest

    def is_ahead(self, name: str) -> bool:
        """Return False: names need not be dates."""
        del name
        return False


@dataclass(frozen=True, slots=True)
class DatedFolders:
    """Names with dates that sort as texts do.

    Args:
        prefix: the common beginning of the names.
        pattern: the parts that follow, with specifiers.
        margin: the longest distance of a new file's date from the newest date, in µs.
    """

    prefix: str
    pattern: str
    margin: int

    sorts_rows: ClassVar[bool] = False  # several files may be of one date

    def newest(self, names: Iterable[str], before: str) -> str:
        dated = [(date, name) for name in names if (date := self._date(name)) is not None and date <= _latest()]
        if (date := self._date(before)) is not None:
            dated.append((date, before))  # files before it were forgotten, even if it is ahead
        return max(dated)[1] if dated else ""

    def floor(self, newest: str) -> str:
        date = self._date(newest)
        if date is None:
            return ""
        try:
            least = date - timedelta(microseconds=self.margin)
        except OverflowError:
            return ""
        return self.prefix + (least.strftime(self.pattern) if least.year >= 1000 else "")

    def is_ahead(self, name: str) -> bool:
        """Return True for a name with a date in the future."""
        date = self._date(name)
        return date is not None and date > _latest()

    def _date(self, name: str) -> datetime | None:
        parts = name.removeprefix(self.prefix).split("/")[: self.pattern.count("/") + 1]
        try:
            return datetime.strptime("/".join(parts), self.pattern)  # noqa: DTZ007  compared with each other only
        except ValueError:
            return None


def _latest() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None) + AHEAD


def dated_folders(prefix: str, suffix: str, spread: int, disorder: int) -> DatedFolders | None:
    """Return the order of names with dates, None if they do not sort as texts.

    A row is at most `spread` away from the date of its file. So a file whose date is more than twice that, and the disorder,
    behind the newest file has late rows only.

    Args:
        prefix: the static beginning of the paths.
        suffix: the rest, with specifiers and wildcards.
        spread: in µs.
        disorder: of the source in µs.
    """
    parts = suffix.split("/")
    dated = next((at for at, part in enumerate(parts) if "*" in part), len(parts))
    pattern = "/".join(parts[:dated])
    found = re.findall(r"%(-?[A-Za-z])", pattern)
    chain = (_UNITS[0], _DAY_OF_YEAR, *_UNITS[3:]) if found[1:2] == ["j"] else _UNITS
    if not found or found != [letter for letter, _ in chain[: len(found)]]:
        return None
    unit = chain[len(found) - 1][1] // timedelta(microseconds=1)
    return DatedFolders(prefix, pattern, 2 * spread + disorder + unit)
