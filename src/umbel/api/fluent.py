"""The operators as a pipeline's parameters have them, for readers, editors and type checkers.

Inside a pipeline's body its inputs are nodes, which do have them. On the dataset itself they are refused with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from umbel.errors import InvalidAttribute

if TYPE_CHECKING:
    from umbel.api.dataset import Dataset

Names = str | Sequence[str]


class Groups(Protocol):
    """The rows of a pipeline, grouped by keys."""

    def aggregate(self, *aggregates: Any, along: str | None = None, emit: str = "eager", **named: Any) -> Dataset:
        """Compute one row per group from all of its rows."""

    def first(self) -> Dataset:
        """Keep the first row of each group."""

    def latest(self) -> Dataset:
        """Keep the latest row of each group."""


class Fluent:
    """The operators: see `umbel.api.node.Node` for each."""

    def filter(self, func: Any) -> Dataset:
        """Keep the rows for which a condition holds."""
        raise self._outside("filter")

    def assign(self, *args: Any, **columns: Any) -> Dataset:
        """Add or replace value columns."""
        raise self._outside("assign")

    def transform(self, func: Callable[..., Any], schema: Mapping[str, Any] | None = None) -> Dataset:
        """Make of each row another one."""
        raise self._outside("transform")

    def rename(self, columns: Mapping[str, str]) -> Dataset:
        """Give columns other names."""
        raise self._outside("rename")

    def drop(self, *args: Names, columns: Sequence[str] | None = None) -> Dataset:
        """Leave out value columns."""
        raise self._outside("drop")

    def select(self, *args: Names, columns: Sequence[str] | None = None) -> Dataset:
        """Keep some columns."""
        raise self._outside("select")

    def dropnull(self, *args: Names, columns: Sequence[str] | None = None) -> Dataset:
        """Leave out rows with nulls."""
        raise self._outside("dropnull")

    def explode(self, *args: Names, columns: Sequence[str] | None = None) -> Dataset:
        """Make a row of each element of lists."""
        raise self._outside("explode")

    def dedup(self, *args: Names, by: Names | None = None, window: Any = None) -> Dataset:
        """Keep one of the rows that are alike."""
        raise self._outside("dedup")

    def join(
        self,
        other: Any,
        how: str,
        on: Sequence[str] | None = None,
        left_on: Sequence[str] | None = None,
        right_on: Sequence[str] | None = None,
        within: tuple[str, str] = ("forever", "0s"),
        fields: Sequence[str] | None = None,
    ) -> Dataset:
        """Add the columns of another dataset's row of the same key."""
        raise self._outside("join")

    def groupby(self, *keys: Names, window: Any = None) -> Groups:
        """Group rows by keys."""
        raise self._outside("groupby")

    def changelog(self, delete: str | None = None, insert: str | None = None) -> Dataset:
        """Make of each insert and delete a row."""
        raise self._outside("changelog")

    def __add__(self, other: Any) -> Dataset:
        raise self._outside("+")

    def _outside(self, operator: str) -> InvalidAttribute:
        name = getattr(self, "__name__", "?")
        return InvalidAttribute(
            f"dataset '{name}': {operator} is an operator of pipelines",
            hint=f"take '{name}' as an input: @pipeline, @inputs({name}), def name(cls, rows): return rows.{operator}(...)",
        )
