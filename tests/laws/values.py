"""Values as frames have them, and as the reference writes them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from tests.aggregating import instant
from umbel.types.dtypes import Datetime, DType, Float, Optional, Struct, Window


def stored(value: Any, dtype: DType) -> Any:
    """Return a value of the reference as frames have it."""
    if value is None or isinstance(dtype, Optional):
        return None if value is None else stored(value, dtype.base)
    if isinstance(dtype, Float):
        return float(value)  # in a key NaN is its name
    if isinstance(dtype, Datetime):
        return instant(value)
    if isinstance(dtype, Window):
        return {"begin": instant(value[0]), "end": instant(value[1])}
    if isinstance(dtype, Struct):
        return {name: stored(part, kind) for (name, kind), part in zip(dtype.fields, value, strict=True)}
    return value


def micros_of(value: Any) -> Any:
    """Return a value of a frame as the reference writes it: instants as µs, windows and structs as tuples."""
    if isinstance(value, datetime):
        return (value - instant(0)) // timedelta(microseconds=1)
    if isinstance(value, dict):
        return tuple(micros_of(each) for each in value.values())
    if isinstance(value, list):
        return [micros_of(each) for each in value]
    return value
