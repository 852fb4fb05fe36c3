"""The format of runs: keys once, numbers in few bytes, every damage found, and files of older versions read."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from tests.laws.state_types import ALL_TYPES, bits, column, null_or
from tests.profiles import examples
from umbel.errors import Damaged
from umbel.state.runs.addresses import hash_keys
from umbel.state.runs.packing import PLAIN, Ordinals, PackedNumbers, packed, packed_columns
from umbel.state.runs.points import PointRecords, RowSlice
from umbel.state.runs.rules import HASH, KEY
from umbel.state.runs.run import BLOCK_ROWS, RunFile, pack_run

INSTANT = pl.Datetime("us", "UTC")
EDGES = [-(2**63), -(2**31) - 1, -129, -1, 0, 1, 255, 256, 2**32 - 1, 2**32, 2**63 - 1]


def opened(data: bytes | memoryview) -> RunFile:
    return RunFile(pa.py_buffer(bytes(data)), "r")


def keyed(keys: Sequence[bytes], columns: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return rows with keys in order of their hashes."""
    rows = pl.DataFrame({KEY: pl.Series(keys, dtype=pl.Binary)})
    rows = rows.select(pl.Series(HASH, hash_keys(rows[KEY])), pl.all())
    return (rows if columns is None else rows.hstack(columns)).sort(HASH, KEY, maintain_order=True)


def must_equal(found: pl.DataFrame, rows: pl.DataFrame) -> None:
    assert found.schema == rows.schema
    for name in rows.columns:
        assert bits(found[name].to_list()) == bits(rows[name].to_list()), name


def must_come_back(rows: pl.DataFrame) -> RunFile:
    """Write rows and read them in all ways, before and after all blocks are checked; return the run."""
    data = pack_run(rows, "t")
    count = rows.height
    chosen = np.array([count - 1, 0, count // 2, 0])
    for is_checked in (False, True):
        run = opened(data)
        assert not is_checked or run.check() == count
        must_equal(run.slice(0, count), rows)
        must_equal(run.take(chosen), rows[chosen])
        low, high = count // 3, min(count, count // 3 + 2)
        must_equal(run.slice(low, high), rows[low:high])
        assert run.keys(chosen).to_list() == rows[KEY][chosen].to_list()
        assert run.columns == dict(rows.schema)
    must_find_each(rows, data)
    return run


def must_find_each(rows: pl.DataFrame, data: memoryview) -> None:
    """Raise unless the rows of each key are found."""
    spans: dict[tuple[int, bytes], list[int]] = {}
    for number, address in enumerate(rows.select(HASH, KEY).rows()):
        spans.setdefault(address, []).append(number)
    own = list(spans.items())
    hashes = np.array([at for (at, _), _ in own], np.uint64)
    for run in (opened(data), opened(data)):
        low, high = run.find(hashes)
        for each, start, end in zip(own, low.tolist(), high.tolist(), strict=True):
            assert start <= each[1][0] < each[1][-1] + 1 <= end
        for (at, key), numbers in own:
            assert run.find_key(np.uint64(at), key) == (numbers[0], numbers[-1] + 1)
            assert run.find_key(np.uint64(at), key + b"?") is None
        run.check()


@st.composite
def stored_rows(draw: st.DrawFn) -> pl.DataFrame:
    """Return rows of some keys with one to three columns of any type."""
    keys = draw(st.lists(st.sampled_from([b"", b"a", b"bb", b"\0", b"k" * 1000]), min_size=1, max_size=7))
    columns = draw(st.lists(st.sampled_from(ALL_TYPES), min_size=1, max_size=3))
    made = [
        column(kind, draw(st.lists(null_or(values), min_size=len(keys), max_size=len(keys)))).alias(f"c{number}")
        for number, (kind, values) in enumerate(columns)
    ]
    return keyed(keys, pl.DataFrame(made))


@given(stored_rows())
@examples(150, suppress_health_check=list(HealthCheck))
def test_rows_of_any_type_come_back_to_the_bit(rows: pl.DataFrame) -> None:
    must_come_back(rows)


@pytest.mark.parametrize("number", range(len(ALL_TYPES)), ids=[str(kind) for kind, _ in ALL_TYPES])
def test_columns_of_nulls_and_of_one_row_come_back(number: int) -> None:
    kind, _ = ALL_TYPES[number]
    must_come_back(keyed([b"a", b"b", b"b"], column(kind, [None] * 3).alias("c").to_frame()))
    must_come_back(keyed([b"a"], column(kind, [None]).alias("c").to_frame()))


NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(EDGES)
SEQUENCES = (
    st.lists(NUMBERS, min_size=1, max_size=9)
    | st.lists(st.integers(-300, 300), min_size=1, max_size=9)
    | st.tuples(NUMBERS, st.integers(1, 2**40), st.lists(st.integers(0, 300), min_size=1, max_size=9)).map(
        lambda each: [(each[0] + each[1] * step + 2**63) % 2**64 - 2**63 for step in each[2]]
    )
)


@given(SEQUENCES)
@example([-(2**63), 2**63 - 1])
@example([2**63 - 1] * 3)
@example([1_760_000_000_000_000 + 1000 * step for step in (0, 7, 3, 900_000_000)])
@examples(300)
def test_numbers_come_back_from_their_packing(values: list[int]) -> None:
    for kind in (np.int64, np.uint64):
        numbers = np.array([value % 2**64 for value in values], np.uint64).view(kind)
        packing, stored = packed(numbers)
        if packing.is_constant:
            assert len(set(values)) == 1
            continue
        assert np.array_equal(PackedNumbers(stored, packing, numbers.dtype)[:], numbers)
        assert stored.itemsize <= numbers.itemsize


@given(SEQUENCES, NUMBERS)
@examples(300)
def test_ordinals_are_searched_as_their_values_are(values: list[int], point: int) -> None:
    numbers = np.sort(np.array(values, np.int64))
    packing, stored = packed(numbers)
    if packing.is_constant:
        return
    found = Ordinals(stored, packing.base, packing.scale)
    for each in {point, *values, *(max(value - 1, -(2**63)) for value in values)}:
        assert found.searchsorted(each) == numbers.searchsorted(each)
        assert found.searchsorted(np.int64(each), "right") == numbers.searchsorted(each, "right")
        assert (found < each).tolist() == (numbers < each).tolist()
        assert found[1:].searchsorted(each) == numbers[1:].searchsorted(each)
    assert [found[place] for place in range(len(numbers))] == numbers.tolist()
    assert found[np.arange(len(numbers))].tolist() == numbers.tolist()


@given(SEQUENCES, st.data())
@examples(100)
def test_columns_that_are_near_each_other_come_back(values: list[int], data: st.DataObject) -> None:
    size = len(values)
    apart = data.draw(st.lists(NUMBERS | st.integers(0, 3), min_size=size, max_size=size))
    other = [(one + two + 2**63) % 2**64 - 2**63 for one, two in zip(values, apart, strict=True)]
    columns = {"a": values, "b": other, "c": values, "d": apart}
    rows = pl.DataFrame({name: pl.Series(each, dtype=pl.Int64) for name, each in columns.items()})
    run = must_come_back(keyed([b"%d" % number for number in range(size)], rows))
    for name in columns:
        low, high = np.zeros(1, np.int64), np.full(1, size)
        ordinals = run.ordinals(name, low, high)
        assert ordinals[np.arange(size)].tolist() == run.slice(0, size)[name].to_list()


def test_whole_milliseconds_equal_columns_and_keys_take_little_room() -> None:
    count = 40_000
    chance = np.random.default_rng(1)
    at = 1_760_000_000_000_000 + chance.integers(0, 10 * 86_400_000, count) * 1000
    columns = {
        "_time_window": pl.Series(chance.integers(0, 3, count), dtype=pl.UInt8),
        "_time_first": pl.Series(at),
        "_time_last": pl.Series(at),
        "_weight": pl.Series(np.ones(count, np.int64)),
        "sum": pl.Series(chance.random(count)),
        "until": pl.Series(at + 10**6 * chance.integers(0, 200, count)).cast(INSTANT),
        "at": pl.Series(at).cast(INSTANT),
    }
    rows = keyed([b"%09d" % (number // 4) for number in range(count)], pl.DataFrame(columns))
    run = must_come_back(rows)
    assert run.size / count < 1 + 4 + 8 + 4 + 4 + 21 / 4 + 1
    records = PointRecords([[RowSlice(run, 5, 9)]], rows.schema)
    for name in columns:
        assert records[name].tolist() == rows[name][5:9].to_physical().to_list()


def test_a_key_of_many_rows_and_keys_of_several_lengths_come_back() -> None:
    keys = [b"", b"k" * 1000, *([b"hot"] * 100_000), *(b"%d" % number for number in range(9000))]
    rows = keyed(keys, pl.DataFrame({"n": range(len(keys))}))
    run = opened(pack_run(rows, "t"))
    own = np.flatnonzero([key == b"hot" for key in rows[KEY]])
    assert run.find_key(np.uint64(rows[HASH][int(own[0])]), b"hot") == (own[0], own[-1] + 1)
    must_come_back(rows)
    assert np.array_equal(run.samples, rows[HASH].to_numpy()[::BLOCK_ROWS])


@pytest.mark.parametrize("count", [1, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 3 * BLOCK_ROWS])
@pytest.mark.parametrize("each", [1, 3])
def test_keys_at_the_bounds_of_blocks_are_found(count: int, each: int) -> None:
    rows = keyed([b"%06d" % (number // each) for number in range(count * each)])
    rows = rows.with_columns(pl.Series("n", range(rows.height)))
    must_come_back(rows)
    requested = np.concatenate((rows[HASH].to_numpy()[::97], rows[HASH].to_numpy()[::89] + np.uint64(1)))
    expected = [rows[HASH].to_numpy().searchsorted(requested, side) for side in ("left", "right")]
    for is_checked in (False, True):
        run = opened(pack_run(rows, "t"))
        assert not is_checked or run.check()
        assert [each.tolist() for each in run.find(requested)] == [each.tolist() for each in expected]


def test_keys_that_share_a_hash_are_apart() -> None:
    keys = [b"a", b"b", b"b", b"b", b"d"]
    rows = pl.DataFrame({HASH: pl.Series([7] * 5, dtype=pl.UInt64), KEY: keys, "n": range(5)})
    run = opened(pack_run(rows, "t"))
    must_equal(run.slice(0, rows.height), rows)
    assert [run.find_key(np.uint64(7), key) for key in (b"a", b"b", b"c", b"d")] == [(0, 1), (1, 4), None, (4, 5)]


def test_every_flipped_bit_is_found_or_harmless() -> None:
    columns = {"n": [5, 7, 9, 9], "at": pl.Series([1, 2, 3, 4]).cast(INSTANT), "text": ["a", None, "c", ""]}
    rows = keyed([b"a", b"a", b"b", b"c"], pl.DataFrame(columns))
    data = bytes(pack_run(rows, "t", ["at"], "r"))
    harmless = 0
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 1 << at % 8
        try:
            run = opened(bytes(broken))
            must_equal(run.slice(0, rows.height), rows)
            assert run.check() == rows.height
            harmless += 1
        except Damaged:
            pass
    assert harmless < 64, "only the bytes between the sections"


def test_a_run_cut_anywhere_is_found() -> None:
    data = bytes(pack_run(keyed([b"a", b"a", b"b"]).with_columns(n=pl.lit(1)), "t"))
    for size in range(len(data)):
        with pytest.raises(Damaged):
            opened(data[:size])


def as_older_version(rows: pl.DataFrame, table: str, order: list[str] | None) -> bytes:
    """Return a run as version 1 wrote it: one section, with hash and key in each row.

    Only for columns of fixed width without nulls, and binary ones.
    """
    arrow = rows.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest()).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, arrow.schema) as writer:
        writer.write_batch(arrow.to_batches()[0])
    buffer = sink.getvalue()
    batch, data = pa.ipc.open_file(buffer).get_batch(0), bytes(buffer)
    cuts = np.append(np.arange(0, rows.height, BLOCK_ROWS), rows.height)
    extents, spans = [], []
    for each in batch.columns:
        for part, edges in zip(each.buffers()[1:], edges_of(each, cuts), strict=True):
            extents.append((part.address - buffer.address, part.size))
            edges[-1] = (edges[-1][0], part.size)
            spans.append([(int(a) + extents[-1][0], int(b) + extents[-1][0]) for a, b in edges])
    blocks = np.array(spans, np.int64).transpose(1, 0, 2)
    sums = [zlib.crc32(data[a:b]) for a, b in blocks.reshape(-1, 2).tolist()]
    rest, at = 0, 0
    for start, size in sorted(extents):
        rest, at = zlib.crc32(data[at:start], rest), start + size
    meta: dict[str, Any] = {
        "table": table,
        "rows": rows.height,
        "buffers": extents,
        "rest": zlib.crc32(data[at:], rest),
    }
    described = json.dumps(meta | {"order": order, "name": "r"}).encode()
    parts = [
        rows[HASH].to_numpy()[cuts[:-1]],
        blocks[..., 0].ravel(),
        blocks[..., 1].ravel(),
        np.array(sums, np.uint32),
    ]
    trailer = described + b"".join(part.tobytes() for part in parts)
    sizes = (len(data), len(trailer), len(described))
    crc = zlib.crc32(struct.pack("<QII", *sizes) + trailer)
    return data + trailer + struct.pack("<QIII8s", *sizes, crc, b"umbelrn1")


def edges_of(each: pa.Array, cuts: np.ndarray) -> list[list[tuple[int, int]]]:
    """Return the byte ranges of the blocks of each buffer but that of the nulls."""
    if len(each.buffers()) < 3:
        width = each.type.bit_width // 8
        return [[(a * width, b * width) for a, b in pairwise(cuts)]]
    places = np.frombuffer(each.buffers()[1], np.int64)[cuts].tolist()
    return [[(a * 8, (b + 1) * 8) for a, b in pairwise(cuts)], list(pairwise(places))]


def test_runs_of_an_older_version_are_read() -> None:
    count = 3 * BLOCK_ROWS + 5
    columns = {"at": pl.Series(range(count)).cast(INSTANT), "n": range(count)}
    rows = keyed([b"%05d" % (number // 3) for number in range(count)], pl.DataFrame(columns))
    data = as_older_version(rows, "o/t", ["at"])
    for is_checked in (False, True):
        run = opened(data)
        assert not is_checked or run.check() == count
        assert (run.table, run.order, run.rows, run.columns) == ("o/t", ["at"], count, dict(rows.schema))
        must_equal(run.slice(0, count), rows)
        chosen = np.array([count - 1, 0, 7])
        must_equal(run.take(chosen), rows[chosen])
        assert run.keys(chosen).to_list() == rows[KEY][chosen].to_list()
        assert run.ordinals("at", 0, count)[chosen].tolist() == rows["at"][chosen].to_physical().to_list()
        assert np.array_equal(run.samples, rows[HASH].to_numpy()[::BLOCK_ROWS])
    must_find_each(rows, memoryview(data))
    broken = bytearray(data)
    broken[data.index(np.array(rows["n"][5000], np.int64).tobytes())] ^= 1
    with pytest.raises(Damaged):
        opened(bytes(broken)).check()


def test_numbers_in_the_types_they_need() -> None:
    columns = {
        "same": pl.Series([2**62] * 4),
        "small": pl.Series([0, 255, 3, 4]),
        "signed": pl.Series([-1, 5, None, 7]),
        "seconds": pl.Series([10**15, 10**15 + 10**6, 10**15 + 255 * 10**6, 10**15]),
        "spread": pl.Series([-(2**63), 2**63 - 1, 5, 7]),
        "money": pl.Series([1, 2, 3, 200], dtype=pl.Decimal(38, 2)),
        "float": pl.Series([1.0, 2.0, 3.0, 4.0]),
    }
    frame = pl.DataFrame(columns).to_arrow(compat_level=pl.CompatLevel.oldest())
    stored, packings = packed_columns({name: frame.column(name).chunk(0) for name in columns})
    kinds = {name: str(each.type) for name, each in stored.items()}
    expected = {"small": "uint8", "signed": "int8", "seconds": "uint8", "spread": "int64", "money": "uint8"}
    assert kinds == expected | {"float": "double"}
    assert packings["same"].is_constant
    assert packings["small"] == packings["spread"] == PLAIN
    assert packings["seconds"].scale == 10**6
