"""The store port: what umbel asks of a place that keeps keyed state.

A store is an ordered map per shard, written in transactions that carry a stamp. It promises three things:

* a transaction is seen whole or not at all, by readers and after a crash;
* a batch that is run again finds the state as it was before its first run (one batch of undo per operator);
* a writer of an older epoch is refused.

`tests/contracts/test_store.py` checks a store against all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from umbel.errors import InvalidValue, Terminal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

MAX_KEY = 416
"""Longest key in bytes: an encoded key (at most 400) and an instant (8), with room to spare."""

MAX_OWNER = 64
"""Longest operator id."""

MAX_TABLE = 24
"""Longest table name."""

LAST = b"\xff" * (MAX_KEY + 1)
"""A bound above every key."""

Entry = tuple[bytes, bytes]
Range = tuple[bytes, bytes]


class Fenced(Terminal):
    """A newer epoch has written here: this writer was replaced and must stop."""

    code = "fenced"


class StaleBatch(Terminal):
    """The state is past this batch already, or cannot be taken back to its start."""

    code = "stale-batch"


@dataclass(frozen=True, order=True, slots=True)
class Stamp:
    """Which write a state comes from.

    Args:
        epoch: the job's epoch; raised when a new worker takes the job over.
        batch: the number of the micro-batch, increasing.
        step: 0 for the batch itself, 1 and up for the ticks that follow it.
    """

    epoch: int
    batch: int
    step: int = 0


class Reader(Protocol):
    """A consistent view of one shard."""

    def get(self, owner: str, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None where there is none. Sorted keys are fastest."""
        ...

    def scan(
        self, owner: str, table: str, ranges: Sequence[Range], *, limit: int | None = None, reverse: bool = False
    ) -> list[list[Entry]]:
        """Return, for each `low <= key < high`, its entries in order of key.

        Args:
            owner: the operator's id.
            table: the table's name.
            ranges: pairs (low, high); `LAST` as high takes everything from low on.
            limit: at most so many entries per range.
            reverse: from the high end down.
        """
        ...


class Transaction(Reader, Protocol):
    """A view of one shard that reads its own writes."""

    def put(self, owner: str, table: str, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Set the value of each key. Of a key given twice the last value stays."""
        ...

    def delete(self, owner: str, table: str, keys: Sequence[bytes]) -> None:
        """Remove each key; keys that do not exist are skipped."""
        ...


@dataclass(frozen=True, slots=True)
class ShardSize:
    """What one shard holds.

    Args:
        shard: its number.
        entries: entries of all tables (undo and stamps may be counted along).
        size: bytes taken on disk or in memory.
    """

    shard: int
    entries: int
    size: int


class Store(Protocol):
    """Keyed state in a fixed number of shards."""

    shards: int

    def transaction(
        self, shard: int, owners: Sequence[str], stamp: Stamp, *, undo: bool = True
    ) -> AbstractContextManager[Transaction]:
        """Open the one write transaction of `shard`: committed when the block ends, dropped when it raises.

        Args:
            shard: number of the shard, from 0.
            owners: the operators whose state is written; each gets the stamp.
            stamp: the batch being applied. What a run of the same step, or of a later step of the same batch,
                had written is taken back first.
            undo: False writes no undo, for fresh tables that are dropped when their filling is interrupted.

        Raises:
            Fenced: an owner's stamp has a higher epoch.
            StaleBatch: an owner's stamp has a later batch, or this batch was written without undo.
        """
        ...

    def snapshot(self, shard: int) -> AbstractContextManager[Reader]:
        """Open a read view of what is committed. Cheap: open one per request, and do not keep it."""
        ...

    def stamp(self, shard: int, owner: str) -> Stamp | None:
        """Return the stamp of the last committed write of `owner`, None when there is none."""
        ...

    def drop(self, owner: str) -> None:
        """Forget everything of `owner` in all shards."""
        ...

    def owners(self, shard: int) -> list[str]:
        """Return the operators that have state in `shard`, sorted."""
        ...

    def sizes(self) -> list[ShardSize]:
        """Return how much each shard holds."""
        ...

    def close(self) -> None:
        """Release files and connections. A closed store is not used again."""
        ...


def check_shard(shard: int, shards: int) -> None:
    """Raise InvalidValue unless `shard` is one of `shards`."""
    if not 0 <= shard < shards:
        raise InvalidValue(f"shard {shard} does not exist; the store has {shards} shards, numbered from 0")


def check_name(kind: str, name: str, longest: int) -> None:
    """Raise InvalidValue unless `name` can be part of a key: printable ascii, not empty, at most `longest` long."""
    if not (0 < len(name) <= longest and name.isascii() and name.isprintable()):
        raise InvalidValue(f"{kind} {name!r} must be 1 to {longest} printable ascii characters")


def check_keys(keys: Sequence[bytes]) -> None:
    """Raise InvalidValue when a key is longer than a store can hold."""
    longest = max(map(len, keys), default=0)
    if longest > MAX_KEY:
        raise InvalidValue(
            f"a key of {longest} bytes is longer than the {MAX_KEY} bytes a store can hold",
            hint="make keys with umbel.state.keys.encode_keys, which shortens long ones",
        )
