"""What sources make of the rows they take (api §3.2, §9.2)."""

from datetime import datetime, timezone
from typing import List, Optional

import pandas as pd
import pytest

from tests.unit.refusals import refusal
from umbel.connectors import Sample, Webhook, eval, ref, source
from umbel.datasets import Dataset, dataset, field
from umbel.expr import col
from umbel.testing import MockClient, log, mock

__owner__ = "team@example.com"

webhook = Webhook(name="w")

T = datetime(2024, 1, 1, tzinfo=timezone.utc)


def keyless(**options: object) -> Dataset:
    @source(webhook.endpoint("e"), disorder="14d", cdc="append", **options)
    @dataset
    class D:
        a: int
        b: Optional[float]
        c: str
        t: datetime

    return D


def fed(frame: dict, D: Dataset) -> pd.DataFrame:
    client = MockClient()
    client.commit("m", datasets=[D])
    client.log("w", "e", pd.DataFrame(frame))
    return client.get_dataset_df("D")


ROWS = {"a": [1, 2], "b": [0.5, None], "c": ["x", "y"], "t": [T, T], "extra": [1, 2], "x": ["7", "8"]}


def test_plain() -> None:
    df = fed(ROWS, keyless())
    assert df.columns.tolist() == ["a", "b", "c", "t"]
    assert df["b"].tolist() == [0.5, pd.NA]


def test_preproc() -> None:
    df = fed(
        {k: v for k, v in ROWS.items() if k not in "cb"},
        keyless(preproc={
            "c": ref("x"),
            "b": eval(col("a") * 2.5, schema={"a": int}),
        }),
    )  # fmt: skip
    assert df["c"].tolist() == ["7", "8"]
    assert df["b"].tolist() == [2.5, 5.0]
    df = fed(ROWS, keyless(preproc={"c": "const", "b": eval(lambda df: df["a"] + df["extra"], schema={"extra": int})}))
    assert df["c"].tolist() == ["const"] * 2
    assert df["b"].tolist() == [2.0, 4.0]
    df = fed(ROWS, keyless(preproc={"b": eval((col("extra") + col("a") + 0.5).astype(float), schema={"extra": int})}))
    assert df["b"].tolist() == [2.5, 4.5]
    df = fed(ROWS, keyless(preproc={"b": eval(col("x").str.len().num.sqrt(), schema={"x": str}), "t": ref("t")}))
    assert df["b"].tolist() == [1.0, 1.0]
    df = fed(ROWS, keyless(preproc={"a": 5, "b": None, "t": datetime(2020, 1, 1)}))
    assert df["a"].tolist() == [5, 5]
    assert df["b"].isna().all()
    assert df["t"].tolist() == [pd.Timestamp("2020-01-01", tz="UTC")] * 2


def test_where() -> None:
    assert fed(ROWS, keyless(where=lambda df: df["a"] > 1))["a"].tolist() == [2]
    assert fed(ROWS, keyless(where=eval(col("a") > 1)))["a"].tolist() == [2]
    assert fed(ROWS, keyless(where=eval(lambda df: df["a"] > 1)))["a"].tolist() == [2]
    assert fed(ROWS, keyless(where=eval(lambda df: df["a"] > 1, schema={"a": int})))["a"].tolist() == [2]
    assert fed(ROWS, keyless(where=eval(col("extra") > 1, schema={"extra": int})))["a"].tolist() == [2]
    # after preproc
    assert fed(ROWS, keyless(preproc={"a": ref("extra")}, where=eval(col("a") == 1)))["a"].tolist() == [1]
    assert fed(ROWS, keyless(where=lambda df: df["a"] > 5)).empty


LACKING = {
    "untouched": ({"where": eval(col("a") > 5)}, "b", "column 'b' of type Optional[float]: the column is missing"),
    "timestamp": ({"where": lambda df: df["t"].notna()}, "t", "column 't' of type datetime: the column is missing"),
    "copied": (
        {"preproc": {"b": ref("x")}},
        "x",
        "column 'b' of type Optional[float]: column 'x': the column is missing",
    ),
    "all copied": (
        {"preproc": {"a": 1, "b": ref("x"), "c": "", "t": ref("t")}},
        "x",
        "column 'x': the column is missing",
    ),
    "computed": (
        {"preproc": {"c": eval(col("x").fillnull(""), schema={"x": Optional[str]})}},
        "x",
        "column 'c' of type str: column 'x': the column is missing",
    ),
    "condition": (
        {"where": eval(~col("x").isnull(), schema={"x": Optional[str]})},
        "x",
        "where: column 'x': the column is missing",
    ),
}


@pytest.mark.parametrize("name", LACKING)
def test_a_column_that_is_read_must_be_there_also_an_optional_one(name: str) -> None:
    options, lacking, message = LACKING[name]
    D = keyless(**options)
    with refusal(ValueError, "data insertion to D: ", message, "add the column", at=False):
        fed({column: values for column, values in ROWS.items() if column != lacking}, D)


def test_columns_made_are_not_seen_by_others() -> None:
    D = keyless(preproc={"a": 100, "b": eval(lambda df: df["a"] * 1.0, schema={"a": int})})
    assert fed(ROWS, D)["b"].tolist() == [1.0, 2.0]
    with refusal(ValueError, "D", "b", "a"):
        fed(ROWS, keyless(preproc={"a": 100, "b": eval(col("a") * 1.0)}))


def test_since_until_sample_are_not_applied_in_tests() -> None:
    D = keyless(sample=0.0)
    assert len(fed(ROWS, D)) == 2
    D = keyless(sample=Sample(0.5, using=["a"]), every="1h")
    assert len(fed(ROWS, D)) == 2


def test_schema_of_eval() -> None:
    D = keyless(preproc={"b": eval(col("z") + 0.5, schema={"z": int})})
    with refusal(ValueError, "D", "z"):
        fed(ROWS, D)
    with refusal(ValueError, "D", "z"):
        fed({**ROWS, "z": ["q", "r"]}, D)
    assert fed({**ROWS, "z": ["1", "2"]}, D)["b"].tolist() == [1.5, 2.5]


def test_keyed_rows_of_one_call() -> None:
    @source(webhook.endpoint("e"), disorder="14d", cdc="upsert")
    @dataset(index=True)
    class K:
        k: int = field(key=True)
        v: List[int]
        t: datetime

    client = MockClient()
    client.commit("m", datasets=[K])
    client.log("w", "e", pd.DataFrame({"k": [1, 1, 1], "v": [[1], [2], [3]], "t": [T, T, datetime(2024, 1, 2)]}))
    df = client.get_dataset_df("K")
    assert df["v"].tolist() == [[2], [3]]
    rows, _ = client.lookup("K", pd.DataFrame({"k": [1, 1]}), timestamps=pd.Series([T, datetime(2024, 1, 3)]))
    assert rows["v"].tolist() == [[2], [3]]


@mock
def test_log(client: MockClient) -> None:
    @dataset
    class Sourceless:
        a: int
        t: datetime

    client.commit("m", datasets=[Sourceless, keyless()])
    log(Sourceless, pd.DataFrame({"a": [1], "t": [T]}))
    assert client.get_dataset_df("Sourceless")["a"].tolist() == [1]

    @dataset
    class Unknown:
        a: int
        t: datetime

    with refusal(Exception, "Unknown"):
        log(Unknown, pd.DataFrame({"a": [1], "t": [T]}))
    with refusal(Exception, "Sourceless", "a"):
        log(Sourceless, pd.DataFrame({"a": ["q"], "t": [T]}))


def test_a_mock_client_takes_rows_of_any_time() -> None:
    late = datetime(2030, 1, 1, tzinfo=timezone.utc)
    assert len(fed(ROWS, keyless(since=late))) == 2
    assert len(fed(ROWS, keyless(until=T, sample=0.0))) == 2


def test_preproc_is_a_dict() -> None:
    with refusal(TypeError, "preproc", "dict"):
        keyless(preproc=[("c", "const")])
    with refusal(ValueError, "D", "'c'", "expected str", "5"):
        fed(ROWS, keyless(preproc={"c": 5}))
