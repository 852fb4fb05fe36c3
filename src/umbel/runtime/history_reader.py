"""Reading slices of history from change logs."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from umbel.log.change_tail import BATCH
from umbel.types.schema import CHANGE_COLUMNS, Schema

if TYPE_CHECKING:
    from umbel.graph.graph import GraphNode
    from umbel.runtime.deployment import Deployment
    from umbel.runtime.history_slices import HistorySlice

RETAINED_BYTES = 256 << 20
"""Bytes of a batch of one log up to which it is retained between two reads of its parts."""


class HistoryReader:
    """Reads slices of history.

    A batch that is read part by part is retained, if it is not too large: its parts are all over its files.

    Args:
        deployment: the deployment.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._changes = deployment.changes
        self._retained: dict[str, tuple[int, pl.DataFrame]] = {}
        self._is_large = set[tuple[str, int]]()

    def read(
        self,
        node: GraphNode,
        piece: HistorySlice,
        *,
        retain: bool = False,
        columns: AbstractSet[str] | None = None,
    ) -> pl.DataFrame:
        """Return the rows of a slice of a node's change log.

        Args:
            node: the node.
            piece: the slice.
            retain: whether further parts of the batch will be read; whole rows of them are.
            columns: the columns that are read of the others, with those that cut slices; all when None.
        """
        schema, batch = node.operator.schema, (node.log, piece.first)
        retain = retain and not piece.is_whole
        history = partial(self._history, node, None if columns is None or retain else _named(schema, columns))
        if not retain or batch in self._is_large:
            return piece.read(schema, history)
        found = self._retained.get(node.log)
        if found is None or found[0] != piece.first:
            self._retained.pop(node.log, None)  # not two at once
            rows = history(pl.col(BATCH) >= piece.first, piece.last)
            if rows.estimated_size() > RETAINED_BYTES:
                self._is_large.add(batch)
                return piece.cut(rows, schema)
            found = self._retained[node.log] = piece.first, rows
        return piece.cut(found[1], schema)

    def release(self) -> None:
        """Release what is retained."""
        self._retained.clear()
        self._is_large.clear()

    def _history(self, node: GraphNode, columns: Sequence[str] | None, condition: pl.Expr, until: int) -> pl.DataFrame:
        return self._changes.read(node, condition, until=until, columns=columns)


def _named(schema: Schema, columns: AbstractSet[str]) -> list[str]:
    """Return some columns of a log, with those of changes and of cuts."""
    needed = {*columns, *schema.key_names, schema.timestamp, *CHANGE_COLUMNS}
    return [name for name in schema.changes() if name in needed]
