"""Numbers of encoded keys, in the order in which shards store them.

Rows that are sorted by the number of their key and by time are in the order of a stored frame: they are written without being
hashed or sorted again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from umbel.state.runs.addresses import hash_keys
from umbel.state.runs.sorting import order_of_numbers

if TYPE_CHECKING:
    from umbel.state.runs.addresses import Flags, Hashes, Ints


@dataclass(frozen=True, slots=True)
class NumberedKeys:
    """Some encoded keys, each once, in ascending order of their hash, then of the key.

    Args:
        keys: the keys.
        hashes: of the keys.
    """

    keys: pl.Series
    hashes: Hashes

    @classmethod
    def of(cls, keys: pl.Series) -> tuple[NumberedKeys, Ints]:
        """Return the keys among some, and the number of each of those provided.

        Args:
            keys: encoded keys, none of them null.
        """
        hashes = hash_keys(keys)
        order = order_of_numbers(hashes)
        begins = _begins(hashes[order])
        ordered = keys.gather(order)
        if (repeats := ~begins[1:]).any() and _differ(ordered, repeats):
            order = (
                pl.DataFrame({"hash": hashes, "key": keys}).select(pl.arg_sort_by("hash", "key")).to_series().to_numpy()
            )
            ordered = keys.gather(order)
            begins = _begins(hashes[order])
            begins[1:] |= (ordered.slice(1) != ordered.slice(0, len(ordered) - 1)).to_numpy()
        first = np.flatnonzero(begins)
        numbers = np.empty(len(hashes), np.int64)
        numbers[order] = np.cumsum(begins) - 1
        return cls(ordered.gather(first), hashes[order[first]]), numbers


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """Time ranges of keys: low <= time < high, in µs.

    Args:
        owners: the index of each range's key.
        low: of each range.
        high: of each range.
    """

    owners: Ints
    low: Ints
    high: Ints


def _begins(hashes: Hashes) -> Flags:
    begins = np.ones(len(hashes), np.bool_)
    begins[1:] = hashes[1:] != hashes[:-1]
    return begins


def _differ(ordered: pl.Series, repeats: Flags) -> bool:
    """Return whether keys that share their hash with the one before differ from it."""
    differ = (ordered.slice(1) != ordered.slice(0, len(ordered) - 1)).to_numpy()
    return bool((differ & repeats).any())
