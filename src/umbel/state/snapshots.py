"""The snapshots of shards that one query reads."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from umbel.state.port import Reader, Store


class Snapshots(ExitStack):
    """Snapshots, each taken when it is first read, and open until the block ends.

    All lookups of a query see the same state of a shard.
    """

    def __init__(self) -> None:
        super().__init__()
        self._taken: dict[tuple[int, int], Reader] = {}

    def of(self, store: Store, shard: int) -> Reader:
        """Return the snapshot of a shard."""
        found = self._taken.get((id(store), shard))
        if found is None:
            found = self._taken[id(store), shard] = self.enter_context(store.snapshot(shard))
        return found
