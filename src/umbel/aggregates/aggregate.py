"""The `Aggregate` base class: a definition for the user, an algebra for the windows.

An aggregate defines how rows become a partial state (`lift`), how partial states become one (`merge`) and how a state becomes a
value (`result`). States are columns; all three are vectorised over whole frames. Windows, tiles, streams, backfills and stores
use only this interface.
"""

from __future__ import annotations

import sys
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import polars as pl

from umbel.aggregates.columns import Columns
from umbel.aggregates.point_states import Array, Fold, Ints
from umbel.errors import InvalidType, InvalidValue, UmbelError, did_you_mean
from umbel.plugins import Registry
from umbel.types.arguments import ArgumentsMeta
from umbel.types.dtypes import DType
from umbel.types.schema import Schema
from umbel.types.windows import Continuous, Hopping, Session, Tumbling

Window = Continuous | Tumbling | Hopping
Partial = dict[str, pl.Expr]

_KINDS: Mapping[str, tuple[type, ...]] = {"str": (str,), "bool": (bool,), "int": (int,), "float": (int, float)}
LARGEST = int(sys.float_info.max)
"""The largest int that fits a float."""


@dataclass(frozen=True, kw_only=True)
class Aggregate(metaclass=ArgumentsMeta):
    """A value computed from the rows of a group in a window.

    Args:
        window: the rows that count: Continuous, Tumbling or Hopping. May be omitted when `groupby` has a window.
        into_field: the result column; the keyword of `aggregate(...)` when empty.
    """

    window: Window | None = None
    into_field: str = ""

    by_position: ClassVar[type[UmbelError]] = InvalidValue
    numeric: ClassVar[bool] = False
    needs_instant: ClassVar[bool] = False
    """True if the result depends on the queried instant."""
    is_exact_retracted: ClassVar[bool] = False
    """True if states of inserted and retracted rows are worth the same in whatever portions and order they are merged.

    Then a batch adds its states to the stored ones without reading these.
    """
    is_associative: ClassVar[bool] = False
    """True if states with floats are the same in whatever portions they are merged, to the last digit."""
    is_additive: ClassVar[bool] = False
    """True if the parts of merged states are the sums of those of each, as `addends` returns them."""

    def __post_init__(self) -> None:
        window: object = self.window  # any object: not validated yet
        if isinstance(window, str):
            message = f'{self.kind}: a window given as text; write window=Continuous("{window}")'
            warnings.warn(message, DeprecationWarning, stacklevel=5)
            window = Continuous(window)
            object.__setattr__(self, "window", window)
        if isinstance(window, Session):
            raise InvalidValue(f"{self.kind}: window cannot be a Session", hint="groupby(..., window=Session(gap))")
        if window is not None and not isinstance(window, Continuous | Tumbling | Hopping):
            found = type(window).__name__
            raise InvalidValue(
                f"{self.kind}: window must be Continuous, Tumbling or Hopping, found {found}",
                hint="sessions go into groupby(..., window=Session(...))",
            )
        self._check_arguments()

    def _check_arguments(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "of" and not isinstance(value, str) and isinstance(getattr(value, "name", None), str):
                value = value.name
                object.__setattr__(self, "of", value)
            declared, _, optional = str(each.type).partition(" | ")
            allowed = _KINDS.get(declared)
            if allowed is None or (optional == "None" and value is None):
                continue
            is_other = not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed)
            if is_other or (declared == "float" and isinstance(value, int) and abs(value) > LARGEST):
                found = f"{value!r:.60} ({type(value).__name__})"
                raise InvalidValue(
                    f"{self.kind}: argument '{each.name}' must be {declared}, found {found}",
                    hint="give a value of that type",
                )

    # the definition

    @property
    def kind(self) -> str:
        """The class name, for messages."""
        return type(self).__name__

    @property
    def column(self) -> str | None:
        """The input column; None when it counts rows."""
        return getattr(self, "of", None)

    @property
    def title(self) -> str:
        """The class name and the result column, for messages."""
        return f"{self.kind} '{self.into_field}'" if self.into_field else self.kind

    def named(self, name: str) -> Self:
        """Return a copy with another result column."""
        return replace(self, into_field=name)

    def fitted(self, schema: Schema) -> Self:
        """Return a copy with its arguments cast to the types of their columns.

        Arguments that do not fit the type stay unchanged.

        Raises:
            InvalidType: an argument is of the type, but outside its restriction.
        """
        return self

    @property
    def algebra(self) -> Aggregate:
        """The aggregate without window, default and result column.

        Only the rest determines the state: aggregates with equal algebras share one.
        """
        return replace(self, **{name: None for name in ("window", "default") if hasattr(self, name)}, into_field="")

    def input(self, schema: Schema) -> DType | None:
        """Return the type of the input column; None when it has none.

        Raises:
            InvalidValue: there is no such column.
        """
        if self.column is None:
            return None
        if self.column not in schema.dtypes:
            known = did_you_mean(self.column, schema.names)
            raise InvalidValue(f"{self.title}: unknown field '{self.column}'{known}", hint="name a column of the input")
        return schema.dtypes[self.column]

    def check(self, schema: Schema) -> None:
        """Check the definition against rows of `schema`.

        Raises:
            InvalidType: the column's type is not supported.
            InvalidValue: an argument's value is not allowed.
        """
        dtype = self.input(schema)
        if self.numeric and dtype is not None and not dtype.is_numeric:
            raise self.type_error(dtype, "numeric types (int, float, Decimal)")

    @abstractmethod
    def result_type(self, schema: Schema) -> DType:
        """Return the type of the result over rows of `schema`."""

    def type_error(self, found: DType, supported: str) -> InvalidType:
        """Return the error for an input column of an unsupported type."""
        return InvalidType(
            f"{self.title}: field '{self.column}' has type {found}; supported are {supported}",
            hint="aggregate a column of such a type, or assign one first",
        )

    def check_dropnull(self, schema: Schema, error: type[UmbelError] = InvalidValue) -> None:
        """Reject `dropnull` on a column that is not Optional, or without a column."""
        dtype = self.input(schema)
        if not getattr(self, "dropnull", False):
            return
        if dtype is None:
            raise error(f"{self.title}: dropnull needs `of`", hint="say whose nulls: of='column'")
        if not dtype.is_optional:
            message = f"{self.title}: dropnull on field '{self.column}' of type {dtype}, which is not Optional"
            raise error(message, hint="leave dropnull out: there are no nulls")

    # the algebra

    @property
    def missing(self) -> Any:
        """The value for a key with no rows ever."""
        return getattr(self, "default", None)

    @abstractmethod
    def state(self, state: Columns) -> dict[str, pl.DataType]:
        """Return the columns of a partial state."""

    @abstractmethod
    def lift(self, state: Columns) -> Partial:
        """Return the partial state of a group of rows, as `group_by` expressions.

        The rows have `of`, `_weight` (their net multiplicity), `_time_first` (their instant in µs) and `_seq`.
        """

    @abstractmethod
    def merge(self, state: Columns) -> Partial:
        """Return the merged state of a group of states, as `group_by` expressions."""

    def addends(self, states: pl.DataFrame, state: Columns, owners: Ints) -> pl.DataFrame:
        """Return states whose parts have the sums that are those of merged states, if `is_additive`.

        Args:
            states: in order within each owner.
            state: names the columns.
            owners: of the states, ascending: those of one are merged, from the first one on.
        """
        return states

    def decay(self, states: pl.DataFrame, state: Columns, owners: Ints) -> Array | None:
        """Return by what sums shrink before each state is added; None for nothing.

        Only if `is_additive`. The arguments are those of `addends`.
        """
        return None

    def tidy(self, states: pl.DataFrame, state: Columns) -> pl.DataFrame:
        """Bring the states made by `lift` and `merge` into their stored form."""
        return states

    def settle(self, states: pl.DataFrame, state: Columns) -> pl.DataFrame:
        """Compact states: drop the parts needed only for retractions."""
        return states

    @abstractmethod
    def result(self, states: pl.DataFrame, state: Columns) -> pl.Expr | pl.Series:
        """Return the value of each state; an empty state has the empty value.

        Args:
            states: `_weight` and the state columns; also `_time`, the queried instant, when `needs_instant`.
            state: names the columns.
        """

    def emitted(self, states: pl.DataFrame, state: Columns) -> pl.Expr | pl.Series:
        """Return the value of each state for an emitted row.

        Like `result`, but null where the value does not fit its type: one group's value must not end a stream, so `result` raises
        only when the value is queried.
        """
        return self.result(states, state)

    # the algebra for point lookups

    def folding(self, state: Columns) -> Fold | None:
        """Return the merged state's values, vectorised over points without frames.

        The function computes `result` of `merge` with less overhead for point lookups. None if only frames can compute it.
        """
        return None


AggregateType = Aggregate
AGGREGATES = Registry("aggregate", "umbel.aggregates", Aggregate)
