"""The kernel of continuous windows: entries read, put together and written for all keys of a batch at once."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import polars as pl

from umbel.operators import runs
from umbel.operators.points import TIME
from umbel.operators.tables import State
from umbel.operators.tile_answers import answer
from umbel.operators.tiles import Tiles
from umbel.operators.tiling import FIRST, ID, micros
from umbel.state.keys import encode_keys

KEY = "_key"
TABLE = "tiles"


def step(tiles: Tiles, changes: pl.DataFrame, state: State, watermark: datetime | None) -> None:
    """Add changes to the entries of their keys.

    Args:
        tiles: what is kept.
        changes: changes, or partial entries.
        state: of the operator.
        watermark: nothing older is still expected.
    """
    partial = changes if FIRST in changes.columns else tiles.combine(changes)
    if partial.is_empty():
        return
    table = state.table(TABLE, tiles.columns)
    numbered, keys = numbered_keys(partial, tiles.keys)
    both = pl.concat([table.numbered(keys), tiles.spread(numbered)], rechunk=True)
    table.renumber(keys, tiles.fold(both, None if watermark is None else micros(watermark)))


def lookup(tiles: Tiles, state: State, points: pl.DataFrame) -> pl.DataFrame:
    """Return the value of each point from the state, as `tile_answers.answer` does.

    Args:
        tiles: what is kept.
        state: of the operator.
        points: `_key` and `_time`.
    """
    keys = points[KEY].unique().sort()
    entries = state.table(TABLE, tiles.columns).numbered(keys)
    return answer(tiles, entries, with_ids(points.select(KEY, TIME), keys))


def numbered_keys(rows: pl.DataFrame, columns: tuple[str, ...]) -> tuple[pl.DataFrame, pl.Series]:
    """Return rows ordered by key with `_key_id`, the number of each key, and the encoded keys by that number, in order."""
    ordered = runs.ordered(rows, columns)
    begins = runs.key_changes(ordered, columns)
    keys = encode_keys(ordered.filter(begins).select(columns)).alias(KEY)
    number = runs.numbers(begins)
    if not keys.is_sorted():
        order = keys.arg_sort().to_numpy()
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        number, keys = rank[number], keys.gather(order)
    return ordered.with_columns(pl.Series(ID, number.astype(np.uint32))), keys


def with_ids(rows: pl.DataFrame, keys: pl.Series) -> pl.DataFrame:
    """Return rows with the number of their key among `keys`; every key of them is one."""
    numbers = pl.DataFrame({KEY: keys}).with_row_index(ID)
    return rows.join(numbers, on=KEY, how="left", maintain_order="left")
