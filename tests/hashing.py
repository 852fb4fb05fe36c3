"""Hashes of few values, for tests of keys that share one."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from umbel.state.runs import addresses, points, reading, time_ranges, views
from umbel.state.runs.addresses import Hashes


def share_hashes(patch: pytest.MonkeyPatch, count: int) -> None:
    """Let all keys have one of `count` hashes.

    Args:
        patch: undoes it.
        count: the number of hashes; keys of equal sums of their bytes share one.
    """

    def one(key: bytes) -> np.uint64:
        return np.uint64(sum(key) % count)

    def several(keys: pl.Series) -> Hashes:
        return np.array([one(key) for key in keys], np.uint64)

    for module in (addresses, points, reading, time_ranges):
        patch.setattr(module, "hash_keys", several)
    for module in (points, views):
        patch.setattr(module, "hash_key", one)
