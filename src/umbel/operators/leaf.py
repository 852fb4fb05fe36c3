"""Leaf: the changes of a dataset, the input of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from umbel.operators.operator import Operator
from umbel.types.schema import Schema


@dataclass(frozen=True, eq=False, kw_only=True)
class Leaf(Operator):
    """The changes of a dataset.

    Args:
        dataset: its name.
        version: its version.
        columns: its schema.
        appends: True if it only ever gets inserts.
    """

    dataset: str
    version: int
    columns: Schema
    appends: bool = False

    is_internal: ClassVar[bool] = True

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


def leaves(operator: Operator | None) -> Iterator[Leaf]:
    """Yield the datasets an operator reads."""
    if isinstance(operator, Leaf):
        yield operator
    elif operator is not None:
        for parent in operator.parents:
            yield from leaves(parent)
