"""History: recompute a node's input from the upstream change logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime

import polars as pl

from umbel.changes.change_filter import ChangeFilter
from umbel.functions.guarding import applied
from umbel.graph.corrections import as_corrections, takes_back
from umbel.graph.graph import GraphNode
from umbel.operators.aggregate import LookedUpAggregation
from umbel.operators.operator import RowWise
from umbel.types.schema import CHANGE_COLUMNS
from umbel.windowing.tiling import instant_of


@dataclass(frozen=True, slots=True)
class LogPart:
    """The part of a change log that is read.

    It may have more changes than are needed, never fewer.

    Args:
        condition: of the changes; None for all.
        columns: the columns that are needed; None for all.
        since: the first instant at which a change takes effect, None for no limit.
        until: the instant after the last one, None for no limit.
    """

    condition: pl.Expr | None = None
    columns: list[str] | None = None
    since: datetime | None = None
    until: datetime | None = None

    def taken(self, changes: pl.DataFrame) -> pl.DataFrame:
        """Return the part of changes in memory."""
        found = changes if self.condition is None else changes.filter(self.condition)
        return found if self.columns is None else found.select(self.columns)


ReadLog = Callable[[GraphNode, LogPart], pl.DataFrame]
"""Returns logged changes of a node."""


@dataclass(frozen=True, slots=True)
class _Needed:
    """The part of a node's changes that is needed.

    Args:
        changes: what the lookup needs.
        names: its columns by their names there, those that have the same values there.
        columns: the columns that are needed there; None for all.
    """

    changes: ChangeFilter
    names: dict[str, str]
    columns: AbstractSet[str] | None

    def before(self, operator: RowWise) -> _Needed:
        """Return what is needed of the changes that a row-wise operator reads."""
        sources = ((name, operator.source_of(there)) for name, there in self.names.items())
        names = {name: source for name, source in sources if source is not None}
        # rows that a function rejected before are known by all their columns
        if self.columns is None or operator.functions:
            return _Needed(self.changes, names, None)
        return _Needed(self.changes, names, operator.columns_read(self.columns))

    def part(self, node: GraphNode) -> LogPart:
        """Return what is read of a node's log."""
        schema = node.operator.schema
        conditions = list(self._conditions())
        read = None if self.columns is None else {*self.columns, *self.names.values(), *CHANGE_COLUMNS}
        takes_effect_then = not schema.is_keyed and not takes_back(node)
        is_own = self.names.get(self.changes.instant) == schema.timestamp and takes_effect_then
        since, until = (self.changes.since, self.changes.until) if is_own else (None, None)
        return LogPart(
            pl.all_horizontal(conditions) if conditions else None,
            None if read is None else [name for name in schema.changes() if name in read],
            None if since is None else instant_of(since),
            None if until is None else instant_of(until + 1),
        )

    def _conditions(self) -> Iterator[pl.Expr]:
        for name, there in self.names.items():
            if name in self.changes.groups.columns and _is_discrete((values := self.changes.groups[name]).dtype):
                yield pl.col(there).is_in(values.unique().implode(), nulls_equal=True)
        instant, since, until = self.names.get(self.changes.instant), self.changes.since, self.changes.until
        if instant is not None and since is not None:
            yield pl.col(instant) >= instant_of(since)
        if instant is not None and until is not None:
            yield pl.col(instant) <= instant_of(until)


def replay(node: GraphNode, read: ReadLog, changes: ChangeFilter | None = None) -> pl.DataFrame:
    """Return the changes emitted by a node's inputs.

    They are read from the change logs; unlogged row-wise operators are run again.

    Args:
        node: usually a terminal aggregate.
        read: reads the change log of a logged node.
        changes: which of an aggregate's changes are needed, with the columns it reads; there may be others. All when None.
    """
    operator = node.operator
    if changes is None:
        return pl.concat([as_corrections(parent, emitted(parent, read)) for parent in node.parents])
    assert isinstance(operator, LookedUpAggregation)
    names = {name: name for name in (*changes.groups.columns, changes.instant)}
    needed = _Needed(changes, names, frozenset(operator.history_columns()))
    found = (as_corrections(parent, emitted(parent, read, needed)) for parent in node.parents)
    return pl.concat([operator.history(changes) for changes in found])


def inputs(node: GraphNode, read: ReadLog, changes: ChangeFilter) -> Iterator[tuple[GraphNode, pl.DataFrame]]:
    """Yield each input of an aggregation with the changes it emitted, all columns of them.

    Args:
        node: the aggregation.
        read: reads the change log of a logged node.
        changes: which changes are needed; there may be others.
    """
    needed = _Needed(changes, {name: name for name in (*changes.groups.columns, changes.instant)}, None)
    for parent in node.parents:
        yield parent, emitted(parent, read, needed)


def emitted(node: GraphNode, read: ReadLog, needed: _Needed | None = None) -> pl.DataFrame:
    """Return the changes a node emitted: as logged, or recomputed.

    An unlogged row-wise operator is run again on the changes its inputs emitted.
    """
    operator = node.operator
    if node.is_logged or not isinstance(operator, RowWise):
        return read(node, LogPart() if needed is None else needed.part(node))
    before = None if needed is None else needed.before(operator)
    return pl.concat([applied(operator, emitted(parent, read, before)) for parent in node.parents])


def logged_inputs(node: GraphNode) -> Iterator[GraphNode]:
    """Yield the nodes whose change logs have the history of a node's inputs."""
    for parent in node.parents:
        if parent.is_logged or not isinstance(parent.operator, RowWise):
            yield parent
        else:
            yield from logged_inputs(parent)


def _is_discrete(dtype: pl.DataType) -> bool:
    """Return whether values of a type are equal only if they have the same form."""
    return dtype.is_integer() or dtype.is_temporal() or dtype in (pl.String, pl.Binary, pl.Boolean)
