"""Values that stand in definitions: defaults of features, constants of preproc."""

from __future__ import annotations

from typing import Any

from umbel.types.dtypes import DType, Str


def fault_of(dtype: DType, value: Any) -> str | None:
    """Return why a value is not of a type, None if it is.

    What comes in as data may be a number where text is declared; what stands in a definition may not.
    """
    if isinstance(dtype.plain, Str) and value is not None and not isinstance(value, str):
        return f"expected {dtype}, got {value!r} ({type(value).__name__})"
    faults = dtype.ingest([value]).faults
    return faults[0] if faults else None
