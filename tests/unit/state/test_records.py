from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest

from umbel.errors import Terminal
from umbel.state.records import shown, units
from umbel.state.rows import RowCodec

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


def records(counts: list[int]) -> tuple[RowCodec, list[bytes]]:
    codec = RowCodec(SCHEMA)
    return codec, codec.encode(pl.DataFrame(ROWS, schema=SCHEMA), np.array(counts))


def test_groups_are_read_one_after_the_other_and_absent_ones_have_no_rows() -> None:
    codec, (one, two) = records([1, 2])
    found = codec.records([one, None, two])
    assert found.counts.tolist() == [1, 0, 2]
    assert found["n"].tolist() == [1, 0, -7]
    assert found.nulls("n").tolist() == [False, True, False]
    assert units(found["d"]).tolist() == [-125, 0, 10**37]
    assert not len(codec.records([None]).rows)


def test_what_is_on_the_heap_is_read_of_some_rows() -> None:
    codec, (one, two) = records([2, 1])
    found = codec.records([one, two])
    assert found.binaries("raw", np.array([2, 1, 0])) == [b"", None, b"\0x"]
    for name, expected in (("texts", [2, 0]), ("days", [0, 1, 2]), ("sums", [1, 2]), ("sums", []), ("texts", [1])):
        values, counts = found.lists(name, np.array(expected, np.int64))
        lists = [ROWS[row][name] or [] for row in expected]
        assert counts.tolist() == [len(each) for each in lists]
        different, codes = values.ranked()
        assert [different[code] for code in codes] == [value for each in lists for value in each]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([3, None, 1, 3], pl.Int64()),
        ([0.5, float("nan"), None, -0.5, float("nan")], pl.Float64()),
        (["b", None, "a", "é", "b"], pl.String()),
        ([True, False, None], pl.Boolean()),
        ([datetime(2020, 1, 1, tzinfo=UTC), None, datetime(1, 1, 1, tzinfo=UTC)], pl.Datetime("us", "UTC")),
        ([Decimal("1.5"), None, Decimal(10) ** 25, Decimal("-0.1")], pl.Decimal(28, 1)),
    ],
)
def test_values_are_ranked_as_polars_sorts_them(values: list[Any], dtype: pl.DataType) -> None:
    codec = RowCodec({"l": pl.List(dtype)})
    frame = pl.DataFrame({"l": [values]}, schema=codec.schema)
    read, _ = codec.records(codec.encode(frame, np.ones(1, np.int64))).lists("l", np.zeros(1, np.int64))
    different, codes = read.ranked()
    assert [repr(different[code]) for code in codes] == [
        repr(value) for value in pl.Series(values, dtype=dtype).to_list()
    ]
    ordered = [repr(different[code]) for code in sorted(set(codes.tolist()))]
    assert ordered == [repr(value) for value in pl.Series(values, dtype=dtype).unique().sort().to_list()]


def test_values_are_shown_as_polars_hands_them_out() -> None:
    days = pl.Series([date(1, 1, 1), date(9999, 12, 31)])
    assert shown(days.to_physical().to_numpy(), pl.Date()) == days.to_list()
    assert list(map(repr, shown(np.array([-125, 0]), pl.Decimal(28, 2)))) == ["Decimal('-1.25')", "Decimal('0.00')"]


def test_other_columns_are_noticed() -> None:
    codec, values = records([3])
    with pytest.raises(Terminal, match="does not have the columns"):
        codec.records([values[0][:40]])
    with pytest.raises(Terminal, match="does not have the columns"):
        RowCodec({"n": pl.Int64}).records(values)
    with pytest.raises(Terminal, match="format 9 by another version"):
        codec.records([b"\x09" + values[0][1:]])
    short = codec.records([values[0][:-1]])
    with pytest.raises(Terminal, match="does not have the columns"):
        short.binaries("raw", np.zeros(1, np.int64))
