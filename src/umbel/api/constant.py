"""Values that stand in definitions: defaults of features, constants of preproc."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import numpy as np

from umbel.types.dtype import is_missing
from umbel.types.dtypes import DType, Str
from umbel.types.structs import is_struct


def settled(value: Any) -> Any:
    """Return a value as it is kept: without the user's classes and those of numpy and pandas; instants are in UTC."""
    if is_struct(type(value)):
        return {each.name: settled(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {name: settled(each) for name, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [settled(each) for each in value]
    if is_missing(value):
        return None
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value.item() if isinstance(value, np.generic) else value


def fault_of(dtype: DType, value: Any) -> str | None:
    """Return why a value is not of a type, None if it is.

    What comes in as data may be a number where text is declared; what stands in a definition may not.
    """
    if isinstance(dtype.plain, Str) and value is not None and not isinstance(value, str):
        return f"expected {dtype}, got {value!r} ({type(value).__name__})"
    faults = dtype.ingest([value]).faults
    return faults[0] if faults else None
