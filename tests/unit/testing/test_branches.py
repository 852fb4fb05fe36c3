"""Branches of a mock client, and secrets."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Optional

import pandas as pd
import pytest

from tests.unit.refusals import refusal
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Dataset, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.expr import col
from umbel.featuresets import extractor, featureset
from umbel.featuresets import feature as F
from umbel.lib import inputs, outputs, secrets
from umbel.testing import MockClient, log, mock

__owner__ = "test@umbel.dev"

JAN = datetime(2024, 1, 1, tzinfo=UTC)
webhook = Webhook(name="hook")
ROWS = pd.DataFrame({"k": [1, 1, 2], "v": [1, 2, 3], "t": [JAN, datetime(2024, 1, 2), JAN]})


@source(webhook.endpoint("users"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Users:
    uid: int = field(key=True, erase_key=True)
    t: datetime


def rows(*uids):
    return pd.DataFrame({"uid": list(uids), "t": [JAN] * len(uids)})


def uids(client):
    return sorted(client.get_dataset_df("Users")["uid"].tolist())


@pytest.fixture
def client():
    client = MockClient()
    client.commit(message="users", datasets=[Users])
    return client


def test_a_new_branch_is_empty_and_checked_out(client):
    client.log("hook", "users", rows(1))
    client.init_branch("dev")
    assert client.branch() == "dev"
    assert client.list_branches() == ["main", "dev"]
    assert client.get_datasets() == []
    client.checkout("main")
    assert uids(client) == [1]


def test_a_clone_has_definitions_and_data_of_its_own(client):
    client.log("hook", "users", rows(1, 2))
    client.clone_branch("dev", "main")
    assert uids(client) == [1, 2]
    client.log_to("Users", rows(3))
    client.erase("Users", pd.DataFrame({"uid": [1]}))
    assert uids(client) == [2, 3]
    client.commit(message="nothing")
    client.checkout("main")
    assert uids(client) == [1, 2]
    client.log_to("Users", rows(4))
    assert uids(client) == [1, 2, 4]


def test_erased_keys_stay_erased_in_a_later_version(client):
    @source(webhook.endpoint("users"), disorder="1d", cdc="upsert")
    @dataset(index=True, version=2)
    class Users:
        uid: int = field(key=True, erase_key=True)
        t: datetime

    client.log("hook", "users", rows(1, 2))
    client.erase("Users", pd.DataFrame({"uid": [1]}))
    client.commit(message="raised", datasets=[Users], incremental=True)
    client.log("hook", "users", rows(1, 2, 3))
    assert uids(client) == [2, 3]


def test_a_client_may_begin_on_another_branch():
    client = MockClient(branch="dev")
    assert (client.branch(), client.list_branches()) == ("dev", ["main", "dev"])


def marks(df):
    return df["uid"].map(lambda _: secrets.get("key")).astype("string")


def test_secrets_in_pipelines_and_extractors(client):
    @dataset
    class Marked:
        uid: int
        mark: str
        t: datetime

        @pipeline
        @inputs(Users)
        def mark_all(cls, users):
            return users.changelog(delete="d").drop("d").assign("mark", str, marks)

    @featureset
    class User:
        uid: int
        mark: str

        @extractor
        @inputs("uid")
        @outputs("mark")
        def marked(cls, ts, uid):
            return uid.map(lambda _: secrets.get("key")).rename("mark")

    client.add_secret("key", "s3cret")
    client.commit(message="marked", datasets=[Marked], featuresets=[User], incremental=True)
    client.log("hook", "users", rows(1))
    assert client.get_dataset_df("Marked")["mark"].tolist() == ["s3cret"]
    found = client.query([User.uid], [User.mark], pd.DataFrame({"User.uid": [1]}))
    assert found["User.mark"].tolist() == ["s3cret"]


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


@mock
def test_log_reaches_all_branches(client: MockClient) -> None:
    e = events()
    client.commit("m", [e, counts(e)])
    client.init_branch("empty")
    client.clone_branch("copy", "main")
    assert client.branch() == "copy"
    client.log("hook", "e", ROWS)
    assert len(client.get_dataset_df("Events")) == 3
    client.checkout("main")
    assert len(client.get_dataset_df("Events")) == 3
    client.checkout("empty")
    with refusal(Exception, "Events"):
        client.get_dataset_df("Events")
    client.log("hook", "e", ROWS)
    client.checkout("main")
    assert len(client.get_dataset_df("Events")) == 6


@mock
def test_clones_diverge(client: MockClient) -> None:
    e = events()
    client.commit("m", [e, counts(e)], [Features])
    client.log("hook", "e", ROWS)
    client.clone_branch("b", from_branch="main")
    assert n_of(client) == [2, 1, pd.NA]
    log(e, pd.DataFrame({"k": [3], "v": [1], "t": [JAN]}))
    assert n_of(client) == [2, 1, 1]
    client.checkout("main")
    assert n_of(client) == [2, 1, pd.NA]
    client.checkout("b")
    client.commit("m", [e, counts(e, 2, bound=1)], [Features])
    client.checkout("main")
    client.log("hook", "e", ROWS)
    assert n_of(client) == [4, 2, pd.NA]
    client.checkout("b")
    assert n_of(client) == [1, 1, pd.NA]


@mock
def test_branches_begin_and_end(client: MockClient) -> None:
    assert client.branch() == "main"
    assert client.list_branches() == ["main"]
    client.init_branch("a/b-c_1.2")
    assert client.branch() == "a/b-c_1.2"
    with refusal(ValueError, "'a/b-c_1.2' exists already"):
        client.init_branch("a/b-c_1.2")
    with refusal(ValueError, "branch name", "sp ace"):
        client.init_branch("sp ace")
    for target, origin in (("main", "main"), ("x", "nowhere"), ("main", "a/b-c_1.2")):
        with refusal(Exception, origin if origin == "nowhere" else target):
            client.clone_branch(target, origin)
    assert sorted(client.list_branches()) == ["a/b-c_1.2", "main"]
    with refusal(Exception, "main"):
        client.delete_branch("main")
    with refusal(Exception, "nowhere", "main"):
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
        with refusal(KeyError, "nowhere", "main"):
            call()
    client.checkout("new", init=True)
    assert client.list_branches() == ["main", "new"]
    client.checkout("main", init=True)
    assert client.branch() == "main"
    client.checkout("new")
    client.commit("m", [events()])
    assert client.get_dataset_df("Events").empty


@mock
def test_secrets(client: MockClient) -> None:
    e = events()
    client.commit("m", [e, counts(e)], [Features])
    query = {"outputs": [Features.secret], "inputs": [Features.k], "input_dataframe": pd.DataFrame({"Features.k": [1]})}
    with refusal(Exception, "word", "record_event", "Features"):
        client.query(**query)
    with refusal(KeyError, "word"):
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
        with refusal(KeyError, "word"):
            call()
