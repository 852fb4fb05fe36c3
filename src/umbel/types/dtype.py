"""The interface of types: storage form, accepted input, conversion to Python."""

from __future__ import annotations

import decimal
import reprlib
import typing
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl

from umbel.errors import InvalidValue
from umbel.types.years import within

if TYPE_CHECKING:
    import pandas as pd

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_MISSING = frozenset({"NoneType", "NAType", "NaTType"})


class Refused(InvalidValue):
    """A value does not belong to a type."""

    code = "refused-value"


@dataclass(frozen=True, slots=True)
class Checked:
    """A column converted to the storage form of a type.

    Args:
        values: one value per input row; undefined in rows with an error.
        errors: row number to the reason of the error.
    """

    values: pl.Series
    errors: dict[int, str] = field(default_factory=dict)

    def blame(self, rows: Mapping[int, str]) -> Checked:
        """Add errors; a row retains its first error."""
        return Checked(self.values, {**rows, **self.errors}) if rows else self


@dataclass(frozen=True, slots=True)
class DType(ABC):
    """A type of values.

    Instances compare by value, print as their annotation, and are usable as annotations.
    """

    hashable: ClassVar[bool] = False
    numeric: ClassVar[bool] = False
    # Python types whose values Polars stores as they are, so that a column of them needs no check of each value.
    native: ClassVar[frozenset[type]] = frozenset()
    # pandas and JSON writers spell a missing value NaN; to a float it is a number.
    nan_is_null: ClassVar[bool] = True

    def __or__(self, other: Any) -> Any:
        return typing.Union[self, other]  # noqa: UP007

    def __ror__(self, other: Any) -> Any:
        return typing.Union[other, self]  # noqa: UP007

    # ---- properties -----------------------------------------------------------------------------------------------

    @abstractmethod
    def polars(self) -> pl.DataType:
        """Return the Polars storage type."""

    def annotation(self) -> Any:
        """Return the Python annotation of this type."""
        return self

    @property
    def is_optional(self) -> bool:
        """True if null is a value of this type."""
        return False

    @property
    def base(self) -> DType:
        """This type without its outermost Optional."""
        return self

    @property
    def plain(self) -> DType:
        """The type without Optional and without a restriction (`oneof`, `between`, `regex`)."""
        return self

    @property
    def is_hashable(self) -> bool:
        """True if distinct values can be counted.

        These types are int, str, bool, decimal, and lists and dicts of them.
        """
        return self.hashable

    @property
    def is_numeric(self) -> bool:
        """True if values can be summed."""
        return self.numeric

    # ---- ingestion ------------------------------------------------------------------------------------------------

    def ingest(self, column: pl.Series | Sequence[Any]) -> Checked:
        """Convert a raw column, or Python values, to storage form.

        Null is an error unless the type is Optional.
        """
        checked = self.convert(column)
        if self.is_optional or not checked.values.null_count():
            return checked
        reason = f"null, and {self} is not Optional"
        return checked.blame(dict.fromkeys(checked.values.is_null().arg_true().to_list(), reason))

    def takes(self, values: Sequence[Any]) -> bool:
        """Return True if Python values are known to be stored unchanged, by a cheap check."""
        return False

    def convert(self, column: pl.Series | Sequence[Any]) -> Checked:
        """Convert a raw column, or Python values, to storage form; null stays null."""
        if not isinstance(column, pl.Series):
            return self.convert_objects(column)
        if column.dtype == pl.Null:
            return Checked(nulls(len(column), self.polars()))
        if column.dtype == pl.Object:
            return self.convert_objects(column.to_list())
        values, errors = within(column)
        return self.convert_column(values).blame(errors)

    def convert_column(self, column: pl.Series) -> Checked:
        """Convert a column of any Polars type but Object to storage form."""
        return Checked(column) if column.dtype == self.polars() else self.convert_objects(column.to_list())

    def convert_objects(self, values: Sequence[Any]) -> Checked:
        """Convert Python values of any kinds to storage form."""
        if set(map(type, values)) <= self.native | {type(None)}:
            try:
                return Checked(pl.Series(values, dtype=self.polars(), strict=True))
            except (OverflowError, TypeError, ValueError, pl.exceptions.PolarsError):
                pass  # one of them does not fit: find out which
        return self.convert_each(values)

    def convert_each(self, values: Sequence[Any]) -> Checked:
        """Convert Python values to storage form one by one.

        Slow: for values without a vectorised conversion.
        """
        retained: list[Any] = [None] * len(values)
        errors: dict[int, str] = {}
        for row, value in present(values, nan_is_null=self.nan_is_null):
            try:
                retained[row] = self.accept(value)
            except Refused as refused:
                errors[row] = refused.message
        return Checked(pl.Series(retained, dtype=self.polars(), strict=True), errors)

    def accept(self, value: Any) -> Any:
        """Return one value, not null, in Polars' storage form.

        Raises:
            Refused: the value does not belong to the type.
        """
        raise self.refuse(value)

    def refuse(self, value: Any) -> Refused:
        """Return the error for a value outside the type."""
        return Refused(f"expected {self}, got {describe(value)}")

    # ---- conversion to Python -------------------------------------------------------------------------------------

    @property
    def is_plain_python(self) -> bool:
        """True if values read from Polars need no conversion for users."""
        return True

    def present(self, value: Any) -> Any:
        """Convert a value read from Polars, not null, for users."""
        return value

    def to_python(self, column: pl.Series) -> list[Any]:
        """Return stored values as Python values for users.

        Null is None, and `pd.NA` inside a value.
        """
        values = column.to_list()
        return values if self.is_plain_python else [None if value is None else self.present(value) for value in values]

    def to_pandas(self, column: pl.Series) -> pd.Series[Any]:
        """Return stored values as a pandas series; null is `pd.NA`."""
        import pandas as pd

        values = [pd.NA if value is None else value for value in self.to_python(column)]
        return pd.Series(values, dtype=object, name=column.name)


def shown(dtype: DType, value: Any) -> Any:
    """Convert a nested value read from Polars for users; null is `pd.NA`."""
    return _missing() if value is None else dtype.present(value)


@cache
def _missing() -> Any:
    import pandas as pd

    return pd.NA


def describe(value: Any) -> str:
    """Return a value and its Python type as short text."""
    return f"{_SHORT.repr(value)} ({type(value).__name__})"


def is_missing(value: Any) -> bool:
    """Return True if a Python value is a null: None, `pd.NA`, `pd.NaT`, numpy's NaT."""
    return type(value).__name__ in _MISSING or (isinstance(value, np.datetime64) and bool(np.isnat(value)))


def is_nan(value: Any) -> bool:
    """Return True if a Python value is a NaN: a float or a decimal."""
    if isinstance(value, decimal.Decimal):
        return value.is_nan()
    return isinstance(value, (float, np.floating)) and bool(np.isnan(value))


def present(values: Sequence[Any], *, nan_is_null: bool) -> Iterator[tuple[int, Any]]:
    """Yield the row numbers and values of non-null rows."""
    for row, value in enumerate(values):
        if not is_missing(value) and not (nan_is_null and is_nan(value)):
            yield row, value


def nulls(height: int, dtype: pl.DataType) -> pl.Series:
    """Return a column of nulls."""
    return pl.Series([None], dtype=dtype).new_from_index(0, height)


def scatter_rows(values: pl.Series, rows: np.ndarray[Any, Any], height: int) -> pl.Series:
    """Scatter values to `rows` of a column of `height` rows; null elsewhere."""
    if len(values) == height:
        return values
    source = np.full(height, -1, dtype=np.int64)
    source[rows] = np.arange(len(values))
    index = pl.Series(source)
    return values.gather(index.set(index < 0, None))
