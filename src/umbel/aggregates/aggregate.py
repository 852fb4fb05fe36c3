"""What every aggregate is: a definition the user writes, and an algebra the windows are made of.

An aggregate says how rows become a partial state (`lift`), how partial states become one (`merge`) and what a state is worth
(`result`). States are columns; all three run over whole frames. Windows, tiles, streams, backfills and stores know no more.
"""

from __future__ import annotations

import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, Self

import polars as pl

from umbel.aggregates.columns import Columns
from umbel.aggregates.held import Fold
from umbel.errors import InvalidType, InvalidValue, UmbelError, did_you_mean
from umbel.types.dtypes import DType
from umbel.types.schema import Schema
from umbel.types.windows import Continuous, Hopping, Session, Tumbling

Window = Continuous | Tumbling | Hopping
Partial = dict[str, pl.Expr]

_KINDS: Mapping[str, tuple[type, ...]] = {"str": (str,), "bool": (bool,), "int": (int,), "float": (int, float)}


class Arguments(ABCMeta):
    """Answers wrong arguments with an error that names them, as a value error."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        name = cls.__name__
        if args:
            raise InvalidValue(
                f"{name}: arguments are given by keyword, found {args!r}", hint=f"{name}(of='column', …)"
            )
        known = {f.name: f for f in fields(cls) if f.init}  # type: ignore[arg-type]
        for given in kwargs:
            if given not in known:
                raise InvalidValue(
                    f"{name}: unknown argument '{given}'{did_you_mean(given, known)}",
                    hint="leave it out, or mend its name",
                )
        absent = [f.name for f in known.values() if f.default is MISSING and f.name not in kwargs]
        if absent:
            raise InvalidValue(f"{name}: missing argument {', '.join(map(repr, absent))}", hint="give it by its name")
        return super().__call__(**kwargs)


@dataclass(frozen=True, kw_only=True)
class Aggregate(metaclass=Arguments):
    """A value computed from the rows of a group in a window.

    Args:
        window: the rows that count: Continuous, Tumbling or Hopping. May be left out when `groupby` has a window.
        into_field: the column of the result; the keyword of `aggregate(...)` when empty.
    """

    window: Window | None = None
    into_field: str = ""

    numeric: ClassVar[bool] = False
    needs_instant: ClassVar[bool] = False
    """Whether the result depends on the instant it is asked for."""
    origins: ClassVar[tuple[str, ...]] = ()
    """The parts of its state that say what the others are measured from, whatever they hold."""

    def __post_init__(self) -> None:
        window: object = self.window  # whatever the user gave
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
            if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
                found = f"{value!r} ({type(value).__name__})"
                raise InvalidValue(
                    f"{self.kind}: argument '{each.name}' must be {declared}, found {found}",
                    hint="give a value of that type",
                )

    # the definition

    @property
    def kind(self) -> str:
        """Its name in messages."""
        return type(self).__name__

    @property
    def column(self) -> str | None:
        """The column it reads, None when it counts rows."""
        return getattr(self, "of", None)

    @property
    def title(self) -> str:
        """What it is and where its result goes, for messages."""
        return f"{self.kind} '{self.into_field}'" if self.into_field else self.kind

    def named(self, name: str) -> Self:
        """Return it with another result column."""
        return replace(self, into_field=name)

    @property
    def algebra(self) -> Aggregate:
        """What of it decides the state: aggregates with equal algebras share one."""
        return replace(self, **{name: None for name in ("window", "default") if hasattr(self, name)}, into_field="")

    def input(self, schema: Schema) -> DType | None:
        """Return the type of the column it reads.

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
        """Raise what is wrong with it over rows of `schema`.

        Raises:
            InvalidType: the column's type is not supported.
            InvalidValue: an argument's value is not allowed.
        """
        dtype = self.input(schema)
        if self.numeric and dtype is not None and not dtype.is_numeric:
            raise self.type_error(dtype, "numeric types (int, float, Decimal)")

    @abstractmethod
    def result_type(self, schema: Schema) -> DType:
        """Return the type of its result over rows of `schema`."""

    def type_error(self, found: DType, supported: str) -> InvalidType:
        """Return the error that its input has a type it does not take."""
        return InvalidType(
            f"{self.title}: field '{self.column}' has type {found}; supported are {supported}",
            hint="aggregate a column of such a type, or assign one first",
        )

    def check_dropnull(self, schema: Schema, error: type[UmbelError] = InvalidValue) -> None:
        """Refuse `dropnull` where no nulls can be."""
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
        """The value for a key never seen."""
        return getattr(self, "default", None)

    @abstractmethod
    def state(self, state: Columns) -> dict[str, pl.DataType]:
        """Return the columns of a partial state."""

    @abstractmethod
    def lift(self, state: Columns) -> Partial:
        """Return the state of a group of rows, as expressions in a group_by.

        The rows have `of`, `_weight` (their net multiplicity), `_time_first` (their instant in µs) and `_seq`.
        """

    @abstractmethod
    def merge(self, state: Columns) -> Partial:
        """Return the one state of a group of states, as expressions in a group_by."""

    def tidy(self, states: pl.DataFrame, state: Columns) -> pl.DataFrame:
        """Bring states as `lift` and `merge` left them into the form they are kept in."""
        return states

    def settle(self, states: pl.DataFrame, state: Columns) -> pl.DataFrame:
        """Drop what states hold only so that rows can be taken back."""
        return states

    @abstractmethod
    def result(self, states: pl.DataFrame, state: Columns) -> pl.Expr | pl.Series:
        """Return what each state is worth, its empty value included.

        Args:
            states: `_weight` and the state columns; `_time`, the instant asked for, when `needs_instant`.
            state: names the columns.
        """

    def told(self, states: pl.DataFrame, state: Columns) -> pl.Expr | pl.Series:
        """Return what each state is worth as the value of a row: as `result`, but null where it does not fit its type.

        One group's value must not end a stream, so it is refused only where it is asked for.
        """
        return self.result(states, state)

    # the same for a few questions

    def folding(self, state: Columns) -> Fold | None:
        """Return how states become what they are worth together without frames: `result` of `merge`, with less ado for few.

        None where only frames can tell.
        """
        return None


AggregateType = Aggregate
