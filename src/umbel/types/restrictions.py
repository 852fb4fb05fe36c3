"""Optional, and restricted types: a subset of the values of an inner type."""

from __future__ import annotations

import re
import typing
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.errors import InvalidType
from umbel.types.dtype import Checked, DType, Refused, describe
from umbel.types.numeric import Float, Int
from umbel.types.patterns import pattern_of
from umbel.types.text import Str

if TYPE_CHECKING:
    import pandas as pd

_ONEOF = "base and options are of one type: oneof(str, ['a', 'b']), oneof(int, [1, 2])"
_BETWEEN = "base and bounds are of one type: between(int, 1, 5), between(float, 0, 0.5)"
_REGEX = "a pattern like regex('[a-z]+')"


@dataclass(frozen=True, slots=True)
class Wrapper(DType):
    """A type with the storage form and Python values of its inner type."""

    of: DType

    def polars(self) -> pl.DataType:
        return self.of.polars()

    @property
    def is_hashable(self) -> bool:
        return self.of.is_hashable

    @property
    def is_numeric(self) -> bool:
        return self.of.is_numeric

    @property
    def is_plain_python(self) -> bool:
        return self.of.is_plain_python

    def convert(self, column: pl.Series | Sequence[Any]) -> Checked:
        return self.of.convert(column)

    def accept(self, value: Any) -> Any:
        return self.of.accept(value)

    def present(self, value: Any) -> Any:
        return self.of.present(value)

    def to_pandas(self, column: pl.Series) -> pd.Series[Any]:
        return self.of.to_pandas(column)


@dataclass(frozen=True, slots=True)
class Optional(Wrapper):
    """A type, and null."""

    @property
    def is_optional(self) -> bool:
        return True

    def takes(self, values: Sequence[Any]) -> bool:
        return self.of.takes([value for value in values if value is not None])

    @property
    def base(self) -> DType:
        return self.of

    @property
    def plain(self) -> DType:
        return self.of.plain

    def annotation(self) -> Any:
        return typing.Optional[self.of.annotation()]  # noqa: UP045

    def __str__(self) -> str:
        return f"Optional[{self.of}]"


@dataclass(frozen=True, slots=True)
class Restricted(Wrapper):
    """A type with a subset of values, checked on ingestion."""

    @property
    def plain(self) -> DType:
        return self.of

    def convert(self, column: pl.Series | Sequence[Any]) -> Checked:
        checked = self.of.convert(column)
        outside = self.outside(checked.values).fill_null(False).arg_true().to_list()
        return Checked(checked.values, {**{row: self.reason(checked.values[row]) for row in outside}, **checked.errors})

    @abstractmethod
    def outside(self, values: pl.Series) -> pl.Series:
        """Return a mask of the refused stored values."""

    def reason(self, value: Any) -> str:
        """Return the reason for refusing a value."""
        return f"expected {self}, got {describe(value)}"


@dataclass(frozen=True, slots=True)
class OneOf(Restricted):
    """Values among `options`."""

    options: tuple[Any, ...]

    def annotation(self) -> Any:
        return oneof(self.of.annotation(), self.options)

    def outside(self, values: pl.Series) -> pl.Series:
        return ~values.is_in(pl.Series(self.options, dtype=self.polars()).implode())

    def __str__(self) -> str:
        return f"oneof({self.of}, {list(self.options)})"


@dataclass(frozen=True, slots=True)
class Between(Restricted):
    """Numbers from `min` to `max`, the ends included unless strict."""

    min: Any
    max: Any
    strict_min: bool = False
    strict_max: bool = False

    def annotation(self) -> Any:
        return between(self.of.annotation(), self.min, self.max, self.strict_min, self.strict_max)

    def outside(self, values: pl.Series) -> pl.Series:
        # Polars orders NaN above every number, so that it is always above the upper bound.
        below = values <= self.min if self.strict_min else values < self.min
        above = values >= self.max if self.strict_max else values > self.max
        outside: pl.Series = below | above
        return outside

    def __str__(self) -> str:
        strict = "".join(f", strict_{end}=True" for end in ("min", "max") if getattr(self, f"strict_{end}"))
        return f"between({self.of}, {self.min}, {self.max}{strict})"


@dataclass(frozen=True, slots=True)
class Regex(Restricted):
    """Text matching `pattern` from its start, like `re.match`."""

    pattern: str

    def annotation(self) -> Any:
        return regex(self.pattern)

    def outside(self, values: pl.Series) -> pl.Series:
        distinct = values.unique().drop_nulls().to_list()
        good = pattern_of(self.pattern).matches(distinct)
        refused = [text for text, is_good in zip(distinct, good, strict=True) if not is_good]
        return values.is_in(pl.Series(refused, dtype=pl.String).implode()) if refused else values.is_null() & False

    def reason(self, value: Any) -> str:
        is_slow = pattern_of(self.pattern).is_slow(value)
        return f"{Restricted.reason(self, value)}{', and to match it takes too long' if is_slow else ''}"

    def __str__(self) -> str:
        return f"regex({self.pattern!r})"


class Restriction(ABC):
    """An annotation made by `oneof`, `between` or `regex`, checked on first use."""

    @abstractmethod
    def dtype(self) -> Restricted:
        """Return the type.

        Raises:
            InvalidType: base, options, bounds or pattern are inconsistent.
        """

    def __or__(self, other: Any) -> Any:
        return typing.Union[self, other]  # noqa: UP007

    def __ror__(self, other: Any) -> Any:
        return typing.Union[other, self]  # noqa: UP007


@dataclass(frozen=True)
class oneof(Restriction):  # noqa: N801
    """Annotate a field whose values are among `options`.

    Args:
        base: int or str.
        options: values of that type.
    """

    base: Any
    options: Sequence[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", tuple(self.options))

    def dtype(self) -> OneOf:
        kinds: dict[Any, DType] = {int: Int(), str: Str()}
        if self.base not in kinds:
            raise InvalidType(f"oneof: the base type must be int or str, found {_name(self.base)}", hint=_ONEOF)
        if not self.options:
            raise InvalidType("oneof: there are no options", hint=_ONEOF)
        for option in self.options:
            if type(option) is not self.base:
                message = f"oneof: option {option!r} is {_name(type(option))}, expected {_name(self.base)}"
                raise InvalidType(message, hint=_ONEOF)
            _check_size("oneof: option", kinds[self.base], option)
        return OneOf(kinds[self.base], tuple(self.options))


@dataclass(frozen=True)
class between(Restriction):  # noqa: N801
    """Annotate a field whose values lie between two bounds.

    Args:
        base: int or float.
        min: the lower bound, of the base type.
        max: the upper bound, of the base type.
        strict_min: whether the lower bound itself is refused.
        strict_max: whether the upper bound itself is refused.
    """

    base: Any
    min: Any
    max: Any
    strict_min: bool = False
    strict_max: bool = False

    def dtype(self) -> Between:
        kinds: dict[Any, tuple[DType, tuple[type, ...]]] = {int: (Int(), (int,)), float: (Float(), (int, float))}
        if self.base not in kinds:
            raise InvalidType(f"between: the base type must be int or float, found {_name(self.base)}", hint=_BETWEEN)
        of, bounds = kinds[self.base]
        for name, bound in (("min", self.min), ("max", self.max)):
            if type(bound) not in bounds:
                message = f"between: {name} {bound!r} is {_name(type(bound))}, expected {_name(self.base)}"
                raise InvalidType(message, hint=_BETWEEN)
            _check_size(f"between: {name}", of, bound)
        excluded, lowest, highest = self.strict_min + self.strict_max, self.min, self.max
        if self.base is int:
            is_empty = highest - lowest < excluded
        else:
            is_empty = not (lowest < highest or (lowest == highest and not excluded))
        if is_empty:
            raise InvalidType(f"between: no value lies between {self.min!r} and {self.max!r}", hint=_BETWEEN)
        return Between(of, self.min, self.max, self.strict_min, self.strict_max)


@dataclass(frozen=True)
class regex(Restriction):  # noqa: N801
    """Annotate a text field whose values match `pattern` from their start.

    A text is refused if it takes too long to match: at first more than a second, less after several such texts. Patterns are
    those of Python's `re`. Where one repeats repetitions, as `(a+)+`, or a text is long, the package `regex` decides, which takes
    combining marks for letters of words.

    Args:
        pattern: a regular expression.
    """

    pattern: str

    def dtype(self) -> Regex:
        if not isinstance(self.pattern, str):
            raise InvalidType(f"regex: the pattern must be str, found {_name(type(self.pattern))}", hint=_REGEX)
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise InvalidType(f"regex: {self.pattern!r} is no regular expression: {error}", hint=_REGEX) from error
        return Regex(Str(), self.pattern)


def _check_size(title: str, dtype: DType, value: Any) -> None:
    try:
        dtype.accept(value)
    except Refused as error:
        raise InvalidType(f"{title} {value!r}: {error.message}", hint="give a number that the type has") from error


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind))
