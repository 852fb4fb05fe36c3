"""Entries of a store, as the tests of its contract write and read them."""

from __future__ import annotations

from umbel.state.port import LAST, Reader, Stamp, Store

A, B = "a" * 16, "b" * 16
SHARDS = 2


def put(store: Store, stamp: Stamp, entries: dict[bytes, bytes | None], *, owner: str = A, shard: int = 0) -> None:
    """Set (None: delete) the entries of table `t` in one transaction."""
    with store.transaction(shard, [owner], stamp) as tx:
        retained = {key: value for key, value in entries.items() if value is not None}
        tx.put(owner, "t", list(retained), list(retained.values()))
        tx.delete(owner, "t", [key for key, value in entries.items() if value is None])


def held(store: Store, owner: str = A, table: str = "t", shard: int = 0) -> dict[bytes, bytes]:
    """Return what a table holds, as a new snapshot sees it."""
    with store.snapshot(shard) as reader:
        return everything(reader, owner, table)


def everything(reader: Reader, owner: str = A, table: str = "t") -> dict[bytes, bytes]:
    return dict(reader.scan(owner, table, [(b"", LAST)])[0])
