"""`bucketize`: map an instant to the last complete window before it."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from umbel.errors import InvalidValue
from umbel.types import epochs
from umbel.types.dtype import Refused
from umbel.types.dtypes import Datetime
from umbel.types.epochs import EPOCH
from umbel.types.windows import Hopping, Tumbling, Window

YEAR_1 = datetime.min.replace(tzinfo=UTC) - EPOCH
MICROSECOND = timedelta(microseconds=1)


def bucketize(timestamp: Any, window: Any) -> Any:
    """Return the last window that ended at or before a timestamp.

    The result is the key to look up windowed aggregates by.

    Args:
        timestamp: a datetime, a value convertible to one, or a pandas Series of these; UTC when it has no zone.
        window: a duration (tumbling), a pair of duration and stride, a Tumbling or a Hopping.

    Windows begin in the year 1 at the earliest, like those of `groupby`.

    Returns:
        A `Window`, or a Series of them; None for a missing timestamp.

    Raises:
        InvalidValue: the window has another form, or the timestamp is not an instant.
    """
    duration, stride = _lengths(window)
    if hasattr(timestamp, "map"):
        return timestamp.map(lambda each: _ended(each, duration, stride)).astype(object)
    return _ended(timestamp, duration, stride)


def _ended(timestamp: Any, duration: timedelta, stride: timedelta) -> Window | None:
    instant = _instant(timestamp)
    if instant is None:
        return None
    begin = (instant - EPOCH - duration) // stride * stride
    return Window(begin=EPOCH + max(begin, YEAR_1), end=EPOCH + max(begin + duration, YEAR_1))


def _instant(timestamp: Any) -> datetime | None:
    if isinstance(timestamp, datetime) and timestamp == timestamp:  # noqa: PLR0124  pandas' NaT is a datetime
        with suppress(OverflowError):  # an offset leads out of the first or the last year
            return epochs.in_utc(
                timestamp.to_pydatetime(warn=False) if hasattr(timestamp, "to_pydatetime") else timestamp
            )
    try:
        return Datetime().accept(timestamp)  # type: ignore[no-any-return]
    except Refused as error:
        hint = "pass a datetime, or a Series of these"
        raise InvalidValue(f"bucketize: {error.message}", hint=hint) from None


def _lengths(window: Any) -> tuple[timedelta, timedelta]:
    made = _window(window)
    if made.duration_us is None:
        raise InvalidValue(
            f"bucketize: a window of duration 'forever' has no begin: {window!r}",
            hint="use a window of finite duration",
        )
    return made.duration_us * MICROSECOND, made.stride_us * MICROSECOND


def _window(window: Any) -> Tumbling | Hopping:
    if isinstance(window, Tumbling | Hopping):
        return window
    if isinstance(window, str):
        return Tumbling(window)
    if isinstance(window, tuple) and len(window) == len(("duration", "stride")):
        return Hopping(*window)
    raise InvalidValue(
        f"bucketize: cannot take {window!r} for a window",
        hint='"1h", ("1d", "1h"), Tumbling("1h") or Hopping("1d", "1h")',
    )
