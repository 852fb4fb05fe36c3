"""Reading slices of history from change logs."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from umbel.runtime.history_slices import bounds_of
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
        self._bounds: dict[tuple[str, int, int], list[int]] = {}

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
        bounds = () if piece.is_whole or schema.is_keyed else self._bounds_of(node, piece)
        history = partial(self._history, node, piece, None if columns is None or retain else _named(schema, columns))
        if not retain or batch in self._is_large:
            return history(piece.times(schema, bounds)) if bounds else piece.cut(history(), schema, bounds)
        found = self._retained.get(node.log)
        if found is None or found[0] != piece.first:
            self._retained.pop(node.log, None)  # not two at once
            rows = history()
            if rows.estimated_size() > RETAINED_BYTES:
                self._is_large.add(batch)
                return piece.cut(rows, schema, bounds)
            found = self._retained[node.log] = piece.first, rows
        return piece.cut(found[1], schema, bounds)

    def release(self) -> None:
        """Release what is retained."""
        self._retained.clear()
        self._is_large.clear()
        self._bounds.clear()

    def _bounds_of(self, node: GraphNode, piece: HistorySlice) -> list[int]:
        """Return the timestamps that divide the keyless rows of a batch.

        They are found once for each batch: its rows never change while there is a backfill.
        """
        if (batch := (node.log, piece.first, piece.parts)) not in self._bounds:
            timestamp = node.operator.schema.timestamp
            rows = self._history(node, piece, [timestamp])
            self._bounds[batch] = bounds_of(rows[timestamp], piece.parts, piece.divisor) if rows.height else []
        return self._bounds[batch]

    def _history(
        self, node: GraphNode, piece: HistorySlice, columns: Sequence[str] | None, condition: pl.Expr | None = None
    ) -> pl.DataFrame:
        """Return the rows of a slice's batches that meet a condition."""
        return self._changes.read(node, condition, first=piece.first, until=piece.last, columns=columns)


def _named(schema: Schema, columns: AbstractSet[str]) -> list[str]:
    """Return some columns of a log, with those of changes and of cuts."""
    needed = {*columns, *schema.key_names, schema.timestamp, *CHANGE_COLUMNS}
    return [name for name in schema.changes() if name in needed]
