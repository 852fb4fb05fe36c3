"""Methods of the mock client: signatures and responses."""

import inspect
from datetime import datetime, timezone
from typing import Optional

import pandas as pd
import pytest

from umbel.client import Client
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Dataset, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.expr import col
from umbel.featuresets import extractor, featureset
from umbel.featuresets import feature as F
from umbel.lib import inputs, outputs, secrets
from umbel.testing import MockClient, mock

__owner__ = "team@example.com"

webhook = Webhook(name="w")

T = datetime(2024, 1, 1, tzinfo=timezone.utc)

ROWS = pd.DataFrame({"k": [1, 1, 2], "v": [1, 2, 3], "t": [T, datetime(2024, 1, 2), T]})


def events(version: int = 1, *, extra: bool = False, name: str = "Events") -> Dataset:
    fields = {"k": int, "v": int, "t": datetime} | ({"x": Optional[int]} if extra else {})
    made = type(name, (), {"__annotations__": fields, "__module__": __name__})
    return source(webhook.endpoint("e"), disorder="14d", cdc="append")(dataset(version=version)(made))


def counts(of: Dataset, version: int = 1, bound: int = 0) -> Dataset:
    @dataset(index=True, version=version)
    class Counts:
        k: int = field(key=True)
        n: int
        t: datetime

        @pipeline
        @inputs(of)
        def p(cls, e: Dataset):
            return e.filter(col("v") > bound).groupby("k").aggregate(n=Count(window=Continuous("forever")))

    return Counts


@featureset
class Features:
    k: int = F()
    n: Optional[int] = F(counts(events()).n)
    secret: str = F()

    @extractor
    @inputs("k")
    @outputs("secret")
    def record_event(cls, ts: pd.Series, k: pd.Series):
        return pd.Series([secrets.get("word")] * len(k), name="secret")


SIGNATURES = {
    "commit": "message datasets featuresets preview env incremental backfill",
    "log": "webhook endpoint df batch_size",
    "query": "inputs outputs input_dataframe log workflow sampling_rate",
    "query_offline": "inputs outputs timestamp_column input_dataframe input_s3 output_s3 feature_to_column_map workflow use_v2 num_dpus",
    "lookup": "dataset keys fields timestamps",
    "inspect": "dataset n",
    "erase": "dataset_name erase_keys",
    "init_branch": "name",
    "clone_branch": "name from_branch",
    "delete_branch": "name",
    "checkout": "name init",
    "get_secret": "name",
    "add_secret": "name value",
    "update_secret": "name value",
    "delete_secret": "name",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name: str) -> None:
    mocked, real = inspect.signature(getattr(MockClient, name)), inspect.signature(getattr(Client, name))
    assert list(mocked.parameters) == ["self", *SIGNATURES[name].split()]
    assert list(real.parameters.items()) == list(mocked.parameters.items())


@mock
def test_responses(client: MockClient) -> None:
    e = events()
    for response in (
        client.commit(message="m", datasets=[e, counts(e)], featuresets=[Features], preview=True),
        client.log(webhook="w", endpoint="e", df=ROWS, batch_size=10),
        client.add_secret("a", "b"), client.update_secret("a", "c"), client.delete_secret("a"),
        client.init_branch("b1"), client.clone_branch("b2", from_branch="main"), client.delete_branch("b2"),
        client.erase("Nothing", pd.DataFrame({"a": [1]})), client.track_offline_query("x"), client.cancel_offline_query("x"),
    ):  # fmt: skip
        assert response.status_code in (200, 404)
        assert response.ok is (response.status_code == 200)
        response.json()


@mock
def test_definitions_and_rows_can_be_read_back(client: MockClient) -> None:
    e = events()
    client.commit("m", [e, counts(e)], [Features])
    assert client.get_datasets() == [client.get_datasets()[0], client.get_datasets()[1]]
    assert client.get_datasets()[0] is e
    assert client.get_featuresets() == [Features]
    empty = client.get_dataset_df("Events")
    assert list(empty.columns) == ["k", "v", "t"]
    assert len(empty) == 0
    client.log("w", "e", ROWS)
    assert client.get_dataset_df("Events").columns.tolist() == ["k", "v", "t"]
    assert len(client.inspect("Events")) == 3
    for wrong in (-1, 1.5, "2", None):
        with pytest.raises(ValueError, match="n must be a whole number from 0"):
            client.inspect("Events", n=wrong)  # type: ignore[arg-type]
    assert len(client.inspect(e, n=2)) == 2
    assert len(client.inspect(e, n=2**70)) == 3
    assert client.inspect(dataset="Events", n=2).columns.tolist() == ["k", "v", "t"]
