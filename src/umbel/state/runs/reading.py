"""Reading of a table: merged rows of many keys, or of a range of hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import polars as pl

from umbel.state.runs.addresses import (
    Flags,
    Hashes,
    Ints,
    beginnings,
    expanded,
    hash_keys,
    merge_frames,
    merged_sequences,
    with_sources,
)
from umbel.state.runs.rules import HASH, KEY, KEY_ID
from umbel.state.runs.sorting import order_of_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from umbel.state.runs.packing import Ordinals
    from umbel.state.runs.rules import TableSchema


class SortedRows(Protocol):
    """Rows of one table sorted by address: a run or a block in memory."""

    rows: int

    @property
    def samples(self) -> Hashes:
        """Some of the hashes, in order and at equal distances."""
        ...

    def find(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """Return the range of rows of each hash, as first rows and ends."""
        ...

    def take(self, rows: Ints) -> pl.DataFrame:
        """Return some rows, in the order given."""
        ...

    def slice(self, low: int, high: int) -> pl.DataFrame:
        """Return the rows of a range."""
        ...

    def keys(self, rows: Ints) -> pl.Series:
        """Return the encoded keys of some rows."""
        ...

    def removed(self, rows: Ints) -> Flags:
        """Return a mask of the tombstones among some rows; only where a rule has them."""
        ...

    def ordinals(self, name: str, low: Ints | int, high: Ints | int) -> Ints | Ordinals:
        """Return a whole column of the order as integers.

        Only the rows from `low` to `high` may be read.
        """
        ...


def lookup(
    sources: Sequence[SortedRows],
    schema: TableSchema,
    keys: pl.Series,
    horizon: int | None = None,
    *,
    low: pl.Series | None = None,
    high: pl.Series | None = None,
) -> pl.DataFrame:
    """Return the rows of some keys, sorted by key index and order.

    Args:
        sources: the table's runs and blocks, oldest first.
        schema: of the table.
        keys: encoded keys, each once.
        horizon: rows that expire at or before it are left out, in µs.
        low: for each key, the lowest value of the first column of the order; null is unbounded.
        high: for each key, the value from which on it is left out.

    Returns:
        `_key_id`, the order and the columns.
    """
    frames = (_hits(sources, keys) if len(keys) else []) or [no_rows(schema)]
    is_merged, found = len(frames) == 1, with_sources(frames)
    del frames  # the rows are copied from here on
    found = _only(found, found[KEY] == keys.gather(found[KEY_ID]))
    found = _within(found, schema, low, high)
    found = _columns(found, [name for name in found.columns if name not in (HASH, KEY)])
    if not is_merged and found.height > 1:
        found = merged_sequences(found, (KEY_ID, *schema.order))
    merged = schema.rule.merge(found, beginnings(found, (KEY_ID, *schema.order)), complete=True)
    return _columns(schema.unexpired(merged, horizon), [KEY_ID, *schema.shown])


def _hits(sources: Sequence[SortedRows], keys: pl.Series) -> list[pl.DataFrame]:
    """Return the rows of each source with the hashes of keys.

    They have key indexes and are sorted by these and the order: a source stores the rows of a key in order.
    """
    hashes = hash_keys(keys)
    ranks = order_of_numbers(hashes)
    ordered, places = hashes[ranks], np.empty_like(ranks)
    places[ranks] = np.arange(len(ranks))
    found = list[pl.DataFrame]()
    for source in sources:
        low, high = source.find(ordered)
        rows, numbers = expanded(low[places], high[places])
        if len(rows):
            frame = source.take(rows)
            found.append(frame.insert_column(frame.width, pl.Series(KEY_ID, numbers.astype(np.uint32))))
    return found


def _only(rows: pl.DataFrame, mask: pl.Series) -> pl.DataFrame:
    return rows if mask.all() else rows.filter(mask)


def _columns(rows: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Return some columns without the plan that `select` makes and runs."""
    return pl.DataFrame([rows.get_column(name) for name in names])


def no_rows(schema: TableSchema) -> pl.DataFrame:
    """Return an empty frame of stored rows with key indexes."""
    return pl.DataFrame(schema={**schema.stored, KEY_ID: pl.UInt32()})


def _within(found: pl.DataFrame, schema: TableSchema, low: pl.Series | None, high: pl.Series | None) -> pl.DataFrame:
    column = found[next(iter(schema.order))] if schema.order else None
    if column is None:
        return found
    for bound, is_low in ((low, True), (high, False)):
        if bound is not None:
            own = bound.gather(found[KEY_ID])
            inside = (column >= own) if is_low else (column < own)
            found = _only(found, inside.fill_null(value=True))
            column = found[column.name]
    return found


def hash_ranges(sources: Sequence[SortedRows], rows: int) -> list[int]:
    """Return bounds of ranges of hashes with about `rows` rows each, from 0 to 2**64."""
    total = sum(source.rows for source in sources)
    pieces = -(-total // rows)
    if pieces <= 1:
        return [0, 1 << 64]
    samples = np.concatenate([source.samples for source in sources])
    weights = np.concatenate(
        [np.full(len(source.samples), source.rows / max(1, len(source.samples))) for source in sources]
    )
    order = samples.argsort()
    heights = weights[order].cumsum()
    at = heights.searchsorted(np.arange(1, pieces) * total / pieces).clip(0, len(order) - 1)
    inner = np.unique(samples[order][at]).tolist()
    return [0, *(bound for bound in inner if bound), 1 << 64]


def merged_ranges(
    sources: Sequence[SortedRows], schema: TableSchema, rows: int, *, complete: bool, horizon: int | None = None
) -> Iterator[pl.DataFrame]:
    """Yield the merged stored rows of all sources, range by range of hashes.

    Args:
        sources: runs and blocks of the table, oldest first.
        schema: of the table.
        rows: about the number of rows that are merged at once; all rows of one key are.
        complete: True if the table has no older rows elsewhere.
        horizon: of the table, in µs, when the rows are to be stored.
    """
    bounds = hash_ranges(sources, rows)
    inner = np.array(bounds[1:-1], np.uint64)
    cuts = [[0, *source.find(inner)[0].tolist(), source.rows] for source in sources]
    for number in range(len(bounds) - 1):
        frames = [
            source.slice(at[number], at[number + 1])
            for source, at in zip(sources, cuts, strict=True)
            if at[number] < at[number + 1]
        ]
        if frames:
            yield merge_frames(frames, schema, complete=complete, horizon=horizon)
