"""Conversion of Python values without a declared type to JSON."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from umbel.errors import InvalidType
from umbel.types.annotations import is_plain_class
from umbel.types.class_body import annotations_of, fields_in
from umbel.types.dtype import is_missing
from umbel.types.instants import of_datetime64
from umbel.types.json_values import UNTYPED_NAN
from umbel.types.text import exact, has_surrogates, unpaired

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


def columns(df: pd.DataFrame) -> dict[str, list[Any]]:
    """Return the columns of a pandas frame as lists of JSON values.

    A missing value is null, a NaN is `UNTYPED_NAN`.

    Raises:
        InvalidType: a value has no JSON form; names its column and row.
    """
    from umbel.types.pandas import raw_from_pandas

    return {column.name: _column(column) for column in raw_from_pandas(df)}


def _column(column: pl.Series) -> list[Any]:
    found = list[Any]()
    try:
        for value in column.to_list():
            found.append(plain(value, UNTYPED_NAN))
    except InvalidType as error:
        message = f"column '{column.name}': {error.message} (row {len(found)})"
        raise InvalidType(message, hint=error.hint) from error
    return found


def location(connector: Any) -> dict[str, Any]:
    """Return the location of a connector's files as JSON."""
    if not is_dataclass(connector) or isinstance(connector, type):
        raise InvalidType(
            f"expected a connector, found {connector!r:.80}", hint="S3(...).bucket(...) says where files are, and which"
        )
    return {"type": type(connector).__name__, **plain(asdict(connector))}


def plain(value: Any, nan: str = "NaN") -> Any:
    """Return a value as JSON.

    Args:
        value: the value.
        nan: the text for a NaN.

    Raises:
        InvalidType: the value has no JSON form.

    >>> plain({"at": datetime(2024, 1, 1), "x": [1.5, float("nan")], "d": Decimal("1.50")})
    {'at': '2024-01-01T00:00:00', 'x': [1.5, 'NaN'], 'd': '1.50'}
    """
    if isinstance(value, str):
        return _encodable(value)
    if value is None or isinstance(value, bool | int):
        return value
    if is_missing(value):
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else _not_finite(value, nan)
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return nan if value.is_nan() else f"{value:f}"
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return _nested(value, nan)


def _encodable(text: str) -> str:
    if has_surrogates(text):
        raise InvalidType(unpaired(text), hint="clean it: text.encode(errors='replace').decode()")
    return text


def _not_finite(value: float, nan: str) -> str:
    return nan if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _written(value: np.datetime64) -> str:
    """Return an instant as text.

    One outside the years 1 to 9999 is written too, and refused when it is read.
    """
    return str(value) if of_datetime64(value) is None else value.astype("M8[us]").item().isoformat()


def _nested(value: Any, nan: str) -> Any:
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InvalidType(f"a dictionary has the key {key!r:.80}", hint="keys are text")
        return {_encodable(exact(key)): plain(inner, nan) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner, nan) for inner in value]
    if hasattr(value, "as_json"):  # structs and windows
        return plain(value.as_json(), nan)
    if isinstance(value, np.datetime64):
        return _written(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "mM":
        return [plain(inner) for inner in value]  # `tolist` makes integers of nanoseconds
    if hasattr(value, "tolist") and not isinstance(value, np.timedelta64):  # arrays and numbers of numpy
        return plain(value.tolist(), nan)
    if is_plain_class(type(value)):
        members = fields_in(annotations_of(type(value))[0])
        return {name: plain(getattr(value, name), nan) for name in members if hasattr(value, name)}
    raise InvalidType(
        f"{value!r:.80} of type {type(value).__name__} cannot be sent as JSON",
        hint="send numbers, text, instants, lists and dictionaries of them",
    )
