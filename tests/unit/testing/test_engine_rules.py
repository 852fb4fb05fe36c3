"""Rules of operators that programs written for the reference rely on (api 17)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import List, Optional

import pandas as pd
import pytest

from umbel.datasets import Stddev, dataset, field, pipeline
from umbel.dtypes import Continuous, Decimal, Hopping, Tumbling
from umbel.lib import inputs
from umbel.testing import MockClient

__owner__ = "test@umbel.dev"

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


@dataset
class Rows:
    k: int
    s: str
    price: Decimal[2]
    tags: List[str]
    t: datetime


@dataset(index=True)
class Keyed:
    k: int = field(key=True)
    n: int
    t: datetime


def rows(*prices):
    instants = [NOON + timedelta(minutes=n) for n in range(len(prices))]
    return pd.DataFrame({"k": 1, "s": "a", "price": prices, "tags": [["x"]] * len(prices), "t": instants})


def logged(made, df):
    client = MockClient()
    client.commit(message="m", datasets=[Rows, made])
    client.log_to("Rows", df)
    return client


@pytest.mark.parametrize("window", [Hopping("1d", "1h"), Continuous("1d"), Tumbling("1h", lookback="5m")])
def test_dedup_examines_its_window_before_its_input(window):
    with pytest.raises((TypeError, ValueError)) as refused:

        @dataset
        class D:
            k: int = field(key=True)
            n: int
            t: datetime

            @pipeline
            @inputs(Keyed)
            def pipe(cls, keyed):
                return keyed.dedup("n", window=window)

    assert "window" in str(refused.value)
    assert isinstance(refused.value, ValueError if isinstance(window, Tumbling) else TypeError)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda node: node.explode("k"), ValueError),
        (lambda node: node.explode("t"), ValueError),
        (lambda node: node.explode("zz"), ValueError),
        (lambda node: node.explode(columns="tags"), TypeError),
        (lambda node: node.explode(columns=7), TypeError),
    ],
)
def test_explode_says_what_it_cannot_take(call, kind):
    with pytest.raises(kind, match=r"explode in pipeline 'D\.pipe'"):

        @dataset
        class D:
            k: int
            t: datetime

            @pipeline
            @inputs(Rows)
            def pipe(cls, events):
                return call(events)


def test_explode_refuses_keyed_input():
    with pytest.raises(TypeError, match="keyless"):

        @dataset
        class D:
            k: int
            t: datetime

            @pipeline
            @inputs(Keyed)
            def pipe(cls, keyed):
                return keyed.explode(columns=["n"])


def assigned(dtype, function):
    @dataset
    class D:
        v: dtype
        k: int
        s: str
        price: Decimal[2]
        tags: List[str]
        t: datetime

        @pipeline
        @inputs(Rows)
        def pipe(cls, events):
            return events.assign("v", dtype, function)

    return D


@pytest.mark.parametrize(
    ("dtype", "pandas", "fits"),
    [
        (int, "int64", True),
        (int, "Int64", True),
        (int, "int32", True),
        (int, "float64", False),
        (int, "object", False),
        (int, "bool", False),
        (Optional[int], "Int64", True),
        (Optional[int], "Float64", False),
        (Optional[int], "float64", False),
        (float, "float64", True),
        (float, "Int64", True),
        (float, "object", False),
        (bool, "bool", True),
        (bool, "boolean", True),
        (bool, "int64", False),
        (bool, "object", False),
        (str, "object", True),
        (str, "string", True),
        (str, "int64", False),
    ],
)
def test_an_assigned_series_must_have_a_dtype_of_the_kind(dtype, pandas, fits):
    value = "x" if dtype is str and fits else True if dtype is bool else 1
    made = assigned(dtype, lambda df: pd.Series([value] * len(df), dtype=pandas))
    if fits:
        found = logged(made, rows("1.00")).get_dataset_df("D")["v"].tolist()
        assert found == [value]
    else:
        with pytest.raises(Exception, match=f"assign node for column v for pipeline D.pipe.* found {pandas}"):
            logged(made, rows("1.00"))


@dataset
class Texts:
    k: int
    s: str
    o: Optional[str]
    n: int
    f: float
    b: bool
    t: datetime

    @pipeline
    @inputs(Rows)
    def pipe(cls, events):
        schema = {
            "k": pd.Int64Dtype,
            "s": pd.StringDtype,
            "o": Optional[str],
            "n": pd.Int64Dtype(),
            "f": pd.Float64Dtype,
            "b": pd.BooleanDtype,
            "t": datetime,
        }
        return events.transform(
            lambda df: df.drop(columns=["price", "tags"]).assign(
                s=[text.encode() + (b"\xff" if text == "bad" else "é".encode()) for text in df["s"]],
                o=[b"x", *[None] * (len(df) - 1)],
                n=7,
                f=1.5,
                b=True,
            ),
            schema=schema,
        )


def test_bytes_of_a_transform_are_text_and_dtypes_of_pandas_are_types():
    found = logged(Texts, rows("1.00", "2.00")).get_dataset_df("Texts")
    assert found["s"].tolist() == ["aé", "aé"]
    assert found["o"].isna().tolist() == [False, True]
    assert found["o"][0] == "x"
    assert (found["n"].tolist(), found["f"].tolist(), found["b"].tolist()) == ([7, 7], [1.5, 1.5], [True, True])


def test_bytes_that_are_no_utf8_are_an_error():
    with pytest.raises(Exception, match=r"transform function .* for pipeline Texts.pipe.*UnicodeDecodeError"):
        logged(Texts, rows("1.00").assign(s="bad"))


@dataset(index=True)
class Spread:
    k: int = field(key=True)
    s: float
    t: datetime

    @pipeline
    @inputs(Rows)
    def pipe(cls, events):
        return events.groupby("k").aggregate(s=Stddev(of="price", window=Continuous("forever")))


@pytest.mark.parametrize(
    ("prices", "spread"),
    [
        (("1.10", "1.20"), 0.05),
        (("0.10", "0.30"), 0.1),
        (("1.10",), 0.0),
        (("0.07", "0.07", "0.07"), 0.0),
        (("0.10", "0.20", "0.30", "0.40"), 0.1118033988749895),
    ],
)
def test_the_deviation_of_decimals_is_computed_in_whole_units(prices, spread):
    client = logged(Spread, rows(*prices))
    for keys in (1, 300):  # point lookups and bulk lookups take different paths
        found, _ = client.lookup("Spread", pd.DataFrame({"k": [1] * keys}))
        assert found["s"].tolist() == [spread] * keys
