"""The feature log as rows and as a frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from umbel.client.schemas import decoded
from umbel.errors import InvalidValue
from umbel.types.dtypes import Datetime, DType, Str

if TYPE_CHECKING:
    import pandas as pd

FIXED: Mapping[str, DType] = {"timestamp": Datetime(), "workflow": Str()}


@dataclass(frozen=True, slots=True)
class Logged:
    """Lines of the feature log.

    Args:
        lines: JSON objects.
        types: of the committed features.
    """

    lines: bytes
    types: Mapping[str, DType]

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows by time, each with the features that its query returned."""
        import orjson

        return sorted(map(orjson.loads, self.lines.splitlines()), key=lambda row: str(row["timestamp"]))

    def frame(self) -> pd.DataFrame:
        """Return the rows by time as a frame.

        Features that a row's query did not return are null in that row. A column without a type, or with values of another type,
        has the JSON values.
        """
        import pandas as pd

        rows = self.rows()
        names = dict.fromkeys([*FIXED, *(name for row in rows for name in row)])
        known = {**self.types, **FIXED}
        columns = {name: _column(name, [row.get(name) for row in rows], known.get(name)) for name in names}
        return pd.DataFrame(columns, columns=list(names))


def _column(name: str, values: list[Any], dtype: DType | None) -> pd.Series[Any]:
    import pandas as pd

    if dtype is not None:
        try:
            return decoded({name: values}, {name: dtype}).to_pandas()[name]
        except InvalidValue:  # the feature had another type at that time
            pass
    return pd.Series(values, dtype=object)
