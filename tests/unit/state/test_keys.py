from __future__ import annotations

from datetime import UTC, date, datetime
from hashlib import blake2b

import polars as pl
import pytest

from umbel.errors import InvalidType, InvalidValue
from umbel.state.keys import LONGEST, decode_time, encode_columns, encode_keys, encode_time, shard_of, shard_of_columns
from umbel.state.runs.addresses import hash_key

INSTANT = pl.Datetime("us", "UTC")


@pytest.mark.parametrize(
    ("column", "encoded"),
    [
        (
            pl.Series([1, None, -1], dtype=pl.Int64),
            ["01 8000000000000001", "00 8000000000000000", "01 7fffffffffffffff"],
        ),
        (pl.Series([1], dtype=pl.Int32), ["01 8000000000000001"]),
        (pl.Series([1], dtype=pl.UInt8), ["01 8000000000000001"]),
        (pl.Series([2**64 - 1], dtype=pl.UInt64), ["01 ffffffffffffffff"]),
        (pl.Series([True, False, None]), ["01 01", "01 00", "00 00"]),
        (pl.Series([0.0, -0.0, -1.0]), ["01 8000000000000000", "01 8000000000000000", "01 400fffffffffffff"]),
        (pl.Series(["a", "", None, "\0"]), ["01 61 0001", "01 0001", "00 0001", "01 00ff 0001"]),
        (pl.Series([b"\x00\x01"]), ["01 00ff01 0001"]),
        (pl.Series([date(1970, 1, 2)]), ["01 8000000000000001"]),
        (pl.Series([datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)], dtype=INSTANT), ["01 80000000000f4240"]),
        (pl.Series(["-0.01"]).cast(pl.Decimal(28, 2)), ["01 7fffffffffffffffffffffffffffffff"]),
        (pl.Series([[1], [], None]), ["01 01 01 8000000000000001 00", "01 00", "00 00"]),
        (pl.Series([{"a": None, "b": True}]), ["01 00 8000000000000000 01 01"]),
    ],
    ids=lambda value: str(value.dtype) if isinstance(value, pl.Series) else "",
)
def test_the_stored_form_never_changes(column: pl.Series, encoded: list[str]) -> None:
    if isinstance(column.dtype, pl.Struct):
        column = column.cast(pl.Struct({"a": pl.Int64, "b": pl.Boolean}))
    assert encode_keys(column.alias("k").to_frame()).to_list() == [bytes.fromhex(each) for each in encoded]


def test_columns_follow_each_other() -> None:
    frame = pl.DataFrame({"a": ["x", None], "b": [1, 2], "c": ["y", "z"]})
    parts = [encode_keys(frame.select(name)).to_list() for name in frame.columns]
    assert encode_keys(frame).to_list() == [b"".join(row) for row in zip(*parts, strict=True)]


def test_no_columns_are_one_empty_key() -> None:
    assert encode_keys(pl.DataFrame(height=2)).to_list() == [b"", b""]
    rows = pl.DataFrame({"a": [1, 2]})
    assert encode_columns(rows, []).to_list() == [b"", b""]
    assert shard_of_columns(rows, [], 7).equals(shard_of(pl.Series([b"", b""]), 7))


def test_no_rows_are_no_keys() -> None:
    schema = {"a": pl.String, "b": pl.Int64, "c": pl.Decimal(28, 2), "d": pl.List(pl.String), "e": pl.Float64}
    found = encode_keys(pl.DataFrame(schema=schema))
    assert found.dtype == pl.Binary
    assert len(found) == 0


def test_slices_have_the_keys_of_their_rows() -> None:
    frame = pl.DataFrame({"a": ["x", "y\0", None, "z"], "b": [[1], [2, 3], None, []], "c": [1.0, None, 2.0, 3.0]})
    frame = frame.with_columns(d=pl.col("c").cast(pl.Decimal(28, 2)))
    assert encode_keys(frame[1:3]).to_list() == encode_keys(frame).to_list()[1:3]


def test_long_keys_are_shortened_by_their_digest() -> None:
    text = "x" * 397
    (retained,), (long,) = (encode_keys(pl.DataFrame({"a": [each]})).to_list() for each in (text, text + "x"))
    assert retained == b"\x01" + text.encode() + b"\x00\x01"
    full = b"\x01" + text.encode() + b"x\x00\x01"
    assert long == b"\xfe" + full[:64] + blake2b(full, digest_size=32).digest()


def test_a_short_key_cannot_be_made_to_look_like_a_shortened_one() -> None:
    (long,) = encode_keys(pl.DataFrame({"a": ["x" * 500]})).to_list()
    (forged,) = encode_keys(pl.DataFrame({"a": [long]})).to_list()
    assert forged != long
    assert forged[:1] == b"\x01"


def test_columns_without_an_order_are_refused() -> None:
    with pytest.raises(InvalidType, match="column 'a' of type Null"):
        encode_keys(pl.DataFrame({"a": [None]}))


def test_instants_and_back() -> None:
    instants = pl.Series(
        "at", [datetime(1, 1, 1), datetime(1969, 12, 31), datetime(9999, 1, 1)], dtype=pl.Datetime("us")
    )
    instants = instants.dt.replace_time_zone("UTC")
    encoded = encode_time(instants).to_list()
    assert encoded == sorted(encoded)
    import numpy as np

    assert decode_time(np.frombuffer(b"".join(encoded), np.uint8), "at").equals(instants)


def test_an_instant_is_never_null() -> None:
    with pytest.raises(InvalidValue, match="'at'"):
        encode_time(pl.Series("at", [None], dtype=INSTANT))


def test_shards_are_the_upper_half_of_the_hash_of_the_key() -> None:
    keys = encode_keys(pl.DataFrame({"a": [f"user-{number}" for number in range(1000)]}))
    found = shard_of(keys, 7)
    assert found.dtype == pl.Int32
    assert found.to_list() == [(int(hash_key(key)) >> 32) % 7 for key in keys.to_list()]
    assert found.head(6).to_list() == [5, 4, 5, 3, 4, 3], "it is part of the stored format"
    assert min(found.value_counts()["count"]) > 100
    numbers = shard_of(encode_keys(pl.DataFrame({"a": range(10_000)})), 16)
    assert min(numbers.value_counts()["count"]) > 500


COLUMNS = {
    "i": pl.Series([1, None, -(2**63), 2**63 - 1]),
    "u": pl.Series([1, None, 0, 2**64 - 1], dtype=pl.UInt64),
    "b": pl.Series([True, None, False, True]),
    "f": pl.Series([0.0, None, -0.0, float("nan")]),
    "d": pl.Series(["-0.01", None, "0", "1"]).cast(pl.Decimal(28, 2)),
    "t": pl.Series([None, 0, -1, 1], dtype=pl.Int64).cast(INSTANT),
    "s": pl.Series(["a", None, "", "\0"]),
    "l": pl.Series([[1], None, [], [1, 2]]),
}


@pytest.mark.parametrize("names", [*COLUMNS, "ii", "iu", "ibfdt", "bb", "is", "sl"])
def test_the_shard_of_columns_is_that_of_their_key(names: str) -> None:
    frame = pl.DataFrame(COLUMNS)
    for rows in (frame, frame[1:3], frame.clear(), pl.concat([frame] * 5_000)):
        assert shard_of_columns(rows, [*names], 7).equals(shard_of(encode_columns(rows, [*names]), 7))


def test_long_keys_of_fixed_width_have_the_shard_of_their_digest() -> None:
    wide = [f"c{number}" for number in range(LONGEST // 9 + 1)]
    frame = pl.DataFrame({name: [1, 2, None] for name in wide})
    assert shard_of_columns(frame, wide, 7).equals(shard_of(encode_columns(frame, wide), 7))
