"""The store port: the interface of a store of keyed state.

A store has the tables of operators in shards, written in transactions that carry a stamp. It guarantees three things:

* a transaction is seen whole or not at all, by readers and after a crash;
* a batch that is run again finds the state as it was before its first run (one batch of undo per operator);
* a writer of an older epoch is refused.

`tests/contracts/test_store.py` checks all of it for a store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from umbel.errors import InvalidValue, Terminal, Transient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    import polars as pl

    from umbel.state.numbered_keys import KeyRanges, NumberedKeys
    from umbel.state.runs.addresses import Ints
    from umbel.state.runs.manifest import WrittenRuns
    from umbel.state.runs.points import RowSlice
    from umbel.state.runs.rules import TableSchema

MAX_STATE_ID = 64
"""Longest state id."""

MAX_TABLE = 24
"""Longest table name."""


class Fenced(Terminal):
    """A newer epoch has written here: this writer was replaced and must stop."""

    code = "fenced"


class ConcurrentWrite(Transient):
    """Another process has written the same state meanwhile; the transaction has to begin anew."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="the batch is tried again by itself")


class StaleBatch(Terminal):
    """The state is past this batch already, or cannot be rolled back to its start."""

    code = "stale-batch"


class OldState(Terminal):
    """State is in the format of another version of umbel."""

    code = "old-state"

    @classmethod
    def found(cls, found: str, reads: str, where: str = "state") -> OldState:
        """Return the error with the format found and the format this version reads."""
        return cls(
            f"{where} was written in {found} by another version of umbel; this one reads {reads}",
            hint="go on with the version that wrote it, or compute it anew: move everything but the folder 'ingest' out of "
            "umbel's folder and commit again, then all events there and all files are read from the start",
        )


@dataclass(frozen=True, order=True, slots=True)
class Stamp:
    """The write a state comes from.

    Args:
        epoch: the job's epoch; incremented when a new worker takes over the job.
        batch: the number of the micro-batch, increasing.
        step: 0 for the first transactions of the batch, 1 and up for those that follow on the same shards.
    """

    epoch: int
    batch: int
    step: int = 0


class Reader(Protocol):
    """A consistent view of one shard. A table has the full name `state_id/table`."""

    def define(self, table: str, schema: TableSchema) -> None:
        """Define a table; Terminal if it is known with other columns."""
        ...

    def lookup(self, table: str, keys: pl.Series) -> pl.DataFrame:
        """Return the rows of some keys.

        The columns are `_key_id` (the index of the key), the order and the values. They are sorted by the index and the order.
        """
        ...

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
        ...

    def ranges_of(
        self, table: str, keys: NumberedKeys, ranges: KeyRanges, *, before: bool = False, after: bool = False
    ) -> pl.DataFrame:
        """Return the entries of numbered keys within ranges, in the form of `ranges`."""
        ...

    def before(self, table: str, bound: int) -> pl.DataFrame:
        """Return the entries of all keys before a value of the order."""
        ...

    def groups(self, table: str, keys: Sequence[bytes]) -> list[RowSlice | None]:
        """Return the rows of some keys without a frame; None for a key without rows."""
        ...

    def slices(self, table: str, keys: Sequence[bytes]) -> list[list[RowSlice]]:
        """Return the stored rows of some keys, those of each run and block apart."""
        ...

    def latest(self, table: str, key: bytes, bound: int) -> RowSlice | None:
        """Return the last entry of one key before a value of the order, if any."""
        ...


class Transaction(Reader, Protocol):
    """A view of one shard that reads its own writes."""

    def replace(self, table: str, addresses: pl.DataFrame, rows: pl.DataFrame) -> None:
        """Replace the groups of rows at some addresses; one without rows is removed."""
        ...

    def put(self, table: str, rows: pl.DataFrame, removed: pl.DataFrame) -> None:
        """Replace the groups of rows at the addresses of `rows` and `removed`, which must differ."""
        ...

    def put_groups(self, table: str, keys: pl.Series, owners: Ints, rows: pl.DataFrame) -> None:
        """Replace groups of rows of keys that are provided once."""
        ...

    def append(self, table: str, rows: pl.DataFrame) -> None:
        """Add rows to a table that does not replace its entries."""
        ...

    def append_numbered(self, table: str, keys: NumberedKeys, owners: Ints, rows: pl.DataFrame) -> None:
        """Write rows of numbered keys, in stored order, with their marks."""
        ...

    def append_groups(self, table: str, keys: pl.Series, owners: Ints, rows: pl.DataFrame) -> None:
        """Add rows of some keys, in ascending order, with the index of each row's key."""
        ...

    def expire(self, table: str, before: datetime) -> None:
        """Raise the horizon of a table: rows that expire until then disappear."""
        ...


@dataclass(frozen=True, slots=True)
class ShardSize:
    """The size of one shard.

    Args:
        shard: its number.
        entries: stored rows of all tables, those included that a merge will drop.
        size: bytes on disk or in memory.
        files: of a store in files, the parts of that.
    """

    shard: int
    entries: int
    size: int
    files: FileSizes | None = None


@dataclass(frozen=True, slots=True)
class FileSizes:
    """The parts of a shard in files, and the work of its maintenance.

    Args:
        journal: bytes of the journal.
        memory: bytes of rows in memory that will be written as runs.
        runs: number of runs by tier.
        run_bytes: bytes of all runs.
        written: by maintenance since the shard was made.
    """

    journal: int
    memory: int
    runs: Mapping[int, int]
    run_bytes: int
    written: WrittenRuns


class JournalEnd(NamedTuple):
    """The end of a shard's written state; it only grows.

    Args:
        number: of the last file of its journal.
        offset: where that ends.
        version: of its manifest.
    """

    number: int = 1
    offset: int = 0
    version: int = 0


class Store(Protocol):
    """Keyed state in a fixed number of shards."""

    shards: int

    def transaction(
        self, shard: int, state_ids: Sequence[str], stamp: Stamp, *, undo: bool = True
    ) -> AbstractContextManager[Transaction]:
        """Open a write transaction of `shard`.

        It is committed when the block ends and dropped when the block raises. Transactions on other state ids may be open in
        other threads and processes.

        Args:
            shard: number of the shard, from 0.
            state_ids: the operators whose state is written; each gets the stamp.
            stamp: the batch being applied. Earlier writes of the same step, or of a later step of the same batch, are rolled back
            first.
            undo: False writes no undo, for fresh tables that are dropped when their filling is interrupted.

        Raises:
            ConcurrentWrite: a state id was written or dropped while the transaction was open.
            Fenced: the stamp of a state id has a higher epoch.
            StaleBatch: the stamp of a state id has a later batch, or this batch was written without undo.
        """
        ...

    def snapshot(self, shard: int) -> AbstractContextManager[Reader]:
        """Open a read view of the committed state.

        It is cheap: open one per request, and close it when the request ends.
        """
        ...

    def stamp(self, shard: int, state_id: str) -> Stamp | None:
        """Return the stamp of the last committed write of `state_id`, None if there is none."""
        ...

    def drop(self, state_id: str) -> None:
        """Delete all state of `state_id` in all shards."""
        ...

    def state_ids(self, shard: int) -> list[str]:
        """Return the state ids with state in `shard`, sorted."""
        ...

    def sizes(self) -> list[ShardSize]:
        """Return the size of each shard."""
        ...

    def close(self) -> None:
        """Release files and connections. A closed store is not used again."""
        ...


@runtime_checkable
class Lasting(Protocol):
    """Identity and integrity checks of a store that outlives its process."""

    @property
    def identity(self) -> str | None:
        """The store's unique id, None until something is written."""
        ...

    def must_be(self, identity: str) -> None:
        """Refuse to read or write unless the store has this identity."""
        ...

    shards: int

    def end(self, shard: int) -> JournalEnd:
        """Return the end of a shard as last read or written here, without reading."""
        ...

    def must_reach(self, ends: Callable[[], Sequence[JournalEnd]]) -> None:
        """Refuse to read or write shards that have lost what was written last.

        Args:
            ends: returns how far each shard was written at least; called again before a shard is refused.
        """
        ...

    def check(self, shard: int) -> int:
        """Verify every entry in a shard; return the number of entries. Damage raises an error."""
        ...


def check_shard(shard: int, shards: int) -> None:
    """Raise InvalidValue unless `shard` is one of `shards`."""
    if not 0 <= shard < shards:
        raise InvalidValue(f"shard {shard} does not exist; the store has {shards} shards, numbered from 0")


def check_name(kind: str, name: str, longest: int) -> None:
    """Raise InvalidValue unless `name` is 1 to `longest` printable ASCII characters.

    Other names cannot be part of a key.
    """
    if not (0 < len(name) <= longest and name.isascii() and name.isprintable()):
        raise InvalidValue(f"{kind} {name!r} must be 1 to {longest} printable ascii characters")
