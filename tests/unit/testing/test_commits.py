"""Commits to the mock client: checks, versions, retained and removed data (api §2.7, §9)."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Optional

import pandas as pd
import pytest

from tests.unit.refusals import refusal
from tests.unit.testing import shop
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Dataset, dataset, field, pipeline
from umbel.dtypes import Continuous, regex
from umbel.expr import col
from umbel.featuresets import extractor, feature, featureset
from umbel.featuresets import feature as F
from umbel.lib import inputs, meta, outputs, secrets
from umbel.testing import MockClient, log, mock

__owner__ = "team@example.com"

webhook = Webhook(name="w")


@meta(description="All users", tags=["pii"])
@source(webhook.endpoint("User"), disorder="14d", cdc="upsert")
@dataset(version=2, history="1y", index=True)
class User:
    # Who it is.
    # In two lines.
    uid: int = field(key=True, erase_key=True).meta(tags=["id"])
    name: str  # not this
    # overridden
    email: Optional[regex(".*@.*")] = field().meta(description="where mail goes")

    updated_at: datetime = field(timestamp=True)
    created_at: datetime


@mock
def test_owners(client: MockClient) -> None:
    namespace: dict = {"__name__": "elsewhere"}
    text = """
from datetime import datetime
from umbel.datasets import dataset
from umbel.featuresets import featureset, feature as F
@dataset
class Orphan:
    t: datetime
@featureset
class Lonely:
    x: int = F()
"""
    exec(compile(text, "elsewhere.py", "exec"), namespace)
    with refusal(Exception, "Orphan", "must have an owner", at=False):
        client.commit("m", datasets=[namespace["Orphan"]])
    with refusal(Exception, "Lonely", "must have an owner", at=False):
        client.commit("m", featuresets=[namespace["Lonely"]])
    client.commit("m", datasets=[meta(owner="a@b.co")(namespace["Orphan"])])

    @dataset
    class Mine:
        t: datetime

    assert client.commit("m", datasets=[Mine]).status_code == 200


@mock
def test_deleted_objects_are_left_out(client: MockClient) -> None:
    @meta(deleted=True)
    @dataset
    class Gone:
        t: datetime

    @meta(deleted=True)
    @featureset
    class GoneToo:
        x: int = feature()

    client.commit("m", [Gone, User], [GoneToo])
    assert [each.__name__ for each in client.get_datasets()] == ["User"]
    assert client.get_featuresets() == []


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
    with refusal(ValueError, "Events", "version"):
        client.commit("m", [events(extra=True)], incremental=True)
    with refusal(ValueError, "Counts", "version"):
        client.commit("m", [counts(e, bound=1)], incremental=True)
    client.commit("m", [events(3, extra=True), counts(events(3, extra=True), 2)], incremental=True)
    assert client.get_dataset_df("Events").empty
    with refusal(ValueError, "Events", "version"):
        client.commit("m", [events(2, extra=True)], incremental=True)
    assert client.commit("m", [events(1)]).status_code == 200


@mock
def test_features_cannot_go(client: MockClient) -> None:
    def of(**annotations: type) -> object:
        body = {"__annotations__": annotations, "__module__": __name__} | {name: F() for name in annotations}
        return featureset(type("Set", (), body))

    client.commit("m", featuresets=[of(a=int, b=int)])
    client.commit("m", featuresets=[of(a=int, b=int, c=int)], incremental=True)
    with refusal(Exception, "Set", "superset", "c"):
        client.commit("m", featuresets=[of(a=int, b=int)], incremental=True)


@mock
def test_members(client: MockClient) -> None:
    with refusal(TypeError, "Features"):
        client.commit("m", datasets=[Features])
    with refusal(TypeError, "Events"):
        client.commit("m", featuresets=[events()])
    with refusal(TypeError, "int"):
        client.commit("m", datasets=[int])
    with refusal(ValueError, "Events"):
        client.commit("m", datasets=[events(), events()])
    with refusal(ValueError, "Features"):
        client.commit("m", datasets=[events(), counts(events())], featuresets=[Features, Features])
    with refusal(ValueError, "Counts"):
        client.commit("m", featuresets=[Features])
    with pytest.raises(TypeError):
        client.commit(datasets=[events()])
    for message in (b"m", {"m"}, None, 3):
        with refusal(TypeError, "message of a commit", repr(message)):
            client.commit(message, datasets=[events()])


@mock
def test_wrong_arguments(client: MockClient) -> None:
    client.commit("m", [events()])
    with refusal(TypeError, "log", "DataFrame", "list"):
        client.log("w", "e", [{"k": 1}])
    with refusal(TypeError, "log", "DataFrame", "list"):
        log("Events", [{"k": 1}])
    with refusal(ValueError, "DataFrame", "list"):
        client.erase("Events", [1])
    with refusal(TypeError, "word", "int"):
        client.add_secret("word", 5)
    with refusal(ValueError, "a b"):
        client.commit("m", [events()], env="a b")


@pytest.fixture
def client():
    return shop.committed()


def test_a_commit_starts_empty_an_incremental_one_keeps(client):
    client.log("hook", "users", shop.ROWS)
    client.log("hook", "visits", shop.VISITS)
    client.commit(message="again", datasets=shop.DATASETS, featuresets=[shop.User])
    assert shop.users(client, 1)["User.name"].tolist() == ["?"]

    client.log("hook", "users", shop.ROWS)

    @featureset
    class More:
        uid: int
        name: Optional[str] = F(shop.Users.name)

    client.commit(message="more", featuresets=[More], incremental=True)
    frame = pd.DataFrame({"More.uid": [1]})
    assert client.query([More.uid], [More.name], frame)["More.name"].tolist() == ["anna"]
    assert shop.users(client, 1)["User.name"].tolist() == ["anna"]
    assert {each.__name__ for each in client.get_datasets()} == {"Users", "Visits", "Visited"}
    assert [each.__name__ for each in client.get_featuresets()] == ["User", "More"]


def test_a_pipeline_committed_later_sees_what_was_logged_before(client):
    client.log("hook", "visits", shop.VISITS)

    @dataset(index=True)
    class Doubled:
        uid: int = field(key=True)
        n: int
        t: datetime

        @pipeline
        @inputs(shop.Visits)
        def double(cls, visits):
            return visits.assign(n=(col("n") * 2).astype(int)).groupby("uid").latest()

    client.commit(message="doubled", datasets=[Doubled], incremental=True)
    rows, _ = client.lookup("Doubled", pd.DataFrame({"uid": [1, 2]}))
    assert rows["n"].tolist() == [4, 10]


def test_what_commits_refuse(client):
    with pytest.raises(TypeError):
        client.commit(message="x", datasets=[shop.User])
    with pytest.raises(ValueError, match="Users"):
        client.commit(message="x", datasets=[shop.Users, shop.Users])
    with pytest.raises(ValueError, match="Visits"):
        client.commit(message="x", datasets=[shop.Visited])
    assert shop.users(client, 1)["User.name"].tolist() == ["?"], "a refused commit changes nothing"
