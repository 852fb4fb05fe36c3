"""Days in Debezium's envelopes: numbers of days by default, `2024-01-31Z` with `time.precision.mode=isostring`."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Optional

import pytest

from tests.unit.ingestion.test_rows import dataset, envelope, feed, taken

BOOKED = dataset(("day",), day=date, until=Optional[date], t=datetime)
LATE = 1_704_240_000_000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (19_723, date(2024, 1, 1)),
        (0, date(1970, 1, 1)),
        (-1, date(1969, 12, 31)),
        (-719_162, date(1, 1, 1)),
        (2_932_896, date(9999, 12, 31)),
        ("2024-01-01Z", date(2024, 1, 1)),
        ("2024-01-01", date(2024, 1, 1)),
        ("2024-01-01T00:00:00Z", date(2024, 1, 1)),
    ],
)
def test_a_day_is_read(value: Any, expected: date) -> None:
    row = {"day": value, "until": value, "t": "2024-01-01"}
    found = taken([envelope("c", row), envelope("d", row, LATE)], feed("debezium"), BOOKED)
    assert found.rejects.is_empty()
    assert found.frame.select("day", "until").rows() == [(expected, expected)] * 2


@pytest.mark.parametrize("value", [-719_163, 2_932_897, 1 << 70, 1.0, True, "2024-13-01Z", "2024-1-001Z", "19723", [1]])
def test_what_is_no_day_is_a_dead_letter(value: Any) -> None:
    good = {"day": 1, "until": None, "t": "2024-01-01"}
    found = taken([envelope("c", {**good, "day": value}), envelope("c", good)], feed("debezium"), BOOKED)
    assert found.accepted.to_list() == [1]
    assert found.rejects["field"].to_list() == ["day"]
