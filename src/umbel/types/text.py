"""Text and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

import numpy as np
import polars as pl

from umbel.types.dtype import Checked, DType, Refused, describe

if TYPE_CHECKING:
    import pandas as pd


def exact(value: str) -> str:
    """Return a text without its subclass."""
    return str.__str__(value)  # `str` of a member of an enum is its name


def has_surrogates(value: str) -> bool:
    """Return whether a text has unpaired surrogates, and so no bytes in UTF-8."""
    if value.isascii():
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return True
    return False


def unpaired(value: str) -> str:
    """Return how a message names a text with unpaired surrogates."""
    return f"text with an unpaired surrogate, which has no form in UTF-8: {describe(value)}"


@dataclass(frozen=True, slots=True)
class Str(DType):
    """Text in UTF-8.

    Accepts numbers, booleans and UUIDs, as Python prints them: identifiers often arrive as such.
    """

    hashable: ClassVar[bool] = True
    native: ClassVar[frozenset[type]] = frozenset({str})

    def polars(self) -> pl.DataType:
        return pl.String()

    def annotation(self) -> Any:
        return str

    def takes(self, values: Sequence[Any]) -> bool:
        return all(type(value) is str and value.isascii() for value in values)

    def convert_column(self, column: pl.Series) -> Checked:
        if column.dtype == pl.String:
            return Checked(column)
        if column.dtype.is_integer() or column.dtype in (pl.Categorical, pl.Enum):
            return Checked(column.cast(pl.String))
        return self.convert_objects(column.to_list())

    def accept(self, value: Any) -> Any:
        if isinstance(value, Enum) and isinstance(value, (int, float)):
            value = value.value
        if isinstance(value, (bool, int, float, Decimal, UUID)):
            return str(value)
        if isinstance(value, np.generic) and not isinstance(value, (np.str_, np.bytes_)):
            return self.accept(value.item())
        if not isinstance(value, str):
            raise self.refuse(value)
        if has_surrogates(value):
            raise Refused(f"expected {self}, got {unpaired(value)}")
        return exact(value)

    def to_pandas(self, column: pl.Series) -> pd.Series[Any]:
        import pandas as pd

        values = np.array(column.to_numpy(), dtype=object)
        values[column.is_null().to_numpy()] = pd.NA
        return pd.Series(pd.array(values, dtype="string"), name=column.name)

    def __str__(self) -> str:
        return "str"


@dataclass(frozen=True, slots=True)
class Bytes(DType):
    """Bytes."""

    native: ClassVar[frozenset[type]] = frozenset({bytes})

    def polars(self) -> pl.DataType:
        return pl.Binary()

    def annotation(self) -> Any:
        return bytes

    def accept(self, value: Any) -> Any:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        raise self.refuse(value)

    def __str__(self) -> str:
        return "bytes"
