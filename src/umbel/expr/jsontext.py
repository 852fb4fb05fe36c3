"""Reading JSON text as values of a type."""

from __future__ import annotations

import datetime as clock
import decimal
from collections.abc import Callable
from functools import singledispatch
from typing import Annotated, Any

import msgspec
import polars as pl

from umbel.types.dtypes import (
    Bool,
    Bytes,
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
    Int: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)],
    Float: float,
    Bool: bool,
    Str: str,
    Bytes: bytes,
    Datetime: clock.datetime,
    Date: clock.date,
    Decimal: decimal.Decimal,
}


@singledispatch
def shape(dtype: DType) -> Any:
    """Return the Python type that says what JSON a type is read from."""
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
    return msgspec.defstruct("Fields", sorted(fields, key=len))


def parsed(text: pl.Expr, dtype: DType) -> pl.Expr:
    """Return a struct of the value read from each text, and whether the text is at fault."""
    stored = pl.Struct({"value": dtype.polars(), "fault": pl.Boolean()})
    return text.map_batches(_reader(dtype), return_dtype=stored, is_elementwise=True)


def _reader(dtype: DType) -> Callable[[pl.Series], pl.Series]:
    decode = msgspec.json.Decoder(shape(dtype)).decode

    def read(text: pl.Series) -> pl.Series:
        values: list[Any] = [None] * len(text)
        faults = [False] * len(text)
        for row, each in enumerate(text.to_list()):
            try:
                values[row] = None if each is None else decode(each)
            except (msgspec.DecodeError, RecursionError):
                faults[row] = True
        checked = dtype.convert(values)
        for row in checked.faults:
            faults[row] = True
        return pl.DataFrame({"value": checked.values, "fault": faults}).to_struct(text.name)

    return read
