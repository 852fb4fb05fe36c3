"""Schemas: the named, typed columns of a dataset or of an operator's output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from umbel.types.dtypes import Datetime, DType

AT = "_at"
WEIGHT = "_weight"
SEQ = "_seq"
TRUNCATION = -(1 << 62)
"""The weight of a change that ends the rows of all keys."""
REPLACING = 1 << 61
"""The weight, or its negative, of a change that also replaces versions of its key that came before it and begin later."""
CHANGE_COLUMNS = {AT: pl.Datetime("us", "UTC"), WEIGHT: pl.Int64(), SEQ: pl.Int64()}


@dataclass(frozen=True)
class Schema:
    """Ordered columns by role.

    Args:
        keys: key columns, name to type (empty for a keyless dataset).
        values: the other columns without the timestamp.
        timestamp: the name of the event-time column.
        order: all column names as declared; keys, values, timestamp when empty.
    """

    keys: tuple[tuple[str, DType], ...]
    values: tuple[tuple[str, DType], ...]
    timestamp: str
    order: tuple[str, ...] = ()

    @cached_property
    def dtypes(self) -> dict[str, DType]:
        """Every column's type, in order."""
        found: dict[str, DType] = {**dict(self.keys), **dict(self.values), self.timestamp: Datetime()}
        return {name: found[name] for name in self.order} if self.order else found

    @property
    def names(self) -> list[str]:
        """All column names, in order."""
        return list(self.dtypes)

    @property
    def key_names(self) -> list[str]:
        """The names of the key columns."""
        return [name for name, _ in self.keys]

    @property
    def value_names(self) -> list[str]:
        """The names of the value columns: neither key nor timestamp."""
        return [name for name, _ in self.values]

    @property
    def is_keyed(self) -> bool:
        """True if there are key columns."""
        return bool(self.keys)

    def polars(self) -> dict[str, pl.DataType]:
        """Return the Polars type of each column."""
        return {name: dtype.polars() for name, dtype in self.dtypes.items()}

    def changes(self) -> dict[str, pl.DataType]:
        """Return the Polars schema of a frame of changes over this schema."""
        return {**self.polars(), **CHANGE_COLUMNS}

    def empty(self) -> pl.DataFrame:
        """Return no changes."""
        return pl.DataFrame(schema=self.changes())

    def with_values(self, values: Mapping[str, DType] | Iterable[tuple[str, DType]]) -> Schema:
        """Return the schema with other value columns."""
        items = values.items() if isinstance(values, Mapping) else values
        return replace(self, values=tuple(items), order=())
