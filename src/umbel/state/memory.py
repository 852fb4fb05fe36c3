"""The in-memory store of one process, for tests, notebooks and the in-process runner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from umbel.state.runs.memory_shard import MemoryShard
from umbel.state.sharded import ShardedStore

if TYPE_CHECKING:
    from collections.abc import Mapping
    from urllib.parse import SplitResult


class MemoryStore(ShardedStore[MemoryShard]):
    """A store whose state is lost when the process ends.

    Args:
        shards: number of shards.
    """

    def __init__(self, shards: int) -> None:
        super().__init__([MemoryShard() for _ in range(shards)])


def open_url(url: SplitResult, shards: int, settings: Mapping[str, str]) -> MemoryStore:
    """Open `memory://`: a new, empty store."""
    return MemoryStore(shards)
