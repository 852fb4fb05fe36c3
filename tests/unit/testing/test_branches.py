"""Branches of a mock client, and secrets."""

from __future__ import annotations

from datetime import UTC, datetime

import pandas as pd
import pytest

from umbel.connectors import Webhook, source
from umbel.datasets import dataset, field, pipeline
from umbel.featuresets import extractor, featureset
from umbel.lib import inputs, outputs, secrets
from umbel.testing import MockClient

__owner__ = "test@umbel.dev"

JAN = datetime(2024, 1, 1, tzinfo=UTC)
webhook = Webhook(name="hook")


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


def test_rows_reach_every_branch_that_has_the_endpoint(client):
    client.init_branch("empty")
    client.clone_branch("dev", "main")
    client.log("hook", "users", rows(1))
    assert uids(client) == [1]
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


def test_delete(client):
    client.init_branch("a")
    client.init_branch("b")
    client.delete_branch("a")
    assert client.branch() == "b"
    client.delete_branch("b")
    assert client.branch() == "main"
    assert client.list_branches() == ["main"]


def test_what_branches_refuse(client):
    client.init_branch("dev")
    with pytest.raises(ValueError, match="'dev' exists already"):
        client.init_branch("dev")
    with pytest.raises(Exception, match="'dev' exists already"):
        client.clone_branch("dev", "main")
    with pytest.raises(Exception, match="'main' exists already"):
        client.clone_branch("main", "main")
    with pytest.raises(Exception, match="'nowhere' does not exist"):
        client.clone_branch("new", "nowhere")
    with pytest.raises(Exception, match="'nowhere' does not exist"):
        client.delete_branch("nowhere")
    with pytest.raises(Exception, match="main"):
        client.delete_branch("main")
    with pytest.raises(ValueError, match="branch name"):
        client.init_branch("with space")


def test_checkout_never_fails_what_follows_may(client):
    client.checkout("nowhere")
    assert client.branch() == "nowhere"
    with pytest.raises(KeyError, match="'nowhere' does not exist; branches: main"):
        client.get_dataset_df("Users")
    client.checkout("fresh", init=True)
    client.commit(message="users", datasets=[Users])
    assert uids(client) == []
    client.checkout("main", init=True)
    assert client.list_branches() == ["main", "fresh"]


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


def test_secrets(client):
    client.add_secret("key", "one")
    assert client.get_secret("key") == "one"
    client.update_secret("key", "two")
    assert client.get_secret("key") == "two"
    client.delete_secret("key")
    with pytest.raises(KeyError, match="key"):
        client.get_secret("key")
    with pytest.raises(KeyError, match="other"):
        client.update_secret("other", "x")
