"""The feature log as a frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from umbel.client.schemas import frame
from umbel.errors import InvalidValue
from umbel.types.dtypes import Datetime, DType, Str

if TYPE_CHECKING:
    import pandas as pd

FIXED: Mapping[str, DType] = {"timestamp": Datetime(), "workflow": Str()}


def logged(lines: bytes, types: Mapping[str, DType]) -> pd.DataFrame:
    """Return rows of the feature log, by time; a row lacks the features that its query had not.

    Args:
        lines: JSON objects.
        types: of features; a column without a type, or of values of another one, holds what JSON has.
    """
    import orjson
    import pandas as pd

    rows = sorted(map(orjson.loads, lines.splitlines()), key=lambda row: str(row["timestamp"]))
    names = dict.fromkeys([*FIXED, *(name for row in rows for name in row)])
    known = {**types, **FIXED}
    columns = {name: _column(name, [row.get(name) for row in rows], known.get(name)) for name in names}
    return pd.DataFrame(columns, columns=list(names))


def _column(name: str, values: list[Any], dtype: DType | None) -> pd.Series[Any]:
    import pandas as pd

    if dtype is not None:
        try:
            return frame({name: values}, {name: dtype})[name]
        except InvalidValue:  # the feature was of another type then
            pass
    return pd.Series(values, dtype=object)
