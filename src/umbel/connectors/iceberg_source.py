"""Reading an Iceberg table: the rows of one snapshot, then later changes.

A snapshot names the data files that it adds and removes. A row that is in both is the same row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from umbel.connectors.iceberg_tables import IcebergFile, IcebergPlace, TableSnapshot, types_of
from umbel.connectors.sql.following import ANEW
from umbel.connectors.versioned_source import VersionedSource, key_in, moved_removed
from umbel.errors import InvalidValue

PROMOTIONS = frozenset({("int", "long"), ("float", "double")})
"""Changes of a column's type after which all its values are what they were."""


@dataclass(frozen=True)
class IcebergSource(VersionedSource):
    """An Iceberg table whose snapshots are read."""

    server: IcebergPlace
    deleted: ClassVar[str] = "were deleted (by expiring snapshots)"

    def first_state(self) -> dict[str, Any]:
        table = self.server.opened()
        current = table.current_snapshot()
        types = self.columns_in(types_of(table, None))
        if current is not None:
            self.server.files(table, current.snapshot_id)  # refuses deletions that cannot be read
        return {
            "version": 0,
            "snapshot_id": current.snapshot_id if current else None,
            "table": str(table.metadata.table_uuid),
            "types": types,
            "primary": key_in(types, table.schema().identifier_field_names()),
        }

    def first_files(self, state: Mapping[str, Any]) -> Sequence[IcebergFile]:
        if state["snapshot_id"] is None:
            return []
        table = self._same(state)
        if table.snapshot_by_id(state["snapshot_id"]) is None:
            raise FileNotFoundError
        return self.server.files(table, state["snapshot_id"])

    def versions(self, state: Mapping[str, Any]) -> Iterator[tuple[int, TableSnapshot]]:
        table = self._same(state)
        for number, each in enumerate(self._later(table, state["snapshot_id"]), int(state["version"]) + 1):
            yield number, self.server.snapshot(table, each)

    def _same(self, state: Mapping[str, Any]) -> Any:
        """Return the table as it is now; refuse another one."""
        table = self.server.opened()
        if str(table.metadata.table_uuid) != state["table"]:
            raise InvalidValue(f"{self.title}: this is another table than before: it was made anew", hint=ANEW)
        return table

    def _later(self, table: Any, last: int | None) -> list[int]:
        """Return the snapshots after one, oldest first."""
        current, found = table.current_snapshot(), list[int]()
        while current is not None and current.snapshot_id != last:
            found.append(current.snapshot_id)
            parent = current.parent_snapshot_id
            if parent is not None and parent == last:
                break  # it was read, and need not be there any more
            current = None if parent is None else table.snapshot_by_id(parent)
            if current is None and parent is not None:
                raise InvalidValue(
                    f"{self.title}: snapshot {parent} was expired before it was read; it was read up to {last}",
                    hint=ANEW,
                )
        if current is None and last is not None:
            raise InvalidValue(
                f"{self.title}: snapshot {last}, which was read, is not among those before the present one: snapshots "
                "were expired before they were read, or the table was rolled back",
                hint=ANEW,
            )
        return found[::-1]

    def check_version(self, version: int, commit: TableSnapshot, state: dict[str, Any]) -> None:
        subject = f"{self.title}, snapshot {commit.number}"
        by_id = {kind["id"]: (name, kind["type"]) for name, kind in commit.types.items()}
        for name, kind in state["types"].items():
            now, now_type = by_id.get(kind["id"], (None, None))
            if now is None:
                raise InvalidValue(f"{subject}: column '{name}' was dropped", hint=ANEW)
            if now != name:
                raise InvalidValue(f"{subject}: column '{name}' was renamed to '{now}'", hint=ANEW)
            if now_type != kind["type"] and not is_promotion(kind["type"], str(now_type)):
                raise InvalidValue(
                    f"{subject}: column '{name}' was of type {kind['type']}, and is of {now_type}", hint=ANEW
                )

    def changed(self, rows: pl.DataFrame, at: int) -> pl.DataFrame:
        """Return the changes of one snapshot, without rows that only moved."""
        return super().changed(moved_removed(rows), at)


def is_promotion(before: str, after: str) -> bool:
    """Return whether values keep their meaning when a type changes to another one.

    >>> is_promotion("decimal(9, 2)", "decimal(12, 2)")
    True
    """
    scales = [each.removesuffix(")").split(", ")[-1] for each in (before, after) if each.startswith("decimal(")]
    return (before, after) in PROMOTIONS or (len(scales) == 2 and scales[0] == scales[1])
