"""The in-memory store of one process, for tests, notebooks and the in-process runner."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from umbel.state.port import MAX_STATE_ID, ShardSize, Stamp, check_name, check_shard
from umbel.state.runs.shard import MemoryShard

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from urllib.parse import SplitResult

    from umbel.state.runs.views import ShardSnapshot, ShardTransaction


class MemoryStore:
    """A store whose state is lost when the process ends.

    Args:
        shards: number of shards.
    """

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self._shards = [MemoryShard() for _ in range(shards)]

    def _shard(self, shard: int) -> MemoryShard:
        check_shard(shard, self.shards)
        return self._shards[shard]

    @contextmanager
    def transaction(
        self, shard: int, state_ids: Sequence[str], stamp: Stamp, *, undo: bool = True
    ) -> Iterator[ShardTransaction]:
        """Open the one write transaction of `shard`; see `umbel.state.port.Store`."""
        for state_id in state_ids:
            check_name("the operator id", state_id, MAX_STATE_ID)
        with self._shard(shard).transaction(state_ids, stamp, undo=undo) as transaction:
            yield transaction

    @contextmanager
    def snapshot(self, shard: int) -> Iterator[ShardSnapshot]:
        """Open a read view of the committed state."""
        yield self._shard(shard).snapshot()

    def stamp(self, shard: int, state_id: str) -> Stamp | None:
        """Return the stamp of the last committed write of `state_id`."""
        return self._shard(shard).stamp(state_id)

    def drop(self, state_id: str) -> None:
        """Delete all state of `state_id` in all shards."""
        for shard in self._shards:
            shard.drop(state_id)

    def state_ids(self, shard: int) -> list[str]:
        """Return the state ids with state in `shard`, sorted."""
        return self._shard(shard).state_ids()

    def sizes(self) -> list[ShardSize]:
        """Return each shard's number of rows and their bytes."""
        return [ShardSize(number, each.refresh().rows(), each.size()) for number, each in enumerate(self._shards)]

    def close(self) -> None:
        """Do nothing: there are no files or connections to release."""


def open_url(url: SplitResult, shards: int, settings: Mapping[str, str]) -> MemoryStore:
    """Open `memory://`: a new, empty store."""
    return MemoryStore(shards)
