"""Commits: what they check, keep and drop; versions; branches; secrets (api §2.7, §9)."""

import inspect
from datetime import datetime, timezone
from typing import Optional

import pandas as pd
import pytest

from tests.unit.rules.refusals import refused
from umbel.client import Client
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Dataset, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.expr import col
from umbel.featuresets import extractor, featureset
from umbel.featuresets import feature as F
from umbel.lib import inputs, meta, outputs, secrets
from umbel.testing import MockClient, almost_equal, log, mock

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


def n_of(client: MockClient) -> list:
    df = client.query(
        outputs=["Features.n"], inputs=["Features.k"], input_dataframe=pd.DataFrame({"Features.k": [1, 2, 3]})
    )
    return df["Features.n"].tolist()


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
def test_a_commit_replaces_everything(client: MockClient) -> None:
    e = events()
    client.commit("m", [e, counts(e)], [Features])
    client.log("w", "e", ROWS)
    assert n_of(client) == [2, 1, pd.NA]
    client.commit("m", [e, counts(e)], [Features])
    assert n_of(client) == [pd.NA, pd.NA, pd.NA]
    client.log("w", "e", ROWS)
    client.commit("m", [e])
    assert [each.__name__ for each in client.get_datasets()] == ["Events"]
    assert client.get_featuresets() == []
    assert client.get_dataset_df("Events").empty


@mock
def test_incremental_commits_keep(client: MockClient) -> None:
    e = events()
    client.commit("m", [e, counts(e)])
    client.log("w", "e", ROWS)
    client.commit("m", featuresets=[Features], incremental=True)
    assert n_of(client) == [2, 1, pd.NA]
    client.commit("m", datasets=[counts(e, 2, bound=1)], incremental=True)
    assert n_of(client) in ([1, 1, pd.NA], [pd.NA, pd.NA, pd.NA])
    client.log("w", "e", ROWS)
    client.commit("m", [e], incremental=True)
    assert len(client.get_dataset_df("Events")) == 6
    client.commit("m", [meta(description="other", owner="b@c.de")(e)], incremental=True)
    assert len(client.get_dataset_df("Events")) == 6


@mock
def test_versions(client: MockClient) -> None:
    e = events()
    client.commit("m", [e, counts(e)], [Features])
    client.log("w", "e", ROWS)
    with refused(ValueError, "Events", "version"):
        client.commit("m", [events(extra=True)], incremental=True)
    with refused(ValueError, "Counts", "version"):
        client.commit("m", [counts(e, bound=1)], incremental=True)
    client.commit("m", [events(3, extra=True), counts(events(3, extra=True), 2)], incremental=True)
    assert client.get_dataset_df("Events").empty
    with refused(ValueError, "Events", "version"):
        client.commit("m", [events(2, extra=True)], incremental=True)
    assert client.commit("m", [events(1)]).status_code == 200


@mock
def test_features_cannot_go(client: MockClient) -> None:
    def of(**annotations: type) -> object:
        body = {"__annotations__": annotations, "__module__": __name__} | {name: F() for name in annotations}
        return featureset(type("Set", (), body))

    client.commit("m", featuresets=[of(a=int, b=int)])
    client.commit("m", featuresets=[of(a=int, b=int, c=int)], incremental=True)
    with refused(Exception, "Set", "superset", "c"):
        client.commit("m", featuresets=[of(a=int, b=int)], incremental=True)


@mock
def test_members(client: MockClient) -> None:
    with refused(TypeError, "Features"):
        client.commit("m", datasets=[Features])
    with refused(TypeError, "Events"):
        client.commit("m", featuresets=[events()])
    with refused(TypeError, "int"):
        client.commit("m", datasets=[int])
    with refused(ValueError, "Events"):
        client.commit("m", datasets=[events(), events()])
    with refused(ValueError, "Features"):
        client.commit("m", datasets=[events(), counts(events())], featuresets=[Features, Features])
    with refused(ValueError, "Counts"):
        client.commit("m", featuresets=[Features])
    with pytest.raises(TypeError):
        client.commit(datasets=[events()])


@mock
def test_wrong_arguments(client: MockClient) -> None:
    client.commit("m", [events()])
    with refused(TypeError, "log", "DataFrame", "list"):
        client.log("w", "e", [{"k": 1}])
    with refused(TypeError, "log", "DataFrame", "list"):
        log("Events", [{"k": 1}])
    with refused(ValueError, "DataFrame", "list"):
        client.erase("Events", [1])
    with refused(TypeError, "word", "int"):
        client.add_secret("word", 5)
    with refused(ValueError, "a b"):
        client.commit("m", [events()], env="a b")


@mock
def test_log_reaches_all_branches(client: MockClient) -> None:
    e = events()
    client.commit("m", [e, counts(e)])
    client.init_branch("empty")
    client.clone_branch("copy", "main")
    assert client.branch() == "copy"
    client.log("w", "e", ROWS)
    assert len(client.get_dataset_df("Events")) == 3
    client.checkout("main")
    assert len(client.get_dataset_df("Events")) == 3
    client.checkout("empty")
    with refused(Exception, "Events"):
        client.get_dataset_df("Events")
    client.log("w", "e", ROWS)
    client.checkout("main")
    assert len(client.get_dataset_df("Events")) == 6


@mock
def test_clones_diverge(client: MockClient) -> None:
    e = events()
    client.commit("m", [e, counts(e)], [Features])
    client.log("w", "e", ROWS)
    client.clone_branch("b", from_branch="main")
    assert n_of(client) == [2, 1, pd.NA]
    log(e, pd.DataFrame({"k": [3], "v": [1], "t": [T]}))
    assert n_of(client) == [2, 1, 1]
    client.checkout("main")
    assert n_of(client) == [2, 1, pd.NA]
    client.checkout("b")
    client.commit("m", [e, counts(e, 2, bound=1)], [Features])
    client.checkout("main")
    client.log("w", "e", ROWS)
    assert n_of(client) == [4, 2, pd.NA]
    client.checkout("b")
    assert n_of(client) == [1, 1, pd.NA]


@mock
def test_branches(client: MockClient) -> None:
    assert client.branch() == "main"
    assert client.list_branches() == ["main"]
    client.init_branch("a/b-c_1.2")
    assert client.branch() == "a/b-c_1.2"
    with refused(ValueError, "a/b-c_1.2"):
        client.init_branch("a/b-c_1.2")
    with refused(ValueError, "sp ace"):
        client.init_branch("sp ace")
    for target, origin in (("main", "main"), ("x", "nowhere"), ("main", "a/b-c_1.2")):
        with refused(Exception, origin if origin == "nowhere" else target):
            client.clone_branch(target, origin)
    assert sorted(client.list_branches()) == ["a/b-c_1.2", "main"]
    with refused(Exception, "main"):
        client.delete_branch("main")
    with refused(Exception, "nowhere", "main"):
        client.delete_branch("nowhere")
    client.init_branch("z")
    client.delete_branch("a/b-c_1.2")
    assert client.branch() == "z"
    client.delete_branch("z")
    assert client.branch() == "main"


@mock
def test_missing_branches(client: MockClient) -> None:
    client.checkout("nowhere")
    assert client.branch() == "nowhere"
    for call in (
        lambda: client.commit("m", [events()]), lambda: client.get_dataset_df("Events"), lambda: client.get_datasets(),
        lambda: client.query(inputs=[], outputs=["A.b"], input_dataframe=pd.DataFrame()),
        lambda: client.lookup("Events", pd.DataFrame({"k": [1]})), lambda: client.inspect("Events"),
        lambda: client.erase("Events", pd.DataFrame({"k": [1]})),
    ):  # fmt: skip
        with refused(KeyError, "nowhere", "main"):
            call()
    client.checkout("new", init=True)
    assert client.list_branches() == ["main", "new"]
    client.checkout("main", init=True)
    assert client.branch() == "main"


@mock
def test_secrets(client: MockClient) -> None:
    e = events()
    client.commit("m", [e, counts(e)], [Features])
    query = {"outputs": [Features.secret], "inputs": [Features.k], "input_dataframe": pd.DataFrame({"Features.k": [1]})}
    with refused(Exception, "word", "record_event", "Features"):
        client.query(**query)
    with refused(KeyError, "word"):
        client.get_secret("word")
    client.add_secret(name="word", value="open")
    assert client.get_secret(name="word") == "open"
    assert client.query(**query)["Features.secret"].tolist() == ["open"]
    client.init_branch("other")
    assert client.get_secret("word") == "open"
    client.checkout("main")
    client.update_secret(name="word", value="shut")
    assert client.query(**query)["Features.secret"].tolist() == ["shut"]
    client.delete_secret(name="word")
    for call in (
        lambda: client.get_secret("word"),
        lambda: client.update_secret("word", "x"),
        lambda: client.delete_secret("word"),
    ):
        with refused(KeyError, "word"):
            call()


@mock
def test_extras(client: MockClient) -> None:
    e = events()
    client.commit("m", [e, counts(e)], [Features])
    assert client.is_integration_client() is False
    assert client.integration_mode() == "mock"
    assert client.sleep() is None
    assert client.sleep(seconds=0.1) is None
    assert client.get_datasets() == [client.get_datasets()[0], client.get_datasets()[1]]
    assert client.get_datasets()[0] is e
    assert client.get_featuresets() == [Features]
    empty = client.get_dataset_df("Events")
    assert list(empty.columns) == ["k", "v", "t"]
    assert len(empty) == 0
    client.log("w", "e", ROWS)
    assert client.get_dataset_df("Events").columns.tolist() == ["k", "v", "t"]
    assert len(client.inspect("Events")) == 3
    assert len(client.inspect(e, n=2)) == 2
    assert client.inspect(dataset="Events", n=2).columns.tolist() == ["k", "v", "t"]
    assert almost_equal(1.0, 1.0 + 1e-7)
    assert not almost_equal(1.0, 1.0 + 1e-5)
    assert almost_equal(1, 1.01, epsilon=0.1)


def test_mock_hides_the_signature() -> None:
    @mock
    def one(client: MockClient, x: int = 1) -> int:
        assert isinstance(client, MockClient)
        return x

    assert one() == 1
    assert one(x=3) == 3
    assert "client" not in inspect.signature(one).parameters

    class Case:
        @mock
        def method(self, client: MockClient) -> str:
            return type(self).__name__

    assert Case().method() == "Case"

    @mock
    def test_data_integration(client: MockClient) -> None:
        raise AssertionError

    assert test_data_integration() is None


def test_older_methods() -> None:
    client = MockClient()
    e = events()
    with pytest.warns(DeprecationWarning, match="commit"):
        client.sync(datasets=[e, counts(e)], featuresets=[Features])
    client.log("w", "e", ROWS)
    with pytest.warns(DeprecationWarning, match="query"):
        df = client.extract_features(
            output_feature_list=[Features.n],
            input_feature_list=[Features.k],
            input_dataframe=pd.DataFrame({"Features.k": [1]}),
        )
    assert df["Features.n"].tolist() == [2]
    with pytest.warns(DeprecationWarning, match="query_offline"):
        df = client.extract_historical_features(
            output_feature_list=[Features.n],
            input_feature_list=[Features.k],
            timestamp_column="at",
            input_dataframe=pd.DataFrame({"Features.k": [1], "at": [T]}),
        )
    assert df["Features.n"].tolist() == [1]


@mock
def test_lookups_tell_since_when(client: MockClient) -> None:
    e = events()
    client.commit("m", [e, counts(e)])
    client.log("w", "e", ROWS)
    keys = pd.DataFrame({"k": [1, 1, 1, 9, 2]})
    at = pd.Series(["2024-01-01T12:00:00Z", "2024-01-03", "2023-01-01", "2024-01-03", "2024-01-03"])
    rows, found = client.lookup("Counts", keys, timestamps=at)
    assert found.tolist() == [True, True, False, False, True]
    assert rows["n"].tolist() == [1, 2, pd.NA, pd.NA, 1]
    begun = [
        pd.Timestamp("2024-01-01", tz="UTC"),
        pd.Timestamp("2024-01-02", tz="UTC"),
        pd.NaT,
        pd.NaT,
        pd.Timestamp("2024-01-01", tz="UTC"),
    ]
    assert rows["t"].tolist() == begun
    assert client.lookup("Counts", keys[:1])[0]["t"].tolist() == begun[1:2]
    assert client.lookup("Counts", keys[:1], fields=["t"])[0].tolist() == begun[1:2]
