"""Who answers `Dataset.lookup` inside an extractor: whoever runs the query says so here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pandas as pd


class Lookups(Protocol):
    """Answers lookups on datasets."""

    def lookup(
        self, dataset: str, ts: pd.Series[Any], keys: Mapping[str, pd.Series[Any]], fields: Sequence[str]
    ) -> tuple[pd.DataFrame, pd.Series[Any]]:
        """Return the row of each key as of each instant, and whether there is one.

        Args:
            dataset: its name.
            ts: instants, one per row.
            keys: one series per key field.
            fields: the columns of the result, in order.
        """


current: ContextVar[Lookups | None] = ContextVar("umbel_lookups", default=None)
