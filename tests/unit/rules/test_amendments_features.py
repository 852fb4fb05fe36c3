"""§6.2, §6.4, §7 amended: list lookups, defaults, featuresets that are not committed, dtypes of results."""

from datetime import datetime, timezone
from decimal import Decimal as PythonDecimal
from typing import List, Optional

import numpy as np
import pandas as pd
import pytest

from tests.unit.rules.refusals import refused
from umbel.api.commit import check_commit
from umbel.connectors import Webhook, source
from umbel.datasets import dataset, field
from umbel.dtypes import Decimal
from umbel.expr import col
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
class Narrow:
    sku: List[int] = F()
    name: List[str] = F(Items.name, default="?")


@mock
def test_null_elements_of_key_lists_are_not_found(client) -> None:
    client.commit(message="m", datasets=[Items], featuresets=[Basket, Narrow])
    log(Items, ROWS)
    frame = pd.DataFrame({"Basket.sku": [[1, None, 3, 2], [], [None]]})
    found = client.query([Basket.sku], [Basket.name, Basket.stock], frame)
    assert found["Basket.name"].tolist() == [["one", pd.NA, pd.NA, "two"], [], [pd.NA]]
    assert found["Basket.stock"].tolist() == [[5, -1, -1, -1], [], [-1]]
    found = client.query([Narrow.sku], [Narrow.name], pd.DataFrame({"Narrow.sku": [[2, 7]]}))
    assert found["Narrow.name"].tolist() == [["two", "?"]]


@mock
def test_many_null_elements(client) -> None:
    client.commit(message="m", datasets=[Items], featuresets=[Basket])
    log(Items, ROWS)
    keys = [1, None, 2] * 400
    found = client.query([Basket.sku], [Basket.stock], pd.DataFrame({"Basket.sku": [keys]}))
    assert found["Basket.stock"].tolist() == [[5, -1, -1] * 400]


def test_keys_that_are_lists_are_looked_up_as_they_are() -> None:
    @dataset(index=True)
    class ByTags:
        tags: List[str] = field(key=True)
        scores: List[float]
        t: datetime

    @featureset
    class Tagged:
        tags: List[str] = F()
        scores: List[float] = F(ByTags.scores, default=[0.0])

    client = MockClient()
    client.commit(message="m", datasets=[ByTags], featuresets=[Tagged])
    log(ByTags, pd.DataFrame({"tags": [["a", "b"]], "scores": [[1.0, 2.0]], "t": [T]}))
    found = client.query([Tagged.tags], [Tagged.scores], pd.DataFrame({"Tagged.tags": [["a", "b"], ["b"]]}))
    assert found["Tagged.scores"].tolist() == [[1.0, 2.0], [0.0]]


def _with_default(field_, kind, default):
    @featureset
    class FS:
        sku: int = F()
        value: kind = F(field_, default=default)

    return FS


@dataset(index=True)
class Numbers:
    sku: int = field(key=True)
    f: float
    d: Decimal[2]
    i: int
    b: bool
    s: str
    many: List[int]
    t: datetime


@pytest.mark.parametrize(
    ("name", "kind", "default"),
    [
        ("i", int, 0.0), ("i", int, 1.5), ("i", int, True), ("i", int, "1"), ("i", int, PythonDecimal(1)),
        ("s", str, 1), ("s", str, True), ("b", bool, 1), ("b", bool, 0.0), ("b", bool, "true"),
        ("f", float, "1"), ("f", float, True),
        ("d", Decimal[2], "1.5"), ("d", Decimal[2], True), ("d", Decimal[2], float("nan")), ("d", Decimal[2], 10**27),
        ("many", List[int], [1.0]), ("many", List[int], 3),
    ],
)  # fmt: skip
def test_defaults_refused(name: str, kind, default) -> None:
    with refused(ValueError, "value", f"Numbers.{name}", repr(default)):
        _with_default(getattr(Numbers, name), kind, default)


@pytest.mark.parametrize(
    ("name", "kind", "default", "shown"),
    [
        ("i", int, 3, 3), ("i", int, np.int64(3), 3), ("s", str, "x", "x"), ("b", bool, False, False),
        ("f", float, 1, 1.0), ("f", float, 0.5, 0.5), ("many", List[int], [1, 2], [1, 2]),
        ("d", Decimal[2], 1, PythonDecimal("1.00")), ("d", Decimal[2], 1.239, PythonDecimal("1.24")),
        ("d", Decimal[2], PythonDecimal("1.239"), PythonDecimal("1.24")),
        ("d", Decimal[2], PythonDecimal("1.5"), PythonDecimal("1.50")),
    ],
)  # fmt: skip
def test_defaults_taken(name: str, kind, default, shown) -> None:
    features = _with_default(getattr(Numbers, name), kind, default)
    client = MockClient()
    client.commit(message="m", datasets=[Numbers], featuresets=[features])
    found = client.query(["FS.sku"], ["FS.value"], pd.DataFrame({"FS.sku": [9]}))["FS.value"].tolist()
    assert found == [shown]
    assert str(found[0]) == str(shown)


@featureset
class Request:
    uid: int = F()
    amount: Optional[Decimal[1]] = F()


@featureset
class Aliases:
    """No python extractor: `Request` need not be committed."""

    uid: int = F(Request.uid)
    amount: Decimal[1] = F(Request.amount, default=0.25)
    next: int = F(col("uid") + 1)


@featureset
class Chained:
    uid: int = F(Aliases.uid)
    double: int

    @extractor
    @inputs("uid")
    @outputs("double")
    def doubled(cls, ts, uid):
        return (uid * 2).rename("double")


@featureset
class Reading:
    double: int

    @extractor(env="prod")
    @inputs(Request.uid)
    @outputs("double")
    def doubled(cls, ts, uid):
        return (uid * 2).rename("double")


@mock
def test_aliases_of_featuresets_that_are_not_committed(client) -> None:
    client.commit(message="m", featuresets=[Aliases])
    found = client.query([Request.uid], [Aliases.next], pd.DataFrame({"Request.uid": [1, 2]}))
    assert found["Aliases.next"].tolist() == [2, 3]
    found = client.query(["Request.uid"], ["Aliases.uid"], pd.DataFrame({"Request.uid": [1, 2]}))
    assert found["Aliases.uid"].tolist() == [1, 2]
    # a Feature has its declared type, text has none
    with pytest.raises(Exception, match=r"Request.uid.*int"):
        client.query([Request.uid], [Aliases.next], pd.DataFrame({"Request.uid": ["x"]}))
    frame = pd.DataFrame({"Request.amount": [PythonDecimal("1.5"), None]})
    found = client.query([Request.amount], [Aliases.amount], frame)
    assert found["Aliases.amount"].tolist() == [PythonDecimal("1.5"), PythonDecimal("0.2")]
    offline = client.query_offline(
        [Request.uid],
        [Aliases.next],
        timestamp_column="ts",
        input_dataframe=pd.DataFrame({"Request.uid": [4], "ts": [T]}),
    )
    assert offline["Aliases.next"].tolist() == [5]
    with pytest.raises(ValueError, match=r"Request\.uid"):
        client.query([], [Aliases.next], pd.DataFrame({"x": [1]}))


def test_python_extractors_need_the_featuresets_they_read() -> None:
    with refused(ValueError, "doubled", "Request"):
        check_commit([], [Reading])
    with refused(ValueError, "doubled", "Request"):
        check_commit([], [Reading], env="prod")
    check_commit([], [Reading], env="dev")
    check_commit([], [Reading, Request])


def test_aliases_beside_python_extractors_need_theirs() -> None:
    with refused(ValueError, "Chained", "Aliases"):
        check_commit([], [Chained])
    with refused(ValueError, "Aliases", "Request"):  # following aliases on
        check_commit([], [Chained, Aliases])
    check_commit([], [Chained, Aliases, Request])
    check_commit([], [Aliases])


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
def test_columns_given_keep_their_dtypes(dtype: str) -> None:
    client = MockClient()
    client.commit(message="m", featuresets=[Shapes])
    frame = pd.DataFrame({"Shapes.x": pd.Series([1, 2], dtype=dtype)}).set_axis([5, 9])
    found = client.query([Shapes.x], [Shapes.x, Shapes.flag], frame)
    assert str(found["Shapes.x"].dtype) == dtype
    assert found["Shapes.x"].tolist() == [1, 2]
    assert found.index.tolist() == [0, 1]


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
