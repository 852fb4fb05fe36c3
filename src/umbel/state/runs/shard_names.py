"""Names of shards, written into their files so that misplaced ones are recognised."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from umbel.state.runs.files import ShardFiles

_SHARD = re.compile(r"shard-\d+")


def shard_name(files: ShardFiles) -> str:
    """Return the name of a shard, the same wherever its store is.

    It is empty for a shard outside of stores.
    """
    name = str(files).rpartition("/")[2]
    return name if _SHARD.fullmatch(name) else ""
