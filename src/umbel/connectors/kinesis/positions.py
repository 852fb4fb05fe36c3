"""Positions in a stream: by shard, the last record that was staged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from umbel.connectors.kinesis.client import StreamShard

GONE = "it was deleted (retention) before it was read to its end; records of it are lost"
UNSEEN = "shards before it were deleted (retention) before they were read; their records are lost"


@dataclass(frozen=True, slots=True)
class ShardPosition:
    """The position in a shard.

    Args:
        sequence: of the last record that was staged, empty for none.
        arrived: when that record arrived at the stream, in seconds since the epoch.
        reached: records that arrived before this instant have been staged; 0 for unknown.
        is_done: whether the shard was read to its end.
    """

    sequence: str = ""
    arrived: float = 0.0
    reached: float = 0.0
    is_done: bool = False

    @property
    def plain(self) -> dict[str, Any]:
        """The position as plain JSON."""
        return asdict(self)

    def may_have_lost(self, retention: float, now: float) -> bool:
        """Return whether records behind it may have been deleted, if the record at it was.

        Args:
            retention: of the stream, in seconds.
            now: the time, in seconds since the epoch.
        """
        if self.reached and self.reached + retention < now:
            return True
        return bool(self.sequence) and self.arrived + retention > now  # retention was shorter for some time


@dataclass
class StreamPositions:
    """The positions in all shards of a stream.

    Args:
        created: distinguishes the stream from another of its name.
        begun: the instant at which reading begins, None for the oldest record.
        shards: by id.
    """

    created: str
    begun: float | None
    shards: dict[str, ShardPosition] = field(default_factory=dict)

    def update(self, listed: Mapping[str, StreamShard]) -> list[tuple[str, str]]:
        """Add the listed shards; return those with lost records, and the reasons."""
        lost = list[tuple[str, str]]()
        for shard, position in list(self.shards.items()):
            if shard not in listed and not position.is_done:
                lost.append((shard, GONE))
                self.shards[shard] = ShardPosition(position.sequence, position.arrived, position.reached, is_done=True)
        is_first = not self.shards
        for found in listed.values():
            if found.id in self.shards:
                continue
            known = [parent for parent in found.parents if parent in listed or parent in self.shards]
            if not known and found.parents and not is_first:
                lost.append((found.id, UNSEEN))
            self.shards[found.id] = ShardPosition()
        return lost

    def prune(self, listed: Mapping[str, StreamShard]) -> None:
        """Forget the shards that were read to their end and are listed no more."""
        for shard in [each for each, position in self.shards.items() if position.is_done and each not in listed]:
            del self.shards[shard]

    def readable(self, listed: Mapping[str, StreamShard]) -> list[str]:
        """Return the shards that have not ended, and whose parents have been read."""

        def is_done(shard: str) -> bool:
            return shard not in self.shards or self.shards[shard].is_done

        return [each.id for each in listed.values() if not is_done(each.id) and all(map(is_done, each.parents))]


def stored(state: Mapping[str, Any], later: Sequence[Mapping[str, Any]]) -> StreamPositions:
    """Return the positions that a state has, and those of what was staged after it.

    Args:
        state: as saved.
        later: facts of parts that were staged after it, in order.
    """
    shards = dict(state["shards"])
    for facts in later:
        shards |= facts.get("shards", {})
    return StreamPositions(
        state["created"], state["begun"], {shard: ShardPosition(**each) for shard, each in shards.items()}
    )


def instant(seconds: float) -> str:
    """Return an instant as text, to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
