"""Python values of any kind as JSON, where no declared type says what they are."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from umbel.errors import InvalidType, InvalidValue
from umbel.types.dtype import is_missing

if TYPE_CHECKING:
    import pandas as pd


def columns(df: pd.DataFrame) -> dict[str, list[Any]]:
    """Return the columns of a pandas frame as lists of JSON values; a missing value is null."""
    from umbel.types.pandas import raw_from_pandas

    return {column.name: [plain(value) for value in column.to_list()] for column in raw_from_pandas(df)}


def records(by_column: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Return columns as row objects."""
    return [dict(zip(by_column, row, strict=True)) for row in zip(*by_column.values(), strict=True)]


def location(connector: Any) -> dict[str, Any] | None:
    """Return where a connector's files are, as JSON; None for none."""
    if connector is None:
        return None
    if not is_dataclass(connector) or isinstance(connector, type):
        raise InvalidType(
            f"expected a connector, found {connector!r:.80}", hint="S3(...).bucket(...) says where files are, and which"
        )
    return {"type": type(connector).__name__, **plain(asdict(connector))}


def refuse_both(connector: Any) -> None:
    """Refuse an input in files beside one in a frame."""
    if connector is not None:
        raise InvalidValue("query_offline: rows come as input_dataframe or in input_s3, not both", hint="leave one out")


def files(connector: Any, renamed: Mapping[str, str]) -> dict[str, Any]:
    """Return what an offline query says of its input when that is files: where they are, and their columns."""
    if connector is None:
        raise InvalidValue(
            "query_offline needs input_dataframe or input_s3", hint="query_offline(..., input_dataframe=df)"
        )
    return {"input": location(connector), "feature_to_column_map": dict(renamed)}


def plain(value: Any) -> Any:
    """Return a value as JSON.

    Raises:
        InvalidType: JSON has nothing for it.

    >>> plain({"at": datetime(2024, 1, 1), "x": [1.5, float("nan")], "d": Decimal("1.50")})
    {'at': '2024-01-01T00:00:00', 'x': [1.5, 'NaN'], 'd': '1.50'}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if is_missing(value):
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else _not_finite(value)
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return _nested(value)


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _nested(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if hasattr(value, "as_json"):  # structs and windows
        return plain(value.as_json())
    if hasattr(value, "tolist"):  # arrays and numbers of numpy
        return plain(value.tolist())
    raise InvalidType(
        f"{value!r:.80} of type {type(value).__name__} cannot be sent as JSON",
        hint="send numbers, text, instants, lists and dictionaries of them",
    )
