"""The files of a write: of months, and of longer periods where the changes are of many."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from umbel.log.change_files import MOST_FILES
from umbel.log.changes import ChangeLog

COLUMNS = {"user": pl.Int64(), "_at": pl.Datetime("us", "UTC"), "_weight": pl.Int64(), "_seq": pl.Int64()}
FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)


def changes(instants: list[datetime]) -> pl.DataFrame:
    numbers = range(len(instants))
    columns = {"user": numbers, "_at": instants, "_weight": [1] * len(instants), "_seq": numbers}
    return pl.DataFrame(columns, schema=COLUMNS)


def spread(first: datetime, last: datetime, count: int) -> list[datetime]:
    """Return instants at equal distances, the later ones first."""
    return [first + (last - first) // count * number for number in reversed(range(count))]


@pytest.mark.parametrize(
    ("first", "last", "months"),
    [
        (datetime(2023, 1, 15, tzinfo=UTC), datetime(2025, 12, 15, tzinfo=UTC), 1),
        (datetime(2023, 1, 15, tzinfo=UTC), datetime(2026, 1, 15, tzinfo=UTC), 12),
        (datetime(1990, 6, 1, tzinfo=UTC), datetime(2025, 6, 1, tzinfo=UTC), 12),
        (datetime(1890, 6, 1, tzinfo=UTC), datetime(2025, 6, 1, tzinfo=UTC), 120),
        (datetime(1000, 6, 1, tzinfo=UTC), datetime(2025, 6, 1, tzinfo=UTC), 1200),
        (FIRST, LAST, 1200),
    ],
)
def test_files_are_of_months_years_decades_or_centuries(
    first: datetime, last: datetime, months: int, tmp_path: Path
) -> None:
    log, instants = ChangeLog(tmp_path / "log", COLUMNS), spread(first, last, 3000)
    parts = log.write(changes(instants), batch=0)
    assert len(parts) <= max(MOST_FILES, 100)
    begins = [datetime.fromisoformat(part.month) for part in parts]
    assert begins == sorted(set(begins))
    numbers = [begin.year * 12 + begin.month - 1 for begin in begins]
    assert all(number % months == 0 for number in numbers[1:])
    assert {later - earlier for earlier, later in pairwise(numbers[1:])} == {months}
    for part, begin, end in zip(parts, begins, [*begins[1:], None], strict=True):
        assert begin <= datetime.fromisoformat(part.first).replace(tzinfo=None)
        assert end is None or datetime.fromisoformat(part.last).replace(tzinfo=None) < end
    assert log.commit(parts, "test", 0)
    assert sorted(log.read()["_at"].to_list()) == sorted(instants)
    middle = first + (last - first) / 2
    later = log.read(since=middle, until=middle + timedelta(days=900))["_at"].to_list()
    assert sorted(later) == sorted(at for at in instants if middle <= at < middle + timedelta(days=900))
    log.check(deep=True)


def test_months_without_changes_count_for_nothing(tmp_path: Path) -> None:
    instants = [datetime(*day, tzinfo=UTC) for day in ((1970, 1, 1), (2026, 1, 5), (2026, 2, 1))]
    parts = ChangeLog(tmp_path / "log", COLUMNS).write(changes(instants), batch=0)
    assert [part.month for part in parts] == ["1970-01-01", "2026-01-01", "2026-02-01"]
