"""Constants in definitions: defaults of features, constants of preproc."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import numpy as np

from umbel.types.dtype import is_missing
from umbel.types.dtypes import Bool, Decimal, DType, Int, List, Str
from umbel.types.structs import is_struct


def normalized(value: Any) -> Any:
    """Return a value in stored form, without user, numpy or pandas classes.

    Instants are converted to UTC.
    """
    if is_struct(type(value)):
        return {each.name: normalized(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {name: normalized(each) for name, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [normalized(each) for each in value]
    if is_missing(value):
        return None
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value.item() if isinstance(value, np.generic) else value


_STRICT: tuple[tuple[type[DType], tuple[type, ...]], ...] = (
    (Int, (int, np.integer)),
    (Bool, (bool, np.bool_)),
    (Str, (str,)),
)


def default_of(dtype: DType, value: Any) -> Any:
    """Return the default of a feature as a value of its type.

    Numbers for decimals are rounded to the scale.

    Raises:
        Refused: the value is not of the type; only numbers for decimals and ints for floats are converted.
    """
    if value is None:
        return None
    plain = dtype.plain
    if isinstance(plain, List) and isinstance(value, list | tuple | np.ndarray):
        return [default_of(plain.of, each) for each in value]
    if isinstance(plain, Decimal):
        return plain.rounded(value)
    for kind, allowed in _STRICT:
        is_flag = isinstance(value, bool) and kind is not Bool
        if isinstance(plain, kind) and (not isinstance(value, allowed) or is_flag):
            raise dtype.refuse(value)
    return normalized(value)


def error_of(dtype: DType, value: Any) -> str | None:
    """Return the error of a value that is not of a type, or None.

    Unlike ingested data, a constant in a definition is never converted: a number is not accepted where text is declared.
    """
    if isinstance(dtype.plain, Str) and value is not None and not isinstance(value, str):
        return f"expected {dtype}, got {value!r} ({type(value).__name__})"
    errors = dtype.ingest([value]).errors
    return errors[0] if errors else None
