"""Instants and days."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from umbel.types import epochs, rfc2822
from umbel.types.dtype import Checked, DType, Refused, describe, present
from umbel.types.numeric import leftovers

if TYPE_CHECKING:
    import pandas as pd

STORED = pl.Datetime("us", "UTC")
_DAY_US = 86_400_000_000
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INSTANT = re.compile(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]")
# The range of datetime64[ns]; pandas gets microseconds for anything outside.
_NS_FIRST, _NS_LAST = -(2**63) // 1_000 + 1, (2**63 - 1) // 1_000


@dataclass(frozen=True, slots=True)
class Datetime(DType):
    """Instants: microseconds since the Unix epoch, UTC.

    Accepts datetimes (naive means UTC), dates (midnight UTC), epoch numbers in seconds, milli-, micro- or nanoseconds
    distinguished by magnitude, and text: RFC 3339, RFC 2822 with offsets or names of zones, decimal epoch numbers.
    """

    def polars(self) -> pl.DataType:
        return STORED

    def annotation(self) -> Any:
        return datetime

    def convert_column(self, column: pl.Series) -> Checked:
        kind = column.dtype
        if kind == STORED:
            return Checked(column)
        if isinstance(kind, pl.Datetime):  # within the years, as `convert` leaves them
            return Checked(_microseconds(column, kind).cast(STORED))
        if kind == pl.Date:
            return Checked((column.cast(pl.Int64) * _DAY_US).cast(STORED))
        if kind.is_integer() or kind.is_float():
            raw = column.fill_nan(None) if kind.is_float() else column
            return _in_range(raw, epochs.from_numbers(raw))
        if kind == pl.String:
            return _in_range(column, epochs.from_texts(column))
        return self.convert_objects(column.to_list())

    def convert_objects(self, values: Sequence[Any]) -> Checked:
        if set(map(type, values)) <= {datetime, type(None)}:
            micros = pl.Series([None if value is None else _of_datetime(value) for value in values], dtype=pl.Int64)
            if micros.is_between(epochs.FIRST, epochs.LAST).all():
                return Checked(micros.cast(STORED))
        texts = pl.Series([value if isinstance(value, str) else None for value in values], dtype=pl.String)
        parsed = epochs.from_texts(texts)
        found: list[int | None] = parsed.to_list()
        errors: dict[int, str] = {}
        for row, value in present(values, nan_is_null=True):
            found[row] = at = found[row] if isinstance(value, str) else self._instant(value)
            if at is None:
                errors[row] = self.refuse(value).message
        return Checked(pl.Series(found, dtype=pl.Int64).cast(STORED), errors)

    def _instant(self, value: Any) -> int | None:
        if isinstance(value, datetime):
            at = _of_datetime(value)  # an offset leads out of the first and the last year
            return at if epochs.FIRST <= at <= epochs.LAST else None
        if isinstance(value, date):
            return (value.toordinal() - _EPOCH_DAY) * _DAY_US
        if isinstance(value, np.datetime64):
            return of_datetime64(value)
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            return epochs.from_number(int(value))
        if isinstance(value, (float, np.floating)):
            return epochs.from_number(float(value)) if np.isfinite(value) else None
        return epochs.from_number(value) if isinstance(value, Decimal) and value.is_finite() else None

    def accept(self, value: Any) -> Any:
        checked = self.convert_objects([value])
        if checked.errors:
            raise self.refuse(value)
        return checked.values[0]

    def refuse(self, value: Any) -> Refused:
        error = DType.refuse(self, value)
        zone = rfc2822.unknown_zone(value) if isinstance(value, str) else None
        return error if zone is None else Refused(f"{error.message}: unknown time zone '{zone}', write its offset")

    def to_pandas(self, column: pl.Series) -> pd.Series[Any]:
        import pandas as pd

        micros = column.to_numpy().view(np.int64)  # of Polars' functions each takes 30 µs, also for one value
        nulls = column.is_null().to_numpy() if column.null_count() else None
        known = micros if nulls is None else micros[~nulls]
        fits = not len(known) or (known.min() >= _NS_FIRST and known.max() <= _NS_LAST)
        stamps = micros * 1_000 if fits else micros.copy()
        if nulls is not None:
            stamps[nulls] = np.iinfo(np.int64).min
        unit: Any = "ns" if fits else "us"
        return pd.Series(stamps.view(f"M8[{unit}]"), dtype=pd.DatetimeTZDtype(unit, "UTC"), name=column.name)

    def __str__(self) -> str:
        return "datetime"


@dataclass(frozen=True, slots=True)
class Date(DType):
    """Days. Accepts dates, instants at midnight UTC, and text like 2024-01-31 or 2024-01-31T00:00:00Z."""

    def polars(self) -> pl.DataType:
        return pl.Date()

    def annotation(self) -> Any:
        return date

    def convert_column(self, column: pl.Series) -> Checked:
        if column.dtype == pl.Date:
            return Checked(column)
        if column.dtype == pl.String:
            return self._of_texts(column)
        if not isinstance(column.dtype, pl.Datetime):
            return self.convert_objects(column.to_list())
        micros = _microseconds(column, column.dtype)
        malformed = (micros % _DAY_US != 0).fill_null(False).arg_true()
        days = (micros // _DAY_US).cast(pl.Int32).cast(pl.Date)
        return Checked(days, {row: self.refuse(column[row]).message for row in malformed.to_list()})

    def accept(self, value: Any) -> Any:
        if isinstance(value, np.datetime64):
            value = value.astype("M8[us]").item()
        if isinstance(value, datetime):
            return self._midnight(value)
        if isinstance(value, date):
            return value
        if isinstance(value, str) and _DAY.fullmatch(value):
            try:
                return date.fromisoformat(value)
            except ValueError as error:
                raise self.refuse(value) from error
        if isinstance(value, str) and _INSTANT.match(value):
            return self._midnight(Datetime().accept(value))
        raise self.refuse(value)

    def _of_texts(self, column: pl.Series) -> Checked:
        """Convert texts, those of instants at once."""
        is_instant = column.str.contains(_INSTANT.pattern).fill_null(False)
        if not is_instant.any():
            return self._of_days(column)
        instants = Datetime().convert_column(column.set(~is_instant, None))
        days, others = self.convert_column(instants.values), self._of_days(column.set(is_instant, None))
        values = days.values.zip_with(is_instant, others.values)
        return Checked(values, {**instants.errors, **days.errors, **others.errors})

    def _of_days(self, column: pl.Series) -> Checked:
        is_day = column.str.contains(rf"^{_DAY.pattern}$") & ~column.str.starts_with("0000")
        return leftovers(self, column, column.set(~is_day, None).str.to_date("%Y-%m-%d", strict=False))

    def _midnight(self, value: datetime) -> date:
        days, rest = divmod(_of_datetime(value), _DAY_US)
        if rest or getattr(value, "nanosecond", 0):
            raise Refused(f"expected date, got {describe(value)}: not midnight")
        return date.fromordinal(_EPOCH_DAY + days)

    def __str__(self) -> str:
        return "date"


def _of_datetime(value: datetime) -> int:
    since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - epochs.EPOCH
    return since.days * _DAY_US + since.seconds * epochs.SECOND + since.microseconds


def of_datetime64(value: np.datetime64) -> int | None:
    """Return an instant of NumPy in µs, None outside the years 1 to 9999."""
    days = int(value.astype("M8[D]").astype(np.int64)) * _DAY_US
    return int(value.astype("M8[us]").astype(np.int64)) if epochs.FIRST <= days <= epochs.LAST else None


def _microseconds(column: pl.Series, kind: pl.Datetime) -> pl.Series:
    stamps = column.dt.replace_time_zone("UTC") if kind.time_zone is None else column.dt.convert_time_zone("UTC")
    return stamps.cast(STORED, strict=False).to_physical()


def _in_range(raw: pl.Series, micros: pl.Series) -> Checked:
    bounds: Any = (micros.min(), micros.max())
    if micros.null_count() == raw.null_count() < len(raw) and bounds[0] >= epochs.FIRST and bounds[1] <= epochs.LAST:
        return Checked(micros.cast(STORED))
    lost = (raw.is_not_null() & ~micros.is_between(epochs.FIRST, epochs.LAST).fill_null(False)).arg_true().to_list()
    retained = micros.set(~micros.is_between(epochs.FIRST, epochs.LAST), None) if lost else micros
    return Checked(retained.cast(STORED), {row: Datetime().refuse(raw[row]).message for row in lost})
