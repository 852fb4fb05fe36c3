"""Index: the rows of a keyed dataset by key and time; what lookups and joins read.

Class `Index`; parents: what feeds the dataset; fields `dataset` and `mode`. `Mode.UPSERT`: rows of a source start
versions, `Mode.DEBEZIUM`: the same with deletes, `Mode.CHANGES`: changes of a pipeline, followed as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from umbel.errors import InvalidValue
from umbel.operators.operator import Keyed
from umbel.types.schema import Schema


class Mode(Enum):
    """What the rows that reach an index mean."""

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
            raise InvalidValue(f"{self.title}: dataset '{self.dataset}' has no key fields to index")
        return rows

    def exchange(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(self.schema.key_names) for _ in self.parents)
