"""Parsing of JSON text into values of a type."""

from __future__ import annotations

import datetime as dt
import decimal
from functools import singledispatch
from typing import Annotated, Any

import msgspec
import polars as pl

from umbel.errors import InvalidValue
from umbel.types.dtypes import (
    Bool,
    Bytes,
    Checked,
    Date,
    Datetime,
    Decimal,
    Dict,
    DType,
    Embedding,
    Float,
    Int,
    List,
    Optional,
    Record,
    Restricted,
    Str,
)

_PLAIN: dict[type[DType], Any] = {
    Int: int | float,  # 1.0 is an int, 1.5 is refused when it is stored
    Float: float,
    Bool: bool,
    Str: str,
    Bytes: bytes,
    Datetime: dt.datetime,
    Date: dt.date,
    Decimal: decimal.Decimal,
}


@singledispatch
def shape(dtype: DType) -> Any:
    """Return the Python type describing the JSON input of a type."""
    return _PLAIN[type(dtype)]


@shape.register
def _(dtype: Optional) -> Any:
    return shape(dtype.of) | None


@shape.register
def _(dtype: Restricted) -> Any:
    return shape(dtype.of)


@shape.register
def _(dtype: List) -> Any:
    return list[shape(dtype.of)]  # type: ignore[misc]


@shape.register
def _(dtype: Dict) -> Any:
    return dict[str, shape(dtype.of)]  # type: ignore[misc]


@shape.register
def _(dtype: Embedding) -> Any:
    return Annotated[list[float], msgspec.Meta(min_length=dtype.size, max_length=dtype.size)]


@shape.register
def _(dtype: Record) -> Any:
    fields = [(name, shape(of), None) if of.is_optional else (name, shape(of)) for name, of in dtype.members()]
    return msgspec.defstruct("Fields", sorted(fields, key=len), gc=False)  # JSON has no cycles


class JsonReader:
    """Parses columns of JSON text into one type."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self._decode = msgspec.json.Decoder(shape(dtype)).decode

    def values(self, text: pl.Expr) -> pl.Expr:
        """Return the value parsed from each text; evaluation raises on malformed text."""
        return text.map_batches(self._strict, return_dtype=self.dtype.polars(), is_elementwise=True)

    def attempts(self, text: pl.Expr) -> pl.Expr:
        """Return a struct of each text's parsed value and an error flag."""
        stored = pl.Struct({"value": self.dtype.polars(), "is_malformed": pl.Boolean()})
        return text.map_batches(self._attempts, return_dtype=stored, is_elementwise=True)

    def _strict(self, text: pl.Series) -> pl.Series:
        checked = self._read(text.to_list())
        if checked.errors:
            row, reason = min(checked.errors.items())
            raise InvalidValue(
                f"{text[row]!r} is no JSON of type {self.dtype}: {reason}",
                hint="give JSON of that type, or parse an Optional",
            )
        return checked.values.alias(text.name)

    def _attempts(self, text: pl.Series) -> pl.Series:
        checked = self._read(text.to_list())
        errors = [row in checked.errors for row in range(len(text))]
        return pl.DataFrame({"value": checked.values, "is_malformed": errors}).to_struct(text.name)

    def _read(self, texts: list[str | None]) -> Checked:
        values: list[Any] = [None] * len(texts)
        errors: dict[int, str] = {}
        for row, text in enumerate(texts):
            try:
                values[row] = None if text is None else self._decode(text)
            except (msgspec.DecodeError, RecursionError) as error:
                errors[row] = str(error)
        return self.dtype.convert(values).blame(errors)
