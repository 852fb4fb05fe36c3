import polars as pl
import pyarrow as pa
import pytest

from umbel.types import dtypes as d
from umbel.types.arrow import arrow_schema, from_arrow

DTYPES = {
    "a": d.Int(),
    "b": d.Optional(d.Decimal(2)),
    "c": d.Dict(d.List(d.Str())),
    "d": d.Embedding(2),
    "e": d.Datetime(),
    "f": d.Struct("P", (("x", d.Int()),)),
}
ROWS = [{"a": 1, "b": None, "c": {"k": ["v"]}, "d": [1.0, 2.0], "e": 5, "f": {"x": 1}}]


def stored():
    return pl.DataFrame([dtype.ingest([row[n] for row in ROWS]).values.alias(n) for n, dtype in DTYPES.items()])


def test_schema_is_that_of_stored_frames():
    schema = arrow_schema(DTYPES)
    assert schema == stored().to_arrow().schema
    assert pa.types.is_large_list(schema.field("c").type)
    assert schema.field("e").type == pa.timestamp("us", "UTC")
    assert schema.field("b").type == pa.decimal128(28, 2)


def test_round_trip():
    assert from_arrow(stored().to_arrow(), DTYPES).equals(stored())


def test_types_that_files_do_not_keep():
    table = stored().with_columns(pl.col("d").arr.to_list(), pl.col("a").cast(pl.Int32)).to_arrow()
    assert from_arrow(table, DTYPES).equals(stored())


def test_values_that_do_not_belong():
    with pytest.raises(ValueError, match=r"column 'a' of type int: expected int, got 'x'"):
        from_arrow(pa.table({"a": ["x"]}), {"a": d.Int()})
