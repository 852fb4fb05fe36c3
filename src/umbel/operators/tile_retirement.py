"""What becomes of tiles behind the watermark: nothing older is still expected, so they can be dropped, absorbed and settled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from umbel.operators import runs
from umbel.operators.runs import Flags, Ints
from umbel.operators.tile_changes import Effects, middle
from umbel.operators.tiling import BASE, FIRST, ID, LAST, SINCE, UNTIL, WINDOW
from umbel.types.schema import WEIGHT
from umbel.types.windows import SECOND

if TYPE_CHECKING:
    from umbel.operators.tiles import Tiles


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to each entry.

    Args:
        settled: no row of it can be taken back any more, if the input is keyless.
        absorbed: it becomes part of the base, with its states.
        dropped: it becomes part of the base, without them: no window reaches it, or it holds no row any more.
        horizon: for dropped and absorbed entries the last instant at which they changed something: from then on no answer needs
            to know them apart.
    """

    settled: Flags
    absorbed: Flags
    dropped: Flags
    horizon: Ints


def retire(tiles: Tiles, base: pl.DataFrame, kept: pl.DataFrame, watermark: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the bases and the entries of some keys, the latter without those of no use behind the watermark.

    Args:
        tiles: what the entries belong to.
        base: the bases there are.
        kept: entries in order.
        watermark: nothing older is still expected, µs.
    """
    fate = _fate(tiles, kept, watermark)
    if tiles.is_retractable and not tiles.is_keyed and fate.settled.any():
        settled = tiles.partials.settle(kept.filter(fate.settled))
        order = np.argsort(np.concatenate((np.flatnonzero(fate.settled), np.flatnonzero(~fate.settled))))
        kept = pl.concat([settled, kept.filter(~fate.settled)], rechunk=True)[order]
    retired = fate.absorbed | fate.dropped
    if retired.any():
        leaving = kept.with_columns(pl.Series("_horizon", fate.horizon), pl.Series("_dropped", fate.dropped)).filter(
            retired
        )
        base = _merged(tiles, pl.concat([base, _as_base(tiles, leaving)]))
        kept = kept.filter(~retired)
    return base, kept


def _fate(tiles: Tiles, kept: pl.DataFrame, watermark: int) -> Fate:
    window = kept[WINDOW].to_numpy()
    grain = tiles.grains[window]
    end = (kept[FIRST].to_numpy() // grain + 1) * grain
    since, until = (kept[name].to_numpy() for name in ((SINCE, UNTIL) if tiles.is_keyed else (LAST, LAST)))
    length = np.array([each.duration_us or 0 for each in tiles.windows], np.int64)[window]
    is_forever = window == (len(tiles.windows) if tiles.forever is None else tiles.forever)
    out_of_reach = ~is_forever & (end + length <= watermark // SECOND * SECOND)
    settled = (end <= watermark) & (until <= watermark) & tiles.is_bounded
    void = settled & (kept[WEIGHT].to_numpy() == 0) & ~(is_forever & tiles.is_keyed)
    horizon = until.copy()
    if out_of_reach.any():  # entries of one place are all out of reach or none is
        ids, first, last, weight = (kept[name].to_numpy() for name in (ID, FIRST, LAST, WEIGHT))
        columns = (each[out_of_reach] for each in (ids, window, middle(first, last), since, until, weight))
        horizon[out_of_reach] = Effects.of(tiles, *columns).last
    return Fate(settled, settled & is_forever & ~void, out_of_reach | void, horizon)


def _as_base(tiles: Tiles, leaving: pl.DataFrame) -> pl.DataFrame:
    """Return retired entries in the form of bases: of the dropped ones only when their key was first and last seen."""
    seen = pl.col(SINCE if tiles.is_keyed else FIRST)
    lived = tiles.has_lived()
    states = [pl.when("_dropped").then(None).otherwise(pl.col(name)).alias(name) for name in tiles.partials.columns]
    bases = leaving.with_columns(
        pl.lit(BASE, pl.Int8).alias(WINDOW),
        pl.when(lived).then(seen).alias(FIRST),
        pl.when(lived).then(pl.col("_horizon")).alias(LAST),
        pl.when("_dropped").then(0).otherwise(pl.col(WEIGHT)).alias(WEIGHT),
        *states,
    )
    return bases.select(ID, *tiles.columns)


def _merged(tiles: Tiles, bases: pl.DataFrame) -> pl.DataFrame:
    ordered = bases.sort(ID, maintain_order=True)
    begins = runs.changes(ordered[ID].to_numpy())
    merged = tiles.partials.merge(ordered, begins, [pl.col(ID, WINDOW).first(), *tiles.spans])
    void = pl.col(WEIGHT) == 0
    states = [pl.when(void).then(None).otherwise(pl.col(name)).alias(name) for name in tiles.partials.columns]
    entered = [pl.col(FIRST).alias(SINCE), pl.col(LAST).alias(UNTIL)] if tiles.is_keyed else []
    return merged.filter(pl.col(FIRST).is_not_null()).with_columns(*states, *entered)
