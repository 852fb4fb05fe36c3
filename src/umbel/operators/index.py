"""Index: the rows of a keyed dataset by key and time; what lookups and joins read.

Class `Index`; parents: what feeds the dataset; field `mode`: "upsert" (rows of a source start versions), "debezium" (the
same with deletes) or "changes" (changes of a pipeline, followed as they are).
"""

from __future__ import annotations

from dataclasses import dataclass

from umbel.errors import InvalidValue
from umbel.operators.columns import check_known
from umbel.operators.operator import Keyed
from umbel.types.schema import Schema

MODES = ("upsert", "debezium", "changes")


@dataclass(frozen=True, eq=False, kw_only=True)
class Index(Keyed):
    """Keep what the row of each key was, and when.

    Args:
        mode: what the incoming rows mean.
    """

    mode: str

    def output(self, *inputs: Schema) -> Schema:
        check_known((self.mode,), MODES, self.title, "mode")
        rows = inputs[0]
        if not rows.is_keyed:
            raise InvalidValue(f"{self.title}: {self.parents[0].subject} has no key fields to index")
        return rows

    def exchange(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(self.schema.key_names) for _ in self.parents)
