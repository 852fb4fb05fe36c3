"""Writing of tiles: merging of a batch into stored entries, and expiry behind the watermark.

A batch is folded into entries for all its keys at once. Where rows are only inserted they are added to the stored ones, which
are folded when they are read and when the store merges them; else the stored entries of the keys are read, folded and replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np
import polars as pl

from umbel.changes import runs
from umbel.changes.runs import Flags, Ints
from umbel.state.tables import FoldedTable, State
from umbel.types.schema import WEIGHT
from umbel.types.windows import SECOND
from umbel.windowing.groups import numbered_keys
from umbel.windowing.tiles import IS_SINGLE, Effects, Tiles, exceeds, middle
from umbel.windowing.tiling import BASE, ENDED, FIRST, ID, LAST, NEVER, RETRACTED, SINCE, UNTIL, WINDOW, micros


@dataclass(frozen=True, slots=True)
class Expiry:
    """The expiry of each entry behind the watermark: three masks and a horizon.

    Args:
        compacted: no row of it can be retracted any more, if the input is keyless.
        absorbed: it is merged into the base, with its states.
        dropped: it is merged into the base, without its states: no window contains it, or it has no rows any more.
        horizon: for dropped and absorbed entries the last instant, in µs, at which they changed a value: from then on no lookup
            needs them separately.
    """

    compacted: Flags
    absorbed: Flags
    dropped: Flags
    horizon: Ints


@dataclass(frozen=True, slots=True)
class TileWriter:
    """Merges batches into stored entries.

    Args:
        tiles: their layout.
    """

    tiles: Tiles

    def step(self, changes: pl.DataFrame, state: State, watermark: datetime | None) -> None:
        """Add changes to the entries of their keys.

        Args:
            changes: changes, or partial entries.
            state: of the operator.
            watermark: nothing older is still expected.
        """
        partial = changes if FIRST in changes.columns else self.tiles.combine(changes)
        if partial.is_empty():
            return
        table = self.tiles.stored(state)
        numbered, keys = numbered_keys(partial, self.tiles.keys)
        if isinstance(table, FoldedTable):  # windows are folded apart: the entries of one are nearly in order
            windows = (self.tiles.for_window(numbered, number) for number in range(len(self.tiles.windows)))
            table.append(keys, pl.concat([self.fold(each, None) for each in windows]))
            if watermark is not None:
                table.expire(watermark)
            return
        both = pl.concat([table.numbered(keys), self.tiles.for_windows(numbered)], rechunk=True)
        table.renumber(keys, self.fold(both, None if watermark is None else micros(watermark)))

    def fold(self, entries: pl.DataFrame, watermark: int | None) -> pl.DataFrame:
        """Return entries merged and in stored order: by key, window and time.

        Args:
            entries: with `_key_id`, old and new of some keys in any order.
            watermark: nothing older is still expected; µs, None when unknown.
        """
        order = [ID, WINDOW, FIRST, UNTIL, LAST, SINCE] if self.tiles.is_keyed else [ID, WINDOW, FIRST]
        base, tiled = _apart(runs.ordered(entries, order))
        if self.tiles.is_keyed:
            tiled = self._netted(tiled, order)
        begins, whole = self._begins(tiled, watermark)
        entries_left = self.tiles.partials.merge(
            self._shaped(tiled, whole), begins, [pl.col(ID, WINDOW).first(), *self.tiles.spans]
        )
        if watermark is not None:
            base, entries_left = self._retire(base, entries_left, watermark)
        both = pl.concat([base, entries_left]).sort(ID, WINDOW, maintain_order=True) if len(base) else entries_left
        return self.tiles.only_needed(both)

    def _netted(self, tiled: pl.DataFrame, order: list[str]) -> pl.DataFrame:
        """Return entries, in order, without retracted effects.

        These must not count as instants of their key.
        """
        begins = runs.changes(*(tiled[name].to_numpy() for name in order))
        begins[1:] |= (tiled[FIRST] < tiled[LAST]).to_numpy()[1:] | (tiled[SINCE] < tiled[UNTIL]).to_numpy()[1:]
        merged = self.tiles.partials.merge(tiled, begins, [pl.col(ID, WINDOW).first(), *self.tiles.spans])
        inserted = pl.col(WEIGHT) + pl.col(ENDED)  # an end takes one row away and counts as one that ended
        is_negative = (inserted < 0) | (pl.col(ENDED) < 0)
        return merged.filter(~self.tiles.is_empty_entry()).with_columns(
            pl.when(IS_SINGLE).then(is_negative).otherwise(RETRACTED).alias(RETRACTED)
        )

    def _begins(self, tiled: pl.DataFrame, watermark: int | None) -> tuple[Flags, Flags]:
        """Return masks: first rows of merged entries, and rows of collapsed tiles.

        Args:
            tiled: entries in order.
            watermark: nothing older is still expected, µs.
        """
        window, first = tiled[WINDOW].to_numpy(), tiled[FIRST].to_numpy()
        grain = self.tiles.grains[window]
        tile_number = first // grain
        tile = runs.changes(tiled[ID].to_numpy(), window, tile_number)
        instant = tile | runs.changes(first)
        shaping = instant & runs.any_in_run(instant, ~self._are_late(tiled)) if self.tiles.is_keyed else instant
        whole = exceeds(tile, shaping, self.tiles.tiling.exact)
        whole |= runs.any_in_run(tile, first < tiled[LAST].to_numpy())
        if not self.tiles.is_keyed:
            return tile | (instant & ~whole), whole
        until = tiled[UNTIL].to_numpy()
        entered = instant | runs.changes(until)
        if watermark is not None:
            compacted = ((tile_number + 1) * grain <= watermark) & (until <= watermark)
            entered = instant | (entered & ~compacted)
        entered = instant | (entered & ~exceeds(instant, entered, self.tiles.tiling.exact))
        return tile | (entered & ~whole), whole

    def _are_late(self, tiled: pl.DataFrame) -> Flags:
        """Return a mask of the entries that do not shape their tile; see `Tiles.are_late`."""
        return self.tiles.are_late(*(tiled[name].to_numpy() for name in (WINDOW, FIRST, SINCE)))

    def _shaped(self, tiled: pl.DataFrame, whole: Flags) -> pl.DataFrame:
        """Give the late entries of collapsed tiles the span of the others."""
        if not self.tiles.is_keyed or not (whole & (late := self._are_late(tiled))).any():
            return tiled
        ids, window, first, last = (tiled[name].to_numpy() for name in (ID, WINDOW, FIRST, LAST))
        starts = np.flatnonzero(tile := runs.changes(ids, window, first // self.tiles.grains[window]))
        low = np.minimum.reduceat(np.where(late, NEVER, first), starts)
        high = np.maximum.reduceat(np.where(late, -NEVER, last), starts)
        spans = ((FIRST, first, low), (LAST, last, high))
        return tiled.with_columns(
            pl.Series(name, np.where(late & whole, np.repeat(shape, runs.lengths(tile)), own))
            for name, own, shape in spans
        )

    def _retire(
        self, base: pl.DataFrame, entries_left: pl.DataFrame, watermark: int
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the bases and the entries of some keys after expiry.

        Args:
            base: the existing bases.
            entries_left: entries in order; those not needed behind the watermark are removed.
            watermark: nothing older is still expected, µs.
        """
        expiry = self._expiry(entries_left, watermark)
        if self.tiles.is_retractable and not self.tiles.is_keyed and expiry.compacted.any():
            compacted = self.tiles.partials.settle(entries_left.filter(expiry.compacted))
            order = np.argsort(np.concatenate((np.flatnonzero(expiry.compacted), np.flatnonzero(~expiry.compacted))))
            entries_left = pl.concat([compacted, entries_left.filter(~expiry.compacted)], rechunk=True)[order]
        retired = expiry.absorbed | expiry.dropped
        if retired.any():
            leaving = entries_left.with_columns(
                pl.Series("_time_horizon", expiry.horizon), pl.Series("_time_dropped", expiry.dropped)
            ).filter(retired)
            base = self._merged(pl.concat([base, self._as_base(leaving)]))
            entries_left = entries_left.filter(~retired)
        return base, entries_left

    def _expiry(self, entries_left: pl.DataFrame, watermark: int) -> Expiry:
        window = entries_left[WINDOW].to_numpy()
        grain = self.tiles.grains[window]
        end = (entries_left[FIRST].to_numpy() // grain + 1) * grain
        since, until = (
            entries_left[name].to_numpy() for name in ((SINCE, UNTIL) if self.tiles.is_keyed else (LAST, LAST))
        )
        length = np.array([each.duration_us or 0 for each in self.tiles.windows], np.int64)[window]
        is_forever = window == (len(self.tiles.windows) if self.tiles.forever is None else self.tiles.forever)
        out_of_window = ~is_forever & (end + length <= watermark // SECOND * SECOND)
        compacted = (end <= watermark) & (until <= watermark) & self.tiles.is_bounded
        empty = compacted & (entries_left[WEIGHT].to_numpy() == 0) & ~(is_forever & self.tiles.is_keyed)
        horizon = until.copy()
        if out_of_window.any():  # entries of one position leave together
            ids, first, last, weight = (entries_left[name].to_numpy() for name in (ID, FIRST, LAST, WEIGHT))
            columns = (each[out_of_window] for each in (ids, window, middle(first, last), since, until, weight))
            horizon[out_of_window] = Effects.of(self.tiles, *columns).last
        return Expiry(compacted, compacted & is_forever & ~empty, out_of_window | empty, horizon)

    def _as_base(self, leaving: pl.DataFrame) -> pl.DataFrame:
        """Return retired entries in the form of bases.

        A dropped entry contributes only the first and the last instant of its key.
        """
        seen = pl.col(SINCE if self.tiles.is_keyed else FIRST)
        # entries with retracted effects may have had rows; the base then says that it is unsure
        existed = self.tiles.has_rows() | pl.col(RETRACTED) if self.tiles.is_keyed else self.tiles.has_rows()
        states = [
            pl.when("_time_dropped").then(None).otherwise(pl.col(name)).alias(name)
            for name in self.tiles.partials.columns
        ]
        uncounted = pl.col("_time_dropped")
        if self.tiles.counts_retired and self.tiles.forever is None:
            uncounted &= pl.col(WINDOW) > 0
        bases = leaving.with_columns(
            pl.lit(BASE, pl.Int8).alias(WINDOW),
            pl.when(existed).then(seen).alias(FIRST),
            pl.when(existed).then(pl.col("_time_horizon")).alias(LAST),
            pl.when(uncounted).then(0).otherwise(pl.col(WEIGHT)).alias(WEIGHT),
            *states,
        )
        return bases.select(ID, *self.tiles.columns)

    def _merged(self, bases: pl.DataFrame) -> pl.DataFrame:
        ordered = bases.sort(ID, maintain_order=True)
        begins = runs.changes(ordered[ID].to_numpy())
        # only the last instant of a base is still read: whether it may be that of a retracted effect
        unknown = [(pl.col(RETRACTED) & (pl.col(LAST) == pl.col(LAST).max())).any()] if self.tiles.is_keyed else []
        others = [each for each in self.tiles.spans if each.meta.output_name() != RETRACTED]
        merged = self.tiles.partials.merge(ordered, begins, [pl.col(ID, WINDOW).first(), *others, *unknown])
        empty = pl.col(WEIGHT) == 0
        states = [pl.when(empty).then(None).otherwise(pl.col(name)).alias(name) for name in self.tiles.partials.columns]
        entered = [pl.col(FIRST).alias(SINCE), pl.col(LAST).alias(UNTIL)] if self.tiles.is_keyed else []
        return merged.filter(pl.col(FIRST).is_not_null()).with_columns(*states, *entered)


def _apart(entries: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split entries into the bases and the others."""
    is_base = entries[WINDOW] == BASE
    return (entries.filter(is_base), entries.filter(~is_base)) if is_base.any() else (entries.clear(), entries)
