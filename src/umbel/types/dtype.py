"""What a type of values has to know: how it is stored, what it takes in, how it is handed out."""

from __future__ import annotations

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
    """A column brought into the storage form of a type.

    Args:
        values: as many values as came in; what stands in a faulty row has no meaning.
        faults: row number to what is wrong there.
    """

    values: pl.Series
    faults: dict[int, str] = field(default_factory=dict)

    def blame(self, rows: Mapping[int, str]) -> Checked:
        """Add faults; a row keeps the first that was found."""
        return Checked(self.values, {**rows, **self.faults}) if rows else self


@dataclass(frozen=True, slots=True)
class DType(ABC):
    """A type of values. Instances compare by value, print as the annotation that makes them, and are annotations."""

    hashable: ClassVar[bool] = False
    numeric: ClassVar[bool] = False
    # Python types whose values Polars stores as they are, so that a column of them needs no look at each.
    native: ClassVar[frozenset[type]] = frozenset()
    # pandas and JSON writers spell a missing value NaN; to a float it is a number.
    nan_is_null: ClassVar[bool] = True

    def __or__(self, other: Any) -> Any:
        return typing.Union[self, other]  # noqa: UP007

    def __ror__(self, other: Any) -> Any:
        return typing.Union[other, self]  # noqa: UP007

    # ---- what it is -----------------------------------------------------------------------------------------------

    @abstractmethod
    def polars(self) -> pl.DataType:
        """Return the Polars type its values are stored as."""

    def annotation(self) -> Any:
        """Return the Python annotation that makes this type."""
        return self

    @property
    def is_optional(self) -> bool:
        """Whether null is a value of this type."""
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
        """Whether values can be counted as distinct: int, str, bool, decimal and lists, dicts of them."""
        return self.hashable

    @property
    def is_numeric(self) -> bool:
        """Whether values can be summed."""
        return self.numeric

    # ---- taking values in -----------------------------------------------------------------------------------------

    def ingest(self, column: pl.Series | Sequence[Any]) -> Checked:
        """Bring a raw column, or Python values, to storage form; null is a fault unless the type is Optional."""
        checked = self.convert(column)
        if self.is_optional or not checked.values.null_count():
            return checked
        reason = f"null, and {self} is not Optional"
        return checked.blame(dict.fromkeys(checked.values.is_null().arg_true().to_list(), reason))

    def takes(self, values: Sequence[Any]) -> bool:
        """Return whether Python values are stored just as they are, as far as can be told at a glance."""
        return False

    def convert(self, column: pl.Series | Sequence[Any]) -> Checked:
        """Bring a raw column, or Python values, to storage form; null stays null."""
        if not isinstance(column, pl.Series):
            return self.convert_objects(column)
        if column.dtype == pl.Null:
            return Checked(nulls(len(column), self.polars()))
        if column.dtype == pl.Object:
            return self.convert_objects(column.to_list())
        return self.convert_column(column)

    def convert_column(self, column: pl.Series) -> Checked:
        """Bring a column of any Polars type but Object to storage form."""
        return Checked(column) if column.dtype == self.polars() else self.convert_objects(column.to_list())

    def convert_objects(self, values: Sequence[Any]) -> Checked:
        """Bring Python values of any kinds to storage form."""
        if set(map(type, values)) <= self.native | {type(None)}:
            try:
                return Checked(pl.Series(values, dtype=self.polars(), strict=True))
            except (OverflowError, TypeError, ValueError, pl.exceptions.PolarsError):
                pass  # one of them does not fit: find out which
        return self.convert_each(values)

    def convert_each(self, values: Sequence[Any]) -> Checked:
        """Bring Python values to storage form one by one: slow, for what no vectorised way takes."""
        kept: list[Any] = [None] * len(values)
        faults: dict[int, str] = {}
        for row, value in present(values, nan_is_null=self.nan_is_null):
            try:
                kept[row] = self.accept(value)
            except Refused as refused:
                faults[row] = refused.message
        return Checked(pl.Series(kept, dtype=self.polars(), strict=True), faults)

    def accept(self, value: Any) -> Any:
        """Return one value, not null, as Polars stores it.

        Raises:
            Refused: the value does not belong to the type.
        """
        raise self.refuse(value)

    def refuse(self, value: Any) -> Refused:
        """Return the error for a value that does not belong to the type."""
        return Refused(f"expected {self}, got {describe(value)}")

    # ---- handing values out ---------------------------------------------------------------------------------------

    @property
    def is_plain_python(self) -> bool:
        """Whether values read from Polars are already what users get."""
        return True

    def present(self, value: Any) -> Any:
        """Return a value as read from Polars, not null, in the form users get it."""
        return value

    def to_python(self, column: pl.Series) -> list[Any]:
        """Return stored values in the form users get them: None for null, `pd.NA` for null inside a value."""
        values = column.to_list()
        return values if self.is_plain_python else [None if value is None else self.present(value) for value in values]

    def to_pandas(self, column: pl.Series) -> pd.Series[Any]:
        """Return stored values as a pandas series; null is `pd.NA`."""
        import pandas as pd

        values = [pd.NA if value is None else value for value in self.to_python(column)]
        return pd.Series(values, dtype=object, name=column.name)


def shown(dtype: DType, value: Any) -> Any:
    """Return a value inside another, as read from Polars, in the form users get it; null is `pd.NA`."""
    return _missing() if value is None else dtype.present(value)


@cache
def _missing() -> Any:
    import pandas as pd

    return pd.NA


def describe(value: Any) -> str:
    """Return a value and its Python type as short text."""
    return f"{_SHORT.repr(value)} ({type(value).__name__})"


def is_missing(value: Any) -> bool:
    """Return whether a Python value stands for null: None, `pd.NA`, `pd.NaT`, numpy's NaT."""
    return type(value).__name__ in _MISSING or (isinstance(value, np.datetime64) and bool(np.isnat(value)))


def is_nan(value: Any) -> bool:
    """Return whether a Python value is a float that is not a number."""
    return isinstance(value, (float, np.floating)) and bool(np.isnan(value))


def present(values: Sequence[Any], *, nan_is_null: bool) -> Iterator[tuple[int, Any]]:
    """Yield the row numbers and values that are not null."""
    for row, value in enumerate(values):
        if not is_missing(value) and not (nan_is_null and is_nan(value)):
            yield row, value


def nulls(height: int, dtype: pl.DataType) -> pl.Series:
    """Return a column of nulls."""
    return pl.Series([None], dtype=dtype).new_from_index(0, height)


def spread(values: pl.Series, rows: np.ndarray[Any, Any], height: int) -> pl.Series:
    """Return a column of `height` rows with the values at the given rows and null elsewhere."""
    if len(values) == height:
        return values
    source = np.full(height, -1, dtype=np.int64)
    source[rows] = np.arange(len(values))
    index = pl.Series(source)
    return values.gather(index.set(index < 0, None))
