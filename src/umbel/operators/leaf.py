"""Leaf: the changes of a dataset, where a pipeline begins."""

from __future__ import annotations

from dataclasses import dataclass

from umbel.operators.operator import Operator
from umbel.types.schema import Schema


@dataclass(frozen=True, eq=False, kw_only=True)
class Leaf(Operator):
    """The changes of a dataset.

    Args:
        dataset: its name.
        version: its version.
        columns: its schema.
        appends: whether it only ever gets inserts.
    """

    dataset: str
    version: int
    columns: Schema
    appends: bool = False

    def output(self, *inputs: Schema) -> Schema:
        return self.columns

    @property
    def inserts_only(self) -> bool:
        return self.appends

    @property
    def delay(self) -> int | None:
        return 0 if self.appends or self.columns.is_keyed else None  # a row of any age may be deleted

    @property
    def subject(self) -> str:
        return f"dataset '{self.dataset}'"
