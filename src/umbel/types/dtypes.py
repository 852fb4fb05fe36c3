"""The types a field or feature can have, and how each is stored in a Polars frame."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import polars as pl

DECIMAL_DIGITS = 28


@dataclass(frozen=True, slots=True)
class DType:
    """A type of values. Instances compare by value and print as the annotation that makes them."""

    def polars(self) -> pl.DataType:
        """Return the Polars type its values are stored as."""
        raise NotImplementedError(type(self).__name__)

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
        """Whether values can be counted as distinct (api: int, str, bool, decimal and lists, dicts of them)."""
        return False

    @property
    def is_numeric(self) -> bool:
        """Whether values can be summed."""
        return False


@dataclass(frozen=True, slots=True)
class Int(DType):
    def polars(self) -> pl.DataType:
        return pl.Int64()

    is_hashable = is_numeric = property(lambda self: True)  # type: ignore[assignment]

    def __str__(self) -> str:
        return "int"


@dataclass(frozen=True, slots=True)
class Float(DType):
    def polars(self) -> pl.DataType:
        return pl.Float64()

    is_numeric = property(lambda self: True)  # type: ignore[assignment]

    def __str__(self) -> str:
        return "float"


@dataclass(frozen=True, slots=True)
class Bool(DType):
    def polars(self) -> pl.DataType:
        return pl.Boolean()

    is_hashable = property(lambda self: True)  # type: ignore[assignment]

    def __str__(self) -> str:
        return "bool"


@dataclass(frozen=True, slots=True)
class Str(DType):
    def polars(self) -> pl.DataType:
        return pl.String()

    is_hashable = property(lambda self: True)  # type: ignore[assignment]

    def __str__(self) -> str:
        return "str"


@dataclass(frozen=True, slots=True)
class Bytes(DType):
    def polars(self) -> pl.DataType:
        return pl.Binary()

    def __str__(self) -> str:
        return "bytes"


@dataclass(frozen=True, slots=True)
class Datetime(DType):
    """An instant: microseconds since the Unix epoch, UTC."""

    def polars(self) -> pl.DataType:
        return pl.Datetime("us", "UTC")

    def __str__(self) -> str:
        return "datetime"


@dataclass(frozen=True, slots=True)
class Date(DType):
    def polars(self) -> pl.DataType:
        return pl.Date()

    def __str__(self) -> str:
        return "date"


@dataclass(frozen=True, slots=True)
class Decimal(DType):
    """A fixed-point number of 28 digits, `scale` of them after the point."""

    scale: int

    def polars(self) -> pl.DataType:
        return pl.Decimal(DECIMAL_DIGITS, self.scale)

    is_hashable = is_numeric = property(lambda self: True)  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"Decimal[{self.scale}]"


@dataclass(frozen=True, slots=True)
class List(DType):
    of: DType

    def polars(self) -> pl.DataType:
        return pl.List(self.of.polars())

    @property
    def is_hashable(self) -> bool:
        return self.of.is_hashable

    def __str__(self) -> str:
        return f"List[{self.of}]"


@dataclass(frozen=True, slots=True)
class Dict(DType):
    """A mapping with string keys, stored as a list of (key, value)."""

    of: DType

    def polars(self) -> pl.DataType:
        return pl.List(pl.Struct({"key": pl.String(), "value": self.of.polars()}))

    @property
    def is_hashable(self) -> bool:
        return self.of.is_hashable

    def __str__(self) -> str:
        return f"Dict[str, {self.of}]"


@dataclass(frozen=True, slots=True)
class Embedding(DType):
    """A vector of exactly `size` floats."""

    size: int

    def polars(self) -> pl.DataType:
        return pl.Array(pl.Float64(), self.size)

    def __str__(self) -> str:
        return f"Embedding[{self.size}]"


@dataclass(frozen=True, slots=True)
class Struct(DType):
    """Named fields. `cls` is the user's struct class, made again from plain data when values are handed out."""

    name: str
    fields: tuple[tuple[str, DType], ...]
    cls: Any = field(default=None, compare=False, repr=False)

    def polars(self) -> pl.DataType:
        return pl.Struct({name: dtype.polars() for name, dtype in self.fields})

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Window(DType):
    """A time span [begin, end)."""

    def polars(self) -> pl.DataType:
        return pl.Struct({"begin": pl.Datetime("us", "UTC"), "end": pl.Datetime("us", "UTC")})

    def __str__(self) -> str:
        return "Window"


@dataclass(frozen=True, slots=True)
class Optional(DType):
    of: DType

    def polars(self) -> pl.DataType:
        return self.of.polars()

    is_optional = property(lambda self: True)  # type: ignore[assignment]

    @property
    def base(self) -> DType:
        return self.of

    @property
    def plain(self) -> DType:
        return self.of.plain

    @property
    def is_hashable(self) -> bool:
        return self.of.is_hashable

    @property
    def is_numeric(self) -> bool:
        return self.of.is_numeric

    def __str__(self) -> str:
        return f"Optional[{self.of}]"


@dataclass(frozen=True, slots=True)
class Restricted(DType):
    """A type with fewer values: the values are checked when data comes in."""

    of: DType

    def polars(self) -> pl.DataType:
        return self.of.polars()

    @property
    def plain(self) -> DType:
        return self.of

    @property
    def is_hashable(self) -> bool:
        return self.of.is_hashable

    @property
    def is_numeric(self) -> bool:
        return self.of.is_numeric


@dataclass(frozen=True, slots=True)
class OneOf(Restricted):
    options: tuple[Any, ...]

    def __str__(self) -> str:
        return f"oneof({self.of}, {list(self.options)})"


@dataclass(frozen=True, slots=True)
class Between(Restricted):
    min: Any
    max: Any
    strict_min: bool = False
    strict_max: bool = False

    def __str__(self) -> str:
        return f"between({self.of}, {self.min}, {self.max}, {self.strict_min}, {self.strict_max})"


@dataclass(frozen=True, slots=True)
class Regex(Restricted):
    pattern: str

    def __str__(self) -> str:
        return f"regex({self.pattern!r})"
