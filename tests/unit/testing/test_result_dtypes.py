"""Dtypes of the columns of a query's result (api §7)."""

from datetime import datetime, timezone
from decimal import Decimal as PythonDecimal
from typing import Any, Dict, List, Optional

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from umbel.connectors import Webhook, source
from umbel.datasets import dataset, field
from umbel.dtypes import Decimal, struct
from umbel.featuresets import extractor, featureset
from umbel.featuresets import feature as F
from umbel.lib import inputs, outputs
from umbel.testing import MockClient, log, mock

__owner__ = "team@example.com"

T = datetime(2024, 1, 1, tzinfo=timezone.utc)


@source(Webhook(name="w").endpoint("Items"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Items:
    sku: int = field(key=True)
    name: str
    stock: Optional[int]
    price: Decimal[2]
    on: bool
    t: datetime


ROWS = pd.DataFrame(
    {
        "sku": [1, 2],
        "name": ["one", "two"],
        "stock": [5, None],
        "price": [PythonDecimal("1.25"), PythonDecimal("2.50")],
        "on": [True, False],
        "t": [T, T],
    }
)


@featureset
class Basket:
    sku: List[Optional[int]] = F()
    name: List[Optional[str]] = F(Items.name)
    stock: List[int] = F(Items.stock, default=-1)


@featureset
class Shapes:
    x: int = F()
    flag: bool
    whole: int
    real: float
    text: Optional[str]

    @extractor
    @inputs("x")
    @outputs("flag", "whole", "real", "text")
    def made(cls, ts, x):
        index = [f"row{at}" for at in range(len(x))]
        return pd.DataFrame(
            {
                "flag": (x > 1).astype(bool).tolist(),
                "whole": np.array(x, dtype="int32"),
                "real": np.array(x, dtype="float32"),
                "text": pd.Series(x.astype(str)).astype(object).tolist(),
            },
            index=index,
        )


@featureset
class Same:
    flag: bool = F(Shapes.flag)


@mock
def test_columns_of_python_extractors_keep_their_dtypes(client) -> None:
    client.commit(message="m", datasets=[Items], featuresets=[Shapes, Same, Basket])
    frame = pd.DataFrame({"Shapes.x": [1, 2]})
    found = client.query([Shapes.x], [Shapes.flag, Shapes.whole, Shapes.real, Shapes.text, Same.flag], frame)
    assert [str(found[name].dtype) for name in found.columns] == ["bool", "int32", "float32", "object", "bool"]
    assert found.index.tolist() == [0, 1]
    assert isinstance(found.index, pd.RangeIndex)
    assert found["Shapes.flag"].tolist() == [False, True]
    again = client.query_offline([Shapes.x], [Shapes.flag], timestamp_column="ts", input_dataframe=frame.assign(ts=T))
    assert str(again["Shapes.flag"].dtype) == "bool"


@pytest.mark.parametrize("dtype", ["int64", "Int64", "int32", "float64", "object"])
def test_provided_columns_keep_their_dtypes(dtype: str) -> None:
    client = MockClient()
    client.commit(message="m", featuresets=[Shapes])
    frame = pd.DataFrame({"Shapes.x": pd.Series([1, 2], dtype=dtype)}).set_axis([5, 9])
    found = client.query([Shapes.x], [Shapes.x, Shapes.flag], frame)
    assert str(found["Shapes.x"].dtype) == dtype
    assert found["Shapes.x"].tolist() == [1, 2]
    assert found.index.tolist() == [0, 1]


@featureset
class Provided:
    count: Optional[int]
    ratio: float


@featureset
class Renamed:
    count: Optional[int] = F(Provided.count)
    ratio: float = F(Provided.ratio)


def test_an_alias_of_a_provided_column_has_the_dtype_of_its_type() -> None:
    client = MockClient()
    client.commit(message="m", featuresets=[Provided, Renamed])
    frame = pd.DataFrame({"Provided.count": [None, 4], "Provided.ratio": [1, 2]})
    found = client.query([Provided.count, Provided.ratio], [Provided, Renamed], frame)
    assert [str(found[name].dtype) for name in found] == ["float64", "int64", "Int64", "Float64"]
    assert found["Renamed.count"].tolist() == [pd.NA, 4]
    alone = client.query([Provided.count, Provided.ratio], [Renamed.count], frame)
    assert alone["Renamed.count"].tolist() == [pd.NA, 4]


@struct
class Point:
    x: int
    y: Optional[str]


INNER = pa.struct([("x", pa.int64()), ("y", pa.string())])


@pytest.mark.parametrize(
    ("dtype", "arrow", "value", "expected"),
    [
        (Point, INNER, {"x": 1, "y": None}, Point(1, pd.NA)),
        (Optional[Point], INNER, {"x": 1, "y": "a"}, Point(1, "a")),
        (List[Point], pa.list_(INNER), [{"x": 1, "y": "a"}], [Point(1, "a")]),
        (Dict[str, Point], pa.map_(pa.string(), INNER), [("k", {"x": 1, "y": "a"})], {"k": Point(1, "a")}),
    ],
)
def test_structs_of_arrow_columns_are_instances(dtype: Any, arrow: pa.DataType, value: Any, expected: Any) -> None:
    column = pd.Series([value], dtype=pd.ArrowDtype(arrow))

    @featureset
    class Shown:
        provided: dtype
        made: dtype

        @extractor
        @inputs("provided")
        @outputs("made")
        def make(cls, ts, provided):
            return column.rename("made")

    client = MockClient()
    client.commit(message="m", featuresets=[Shown])
    found = client.query([Shown.provided], [Shown.provided, Shown.made], pd.DataFrame({"Shown.provided": column}))
    assert found.dtypes.tolist() == [object, object]
    assert found.iloc[0].tolist() == [expected, expected]


@mock
def test_looked_up_columns_are_nullable(client) -> None:
    @featureset
    class Found:
        sku: int = F()
        stock: Optional[int] = F(Items.stock)
        on: Optional[bool] = F(Items.on)
        name: str = F(Items.name, default="?")

    client.commit(message="m", datasets=[Items], featuresets=[Found])
    log(Items, ROWS)
    found = client.query([Found.sku], [Found.stock, Found.on, Found.name], pd.DataFrame({"Found.sku": [1, 7]}))
    assert [str(found[name].dtype) for name in found.columns] == ["Int64", "boolean", "string"]


@featureset
class Person:
    uid: int
    nick: Optional[str]
    born: Optional[datetime]
    tags: Optional[List[str]]
    name: str

    @extractor
    @inputs("uid")
    @outputs("nick", "born", "tags")
    def unknown(cls, ts, uid):
        return pd.DataFrame({"nick": uid.map({99: "x"}), "born": np.nan, "tags": [np.nan] * len(uid)})

    @extractor
    @inputs("uid")
    @outputs("name")
    def named(cls, ts, uid):
        assert uid.iloc[0] > 0
        return pd.Series([np.nan] * len(uid), name="name")


@mock
def test_a_column_of_nulls_has_any_type_if_it_is_optional(client):
    client.commit("m", [], [Person])
    requested = [Person.nick, Person.born, Person.tags]
    found = client.query([Person.uid], requested, pd.DataFrame({"Person.uid": [1, 2]}))
    assert found.isna().to_numpy().tolist() == [[True] * 3] * 2
    with pytest.raises(Exception, match="feature 'name': null, and str is not Optional"):
        client.query([Person.uid], [Person.name], pd.DataFrame({"Person.uid": [1, 2]}))


@mock
def test_no_extractor_is_called_without_rows(client):
    client.commit("m", [], [Person])
    found = client.query([Person.uid], [Person.name, Person.tags], pd.DataFrame({"Person.uid": []}))
    assert (list(found.columns), len(found)) == (["Person.name", "Person.tags"], 0)
