"""The common part of the stores: calls passed on to their shards."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from umbel.state.port import MAX_STATE_ID, ShardSize, Stamp, check_name, check_shard
from umbel.state.runs.writable_shard import WritableShard

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from umbel.state.runs.views import ShardSnapshot, ShardTransaction

S = TypeVar("S", bound=WritableShard)


class ShardedStore(Generic[S]):
    """Keyed state in a fixed number of shards; see `umbel.state.port.Store`.

    Args:
        shards: the shards.
    """

    def __init__(self, shards: Sequence[S]) -> None:
        self.shards = len(shards)
        self._shards = list(shards)

    @contextmanager
    def transaction(
        self, shard: int, state_ids: Sequence[str], stamp: Stamp, *, undo: bool = True
    ) -> Iterator[ShardTransaction]:
        """Open the one write transaction of `shard`; see `umbel.state.port.Store`."""
        written = self._shard(shard)
        for state_id in state_ids:
            check_name("the operator id", state_id, MAX_STATE_ID)
        self._prepare()
        with written.transaction(state_ids, stamp, undo=undo) as transaction:
            yield transaction
        self._finish(written)

    @contextmanager
    def snapshot(self, shard: int) -> Iterator[ShardSnapshot]:
        """Open a read view of the committed state."""
        yield self._shard(shard).snapshot()

    def stamp(self, shard: int, state_id: str) -> Stamp | None:
        """Return the stamp of the last committed write of `state_id`."""
        return self._shard(shard).stamp(state_id)

    def drop(self, state_id: str) -> None:
        """Delete all state of `state_id` in all shards."""
        for shard in self._every():
            shard.drop(state_id)

    def state_ids(self, shard: int) -> list[str]:
        """Return the state ids with state in `shard`, sorted."""
        return self._shard(shard).state_ids()

    def sizes(self) -> list[ShardSize]:
        """Return the rows of each shard and its bytes, on disk or in memory."""
        return [ShardSize(number, each.refresh().rows(), each.size()) for number, each in enumerate(self._every())]

    def close(self) -> None:
        """Release files and threads, if there are any."""

    def _shard(self, shard: int) -> S:
        check_shard(shard, self.shards)
        return self._shards[shard]

    def _every(self) -> list[S]:
        return [self._shard(number) for number in range(self.shards)]

    def _prepare(self) -> None:
        """Do what has to be done before a transaction."""

    def _finish(self, written: S) -> None:
        """Do what has to be done after a transaction on a shard."""
