"""Index: the version history of a keyed dataset, read by lookups and joins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

import polars as pl

from umbel.changes.upserts import follow, overlay, spread, upsert, with_key
from umbel.changes.versions import version_columns
from umbel.errors import InvalidValue
from umbel.operators.operator import Clock, Keyed
from umbel.state.tables import State
from umbel.types.schema import Schema


class IndexMode(Enum):
    """The meaning of the rows an index consumes.

    UPSERT: rows of a source start versions. DEBEZIUM: the same with deletes. CHANGES: changes of a pipeline.
    OVERLAY: changes of a pipeline, and as a second input rows that start versions over it.
    """

    UPSERT = "upsert"
    DEBEZIUM = "debezium"
    CHANGES = "changes"
    OVERLAY = "overlay"


@dataclass(frozen=True, eq=False, kw_only=True)
class Index(Keyed):
    """Store the version history of each key of a dataset.

    Args:
        dataset: its name.
        mode: the meaning of the incoming rows.
    """

    dataset: str
    mode: IndexMode

    keeps_values: ClassVar[bool] = True
    is_internal: ClassVar[bool] = True
    takes_truncations: ClassVar[bool] = True

    def output(self, *inputs: Schema) -> Schema:
        rows = inputs[0]
        if not rows.is_keyed:
            raise InvalidValue(
                f"{self.title}: dataset '{self.dataset}' has no key fields to index",
                hint="mark its keys: field(key=True)",
            )
        return rows

    @property
    def missing(self) -> Mapping[str, Any]:
        return self.parents[0].missing

    def exchange(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(self.schema.key_names) for _ in self.parents)

    def complete_since(self, inputs: tuple[float, ...]) -> float:
        return max(inputs)

    def step(self, changes: tuple[pl.DataFrame, ...], state: State, clock: Clock) -> pl.DataFrame:
        rows = with_key(changes[0], self.schema.key_names)
        versions_table = state.timed("versions", version_columns(self.schema))
        if self.mode is IndexMode.CHANGES:
            follow(rows, versions_table)
            return changes[0]
        if self.mode is IndexMode.OVERLAY:
            made, direct = (state.timed(name, version_columns(self.schema)) for name in ("made", "direct"))
            direct_rows = with_key(changes[1], self.schema.key_names)
            return overlay(rows, direct_rows, made, direct, versions_table).select(list(self.schema.changes()))
        return upsert(spread(rows, versions_table), versions_table).select(list(self.schema.changes()))
