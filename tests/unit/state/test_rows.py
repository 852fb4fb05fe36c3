from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from umbel.errors import InvalidType, Terminal
from umbel.state.port import OldState
from umbel.state.rows import RowCodec

ONE = np.ones(1, np.int64)


def test_the_stored_form_never_changes() -> None:
    codec = RowCodec({"n": pl.Int64, "s": pl.String, "b": pl.Boolean})
    frame = pl.DataFrame({"n": [1, None], "s": ["ab", "c"], "b": [True, None]})
    expected = "02 c4f15ab9 02000000 00 01 0100000000000000 02000000 03 00 0000000000000000 01000000 6162 63"
    assert codec.encode(frame, np.array([2])) == [bytes.fromhex(expected)]


def test_nested_values_are_blocks_and_parts() -> None:
    codec = RowCodec({"l": pl.List(pl.Int8), "s": pl.Struct({"a": pl.Int8, "t": pl.String})})
    frame = pl.DataFrame({"l": [[7, None]], "s": [{"a": 3, "t": "x"}]}, schema=codec.schema)
    block = "02000000 00 07 01 00"
    expected = f"02 22bd3129 01000000 00 08000000 03 01000000 {block} 78"
    assert codec.encode(frame, ONE) == [bytes.fromhex(expected)]


def test_numbers_at_their_limits() -> None:
    frame = pl.DataFrame(
        {
            "f": [float("nan"), float("inf"), -0.0, 5e-324, None],
            "i": [-(2**63), 2**63 - 1, 0, None, 1],
            "u": [2**64 - 1, 0, None, 1, 2],
            "d": [Decimal("9" * 26 + ".99"), Decimal("-" + "9" * 26 + ".99"), Decimal("0.01"), None, Decimal(0)],
            "t": [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC), None, None, None],
            "day": [date(1, 1, 1), date(9999, 12, 31), None, None, None],
        },
        schema={
            "f": pl.Float64,
            "i": pl.Int64,
            "u": pl.UInt64,
            "d": pl.Decimal(28, 2),
            "t": pl.Datetime("us", "UTC"),
            "day": pl.Date,
        },
    )
    codec = RowCodec(frame.schema)
    decoded, counts = codec.decode(codec.encode(frame, np.array([2, 0, 3])))
    assert counts.tolist() == [2, 0, 3]
    assert decoded.schema == frame.schema
    assert decoded.equals(frame)
    assert np.signbit(decoded["f"][2])


def test_the_payload_of_a_nan_is_kept() -> None:
    odd = np.array([0x7FF8_0000_DEAD_BEEF], np.uint64).view(np.float64)
    codec = RowCodec({"f": pl.Float64})
    decoded, _ = codec.decode(codec.encode(pl.DataFrame({"f": odd}), ONE))
    assert decoded["f"].to_numpy().view(np.uint64).tolist() == [0x7FF8_0000_DEAD_BEEF]


def test_what_is_null_has_one_form() -> None:
    codec = RowCodec({"n": pl.Int64, "s": pl.String, "l": pl.List(pl.Int64)})
    plain = pl.DataFrame({"n": [None], "s": [None], "l": [None]}, schema=codec.schema)
    hidden = pa.Array.from_buffers(pa.int64(), 1, [pa.py_buffer(b"\x00"), pa.py_buffer(b"\x07" * 8)])
    masked = plain.with_columns(n=pl.Series(hidden))
    assert masked["n"].to_list() == [None]
    assert codec.encode(plain, ONE) == codec.encode(masked, ONE)


def test_columns_are_found_by_name() -> None:
    codec = RowCodec({"a": pl.Int64, "b": pl.String})
    frame = pl.DataFrame({"more": [0], "b": ["x"], "a": [1]})
    decoded, _ = codec.decode(codec.encode(frame, ONE))
    assert decoded.equals(frame.select("a", "b"))


def test_no_columns_keep_the_number_of_rows() -> None:
    codec = RowCodec({})
    decoded, counts = codec.decode(codec.encode(pl.DataFrame(height=5), np.array([2, 0, 3])))
    assert (decoded.height, decoded.width, counts.tolist()) == (5, 0, [2, 0, 3])


def test_many_columns_have_many_null_bits() -> None:
    columns = {f"c{number}": [None if row == number else row for row in range(20)] for number in range(20)}
    frame = pl.DataFrame(columns)
    codec = RowCodec(frame.schema)
    decoded, _ = codec.decode(codec.encode(frame, np.full(10, 2)))
    assert decoded.equals(frame)


def test_pieces_of_frames() -> None:
    frame = pl.concat([pl.DataFrame({"s": ["a", None], "n": [1, 2], "b": [True, None]})] * 3, rechunk=False)[1:5]
    codec = RowCodec(frame.schema)
    decoded, _ = codec.decode(codec.encode(frame, np.array([1, 3])))
    assert decoded.equals(frame)


def test_another_version_is_refused() -> None:
    codec = RowCodec({"n": pl.Int64})
    (value,) = codec.encode(pl.DataFrame({"n": [1]}), ONE)
    for other in (b"\x01" + value[1:], b"", b"\x01"):
        with pytest.raises(OldState, match="this one reads format 2"):
            codec.decode([value, other])


def test_rows_of_umbel_0_1_are_refused_and_told_what_to_do() -> None:
    """It had the columns in the order of their declaration: nobody can tell afterwards which order that was."""
    written = bytes.fromhex("01 01000000 00 0100000000000000 0200000000000000")
    for read in ("decode", "records"):
        with pytest.raises(OldState, match="format 1") as refused:
            getattr(RowCodec({"b": pl.Int64, "a": pl.Int64}), read)([written])
        assert "move everything but the folder 'ingest'" in str(refused.value)


def test_columns_are_those_of_their_names_in_whatever_order_they_are_declared() -> None:
    columns = {"b": pl.Int64, "a": pl.Int64, "t": pl.String}
    frame = pl.DataFrame({"b": [1, 2], "a": [3, 4], "t": ["x", None]})
    codec, other = RowCodec(columns), RowCodec(dict(reversed(columns.items())))
    values = codec.encode(frame, ONE * 2)
    assert other.encode(frame, ONE * 2) == values
    assert codec.decode(values)[0].equals(frame)
    assert other.decode(values)[0].equals(frame.select("t", "a", "b"))
    assert other.records(values)["a"].view(np.int64).tolist() == [3, 4]


@pytest.mark.parametrize(
    "columns",
    [{"b": pl.Int64, "c": pl.Int64}, {"a": pl.Int64, "b": pl.Float64}, {"a": pl.Int64, "b": pl.Datetime("us")}],
)
def test_columns_of_equal_width_and_other_names_or_types_are_refused(columns: dict[str, Any]) -> None:
    values = RowCodec({"a": pl.Int64, "b": pl.Int64}).encode(pl.DataFrame({"a": [1], "b": [2]}), ONE)
    for read in ("decode", "records"):
        with pytest.raises(Terminal, match="does not have the columns it is read with"):
            getattr(RowCodec(columns), read)(values)


@pytest.mark.parametrize("columns", [{"n": pl.Int32}, {"n": pl.Int64, "m": pl.Int64}, {"n": pl.String}])
def test_other_columns_are_refused(columns: dict[str, pl.DataType]) -> None:
    (value,) = RowCodec({"n": pl.Int64}).encode(pl.DataFrame({"n": [7]}), ONE)
    with pytest.raises(Terminal, match="columns"):
        RowCodec(columns).decode([value])


def test_rows_of_another_type_are_refused() -> None:
    codec = RowCodec({"n": pl.Int64, "l": pl.List(pl.Int64), "d": pl.Decimal(28, 2)})
    right = pl.DataFrame({"n": [1], "l": [[1]], "d": [Decimal("1.25")]}, schema=codec.schema)
    for name, other in (("n", pl.UInt32), ("n", pl.Float64), ("l", pl.List(pl.Int32)), ("d", pl.Decimal(28, 3))):
        with pytest.raises(InvalidType, match=f"column '{name}' has type"):
            codec.encode(right.cast({name: other}), ONE)
    decoded, _ = codec.decode(codec.encode(right.cast({"d": pl.Decimal(38, 2)}), ONE))
    assert decoded.equals(right)
    nothing = pl.DataFrame({"n": [None], "l": [None], "d": [None]})
    assert codec.decode(codec.encode(nothing, ONE))[0].equals(nothing.cast(pl.Schema(codec.schema)))


def test_a_torn_value_is_refused() -> None:
    codec = RowCodec({"n": pl.Int64, "s": pl.String})
    (value,) = codec.encode(pl.DataFrame({"n": [7], "s": ["abc"]}), ONE)
    for torn in (value[:-1], value[:8], value + b"x"):
        with pytest.raises(Terminal, match="columns"):
            codec.decode([torn])


@pytest.mark.parametrize("kind", [pl.Object(), pl.Null(), pl.Int128(), pl.List(pl.Null())])
def test_types_that_cannot_be_kept_are_told_by_column(kind: pl.DataType) -> None:
    with pytest.raises(InvalidType, match="column"):
        RowCodec({"x": kind})
