"""Answers: the features of a query, in the forms they are handed out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.query.encode import Writers, writers, written
from umbel.query.rows import Column, series_of
from umbel.types.dtypes import DType

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Answer:
    """Columns in storage types, in the order they were asked for.

    Args:
        columns: by name.
        types: of the columns.
        writers: what makes JSON of the columns, where somebody has it at hand.
    """

    columns: Mapping[str, Column]
    types: Mapping[str, DType]
    writers: Writers | None = None

    @property
    def height(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def to_polars(self) -> pl.DataFrame:
        """Return the columns as a Polars frame in storage types."""
        return pl.DataFrame([series_of(column).alias(name) for name, column in self.columns.items()])

    def to_pandas(self) -> pd.DataFrame:
        """Return the columns as a pandas frame of nullable dtypes; structs are objects of their classes."""
        import pandas as pd

        shown = {name: self.types[name].to_pandas(series_of(column)) for name, column in self.columns.items()}
        return pd.DataFrame(shown, columns=list(self.columns))

    def to_json(self) -> dict[str, list[Any]]:
        """Return the columns as lists of JSON values."""
        return written(self.columns, self.writers or writers(self.types))
