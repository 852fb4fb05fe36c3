"""Point lookups: groups of rows as arrays, from blocks in memory and from runs."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from umbel.errors import Damaged
from umbel.state.runs.addresses import hash_key, hash_keys
from umbel.state.runs.block import Block
from umbel.state.runs.point_source import PointSource
from umbel.state.runs.points import (
    PointRecords,
    RowSlice,
    all_groups,
    frame_of,
    newest_before,
    newest_group,
    slices_of,
)
from umbel.state.runs.run import RunFile, pack_run
from umbel.state.values import units

SCHEMA = {
    "n": pl.Int64(),
    "d": pl.Decimal(38, 2),
    "raw": pl.Binary(),
    "texts": pl.List(pl.String()),
    "days": pl.List(pl.Date()),
    "sums": pl.List(pl.Decimal(28, 1)),
}
ROWS: list[dict[str, Any]] = [
    {"n": 1, "d": Decimal("-1.25"), "raw": b"\0x", "texts": ["é", None, ""], "days": [date(1969, 1, 1)], "sums": []},
    {"n": None, "d": None, "raw": None, "texts": None, "days": [None], "sums": [Decimal("0.1"), None]},
    {"n": -7, "d": Decimal(10) ** 35, "raw": b"", "texts": ["z" * 70], "days": [], "sums": [Decimal("-99.9")]},
]
INSTANT = pl.Datetime("us", "UTC")
ZERO = datetime(1970, 1, 1, tzinfo=UTC)
Source = Callable[[pl.DataFrame], PointSource]


def run_of(frame: pl.DataFrame) -> RunFile:
    return RunFile(pa.py_buffer(pack_run(frame, "o/t", [])), "a.run")


@pytest.fixture(params=[Block, run_of], ids=["block", "run"])
def source(request: pytest.FixtureRequest) -> Source:
    found: Source = request.param
    return found


def stored(keys: Sequence[bytes], removed: Sequence[bool], times: Sequence[int] | None = None) -> pl.DataFrame:
    """Return the rows of a table in order, with their numbers."""
    found = pl.DataFrame({"_key": pl.Series(keys, dtype=pl.Binary), "_removed": removed, "n": range(len(keys))})
    if times is not None:
        instants = pl.Series("_time", [ZERO + timedelta(microseconds=at) for at in times], dtype=INSTANT)
        found = found.with_columns(instants)
    hashed = found.with_columns(pl.Series("_hash", hash_keys(found["_key"])))
    return hashed.sort("_hash", "_key", *(["_time"] if times is not None else []), maintain_order=True)


def numbers(found: RowSlice | None) -> list[int] | None:
    return None if found is None else frame_of([found], {"n": pl.Int64()})["n"].to_list()


def group(sources: Sequence[PointSource], key: bytes) -> list[int] | None:
    return numbers(newest_group(sources, hash_key(key), key))


def test_the_newest_group_of_a_key_counts(source: Source) -> None:
    old = source(stored([b"a", b"a", b"b", b"c"], [False] * 4))
    new = source(stored([b"b", b"c", b"c"], [True, False, False]))
    assert group([old, new], b"a") == [0, 1]
    assert group([old, new], b"b") is None
    assert group([old, new], b"c") == [1, 2]
    assert group([new, old], b"b") == [2]
    assert group([old, new], b"x") is None
    assert group([], b"a") is None


def test_keys_that_share_a_hash_are_apart(source: Source) -> None:
    keys = [b"a", b"b", b"b", b"d"]
    frame = stored(keys, [False] * 4).with_columns(pl.lit(7, pl.UInt64).alias("_hash")).sort("_key")
    found = source(frame)
    at = np.uint64(7)
    assert [numbers(newest_group([found], at, key)) for key in (b"a", b"b", b"c", b"d")] == [[0], [1, 2], None, [3]]
    assert found.find_key(np.uint64(8), b"a") is None
    assert found.find_key(np.uint64(6), b"a") is None


def test_a_key_is_found_in_a_run_of_many_blocks() -> None:
    keys = [b"%06d" % number for number in range(20_000)]
    run = run_of(stored([*keys, *[b"many"] * 9000], [False] * 29_000))
    for number in range(0, 20_000, 997):
        assert group([run], keys[number]) == [number]
        assert group([run], keys[number] + b"x") is None
    assert group([run], b"many") == list(range(20_000, 29_000))
    assert run.check() == 29_000
    assert group([run], b"many") == list(range(20_000, 29_000))


def latest(sources: Sequence[PointSource], key: bytes, bound: int) -> list[int] | None:
    return numbers(newest_before(sources, "_time", hash_key(key), key, bound))


def test_the_latest_entry_before_a_bound_is_found_behind_tombstones(source: Source) -> None:
    old = source(stored([b"a"] * 5 + [b"b"], [False] * 6, [1, 2, 2, 3, 4, 9]))
    new = source(stored([b"a"] * 3, [True, True, False], [3, 4, 6]))
    newest = source(stored([b"a"] * 2, [True, False], [6, 1]))
    sources = [old, new, newest]
    assert latest(sources[:1], b"a", 100) == [4]
    assert latest(sources[:2], b"a", 100) == [2]
    assert latest(sources, b"a", 100) == [1, 2], "a group of rows at one instant"
    assert latest(sources, b"a", 3) == [1, 2]
    assert latest(sources, b"a", 2) == [1], "the newest source decides"
    assert latest(sources, b"a", 1) is None
    assert latest(sources, b"b", 100) == [5]
    assert latest(sources, b"c", 100) is None
    assert latest([source(stored([b"a"], [True], [1]))], b"a", 100) is None


def records(source: Source, counts: list[int]) -> tuple[PointRecords, list[RowSlice]]:
    """Return the rows in groups, each in a source of its own, and the groups."""
    frame, groups, at = pl.DataFrame(ROWS, schema=SCHEMA), list[RowSlice](), 0
    for count in counts:
        rows = frame.slice(at, count).select(
            pl.lit(0, pl.UInt64).alias("_hash"),
            pl.lit(b"k").alias("_key"),
            pl.all(),
            pl.lit(value=False).alias("_removed"),
        )
        around = pl.concat([rows.head(1), rows, rows.tail(1)])
        groups.append(RowSlice(source(around), 1, 1 + count))
        at += count
    return PointRecords(slices_of(groups), SCHEMA), groups


def test_groups_are_read_one_after_the_other_and_absent_ones_have_no_rows(source: Source) -> None:
    _, (one, two) = records(source, [1, 2])
    found = PointRecords(slices_of([one, None, two]), SCHEMA)
    assert found.counts.tolist() == [1, 0, 2]
    assert found.owners.tolist() == [0, 2, 2]
    assert found["n"].tolist() == [1, 0, -7]
    assert found.nulls("n").tolist() == [False, True, False]
    assert units(found["d"]).tolist() == [-125, 0, 10**37]
    nothing = PointRecords([[]], SCHEMA)
    assert (len(nothing["n"]), len(nothing["d"]), len(nothing.nulls("raw")), len(nothing.owners)) == (0, 0, 0, 0)
    assert nothing.binaries("raw", np.zeros(0, np.int64)) == []
    values, lengths = nothing.lists("days", np.zeros(0, np.int64))
    assert (len(values.stored), len(lengths)) == (0, 0)
    assert PointRecords([], SCHEMA)["n"].tolist() == []


def test_columns_of_no_fixed_width_are_read_of_some_rows(source: Source) -> None:
    found, groups = records(source, [2, 1])
    assert found.binaries("raw", np.array([2, 1, 0])) == [b"", None, b"\0x"]
    for name, expected in (("texts", [2, 0]), ("days", [0, 1, 2]), ("sums", [1, 2]), ("sums", []), ("texts", [1])):
        values, counts = found.lists(name, np.array(expected, np.int64))
        lists = [ROWS[row][name] or [] for row in expected]
        assert counts.tolist() == [len(each) for each in lists]
        different, codes = values.ranked()
        assert [different[code] for code in codes] == [value for each in lists for value in each]
    assert frame_of(groups, SCHEMA).equals(pl.DataFrame(ROWS, schema=SCHEMA))
    assert frame_of([], SCHEMA).schema == SCHEMA


def test_rows_of_blocks_and_runs_are_read_together() -> None:
    frame = pl.DataFrame(ROWS, schema=SCHEMA).select(
        pl.lit(0, pl.UInt64).alias("_hash"), pl.lit(b"k").alias("_key"), pl.all(), pl.lit(value=False).alias("_removed")
    )
    groups = [RowSlice(Block(frame), 0, 2), RowSlice(run_of(frame), 1, 3)]
    found, rows = PointRecords(slices_of(groups), SCHEMA), np.arange(4)
    assert found["n"].tolist() == [1, 0, 0, -7]
    assert units(found["d"]).tolist() == [-125, 0, 0, 10**37]
    assert found.binaries("raw", rows) == [b"\0x", None, None, b""]
    values, lengths = found.lists("texts", rows)
    assert lengths.tolist() == [3, 0, 0, 1]
    assert values.stored.tolist() == ["é", "", "", "z" * 70]
    both = frame_of(groups, SCHEMA)
    assert both.rows() == [tuple(ROWS[number].values()) for number in (0, 1, 1, 2)]


def test_a_damaged_block_in_the_middle_of_a_key_is_not_read_by_a_point() -> None:
    frame = stored([b"hot"] * 20_000 + [b"%d" % number for number in range(9)], [False] * 20_009).with_columns(
        (pl.col("n") / 4).alias("amount")
    )
    data = bytearray(pack_run(frame, "o/t", []))
    data[data.index(struct.pack("<d", 9999 / 4))] ^= 1
    keys = [b"hot", *(b"%d" % number for number in range(9))]
    for some in (keys, keys[:1]):
        with pytest.raises(Damaged, match="differ from their checksum"):
            all_groups([RunFile(pa.py_buffer(bytes(data)), "a.run")], some)


@pytest.mark.parametrize("damaged", ["amount", "raw"])
def test_a_damaged_block_is_not_read_by_a_point(damaged: str) -> None:
    frame = stored([b"%d" % number for number in range(50)], [False] * 50).with_columns(
        (pl.col("n") / 4).alias("amount"), pl.lit(b"raw of one").alias("raw")
    )
    data = bytearray(pack_run(frame, "o/t", []))
    places = {"amount": struct.pack("<d", 7 / 4), "raw": b"raw of one"}
    data[data.find(places[damaged])] ^= 1
    run = RunFile(pa.py_buffer(bytes(data)), "a.run")
    with pytest.raises(Damaged, match="differ from their checksum"):
        group([run], b"7")


def test_many_groups_of_several_sources_come_in_their_order() -> None:
    keys = [b"%02d" % number for number in range(40)]
    block, run = Block(stored(keys, [False] * 40)), run_of(stored(keys, [False] * 40))
    requested = [each for group in all_groups([block, run], keys[::-1]) for each in group]
    assert len(requested) == 80
    assert frame_of(requested, {"n": pl.Int64()})["n"].to_list() == [each for n in range(39, -1, -1) for each in (n, n)]


def test_columns_with_the_same_nulls_share_their_bitmap(source: Source) -> None:
    frame = stored([b"k"] * 20, [False] * 20).with_columns(
        pl.Series("one", [None, 2.5] * 10),
        pl.Series("same", [None, -1.5] * 10),
        pl.Series("other", [1.5] * 19 + [None]),
    )
    found = source(frame)
    one, same, other, none = (found.column(name) for name in ("one", "same", "other", "n"))
    assert one.null_bits is same.null_bits is not None
    assert other.null_bits is not one.null_bits
    assert none.null_bits is None
    slices = [RowSlice(found, 3, 6), RowSlice(source(frame), 0, 2), RowSlice(found, 18, 20)]
    read = PointRecords([slices], {"one": pl.Float64(), "same": pl.Float64(), "other": pl.Float64(), "n": pl.Int64()})
    assert read["one"].tolist() == [2.5, 0.0, 2.5, 0.0, 2.5, 0.0, 2.5]
    assert read["same"].tolist() == [-1.5, 0.0, -1.5, 0.0, -1.5, 0.0, -1.5]
    assert read["other"].tolist() == [1.5] * 6 + [0.0]
    assert read["n"].tolist() == [3, 4, 5, 0, 1, 18, 19]
    assert read.nulls("same").tolist() == [False, True, False, True, False, True, False]
    assert read.nulls("same") is read.nulls("one")
