"""Types as JSON-serialisable plain data.

Structs are written by name and fields; their class is not serialised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from umbel.expr.lattice import Null
from umbel.types import dtypes
from umbel.types.dtypes import DType


def type_to_record(dtype: DType) -> dict[str, Any]:
    """Return a type as plain data."""
    parts = {each.name: _plain(getattr(dtype, each.name)) for each in fields(dtype) if each.compare}
    return {"name": type(dtype).__name__, **parts} if "name" not in parts else {"struct": True, **parts}


def _plain(value: Any) -> Any:
    if isinstance(value, DType):
        return type_to_record(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def type_from_record(record: Mapping[str, Any]) -> DType:
    """Return a type from a record written by `type_to_record`."""
    if "struct" in record:
        return dtypes.Struct(record["name"], tuple((name, type_from_record(of)) for name, of in record["fields"]))
    kind: type[DType] = Null if record["name"] == "Null" else getattr(dtypes, record["name"])
    return kind(**{name: _revived(value) for name, value in record.items() if name != "name"})


def _revived(value: Any) -> Any:
    if isinstance(value, Mapping):
        return type_from_record(value)
    return tuple(value) if isinstance(value, list) else value
