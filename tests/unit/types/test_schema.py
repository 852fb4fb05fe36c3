import polars as pl

from umbel.types import dtypes as d
from umbel.types.schema import Schema

KEYED = Schema((("uid", d.Int()),), (("name", d.Str()),), "at", order=("at", "uid", "name"))


def test_columns_in_order():
    assert KEYED.names == ["at", "uid", "name"]
    assert KEYED.key_names == ["uid"]
    assert KEYED.value_names == ["name"]
    assert KEYED.is_keyed
    assert KEYED.dtypes == {"at": d.Datetime(), "uid": d.Int(), "name": d.Str()}


def test_without_an_order():
    schema = Schema((), (("x", d.Float()),), "at")
    assert schema.names == ["x", "at"]
    assert not schema.is_keyed


def test_changes():
    assert KEYED.empty().schema == {
        "at": pl.Datetime("us", "UTC"), "uid": pl.Int64(), "name": pl.String(),
        "_at": pl.Datetime("us", "UTC"), "_weight": pl.Int64(), "_seq": pl.Int64(),
    }  # fmt: skip


def test_other_values():
    other = KEYED.with_values({"age": d.Int()})
    assert other.names == ["uid", "age", "at"]
    assert other == KEYED.with_values([("age", d.Int())])
