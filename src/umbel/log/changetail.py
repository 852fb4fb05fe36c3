"""The tail of a change log: the batches that are not in its table yet.

Two places can keep it. `StoreTail` is in the store: changes are put there by the shard transactions that made them, so
they are there exactly when the state is. `FileTail` is a folder of files, one per batch, for whoever runs a batch whole.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import polars as pl

from umbel.errors import Terminal
from umbel.log.nesting import stored_frame
from umbel.log.segments import sync_directory

if TYPE_CHECKING:
    from umbel.state.port import Reader, Store, Transaction

BATCH = "_batch"
TABLE = "tail"
ROWS_AT_ONCE = 262_144
_NUMBER = 8
_LOWEST, _END = b"", b"\xff" * 16


class ChangeTail(Protocol):
    """Where recent batches wait."""

    def read(self, after: int, until: int | None = None) -> pl.DataFrame | None:
        """Return the changes of the batches in (after, until], with `_batch`; None when there are none."""

    def forget(self, until: int) -> None:
        """Remove the batches up to one. What cannot be removed now is removed the next time."""


def tail_put(transaction: Transaction, owner: str, batch: int, changes: pl.DataFrame, part: int = 0) -> None:
    """Put the changes that a shard made in a batch into the tail, as part of its transaction.

    Args:
        transaction: of the shard, opened for `owner` among others.
        owner: the tail's owner in the store: `log:` and the dataset's fingerprint.
        batch: the number of the batch.
        changes: a frame of changes.
        part: tells several calls for one batch apart: the step of the stamp, say.
    """
    slices = [changes.slice(start, ROWS_AT_ONCE) for start in range(0, changes.height, ROWS_AT_ONCE)]
    keys = [_key(batch, part) + number.to_bytes(4, "big") for number in range(len(slices))]
    transaction.put(owner, TABLE, keys, [_packed(each, batch) for each in slices])


def tail_read(reader: Reader, owner: str, after: int = -1, until: int | None = None) -> pl.DataFrame | None:
    """Return a shard's changes of the batches in (after, until], with `_batch`; None when there are none."""
    high = _END if until is None else _key(until + 1)
    (entries,) = reader.scan(owner, TABLE, [(_key(after + 1), high)])
    return _together(pl.read_ipc(io.BytesIO(value)) for _, value in entries)


@dataclass(frozen=True, slots=True)
class StoreTail:
    """The tail in the store.

    Args:
        store: where.
        owner: `log:` and the dataset's fingerprint.
    """

    store: Store
    owner: str

    def read(self, after: int, until: int | None = None) -> pl.DataFrame | None:
        """Return the changes of the batches in (after, until], of all shards."""
        found = []
        for shard in range(self.store.shards):
            with self.store.snapshot(shard) as reader:
                found.append(tail_read(reader, self.owner, after, until))
        return _together(frame for frame in found if frame is not None)

    def forget(self, until: int) -> None:
        """Remove the batches up to one; a shard that is being written to is left for the next time."""
        for shard in range(self.store.shards):
            stamp = self.store.stamp(shard, self.owner)
            if stamp is None:
                continue
            # A step of the batch that wrote last: when it is run again this is undone with it, which does no harm.
            try:
                with self.store.transaction(shard, [self.owner], replace(stamp, step=stamp.step + 1)) as transaction:
                    (entries,) = transaction.scan(self.owner, TABLE, [(_LOWEST, _key(until + 1))])
                    transaction.delete(self.owner, TABLE, [key for key, _ in entries])
            except Terminal:
                continue  # the next batch has begun meanwhile


@dataclass(frozen=True, slots=True)
class FileTail:
    """The tail as files, one per batch.

    Args:
        folder: where.
    """

    folder: Path

    def put(self, batch: int, changes: pl.DataFrame) -> None:
        """Keep the changes of a batch, durably. A batch that is run again replaces its file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = self.folder / f".{batch:012d}"
        with fresh.open("wb") as file:
            file.write(_packed(changes, batch))
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(self.folder / f"{batch:012d}.arrow")
        sync_directory(self.folder)

    def size(self) -> tuple[int, int]:
        """Return how many files there are, and their bytes."""
        sizes = [path.stat().st_size for path in self._files()]
        return len(sizes), sum(sizes)

    def last(self) -> int:
        """Return the number of the last batch, -1 for none."""
        return max((int(path.stem) for path in self._files()), default=-1)

    def read(self, after: int, until: int | None = None) -> pl.DataFrame | None:
        """Return the changes of the batches in (after, until]."""
        return _together(frame for path in self._files() if _is_in(path, after, until) for frame in _opened(path))

    def forget(self, until: int) -> None:
        """Remove the files of the batches up to one."""
        for path in self._files():
            if int(path.stem) <= until:
                path.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*.arrow"))


def _is_in(path: Path, after: int, until: int | None) -> bool:
    return after < int(path.stem) and (until is None or int(path.stem) <= until)


def _opened(path: Path) -> Iterable[pl.DataFrame]:
    try:
        yield pl.read_ipc(io.BytesIO(path.read_bytes()))
    except FileNotFoundError:
        return  # it was moved into the table, which the caller looks at next


def _packed(changes: pl.DataFrame, batch: int) -> bytes:
    buffer = io.BytesIO()
    stored_frame(changes).with_columns(pl.lit(batch, pl.Int64).alias(BATCH)).write_ipc(buffer, compression="lz4")
    return buffer.getvalue()


def _together(frames: Iterable[pl.DataFrame]) -> pl.DataFrame | None:
    found = list(frames)
    return pl.concat(found) if found else None


def _key(batch: int, part: int | None = None) -> bytes:
    """Return the key of a batch, or where the keys of a batch begin; batch numbers may be negative."""
    number = (batch + (1 << 63)).to_bytes(_NUMBER, "big")
    return number if part is None else number + part.to_bytes(4, "big")
