"""Ranges of version histories, against a loop."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

from umbel.changes.versions import KEY, merged

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = {KEY: pl.Binary(), "_low": pl.Datetime("us", "UTC"), "_high": pl.Datetime("us", "UTC")}


def instant(micros: int) -> datetime:
    return BEGIN + timedelta(microseconds=micros)


def naively_merged(ranges: list[tuple[bytes, int, int]]) -> list[tuple[bytes, int, int]]:
    found: list[tuple[bytes, int, int]] = []
    for key, low, high in sorted(ranges):
        if found and found[-1][0] == key and low <= found[-1][2]:
            found[-1] = (key, found[-1][1], max(high, found[-1][2]))
        else:
            found.append((key, low, high))
    return found


def test_ranges_that_touch_are_merged_key_by_key() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        size = int(rng.integers(1, 40))
        lows, lengths = rng.integers(0, 60, size).tolist(), rng.integers(1, 20, size).tolist()
        keys = [bytes([number]) for number in rng.integers(0, 4, size).tolist()]
        ranges = [(key, low, low + length) for key, low, length in zip(keys, lows, lengths, strict=True)]
        frame = pl.DataFrame([(key, instant(low), instant(high)) for key, low, high in ranges], SCHEMA, orient="row")
        expected = [(key, instant(low), instant(high)) for key, low, high in naively_merged(ranges)]
        assert merged(frame).rows() == expected


def test_no_ranges_are_merged() -> None:
    nothing = pl.DataFrame(schema=SCHEMA)
    assert merged(nothing).equals(nothing)
