"""Views of a shard: immutable states, snapshots, and transactions."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from umbel.errors import InvalidValue
from umbel.state.port import OldState
from umbel.state.runs.addresses import Ints, grouped_frame, hash_key, merge_frames, numbered_frame, stored_frame
from umbel.state.runs.block import Block
from umbel.state.runs.manifest import JournalPosition, Manifest
from umbel.state.runs.memtable import Memtable, state_id_of
from umbel.state.runs.points import RowSlice, all_groups, newest_before, newest_groups
from umbel.state.runs.reading import lookup, merged_ranges
from umbel.state.runs.records import JournalRecord
from umbel.state.runs.rules import KEY, REMOVED, ReplaceRule, TableSchema, described_order
from umbel.state.runs.run import RunFile
from umbel.state.runs.time_ranges import TimeRanges, entries_before
from umbel.types.dtype import nulls

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from umbel.state.numbered_keys import KeyRanges, NumberedKeys
    from umbel.state.port import Stamp

Source = RunFile | Block
"""Sorted rows of one table."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class ShardView:
    """A consistent state of a shard: immutable files, and the records read so far."""

    manifest: Manifest = field(default_factory=Manifest)
    memtable: Memtable = field(default_factory=Memtable)
    position: JournalPosition = field(default_factory=JournalPosition)
    files: Mapping[str, RunFile] = field(default_factory=dict)
    _sources: dict[str, tuple[Source, ...]] = field(default_factory=dict, compare=False)

    def sources(self, table: str) -> tuple[Source, ...]:
        """Return the runs and blocks of a table, oldest first."""
        found = self._sources.get(table)
        if found is None:
            runs = [self.files[part.name] for entry in self.manifest.runs.get(table, ()) for part in entry.parts]
            found = self._sources[table] = (*runs, *self.memtable.sources(table))
        return found

    def rows(self) -> int:
        """Return the number of stored rows, those that a merge will drop included."""
        tables = {*self.memtable.tables, *self.manifest.runs}
        return sum(source.rows for table in tables for source in self.sources(table))


class ShardSnapshot:
    """An unchanging read view of the committed tables of a shard.

    Args:
        view: the state read.
        schemas: of the tables.
    """

    def __init__(self, view: ShardView, schemas: dict[str, TableSchema]) -> None:
        self._view, self._schemas = view, schemas

    def define(self, table: str, schema: TableSchema) -> None:
        """Define a table by its full name.

        Raises:
            OldState: it is known with other columns.
        """
        define(self._schemas, table, schema)

    def lookup(
        self, table: str, keys: pl.Series, *, low: pl.Series | None = None, high: pl.Series | None = None
    ) -> pl.DataFrame:
        """Return the rows of some keys, sorted by key index and order.

        Args:
            table: its full name, `state_id/table`.
            keys: encoded keys, each once.
            low: for each key, the lowest value of the first column of the order; null is unbounded.
            high: for each key, the value from which on it is left out.

        Returns:
            `_key_id`, the order and the columns; `_key_id` is the index of a row's key among `keys`.
        """
        return lookup(self.sources(table), self.schema(table), keys, self.horizon(table), low=low, high=high)

    def ranges(
        self,
        table: str,
        keys: pl.Series,
        low: pl.Series,
        high: pl.Series,
        *,
        before: bool = False,
        after: bool = False,
        once: bool = False,
    ) -> pl.DataFrame:
        """Return the entries of keys within ranges of the first column of the order.

        Args:
            table: its full name.
            keys: encoded keys, one for each range.
            low: the lowest value of each range; null is unbounded.
            high: the value from which on each range ends; null is unbounded.
            before: with the last entry before each range; only of a table that replaces its entries.
            after: with the first entry at or after the end of each range; likewise.
            once: an entry in several ranges of its key only with one of them.

        Returns:
            `_key_id` (the number of the range), `_key`, the order and the columns, sorted by the number and the order.
        """
        schema = self.schema(table)
        found = TimeRanges.of(self.sources(table), schema, keys, low, high)
        found = found.with_last_before() if before else found
        found = found.with_first_after() if after else found
        found = found.apart(keys) if once else found
        return schema.unexpired(found.read(), self.horizon(table))

    def ranges_of(
        self, table: str, keys: NumberedKeys, ranges: KeyRanges, *, before: bool = False, after: bool = False
    ) -> pl.DataFrame:
        """Return the entries of numbered keys within ranges of the first column of the order.

        Args:
            table: its full name.
            keys: the keys.
            ranges: of these keys.
            before: with the last entry before each range; only of a table that replaces its entries.
            after: with the first entry at or after the end of each range; likewise.

        Returns:
            `_key_id` (the number of the range), `_key`, the order and the columns, sorted by the number and the order.
        """
        schema, bounds = self.schema(table), (ranges.low, ranges.high)
        found = TimeRanges.of_numbered(self.sources(table), schema, (keys.keys, keys.hashes), ranges.owners, bounds)
        found = found.with_last_before() if before else found
        found = found.with_first_after() if after else found
        return schema.unexpired(found.read(), self.horizon(table))

    def before(self, table: str, bound: int) -> pl.DataFrame:
        """Return the entries of all keys before a value of the order.

        Args:
            table: the full name of a table that replaces its entries.
            bound: the value.

        Returns:
            `_key`, the order and the columns, sorted by address.
        """
        schema = self.schema(table)
        return schema.unexpired(entries_before(self.sources(table), schema, bound), self.horizon(table))

    def groups(self, table: str, keys: Sequence[bytes]) -> list[RowSlice | None]:
        """Return the rows of keys in a table without an order; None for none."""
        return newest_groups(self.sources(table), keys)

    def slices(self, table: str, keys: Sequence[bytes]) -> list[list[RowSlice]]:
        """Return the stored rows of keys in each source, oldest first.

        The table has no order.
        """
        return all_groups(self.sources(table), keys)

    def latest(self, table: str, key: bytes, bound: int) -> RowSlice | None:
        """Return the last entry of a key before a value of the order, if any.

        The table replaces its entries.
        """
        (order, *_) = self.schema(table).order
        return newest_before(self.sources(table), order, hash_key(key), key, bound)

    def scan(self, table: str, rows: int = 1 << 20) -> Iterator[pl.DataFrame]:
        """Yield all rows of a table in pieces, sorted by address.

        Args:
            table: its full name.
            rows: about the number of rows read at once.

        Yields:
            `_key`, the order and the columns.
        """
        schema = self.schema(table)
        for piece in merged_ranges(self.sources(table), schema, rows, complete=True):
            yield schema.unexpired(piece, self.horizon(table)).select("_key", *schema.shown)

    def horizon(self, table: str) -> int | None:
        """Return the horizon of a table in µs, None if there is none."""
        return self._view.memtable.horizon(table)

    def sources(self, table: str) -> Sequence[Source]:
        """Return the runs and blocks of a table, oldest first."""
        return self._view.sources(table)

    def schema(self, table: str) -> TableSchema:
        """Return the schema of a table; InvalidValue if it is not defined."""
        if table not in self._schemas:
            raise InvalidValue(f"table {table!r} is not defined", hint="call Shard.define before reading or writing it")
        return self._schemas[table]


class ShardTransaction(ShardSnapshot):
    """A view of a shard that reads its own writes.

    Args:
        view: the state at its start.
        schemas: of the tables.
        state_ids: the operators that may be written.
    """

    def __init__(self, view: ShardView, schemas: dict[str, TableSchema], state_ids: Sequence[str]) -> None:
        super().__init__(view, schemas)
        self._state_ids = frozenset(state_ids)
        self._blocks: dict[str, list[Block]] = {}
        self._horizons: dict[str, int] = {}

    def append(self, table: str, rows: pl.DataFrame) -> None:
        """Add rows to a summed or collected table.

        Args:
            table: its full name.
            rows: `_key`, the order, the columns; for a collected table `_weight`, too.
        """
        self._must_own(table)
        if isinstance(self.schema(table).rule, ReplaceRule):
            raise InvalidValue(f"table {table!r} replaces its entries", hint="use replace, with the addresses replaced")
        self._add(table, rows)

    def append_numbered(self, table: str, keys: NumberedKeys, owners: Ints, rows: pl.DataFrame) -> None:
        """Add rows of numbered keys, or replace their entries, without hashing or sorting.

        Args:
            table: its full name.
            keys: the keys.
            owners: the number of each row's key.
            rows: the order and the columns, with their marks (`_removed`, `_weight`), by the number of their key and the order.
        """
        self._must_own(table)
        if rows.height:
            self._grow(table, numbered_frame(keys.keys, keys.hashes, owners, rows, self.schema(table), table))

    def append_groups(self, table: str, keys: pl.Series, owners: Ints, rows: pl.DataFrame) -> None:
        """Add rows of some keys to a table without an order.

        Args:
            table: its full name.
            keys: encoded keys in ascending order, each once.
            owners: the index of each row's key.
            rows: the columns; those of a key are in order.
        """
        self._must_own(table)
        if rows.height:
            self._grow(table, grouped_frame(keys, owners, rows, self.schema(table), table))

    def replace(self, table: str, addresses: pl.DataFrame, rows: pl.DataFrame) -> None:
        """Replace the groups of rows at some addresses.

        Args:
            table: its full name.
            addresses: `_key` and the order, of every address touched; one without rows is removed.
            rows: `_key`, the order, the columns; those of one address are stored in this order.

        Raises:
            InvalidValue: a row's address is not among the addresses.
        """
        schema = self._replaced(table, rows.columns)
        address = ["_key", *schema.order]
        touched, present = addresses.select(address), rows.select(address)
        gone = touched.join(present, on=address, how="anti").unique()
        if not present.join(touched, on=address, how="anti").is_empty():
            raise InvalidValue(f"table {table!r}: rows have addresses that are not among those replaced")
        self.put(table, rows, gone)

    def put(self, table: str, rows: pl.DataFrame, removed: pl.DataFrame) -> None:
        """Replace the groups of rows at the addresses of `rows` and `removed`, which must differ.

        Args:
            table: its full name.
            rows: `_key`, the order, the columns; those of one address are stored in this order.
            removed: `_key` and the order, of the addresses that have no rows any more.
        """
        schema = self._replaced(table, rows.columns)
        frames = [rows.with_columns(pl.lit(value=False).alias(REMOVED)).select(self._marked(schema))]
        if removed.height:
            nothing = [pl.lit(None, dtype).alias(name) for name, dtype in schema.columns.items()]
            frames.append(
                removed.with_columns(*nothing, pl.lit(value=True).alias(REMOVED)).select(self._marked(schema))
            )
        self._add(table, pl.concat(frames) if len(frames) > 1 else frames[0])

    def put_groups(self, table: str, keys: pl.Series, owners: Ints, rows: pl.DataFrame) -> None:
        """Replace the groups of rows of some keys.

        Args:
            table: its full name.
            keys: encoded keys in ascending order, each once. In a table without an order one without rows is removed; in others
                the entries at other addresses stay.
            owners: the index of each row's key, ascending.
            rows: the order and the columns; those of a key are in order.
        """
        schema = self._replaced(table, [KEY, *rows.columns])
        marked = rows.with_columns(pl.lit(value=False).alias(REMOVED)).select(*schema.order, *schema.columns, REMOVED)
        gone = np.flatnonzero(np.bincount(owners, minlength=len(keys)) == 0)
        if len(gone) and not schema.order:
            nothing = [nulls(len(gone), dtype).alias(name) for name, dtype in schema.columns.items()]
            tombstones = pl.DataFrame([*nothing, pl.Series([True]).new_from_index(0, len(gone)).alias(REMOVED)])
            owners = np.concatenate((owners, gone))
            order = owners.argsort(kind="stable")
            marked, owners = pl.concat([marked, tombstones], rechunk=True)[order], owners[order]
        if marked.height:
            self._grow(table, grouped_frame(keys, owners, marked, schema, table))

    def expire(self, table: str, before: datetime) -> None:
        """Raise the horizon of a table: rows that expire until then disappear.

        Args:
            table: its full name.
            before: the instant; an earlier one than before changes nothing.
        """
        self._must_own(table)
        horizon = (before - _EPOCH) // _MICROSECOND
        known = self.horizon(table)
        self._horizons[table] = horizon if known is None else max(horizon, known)

    def horizon(self, table: str) -> int | None:
        return self._horizons.get(table, super().horizon(table))

    def sources(self, table: str) -> Sequence[Source]:
        own = self._blocks.get(table)
        return [*super().sources(table), *own] if own else super().sources(table)

    def record(self, stamp: Stamp, state_ids: Sequence[str], *, undo: bool) -> JournalRecord:
        """Return the writes as a record of the journal."""
        frames = {
            table: merge_frames([block.frame for block in blocks], self.schema(table), complete=False)
            for table, blocks in self._blocks.items()
        }
        orders = {table: described_order(self.schema(table)) for table in frames}
        return JournalRecord(stamp, tuple(state_ids), frames, self._horizons, undo, orders)

    def _add(self, table: str, rows: pl.DataFrame) -> None:
        if rows.height:
            self._grow(table, stored_frame(rows, self.schema(table), table))

    def _grow(self, table: str, frame: pl.DataFrame) -> None:
        self._blocks.setdefault(table, []).append(Block(frame))

    def _replaced(self, table: str, columns: Sequence[str]) -> TableSchema:
        """Return the schema of a table that may be written by rows with these columns."""
        self._must_own(table)
        schema = self.schema(table)
        if not isinstance(schema.rule, ReplaceRule):
            raise InvalidValue(f"table {table!r} does not replace its entries", hint="use append")
        missing = [name for name in (KEY, *schema.shown) if name not in columns]
        if missing:
            raise InvalidValue(f"table {table!r}: the rows lack the columns {missing}")
        return schema

    @staticmethod
    def _marked(schema: TableSchema) -> list[str]:
        return [KEY, *schema.order, *schema.columns, REMOVED]

    def _must_own(self, table: str) -> None:
        if state_id_of(table) not in self._state_ids:
            raise InvalidValue(f"table {table!r} belongs to no state id of the transaction: {sorted(self._state_ids)}")


def define(schemas: dict[str, TableSchema], table: str, schema: TableSchema) -> None:
    """Add a table's schema.

    Args:
        schemas: by full name.
        table: the full name.
        schema: must equal the one known, if there is one.

    Raises:
        OldState: the table is known with other columns.
    """
    known = schemas.get(table)
    if known is schema:
        return
    if known is not None and not known.stores_like(schema):
        raise OldState(
            f"state {table!r} does not have the columns it is read with: it has {list(known.stored)[2:]}, "
            f"not {list(schema.stored)[2:]}",
            hint="go on with the version of umbel that wrote it, or compute it anew: umbel rebuild DATASET, or --all",
        )
    schemas[table] = schema
