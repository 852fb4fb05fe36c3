"""Functions of text: `.str`."""

from __future__ import annotations

from typing import Annotated, Any

import polars as pl

from umbel.errors import InvalidValue
from umbel.expr.jsontext import Reader
from umbel.expr.kinds import Constant, Guarded, Site, Text, Truth, Whole
from umbel.expr.registry import Built, method
from umbel.expr.units import InputFormat, Zone, is_zoned, text
from umbel.types.dtypes import Datetime, DType, List, Optional, Str


def _check_path(path: str) -> None:
    if not path.startswith("$"):
        raise InvalidValue(f"json_extract: a JSONPath starts with '$', not {path!r}", hint='json_extract("$.a.b[0]")')
    try:
        pl.Series([None], dtype=pl.String).str.json_path_match(path)
        pl.Series(["{}"]).str.json_path_match(path)
    except pl.exceptions.PolarsError:
        raise InvalidValue(f"json_extract: {path!r} is no JSONPath", hint='json_extract("$.a.b[0]")') from None


def _type(annotation: Any) -> DType:
    from umbel.expr.boundary import type_of

    return type_of(annotation)


Path = Annotated[str, Constant("path", text, _check_path)]
Type = Annotated[DType, Constant("type", _type)]


@method()
def lower(value: Text) -> Text:
    """Return the text in lower case."""
    return value.str.to_lowercase()


@method()
def upper(value: Text) -> Text:
    """Return the text in upper case."""
    return value.str.to_uppercase()


@method()
def len_(value: Text) -> Whole:
    """Return the number of characters."""
    return value.str.len_chars()


@method()
def concat(value: Text, other: Text) -> Text:
    """Append another text."""
    return value + other


@method()
def contains(value: Text, other: Text) -> Truth:
    """Whether the other text occurs in it, literally."""
    return value.str.contains(other, literal=True)


@method()
def startswith(value: Text, other: Text) -> Truth:
    """Whether it begins with the other text."""
    return value.str.starts_with(other)


@method()
def endswith(value: Text, other: Text) -> Truth:
    """Whether it ends with the other text."""
    return value.str.ends_with(other)


@method(rule=lambda site: List(Str()))
def split(value: Text, sep: Text) -> pl.Expr:
    """Cut the text at each separator; into characters when the separator is empty."""
    # Polars cuts a constant text by a column of empty separators differently from everything else.
    return pl.when(sep == "").then(value.str.split("")).otherwise(value.str.split(sep))


@method(rule=lambda site: Optional(Str()))
def json_extract(value: Text, path: Path) -> pl.Expr:
    """Return the first value at a JSONPath: text unquoted, the rest as compact JSON; null when there is none."""
    return value.str.json_path_match(path)


@method(rule=lambda site: site.constants["dtype"])
def parse(value: Text, dtype: Type, site: Site) -> Built:
    """Read JSON text as a value of a type; other text is an error."""
    reader = Reader(dtype)
    if site.is_certain:
        return reader.values(value)
    found = reader.attempts(value)
    return Guarded(found.struct.field("value"), found.struct.field("fault"), f"the text is no JSON of type {dtype}")


@method(rule=lambda site: Datetime())
def strptime(value: Text, format: InputFormat, timezone: Zone = "UTC") -> Built:
    """Read text in a format as an instant; text that does not say its zone is in `timezone`."""
    found = value.str.to_datetime(format, time_unit="us", strict=False)
    if not is_zoned(format):
        found = found.dt.replace_time_zone(timezone, ambiguous="earliest", non_existent="null")
    instant = found.dt.convert_time_zone("UTC")
    return Guarded(instant, instant.is_null() & value.is_not_null(), "the text is not in the format")
