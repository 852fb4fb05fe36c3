"""Computed columns: a value per row, from an expression or a user function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.errors import (
    InvalidType,
    InvalidValue,
    RuntimeFailure,
    Terminal,
    UmbelError,
    UnknownName,
    did_you_mean,
    line_of,
    text_of,
)
from umbel.expr import Expr, evaluate, matches
from umbel.functions.guarding import guard
from umbel.functions.user_function import UserFunction
from umbel.types.dtypes import Bool, Checked, Date, Datetime, DType, Float, Int, Str

if TYPE_CHECKING:
    import pandas as pd

Columns = Mapping[str, DType]

SINGLE = (bool, int, float, str, bytes, Decimal, date)
"""Types of a single value that a user function may return for all rows, as in pandas column assignment."""

PARTS = 16
"""The number of parts a batch of rows is split into to find the rejected ones."""


@contextmanager
def blamed(what: str) -> Iterator[None]:
    """Convert an exception inside the block into a `Terminal` error in `what`.

    `RuntimeFailure`, `MemoryError` and `KeyboardInterrupt` pass through.
    """
    try:
        yield
    except (RuntimeFailure, MemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:  # user code raises anything, Polars panics
        hint = getattr(error, "hint", None) or "mend the function, or the rows it is given"
        raise Terminal(
            f"Error in {what}, {type(error).__name__}: {text_of(error)}", where=line_of(error), hint=hint
        ) from error


class Computed(ABC):
    """The computation of a column's values from the other columns of a row."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Its description, for messages."""

    @property
    def functions(self) -> tuple[UserFunction, ...]:
        """The user functions it calls."""
        return ()

    @property
    def reads(self) -> AbstractSet[str] | None:
        """The columns it reads, None if it may read any."""
        return None

    @abstractmethod
    def dtype(self, columns: Columns) -> DType | None:
        """Return the type of the values; None if it is known only from the values."""

    def fits(self, found: DType, declared: DType) -> bool:
        """Return True if values of the found type may be declared as another type."""
        return found == declared

    @abstractmethod
    def values(self, rows: pl.DataFrame, columns: Columns, declared: DType, *, of_kind: bool = False) -> pl.Series:
        """Return one value of the declared type per row, or raise.

        Args:
            rows: columns in storage form.
            columns: their types.
            declared: the type of the values.
            of_kind: True if a function must return a dtype of the declared kind, whatever the values.
        """

    @abstractmethod
    def judged(self, rows: pl.DataFrame, columns: Columns, declared: DType) -> Checked:
        """Return one value per row, and the errors of rejected rows.

        An error in some rows never raises.

        Args:
            rows: columns in storage form; for a function, also columns of any other form.
            columns: the types of those columns that have one.
            declared: the type of the values.
        """


@dataclass(frozen=True)
class ByExpression(Computed):
    """A column computed by an expression."""

    expression: Expr

    def __eq__(self, other: object) -> bool:
        # `==` of two expressions is an expression, and has no truth value
        return isinstance(other, ByExpression) and self.expression.to_record() == other.expression.to_record()

    def __hash__(self) -> int:
        return hash(str(self.expression))

    @property
    def title(self) -> str:
        return f"expression {self.expression}"

    @property
    def reads(self) -> AbstractSet[str]:
        return self.expression.columns()

    def dtype(self, columns: Columns) -> DType:
        return self.expression.dtype(columns)

    def fits(self, found: DType, declared: DType) -> bool:
        return matches(found, declared, self.expression)

    def values(self, rows: pl.DataFrame, columns: Columns, declared: DType, *, of_kind: bool = False) -> pl.Series:
        return evaluate(rows, {"value": (self.expression, declared)}, columns)["value"]

    def judged(self, rows: pl.DataFrame, columns: Columns, declared: DType) -> Checked:
        def values(part: pl.DataFrame) -> pl.Series:
            found = evaluate(part, {"value": (self.expression, None)}, columns)["value"]
            return found.cast(declared.polars()) if found.dtype == pl.Null else found

        return judged_by_parts(values, rows, declared)


@dataclass(frozen=True)
class ByFunction(Computed):
    """A column computed by a user function of the rows as a pandas frame."""

    function: UserFunction

    @property
    def title(self) -> str:
        return f"function {self.function.name}"

    @property
    def functions(self) -> tuple[UserFunction, ...]:
        return (self.function,)

    def dtype(self, columns: Columns) -> None:
        return None

    def values(self, rows: pl.DataFrame, columns: Columns, declared: DType, *, of_kind: bool = False) -> pl.Series:
        from umbel.types.pandas import series_from_pandas

        if rows.is_empty():
            return pl.Series("value", [], declared.polars())
        found = one_per_row(called(self.function, rows, columns), rows.height)
        if of_kind:
            _check_kind(found, declared)
        return series_from_pandas(found.rename(None), declared).alias("value")

    def judged(self, rows: pl.DataFrame, columns: Columns, declared: DType) -> Checked:
        by = guard()
        if by is not None and not rows.is_empty():
            return by.judge(self, rows, columns, declared)
        return judged_by_parts(lambda part: self.raw_values(part, columns), rows, declared)

    def raw_values(self, rows: pl.DataFrame, columns: Columns) -> pl.Series:
        """Return one value of any form per row, or raise."""
        from umbel.types.pandas import raw_series, to_pandas

        needed = _needed(self.function, rows.columns)
        types = {name: columns.get(name) or shown_as(rows[name]) for name in needed}
        provided = to_pandas(rows, self.function.typed(types))
        return raw_series(one_per_row(self.function(provided), rows.height))


_KINDS: dict[pl.DataType, tuple[str, tuple[str, ...]]] = {
    pl.Int64(): ("an integer", ("is_integer_dtype",)),
    pl.Float64(): ("a float or an integer", ("is_float_dtype", "is_integer_dtype")),
    pl.Boolean(): ("a boolean", ("is_bool_dtype",)),
    pl.String(): ("an object or string", ("is_object_dtype", "is_string_dtype")),
}


def _check_kind(series: pd.Series[Any], declared: DType) -> None:
    """Reject a series whose dtype is not of the declared kind, without reading its values."""
    import pandas as pd

    kind, tests = _KINDS.get(declared.polars(), ("", ()))
    if tests and not any(getattr(pd.api.types, test)(series.dtype) for test in tests):
        raise InvalidType(
            f"expected {kind} dtype for {declared}, found {series.dtype}", hint="convert the series: .astype(...)"
        )


def inferred(computed: Computed, columns: Columns, subject: str) -> DType | None:
    """Return the type of a computed column; raise with `subject` if it has none.

    Raises:
        InvalidValue: the expression does not type-check.
    """
    try:
        return computed.dtype(columns)
    except (ValueError, TypeError) as error:
        message = error.message if isinstance(error, UmbelError) else error
        hint = getattr(error, "hint", None) or "give the expression operands of types it takes"
        raise InvalidValue(f"{subject}: {message}", hint=hint) from error


def check_size(expression: Expr, subject: str) -> None:
    """Refuse an expression with too many operators, before anything else reads it.

    Raises:
        InvalidValue: the message begins with `subject`.
    """
    try:
        expression.check_size()
    except InvalidValue as error:
        raise InvalidValue(f"{subject}: {error.message}", hint=error.hint) from None


def called(function: UserFunction, rows: pl.DataFrame, columns: Columns) -> Any:
    """Call a user function with the rows as a pandas frame.

    Raises:
        UnknownName: it reads a column that the frame does not have.
    """
    from umbel.types.pandas import to_pandas

    frame = to_pandas(rows, function.typed({name: columns[name] for name in _needed(function, columns)}))
    try:
        return function(frame)
    except (KeyError, AttributeError) as error:
        name = _missing_column(error, columns)
        if name is None:
            raise
        unknown = UnknownName(f"the frame has no column '{name}'{did_you_mean(name, columns)}")
        raise unknown.with_traceback(error.__traceback__) from error


def _needed(function: UserFunction, names: Iterable[str]) -> list[str]:
    """Return the columns that a function may read."""
    return [name for name in names if function.reads is None or name in function.reads]


def _missing_column(error: KeyError | AttributeError, columns: Columns) -> str | None:
    """Return the column that pandas did not find, None for another error."""
    name = error.name if isinstance(error, AttributeError) else error.args[0] if error.args else None
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    is_pandas = trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith("pandas.")
    return name if is_pandas and isinstance(name, str) and name not in columns else None


def one_per_row(values: Any, height: int) -> pd.Series[Any]:
    """Return the result of a user function as a series without index.

    A single value is repeated for every row.

    Raises:
        InvalidType: the result is not a series, or has another length than the rows.
    """
    import numpy as np
    import pandas as pd

    if isinstance(values, (*SINGLE, np.generic)):
        return pd.Series([values] * height)
    if isinstance(values, pd.DataFrame) or not hasattr(values, "__len__"):
        raise InvalidType(
            f"expected a Series, found {type(values).__name__}", hint="return a Series with a value for each row"
        )
    series = values if isinstance(values, pd.Series) else pd.Series(values)
    if len(series) != height:
        raise InvalidType(
            f"expected a value for each of {height} rows, found {len(series)}",
            hint="return a Series with a value for each row",
        )
    ordered: pd.Series[Any] = in_order(series)
    return ordered


def in_order(made: Any) -> Any:
    """Return the result of a user function in input row order, without index.

    A function may sort the rows: an index that is a permutation of the row numbers then gives their original positions. Any other
    index is ignored.
    """
    import numpy as np

    index = made.index
    if index.nlevels == 1 and index.dtype.kind == "i" and not index.is_monotonic_increasing:
        order = index.to_numpy().argsort(kind="stable")
        if np.array_equal(index.to_numpy()[order], np.arange(len(index))):
            made = made.iloc[order]
    return made.reset_index(drop=True)


def judged_by_parts(values: Callable[[pl.DataFrame], pl.Series], rows: pl.DataFrame, declared: DType) -> Checked:
    """Compute values for all rows but the rejected ones.

    A part of the rows that raises is split further until the rejected rows are found.
    """
    if rows.is_empty():
        return Checked(pl.Series("value", [], declared.polars()))
    try:
        checked = declared.ingest(values(rows))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  user code raises anything, Polars panics
        if rows.height == 1:
            return Checked(
                pl.Series("value", [None], declared.polars()), {0: f"{type(error).__name__}: {text_of(error)}"}
            )
        size = -(-rows.height // PARTS)
        return _together([judged_by_parts(values, part, declared) for part in rows.iter_slices(size)])
    return Checked(checked.values.alias("value"), checked.errors)


def _together(parts: list[Checked]) -> Checked:
    starts = accumulate((len(part.values) for part in parts), initial=0)
    errors = {start + row: why for start, part in zip(starts, parts, strict=False) for row, why in part.errors.items()}
    return Checked(pl.concat([part.values for part in parts]), errors)


def shown_as(column: pl.Series) -> DType:
    """Return the type used to convert an untyped column for a user function."""
    return _SHOWN.get(column.dtype, _AS_THEY_ARE)


@dataclass(frozen=True, slots=True)
class _AsTheyAre(DType):
    """Values of an unknown type."""

    def polars(self) -> pl.DataType:
        return pl.Object()


_AS_THEY_ARE = _AsTheyAre()
_SHOWN: dict[pl.DataType, DType] = {each.polars(): each for each in (Int(), Float(), Str(), Bool(), Datetime(), Date())}
