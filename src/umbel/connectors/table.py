"""Database tables, read by a cursor column."""

from __future__ import annotations

from dataclasses import dataclass

from umbel.definitions.arguments import DataConnector
from umbel.errors import InvalidType


@dataclass(frozen=True, kw_only=True)
class TableConnector(DataConnector):
    """One table or collection.

    Args:
        table: its name.
        cursor: the column that increases with every change; reading resumes at its last value.
    """

    table: str
    cursor: str | None = None

    def check_source(self, cdc: str) -> None:
        super().check_source(cdc)
        if self.cursor is None:
            raise InvalidType(
                f"{self.title}, table '{self.table}': a source needs a cursor", hint=".table(name, cursor=)"
            )
