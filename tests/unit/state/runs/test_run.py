"""Runs: rows come back as written, found by hash, and never when a byte of them has changed."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from umbel.errors import Damaged, InvalidType, InvalidValue
from umbel.state.keys import encode_keys
from umbel.state.port import Stamp
from umbel.state.runs.addresses import hash_keys, merge_frames, stored_frame
from umbel.state.runs.block import Block
from umbel.state.runs.records import RECORD_BYTES, JournalRecord
from umbel.state.runs.rules import HASH, KEY, REMOVED, ReplaceRule, SumRule, TableSchema
from umbel.state.runs.run import BLOCK_ROWS, RunFile, pack_run


def keys_of(numbers: list[int]) -> pl.Series:
    return encode_keys(pl.DataFrame({"k": pl.Series(numbers, dtype=pl.Int64)}))


def nested(count: int) -> pl.DataFrame:
    """Return rows of every kind of type, with nulls in all of them."""
    numbers = range(count)
    rows = pl.DataFrame(
        {
            KEY: keys_of([number // 3 for number in numbers]),
            "_time": pl.Series(numbers).cast(pl.Datetime("us", "UTC")),
            "flag": pl.Series([None if n % 7 == 0 else n % 2 == 0 for n in numbers], dtype=pl.Boolean),
            "amount": pl.Series([None if n % 5 == 0 else n / 3 for n in numbers], dtype=pl.Float64),
            "price": pl.Series([None if n % 11 == 0 else Decimal(n) / 4 for n in numbers], dtype=pl.Decimal(20, 2)),
            "day": pl.Series(
                [dt.date(2024, 1, 1) + dt.timedelta(n % 50) if n % 13 else None for n in numbers], dtype=pl.Date
            ),
            "text": pl.Series([None if n % 3 == 0 else "x" * (n % 9) for n in numbers], dtype=pl.String),
            "list": pl.Series([None if n % 4 == 0 else [None, n][: n % 3] for n in numbers], dtype=pl.List(pl.Int32)),
            "deep": pl.Series(
                [None if n % 6 == 0 else {"a": [f"{n}"] * (n % 3), "b": n % 2 == 0} for n in numbers],
                dtype=pl.Struct({"a": pl.List(pl.String), "b": pl.Boolean}),
            ),
            "pair": pl.Series([[n % 999, n % 7] for n in numbers], dtype=pl.Array(pl.Int16, 2)),
            **{
                f"{dtype}{name}": pl.Series([37 * n * n + apart * (n % 5) - 900 for n in numbers], dtype=pl.Int64).cast(
                    dtype
                )
                for dtype in (pl.Int64(), pl.Datetime("us", "UTC"), pl.Decimal(20, 2), pl.Decimal(38, 3))
                for name, apart in {"first": 0, "near": 1, "equal": 1, "before": -1}.items()
            },
        }
    )
    return stored_frame(rows, schema_for(rows), "t")


def schema_for(rows: pl.DataFrame) -> TableSchema:
    columns = {name: dtype for name, dtype in rows.schema.items() if name not in (KEY, "_time")}
    return TableSchema(columns, SumRule({}), {"_time": pl.Datetime("us", "UTC")})


def opened(data: bytes | memoryview) -> RunFile:
    return RunFile(pa.py_buffer(bytes(data)), "r")


@pytest.mark.parametrize("count", [1, 7, BLOCK_ROWS, 2 * BLOCK_ROWS + 5])
def test_rows_come_back_as_written(count: int) -> None:
    rows = nested(count)
    run = opened(pack_run(rows, "t"))
    assert (run.rows, run.table) == (count, "t")
    assert run.slice(0, count).equals(rows)
    chosen = np.array([count - 1, 0, count // 2])
    assert opened(pack_run(rows, "t")).take(chosen).equals(rows[chosen])
    assert run.check() == count


NESTED: dict[str, tuple[pl.DataType, Any]] = {
    "int": (pl.Int64(), 1),
    "float": (pl.Float64(), 1.5),
    "date": (pl.Date(), dt.date(2024, 1, 1)),
    "decimal": (pl.Decimal(28, 2), Decimal("1.25")),
    "text": (pl.String(), "x"),
    "struct": (pl.Struct({"a": pl.Int64(), "b": pl.String()}), {"a": 1, "b": "x"}),
    "list": (pl.List(pl.Int64()), [1, 2]),
    "array": (pl.Array(pl.Int16(), 2), [1, 2]),
    "lists": (pl.Struct({"l": pl.List(pl.Int64())}), {"l": [1, 2]}),
}


@pytest.mark.parametrize("kind", NESTED)
def test_empty_lists_that_followed_others_come_back(kind: str) -> None:
    dtype, value = NESTED[kind]
    lists = pl.DataFrame({"list": pl.Series([[value, value], [], None], dtype=pl.List(dtype))})
    empty = pl.concat([lists[2:3], lists[1:2]], rechunk=False)[[0, 1]]
    rows = empty.select(pl.Series(KEY, [b"a", b"b"]), "list", pl.struct("list").alias("deep"))
    record = JournalRecord(Stamp(1, 1), ("o",), {"o/t": rows})
    assert JournalRecord.unpack(bytes(record.pack()[RECORD_BYTES:])).frames["o/t"].equals(rows)
    schema = TableSchema({name: rows.schema[name] for name in ("list", "deep")}, ReplaceRule())
    stored = stored_frame(rows.with_columns(pl.lit(value=False).alias(REMOVED)), schema, "t")
    assert opened(pack_run(stored, "t")).slice(0, 2).equals(stored)


def test_a_hash_is_found_wherever_its_rows_lie() -> None:
    hashes = np.sort(np.repeat(np.arange(10, 3000, 3, dtype=np.uint64), 37))
    hashes[5000:15000] = hashes[5000]  # one key over several blocks
    hashes = np.sort(hashes)
    rows = pl.DataFrame({HASH: hashes, KEY: pl.Series([b"k"] * len(hashes), dtype=pl.Binary)})
    for questions in (np.arange(0, 3010, dtype=np.uint64), np.array([0, hashes[5000], 2998, 9000], np.uint64)):
        must_find(rows, hashes, questions)


def must_find(rows: pl.DataFrame, hashes: np.ndarray, questions: np.ndarray) -> None:
    expected = hashes.searchsorted(questions, "left"), hashes.searchsorted(questions, "right")
    for source in (opened(pack_run(rows, "t")), Block(rows)):
        found = source.find(questions)
        assert np.array_equal(found[1] - found[0], expected[1] - expected[0])
        hit = found[0] < found[1]
        assert np.array_equal(found[0][hit], expected[0][hit])


def test_no_flipped_bit_is_read_as_data() -> None:
    rows = nested(2 * BLOCK_ROWS + 100)
    data, chance = bytes(pack_run(rows, "t")), random.Random(1)
    found = 0
    for _ in range(300):
        at = chance.randrange(len(data)) if chance.random() < 0.7 else len(data) - 1 - chance.randrange(3000)
        broken = bytearray(data)
        broken[at] ^= 1 << chance.randrange(8)
        try:
            assert opened(bytes(broken)).slice(0, rows.height).equals(rows)  # padding that no buffer reads
        except Damaged:
            found += 1
    assert found > 290


def test_damage_is_named_by_its_rows_and_other_blocks_are_read() -> None:
    rows = nested(3 * BLOCK_ROWS)
    data = bytearray(pack_run(rows, "t"))
    at = bytes(data).index(np.array(rows["amount"][BLOCK_ROWS + 101], np.float64).tobytes())
    data[at] ^= 4
    run = opened(bytes(data))
    assert run.slice(0, BLOCK_ROWS).equals(rows[:BLOCK_ROWS])
    with pytest.raises(Damaged, match="rows 4096 to 8192 of table 't'"):
        run.slice(0, BLOCK_ROWS + 1)
    with pytest.raises(Damaged):
        run.check()


def test_damage_of_keys_is_named_and_keys_in_other_blocks_are_read() -> None:
    rows = nested(9 * BLOCK_ROWS)
    data = bytearray(pack_run(rows, "t"))
    at = bytes(data).index(np.array(rows[HASH][5 * BLOCK_ROWS], np.uint64).tobytes())
    data[at] ^= 4
    run = opened(bytes(data))
    assert run.slice(0, 3 * BLOCK_ROWS - 3).equals(rows[: 3 * BLOCK_ROWS - 3])
    for number in range(0, 3 * BLOCK_ROWS, 61):
        assert run.find_key(np.uint64(rows[HASH][number]), rows[KEY][number]) is not None
    with pytest.raises(Damaged, match="keys 4096 to 8192 of table 't'"):
        run.keys(np.array([5 * BLOCK_ROWS]))
    with pytest.raises(Damaged, match="keys 4096 to 8192 of table 't'"):
        run.find_key(np.uint64(rows[HASH][5 * BLOCK_ROWS]), rows[KEY][5 * BLOCK_ROWS])


def test_a_cut_file_is_found() -> None:
    data = bytes(pack_run(nested(50), "t"))
    for size in (0, 5, 40, len(data) // 2, len(data) - 1):
        with pytest.raises(Damaged):
            opened(data[:size])


def test_the_hash_of_a_key_is_the_same_in_every_version() -> None:
    keys = pl.Series([b"", b"a", b"12345678", b"123456789", b"x" * 400, b"\x00", b"\x00\x00"], dtype=pl.Binary)
    assert hash_keys(keys).tolist() == GOLDEN
    assert hash_keys(keys[3:5]).tolist() == GOLDEN[3:5]
    assert [hash_keys(keys[at : at + 1])[0] for at in range(7)] == GOLDEN
    assert hash_keys(keys.clear()).tolist() == []


GOLDEN = [
    16507096966833969069,
    8840601280079718744,
    5190782930889060548,
    1070242421350993105,
    9084478179084649437,
    13407147834442203904,
    7522484591550989186,
]


def test_hashes_are_spread() -> None:
    hashes = hash_keys(keys_of(list(range(200_000))))
    assert len(np.unique(hashes)) == 200_000
    for shift in (0, 8, 56):
        counts = np.bincount(((hashes >> np.uint64(shift)) & np.uint64(255)).astype(np.int64), minlength=256)
        assert counts.min() > 650
        assert counts.max() < 920


def test_keys_that_share_a_hash_remain_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("umbel.state.runs.addresses.hash_keys", lambda keys: np.full(len(keys), 5, np.uint64))
    schema = TableSchema({"n": pl.Int64}, SumRule({"n": pl.col("n").sum()}), {"at": pl.Int64})
    rows = pl.DataFrame({KEY: [b"b", b"a", b"b", b"a"], "at": [1, 1, 0, 2], "n": [1, 2, 3, 4]})
    frame = stored_frame(rows, schema, "t")
    assert frame.rows() == [(5, b"a", 1, 2), (5, b"a", 2, 4), (5, b"b", 0, 3), (5, b"b", 1, 1)]
    merged = merge_frames([frame, frame], schema, complete=True)
    assert merged["n"].to_list() == [4, 8, 6, 2]


def test_keys_of_one_row_that_share_a_hash_remain_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("umbel.state.runs.addresses.hash_keys", lambda keys: np.full(len(keys), 5, np.uint64))
    schema = TableSchema({"n": pl.Int64}, SumRule({"n": pl.col("n").sum()}), {"at": pl.Int64})
    frame = stored_frame(pl.DataFrame({KEY: [b"b", b"a"], "at": [1, 1], "n": [1, 2]}), schema, "t")
    assert frame.rows() == [(5, b"a", 1, 2), (5, b"b", 1, 1)]
    assert merge_frames([frame, frame], schema, complete=True)["n"].to_list() == [4, 2]


def test_rows_that_do_not_fit_a_table_are_refused() -> None:
    schema = TableSchema({"n": pl.Int64}, ReplaceRule(), {"at": pl.Int64})
    good = pl.DataFrame({KEY: [b"a"], "at": [1], "n": [1], "_removed": [False]})
    stored_frame(good, schema, "t")
    with pytest.raises(InvalidValue, match="lack a column"):
        stored_frame(good.drop("n"), schema, "t")
    with pytest.raises(InvalidValue, match="other types"):
        stored_frame(good.with_columns(pl.col("n").cast(pl.Int32)), schema, "t")
    with pytest.raises(InvalidValue, match="a null in an address"):
        stored_frame(good.with_columns(pl.lit(None, pl.Int64).alias("at")), schema, "t")
    with pytest.raises(InvalidType):
        pack_run(
            pl.DataFrame({HASH: pl.Series([1], dtype=pl.UInt64), "c": pl.Series(["a"], dtype=pl.Categorical)}), "t"
        )


def test_an_expiry_that_differs_between_partial_states_is_refused() -> None:
    columns = {"n": pl.Int64, "until": pl.Datetime("us", "UTC")}
    with pytest.raises(InvalidValue, match="until"):
        TableSchema(columns, SumRule({}), expires=pl.col("until"))


def test_a_merge_of_one_frame_drops_tombstones_once_nothing_older_is_left() -> None:
    schema = TableSchema({"n": pl.Int64}, ReplaceRule())
    rows = pl.DataFrame(
        {KEY: [b"a", b"b"], "n": [1, None], "_removed": [False, True]}, schema_overrides={"n": pl.Int64}
    )
    frame = stored_frame(rows, schema, "t")
    assert merge_frames([frame], schema, complete=False).equals(frame)
    assert merge_frames([frame], schema, complete=True)[KEY].to_list() == [b"a"]
