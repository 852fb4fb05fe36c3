"""Functions of text: `.str`."""

from __future__ import annotations

from typing import Annotated, Any

import polars as pl

from umbel.expr.json_path import check_path, path_text
from umbel.expr.json_text import JsonReader
from umbel.expr.kinds import Constant, Guarded, Site, Text, Truth, Whole
from umbel.expr.registry import Built, method
from umbel.expr.units import InputFormat, Zone, is_zoned
from umbel.types.dtypes import Datetime, DType, List, Optional, Str
from umbel.types.epochs import FIRST, LAST, YEARS


def _type(annotation: Any) -> DType:
    from umbel.expr.boundary import type_of

    return type_of(annotation)


Path = Annotated[str, Constant("path", path_text, check_path)]
Type = Annotated[DType, Constant("type", _type)]


@method()
def lower(value: Text) -> Text:
    """Return the text in lower case.

    >>> values(col("s").str.lower(), s=["Ada", None])
    ['ada', None]
    """
    return value.str.to_lowercase()


@method()
def upper(value: Text) -> Text:
    """Return the text in upper case.

    >>> values(col("s").str.upper(), s=["Ada", None])
    ['ADA', None]
    """
    return value.str.to_uppercase()


@method()
def len_(value: Text) -> Whole:
    """Return the number of characters.

    >>> values(col("s").str.len(), s=["Zoë", ""])
    [3, 0]
    """
    return value.str.len_chars()


@method()
def concat(value: Text, other: Text) -> Text:
    """Append another text.

    >>> values(col("s").str.concat("!"), s=["Ada", None])
    ['Ada!', None]
    """
    return value + other


@method()
def contains(value: Text, other: Text) -> Truth:
    """Test if the text contains a literal substring.

    >>> values(col("s").str.contains("d"), s=["Ada", "Bob"])
    [True, False]
    """
    return value.str.contains(other, literal=True)


@method()
def startswith(value: Text, other: Text) -> Truth:
    """Test if the text starts with a prefix.

    >>> values(col("s").str.startswith("A"), s=["Ada", "Bob"])
    [True, False]
    """
    return value.str.starts_with(other)


@method()
def endswith(value: Text, other: Text) -> Truth:
    """Test if the text ends with a suffix.

    >>> values(col("s").str.endswith("a"), s=["Ada", "Bob"])
    [True, False]
    """
    return value.str.ends_with(other)


@method(rule=lambda site: List(Str()))
def split(value: Text, sep: Text) -> pl.Expr:
    """Split the text at each separator; into characters if the separator is empty.

    >>> values(col("s").str.split("-"), s=["a-b", "c"])
    [['a', 'b'], ['c']]
    """
    # Polars cuts a constant text by a column of empty separators differently from everything else.
    return pl.when(sep == "").then(value.str.split("")).otherwise(value.str.split(sep))


@method(rule=lambda site: Optional(Str()))
def json_extract(value: Text, path: Path) -> pl.Expr:
    """Return the first value at a JSONPath, as text; null if there is none.

    Text values are unquoted, all others are compact JSON.

    >>> values(col("s").str.json_extract("$.a[0]"), s=['{"a": [1, 2]}', "{}"])
    ['1', None]
    """
    return value.str.json_path_match(path)


@method(rule=lambda site: site.constants["dtype"])
def parse(value: Text, dtype: Type, site: Site) -> Built:
    """Parse JSON text as a value of a type; malformed text is an error.

    >>> values(col("s").str.parse(List[int]), s=["[1, 2]", "[]"])
    [[1, 2], []]
    """
    reader = JsonReader(dtype)
    if site.is_certain:
        return reader.values(value)
    found = reader.attempts(value)
    return Guarded(
        found.struct.field("value"), found.struct.field("is_malformed"), f"the text is no JSON of type {dtype}"
    )


def _within_years(instant: pl.Expr) -> pl.Expr:
    return pl.when(instant.to_physical().is_between(FIRST, LAST)).then(instant)


@method(rule=lambda site: Datetime())
def strptime(value: Text, format: InputFormat, timezone: Zone = "UTC") -> Built:
    """Parse text in a format as an instant; text without a zone is in `timezone`.

    >>> values(col("s").str.strptime("%d.%m.%Y", timezone="Europe/Rome"), s=["01.03.2026"])
    ['2026-02-28 23:00:00+00:00']
    """
    found, problem = value.str.to_datetime(format, time_unit="us", strict=False), "the text is not in the format"
    if not is_zoned(format):
        found = _within_years(found)  # Polars panics at other instants in a zone
        found = found.dt.replace_time_zone(timezone, ambiguous="earliest", non_existent="null")
        if timezone != "UTC":
            problem += f", or the clocks of {timezone} skip its time"
    instant = _within_years(found.dt.convert_time_zone("UTC"))
    return Guarded(instant, instant.is_null() & value.is_not_null(), f"{problem}, or {YEARS}")
