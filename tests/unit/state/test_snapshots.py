"""The snapshots of one query: each shard is read as of one instant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from umbel.state.snapshots import Snapshots


class Counting:
    """A store whose snapshots are numbers, in the order in which they are taken."""

    def __init__(self) -> None:
        self.taken, self.open = 0, set[int]()

    @contextmanager
    def snapshot(self, shard: int) -> Iterator[Any]:
        self.taken += 1
        number = self.taken
        self.open.add(number)
        yield shard, number
        self.open.remove(number)


def test_each_shard_is_read_as_of_one_instant() -> None:
    one, other = Counting(), Counting()
    stores: Any = (one, other)
    with Snapshots() as snapshots:
        found = [snapshots.of(store, shard) for store in stores for shard in (2, 0, 2, 0)]
        assert found == [(2, 1), (0, 2), (2, 1), (0, 2)] * 2
        assert one.open == other.open == {1, 2}
    assert one.open == other.open == set()
    assert (one.taken, other.taken) == (2, 2)
