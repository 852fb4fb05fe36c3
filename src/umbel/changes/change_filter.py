"""The changes that a lookup needs of a history."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """The changes of some groups in a range of instants.

    Args:
        groups: a column for each key column of the groups, and a row for each group.
        instant: the column with the instant of a row.
        since: the first instant needed, µs; None for no limit.
        until: the last instant needed, µs; None for no limit.
    """

    groups: pl.DataFrame
    instant: str
    since: int | None = None
    until: int | None = None

    @property
    def of_all_groups(self) -> ChangeFilter:
        """The filter of all groups and instants; the columns are the same."""
        return ChangeFilter(pl.DataFrame(), self.instant)
