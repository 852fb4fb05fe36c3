"""Index: the rows of a keyed dataset by key and time; what lookups and joins read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import polars as pl

from umbel.errors import InvalidValue
from umbel.operators.operator import Clock, Keyed
from umbel.operators.tables import State
from umbel.operators.timeline import version_columns
from umbel.operators.upsert_kernel import follow, upsert, with_key
from umbel.types.schema import Schema


class Mode(Enum):
    """What the rows that reach an index mean.

    UPSERT: rows of a source start versions. DEBEZIUM: the same with deletes. CHANGES: changes of a pipeline.
    """

    UPSERT = "upsert"
    DEBEZIUM = "debezium"
    CHANGES = "changes"


@dataclass(frozen=True, eq=False, kw_only=True)
class Index(Keyed):
    """Keep what the row of each key was, and when.

    Args:
        dataset: its name.
        mode: what the incoming rows mean.
    """

    dataset: str
    mode: Mode

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

    def step(self, changes: tuple[pl.DataFrame, ...], state: State, clock: Clock) -> pl.DataFrame:
        rows = with_key(changes[0], self.schema.key_names)
        timeline = state.table("timeline", version_columns(self.schema))
        if self.mode is Mode.CHANGES:
            follow(rows, timeline)
            return changes[0]
        return upsert(rows, timeline).select(list(self.schema.changes()))
