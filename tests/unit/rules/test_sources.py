"""`@source`: which rows a dataset takes and what becomes of them (api §3.2, §9.2)."""

import time
import warnings
from datetime import datetime, timezone
from typing import List, Optional

import pandas as pd
import pytest

from tests.unit.rules.refusals import refused
from umbel.connectors import S3, Kafka, Sample, Webhook, eval, ref, sink, source
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


def test_columns_made_are_not_seen_by_others() -> None:
    D = keyless(preproc={"a": 100, "b": eval(lambda df: df["a"] * 1.0, schema={"a": int})})
    assert fed(ROWS, D)["b"].tolist() == [1.0, 2.0]
    with refused(ValueError, "D", "b", "a"):
        fed(ROWS, keyless(preproc={"a": 100, "b": eval(col("a") * 1.0)}))


def test_each_dataset_gets_the_original_rows() -> None:
    D = keyless(preproc={"a": eval(col("a") + 1, schema={"a": int})})

    @source(webhook.endpoint("e"), disorder="14d", cdc="append", preproc={"a": eval(col("a") * 10, schema={"a": int})})
    @dataset
    class E:
        a: int
        t: datetime

    client = MockClient()
    client.commit("m", datasets=[D, E])
    client.log("w", "e", pd.DataFrame(ROWS))
    assert client.get_dataset_df("D")["a"].tolist() == [2, 3]
    assert client.get_dataset_df("E")["a"].tolist() == [10, 20]


def test_stacked_sources_feed_both() -> None:
    D = source(webhook.endpoint("other"), disorder="1d", cdc="append")(keyless())
    client = MockClient()
    client.commit("m", datasets=[D])
    client.log("w", "e", pd.DataFrame(ROWS))
    client.log("w", "other", pd.DataFrame(ROWS))
    assert len(client.get_dataset_df("D")) == 4


def test_since_until_sample_are_not_applied_in_tests() -> None:
    D = keyless(sample=0.0)
    assert len(fed(ROWS, D)) == 2
    D = keyless(sample=Sample(0.5, using=["a"]), every="1h")
    assert len(fed(ROWS, D)) == 2


def test_bounded() -> None:
    D = keyless(bounded=True, idleness="1s")
    client = MockClient()
    client.commit("m", datasets=[D])
    assert client.log("w", "e", pd.DataFrame(ROWS)).status_code == 200
    time.sleep(1.05)
    assert client.log("w", "e", pd.DataFrame(ROWS)).status_code == 200
    assert len(client.get_dataset_df("D")) == 2


def test_rows_that_do_not_fit_are_refused_together() -> None:
    client = MockClient()
    client.commit("m", datasets=[keyless()])
    bad = {
        "missing": ({k: v for k, v in ROWS.items() if k != "c"}, ("c", "missing")),
        "null": ({**ROWS, "a": [1, None]}, ("a", "int", "null")),
        "type": ({**ROWS, "a": [1, "q"]}, ("a", "int", "q")),
        "time": ({**ROWS, "t": [T, "q"]}, ("t", "datetime", "q")),
    }
    for frame, words in bad.values():
        with refused(Exception, "Schema validation failed during data insertion to D", *words):
            client.log("w", "e", pd.DataFrame(frame))
        assert client.get_dataset_df("D").empty
    assert client.log("w", "e", pd.DataFrame(ROWS)[:0]).status_code == 200
    assert client.log("w", "e", pd.DataFrame()).status_code == 200
    with refused(Exception, "nobody", "e"):
        client.log("nobody", "e", pd.DataFrame(ROWS))
    with refused(Exception, "w", "nowhere"):
        client.log("w", "nowhere", pd.DataFrame(ROWS))


def test_schema_of_eval() -> None:
    D = keyless(preproc={"b": eval(col("z") + 0.5, schema={"z": int})})
    with refused(ValueError, "D", "z"):
        fed(ROWS, D)
    with refused(ValueError, "D", "z"):
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

    with refused(Exception, "Unknown"):
        log(Unknown, pd.DataFrame({"a": [1], "t": [T]}))
    with refused(Exception, "Sourceless", "a"):
        log(Sourceless, pd.DataFrame({"a": ["q"], "t": [T]}))


def test_older_spelling() -> None:
    from umbel.dtypes import Dict, Option
    from umbel.lib.schema import Option as Option2
    from umbel.sources import Postgres as OldPostgres
    from umbel.sources import source as old_source

    assert Option2 is Option
    postgres = OldPostgres(name="p", host="h", db_name="d", username="u", password="p")
    with pytest.warns(DeprecationWarning) as report:

        @old_source(postgres.table("user"), every="1m", cursor="update_time", lateness="1d", tier="prod")
        @dataset
        class User:
            uid: int = field(key=True)
            tags: Dict[int]
            nick: Option[str]
            update_time: datetime

    text = " ".join(str(each.message) for each in report)
    for word in ("lateness", "disorder", "tier", "env", "cursor", "umbel.connectors"):
        assert word in text
    assert report[0].filename == __file__
    client = MockClient()
    assert client.commit("m", datasets=[User], env="prod").status_code == 200
    log(User, pd.DataFrame({"uid": [1], "tags": [{"a": 1}], "nick": [None], "update_time": [T]}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert old_source(OldPostgres.get("p").table("t"), lateness="1h")(keyless())
    for old, new in (("lateness", "disorder"), ("tier", "env"), ("cursor", "table")):
        with refused(TypeError, old, new):
            source(webhook.endpoint("e"), cdc="append", disorder="1d", **{old: "1d"})


kafka = Kafka.get("k")
S = S3.get("s")


def test_a_mock_client_takes_rows_of_any_time() -> None:
    late = datetime(2030, 1, 1, tzinfo=timezone.utc)
    assert len(fed(ROWS, keyless(since=late))) == 2
    assert len(fed(ROWS, keyless(until=T, sample=0.0))) == 2


def test_preproc_is_a_dict() -> None:
    with refused(TypeError, "preproc", "dict"):
        keyless(preproc=[("c", "const")])
    with refused(ValueError, "D", "'c'", "expected str", "5"):
        fed(ROWS, keyless(preproc={"c": 5}))


def test_a_sink_tells_which_duration_is_wrong() -> None:
    with refused(ValueError, "every", "zz"):
        sink(S3(name="s").bucket("b", prefix="p", format="delta"), how="incremental", every="zz")
