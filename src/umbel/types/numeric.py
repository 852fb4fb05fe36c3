"""Numbers and truth values."""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from umbel.errors import InvalidType
from umbel.types.dtype import Checked, DType, Refused, describe
from umbel.types.long_numbers import LongNumber

if TYPE_CHECKING:
    import pandas as pd

DECIMAL_DIGITS = 28
INT_MIN, INT_MAX = -(2**63), 2**63 - 1

_INTEGER = re.compile(r"\s*([+-]?[0-9]+)(?:\.0*)?\s*")
_DECIMAL = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?\s*")
_EXACT = decimal.Context(prec=400, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_ARROW_DIGITS = 38
"""Of its decimals of 128 bits."""
_NEAR = 2.0**42
"""Floats up to here, times a power of ten, are off by less than a half of `_TIE`."""
_TIE = 2.0**-9
_INTEGERS = (int, np.integer)
_FLOATS = (float, np.floating)


@dataclass(frozen=True, slots=True)
class Int(DType):
    """Signed integers of 64 bits.

    Accepts integral floats and decimals, text of an integer, and booleans.
    """

    hashable: ClassVar[bool] = True
    numeric: ClassVar[bool] = True
    native: ClassVar[frozenset[type]] = frozenset({int, bool})

    def polars(self) -> pl.DataType:
        return pl.Int64()

    def annotation(self) -> Any:
        return int

    def takes(self, values: Sequence[Any]) -> bool:
        return all(type(value) is int and INT_MIN <= value <= INT_MAX for value in values)

    def convert_column(self, column: pl.Series) -> Checked:
        if column.dtype == pl.Int64:
            return Checked(column)
        if column.dtype.is_float():
            return self._convert_floats(column.cast(pl.Float64))
        if column.dtype.is_integer() or column.dtype == pl.Boolean:
            return leftovers(self, column, column.cast(pl.Int64, strict=False))
        if column.dtype == pl.String:
            return leftovers(self, column, column.cast(pl.Int64, strict=False))
        if column.dtype == pl.Decimal:
            return leftovers(self, column, unchanged(column, pl.Int64()))
        return self.convert_objects(column.to_list())

    def _convert_floats(self, column: pl.Series) -> Checked:
        column = column.fill_nan(None)
        whole = column.set(column != column.floor(), None)
        return leftovers(self, column, whole.cast(pl.Int64, strict=False))

    def accept(self, value: Any) -> Any:
        number = self._integer(value)
        if number is None:
            raise self.refuse(value)
        if not INT_MIN <= number <= INT_MAX:
            raise Refused(f"{self.refuse(value).message}: it does not fit in 64 bits")
        return number

    def _integer(self, value: Any) -> int | None:
        if isinstance(value, (*_INTEGERS, np.bool_)):
            return int(value)
        if isinstance(value, (*_FLOATS, decimal.Decimal)):
            return int(value) if _is_whole(value) else None
        if isinstance(value, str) and (match := _INTEGER.fullmatch(value)) and len(value) < 80:
            return int(match[1])
        return None

    def to_pandas(self, column: pl.Series) -> pd.Series[Any]:
        import pandas as pd

        return pd.Series(pd.arrays.IntegerArray(*_masked(column, 0)), name=column.name)

    def __str__(self) -> str:
        return "int"


@dataclass(frozen=True, slots=True)
class Float(DType):
    """Floating-point numbers of 64 bits, with NaN and infinities. Accepts integers and decimals."""

    numeric: ClassVar[bool] = True
    native: ClassVar[frozenset[type]] = frozenset({float, int})
    nan_is_null: ClassVar[bool] = False

    def polars(self) -> pl.DataType:
        return pl.Float64()

    def annotation(self) -> Any:
        return float

    def takes(self, values: Sequence[Any]) -> bool:
        return all(type(value) is float for value in values)

    def convert_column(self, column: pl.Series) -> Checked:
        if column.dtype == pl.Float64:
            return Checked(column)
        if column.dtype.is_numeric():
            return Checked(column.cast(pl.Float64))
        return self.convert_objects(column.to_list())

    def accept(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (*_INTEGERS, *_FLOATS, decimal.Decimal)):
            raise self.refuse(value)
        try:
            found = float(value)
        except (OverflowError, ValueError) as error:
            raise self.refuse(value) from error
        if isinstance(value, decimal.Decimal) and value.is_finite() and not math.isfinite(found):
            raise self.refuse(value)
        return found

    def refuse(self, value: Any) -> Refused:
        message = f"expected {self}, got {describe(value)}"
        if not isinstance(value, str) or not _DECIMAL.fullmatch(value):
            return Refused(message)
        return Refused(f"{message}: text is no float, and clients send a Decimal as text; convert it with float(...)")

    def to_pandas(self, column: pl.Series) -> pd.Series[Any]:
        import pandas as pd

        return pd.Series(pd.arrays.FloatingArray(*_masked(column, 0)), name=column.name)

    def __str__(self) -> str:
        return "float"


@dataclass(frozen=True, slots=True)
class Bool(DType):
    """True and False."""

    hashable: ClassVar[bool] = True
    native: ClassVar[frozenset[type]] = frozenset({bool})

    def polars(self) -> pl.DataType:
        return pl.Boolean()

    def annotation(self) -> Any:
        return bool

    def accept(self, value: Any) -> Any:
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        raise self.refuse(value)

    def to_pandas(self, column: pl.Series) -> pd.Series[Any]:
        import pandas as pd

        return pd.Series(pd.arrays.BooleanArray(*_masked(column, False)), name=column.name)

    def __str__(self) -> str:
        return "bool"


@dataclass(frozen=True, slots=True)
class Decimal(DType):
    """Fixed-point numbers of 28 digits, `scale` of them after the point.

    Accepts decimals and text without loss, integers, and floats rounded to the scale.
    """

    scale: int

    hashable: ClassVar[bool] = True
    numeric: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.scale, bool) or not isinstance(self.scale, int):
            raise InvalidType(f"Decimal[{self.scale!r}]: the scale must be an int", hint="Decimal[2]")
        if self.scale == 0:
            raise InvalidType("Decimal[0] has nothing after the point", hint="use int")
        if not 0 < self.scale <= DECIMAL_DIGITS:
            message = f"Decimal[{self.scale}]: the scale must be between 1 and {DECIMAL_DIGITS}"
            raise InvalidType(message, hint="a Decimal has 28 digits: say how many of them follow the point")

    def polars(self) -> pl.DataType:
        return pl.Decimal(DECIMAL_DIGITS, self.scale)

    def convert_column(self, column: pl.Series) -> Checked:
        if column.dtype == self.polars():
            return Checked(column)
        if column.dtype.is_integer():
            return leftovers(self, column, column.cast(self.polars(), strict=False))
        if column.dtype == pl.String:
            return self._convert_texts(column)
        if column.dtype == pl.Decimal:
            return leftovers(self, column, unchanged(column, self.polars()))
        return self._convert_floats(column) if column.dtype.is_float() else self.convert_objects(column.to_list())

    def convert_objects(self, values: Sequence[Any]) -> Checked:
        kinds = set(map(type, values)) - {type(None)}
        if kinds <= {float}:
            return self._convert_floats(pl.Series(values, dtype=pl.Float64))
        try:
            if kinds == {decimal.Decimal} and not any(map(_is_tiny, values)):
                return Checked(self._of_decimals(values))
            if kinds == {int}:
                return self.convert_column(pl.Series(values, dtype=pl.Int64))
        except (ValueError, TypeError, OverflowError):
            pass  # one of them does not fit: find out which
        return self.convert_each(values)

    def _of_decimals(self, values: Sequence[Any]) -> pl.Series:
        """Return decimals of this type; a ValueError if one has more digits, or is NaN."""
        import pyarrow as pa

        return pl.Series(values=pl.from_arrow(pa.array(values, pa.decimal128(DECIMAL_DIGITS, self.scale))))

    def _convert_texts(self, column: pl.Series) -> Checked:
        before = DECIMAL_DIGITS - self.scale
        is_plain = column.str.contains(rf"^-?[0-9]{{1,{max(before, 1)}}}(\.[0-9]{{1,{self.scale}}})?$")
        return leftovers(self, column, column.set(~is_plain, None).cast(self.polars(), strict=False))

    def _convert_floats(self, column: pl.Series) -> Checked:
        column = column.fill_nan(None).cast(pl.Float64)
        with np.errstate(over="ignore"):
            scaled = column.fill_null(0.0).to_numpy() * 10.0**self.scale
        is_near = np.abs(scaled) < _NEAR
        whole = np.where(is_near, scaled, 0.0)
        is_clear = is_near & (np.abs(whole - np.floor(whole) - 0.5) > _TIE)
        units = np.rint(whole).astype(np.int64)
        found = self._of_units(units)
        if column.null_count():
            found = found.set(column.is_null(), None)
        unclear = pl.Series(np.flatnonzero(~is_clear), dtype=pl.UInt32)
        return patch(found, unclear, self._by_text(column.gather(unclear))) if len(unclear) else Checked(found)

    def _of_units(self, units: NDArray[np.int64]) -> pl.Series:
        """Return decimals of as many units of the last digit."""
        import pyarrow as pa

        halves = np.stack([units, units >> 63], axis=1)  # as numbers of 128 bits, the lower half first
        kind = pa.decimal128(DECIMAL_DIGITS, self.scale)
        array = pa.Array.from_buffers(kind, len(units), [None, pa.py_buffer(np.ascontiguousarray(halves))])
        return pl.Series(values=pl.from_arrow(array))

    def _by_text(self, column: pl.Series) -> Checked:
        texts = [None if value is None else f"{value:.{self.scale}f}" for value in column.to_list()]
        return leftovers(self, column, pl.Series(texts, dtype=pl.String).cast(self.polars(), strict=False))

    def accept(self, value: Any) -> Any:
        number = self._decimal(value)
        if number is None or not _is_finite(number):
            raise self.refuse(value)
        scaled = number.scaleb(self.scale, _EXACT)
        if scaled != scaled.to_integral_value():
            raise self._too_long(value, f"would lose data: more than {self.scale} digits after the point")
        if scaled.copy_abs() >= 10**DECIMAL_DIGITS:
            raise self._too_long(value, f"would lose data: more than {DECIMAL_DIGITS} digits")
        return number.quantize(decimal.Decimal(1).scaleb(-self.scale), context=_EXACT)

    def rounded(self, value: Any) -> decimal.Decimal:
        """Round a number of a definition to this type's scale, half to even.

        Raises:
            Refused: not a number, or one with too many digits before the point.
        """
        number = self._decimal(value) if not isinstance(value, str) else None
        if number is None or not _is_finite(number):
            raise self.refuse(value)
        step = decimal.Decimal(1).scaleb(-self.scale)
        found: decimal.Decimal = self.accept(number.quantize(step, decimal.ROUND_HALF_EVEN, _EXACT))
        return found

    def _decimal(self, value: Any) -> decimal.Decimal | None:
        if isinstance(value, LongNumber):
            return value.quantize(decimal.Decimal(1).scaleb(-self.scale), decimal.ROUND_HALF_EVEN, _EXACT)
        if isinstance(value, decimal.Decimal):
            return value
        if isinstance(value, bool):
            return None
        if isinstance(value, _INTEGERS):
            return decimal.Decimal(int(value)) if abs(int(value)) < 10**DECIMAL_DIGITS else None
        if isinstance(value, _FLOATS):
            return decimal.Decimal(f"{float(value):.{self.scale}f}")
        return decimal.Decimal(value.strip()) if isinstance(value, str) and _DECIMAL.fullmatch(value) else None

    def _too_long(self, value: Any, why: str) -> Exception:
        error = self.refuse(value)
        return error.restated(f"{error.message} {why}")

    def __str__(self) -> str:
        return f"Decimal[{self.scale}]"


def _masked(column: pl.Series, filler: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the values, nulls replaced by a filler, and the mask of nulls."""
    if column.null_count():
        return column.fill_null(filler).to_numpy(writable=True), column.is_null().to_numpy(writable=True)
    return column.to_numpy(writable=True), np.zeros(len(column), np.bool_)


def _is_whole(number: Any) -> bool:
    # `abs` of a decimal rounds, and may overflow
    return _is_finite(number) and -(2**63) <= number <= 2**63 and bool(number == int(number))


def _is_tiny(number: decimal.Decimal | None) -> bool:
    """Return whether a number has more decimals than Arrow reads rightly."""
    if number is None:
        return False
    exponent = number.as_tuple().exponent
    return isinstance(exponent, int) and exponent < -_ARROW_DIGITS


def _is_finite(number: Any) -> bool:
    return number.is_finite() if isinstance(number, decimal.Decimal) else bool(np.isfinite(number))


def unchanged(column: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Return values in another type.

    Those that are no value of it, as 1.5 is no integer, are null.
    """
    found = column.cast(dtype, strict=False)
    return found.set(~found.cast(column.dtype, strict=False).eq_missing(column), None)


def leftovers(dtype: DType, raw: pl.Series, converted: pl.Series) -> Checked:
    """Convert one by one the values turned into null by a vectorised conversion."""
    lost = (converted.is_null() & raw.is_not_null()).arg_true()
    if not len(lost):
        return Checked(converted)
    return patch(converted, lost, dtype.convert_each(raw.gather(lost).to_list()))


def patch(values: pl.Series, rows: pl.Series, found: Checked) -> Checked:
    """Merge values and errors converted separately into their rows."""
    numbers: Sequence[int] = rows.to_list()
    return Checked(values.scatter(rows, found.values), {numbers[row]: reason for row, reason in found.errors.items()})
