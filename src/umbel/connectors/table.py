"""Database tables, read by a cursor column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from umbel.definitions.arguments import DataConnector, ReadOptions, check_text
from umbel.errors import InvalidType, NotSupported


@dataclass(frozen=True, kw_only=True)
class TableConnector(DataConnector):
    """One table or collection.

    Args:
        table: its name.
        cursor: the column that increases with every change; reading resumes at its last value.
    """

    table: str
    cursor: str | None = None

    placed_by: ClassVar[tuple[str, ...]] = ("table",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cursor is not None:
            check_text(f"{self.title}, table '{self.table}'", "cursor", self.cursor)

    @property
    def target(self) -> str:
        return f"{self.title}, table '{self.table}'"

    def check_source(self, cdc: str) -> None:
        super().check_source(cdc)
        if self.cursor is None:
            raise InvalidType(
                f"{self.title}, table '{self.table}': a source needs a cursor", hint=".table(name, cursor=)"
            )


@dataclass(frozen=True, kw_only=True)
class CursorTable(TableConnector):
    """A table whose changes nothing tells but a cursor column."""

    def check_options(self, options: ReadOptions) -> None:
        """Refuse to read all changes."""
        if options.cdc == "native":
            raise NotSupported(
                f"{self.title}, table '{self.table}': cdc 'native' cannot be read, the table is read by its cursor",
                hint='cdc="upsert" for a keyed dataset, "append" for a keyless one',
            )
