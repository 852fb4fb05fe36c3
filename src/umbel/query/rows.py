"""The rows of one query while its features are being computed."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

INSTANT = pl.Datetime("us", "UTC")


@dataclass(slots=True)
class Rows:
    """The features known so far, in storage types.

    Args:
        at: the instant each row is asked for.
        columns: one per known feature, by fully qualified name.
    """

    at: pl.Series
    columns: dict[str, pl.Series] = field(default_factory=dict)

    @property
    def height(self) -> int:
        """The number of rows."""
        return len(self.at)

    def add(self, fqn: str, column: pl.Series) -> None:
        """Add a feature; one that was given as an input is not replaced."""
        self.columns.setdefault(fqn, column)


def filled(column: pl.Series, default: pl.Series | None) -> pl.Series:
    """Return a column with its nulls replaced by the one value of `default`."""
    if default is None or not column.null_count():
        return column
    return column.zip_with(column.is_not_null(), default.new_from_index(0, len(column)))
