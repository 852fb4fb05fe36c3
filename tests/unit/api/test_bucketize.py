"""`bucketize` (api §5.3)."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pandas as pd
import pytest

from tests.unit.refusals import Cases, check_refused
from umbel.api.bucketize import bucketize
from umbel.types.windows import Continuous, Hopping, Tumbling, Window

refused = Cases()
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def naive(instant: datetime, duration: timedelta, stride: timedelta) -> Window:
    """Walk through the windows up to the last that has ended."""
    begin = EPOCH - duration
    while begin + stride + duration <= instant:
        begin += stride
    return Window(begin=begin, end=begin + duration)


@pytest.mark.parametrize("minutes", [0, 1, 59, 60, 61, 119, 120, 121, 1439, 1440, 1441, 5000])
@pytest.mark.parametrize(
    ("window", "duration", "stride"),
    [("1h", 60, 60), (("2h", "1h"), 120, 60), (Tumbling("1h"), 60, 60), (Hopping("1d", "90m"), 1440, 90)],
)
def test_the_window_that_ended_last(window: Any, duration: int, stride: int, minutes: int) -> None:
    instant = EPOCH + timedelta(minutes=minutes)
    expected = naive(instant, timedelta(minutes=duration), timedelta(minutes=stride))
    assert bucketize(instant, window) == expected
    assert bucketize(instant.replace(tzinfo=None), window) == expected
    assert bucketize(instant.astimezone(timezone(timedelta(hours=5))), window) == expected
    assert bucketize(pd.Timestamp(instant), window) == expected
    assert bucketize(pd.Series([instant, instant]), window).tolist() == [expected, expected]


def test_what_else_is_an_instant() -> None:
    expected = Window(begin=EPOCH, end=EPOCH + timedelta(hours=1))
    for passed in ("1970-01-01T01:30:00Z", 5400, pd.Timestamp("1970-01-01 01:30")):
        assert bucketize(pd.Series([passed, passed]), "1h").tolist() == [expected, expected]
    assert bucketize(pd.Series([EPOCH + timedelta(hours=1), None]), "1h").tolist() == [expected, None]
    with pytest.raises(ValueError, match="'soon'"):
        bucketize(pd.Series(["soon"]), "1h")


for passed in (3, Continuous("1h"), ("1h",), None):
    refused.add(f"window {passed}", lambda passed=passed: bucketize(EPOCH, passed), ValueError, "bucketize")
refused.add("a list of instants", lambda: bucketize([EPOCH], "1h"), ValueError, "bucketize", "expected datetime")
refused.add("forever", lambda: bucketize(EPOCH, Hopping("forever", "1h")), ValueError, "forever")


@pytest.mark.parametrize(("define", "error", "texts"), refused.found)
def test_refused(define: Any, error: type[Exception], texts: tuple[str, ...]) -> None:
    check_refused(define, error, texts)
