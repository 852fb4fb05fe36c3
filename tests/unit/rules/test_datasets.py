"""Datasets as users define and read them (api §2)."""

from datetime import datetime, timezone
from typing import Optional

import pandas as pd

from tests.unit.rules.refusals import refused
from umbel.connectors import Webhook, source
from umbel.datasets import Dataset, dataset, field, index, pipeline
from umbel.dtypes import regex
from umbel.featuresets import extractor, feature, featureset
from umbel.lib import desc, inputs, meta, outputs
from umbel.testing import MockClient, mock

__owner__ = "team@example.com"
webhook = Webhook(name="w")
JAN1 = datetime(2024, 1, 1, tzinfo=timezone.utc)


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


def test_attributes() -> None:
    assert isinstance(User, Dataset)
    assert [each.name for each in User.fields] == ["uid", "name", "email", "updated_at", "created_at"]
    assert [str(each) for each in User.fields] == ["uid", "name", "email", "updated_at", "created_at"]
    assert [str(each) for each in User.key_fields] == ["uid"]
    assert User.timestamp_field == "updated_at"
    assert [str(each) for each in User.erase_key_fields] == ["uid"]
    assert str(User.uid) == "uid"
    assert User.__name__ == "User"
    assert User.num_pipelines() == 0
    assert callable(User.lookup)
    assert list(User.schema()) == ["uid", "name", "email", "updated_at", "created_at"]
    assert User.schema()["uid"] is int
    assert User.schema()["name"] is str


def test_descriptions() -> None:
    assert desc(User.uid) == "Who it is.\nIn two lines."
    assert desc(User.name) == ""
    assert desc(User.email) == "where mail goes"
    assert desc(User) == "All users"


def test_bare_dataset_takes_the_only_datetime() -> None:
    @dataset
    class Event:
        k: int
        at: datetime

    assert Event.timestamp_field == "at"
    assert [str(each) for each in Event.key_fields] == []


def test_index_combinations() -> None:
    def of(**options: object) -> str:
        @source(webhook.endpoint("I"), disorder="1d", cdc="upsert")
        @dataset(**options)
        class D:
            k: int = field(key=True)
            v: int
            t: datetime

        return works(D)

    assert of(index=True) == "online offline"
    assert of(index=True, offline=False) == "online"
    assert of(index=True, online=False) == "offline"
    assert of(index=True, online=False, offline=False) == ""
    assert of(online=True) == "online"
    assert of(offline=True) == "offline"
    assert of() == ""
    assert of(index=False) == ""


def works(D: Dataset) -> str:
    client = MockClient()
    client.commit("m", [D])
    client.log("w", "I", pd.DataFrame({"k": [1], "v": [2], "t": [JAN1]}))
    found = []
    keys = pd.DataFrame({"k": [1]})
    for name, options in {"online": {}, "offline": {"timestamps": pd.Series([JAN1])}}.items():
        try:
            rows, is_found = client.lookup("D", keys, **options)
        except ValueError as error:
            expected = (
                f"{name} index"
                if D._body.is_indexed and (D._record.online or D._record.offline)
                else "define an index on dataset D"
            )
            if expected not in str(error):
                raise
        else:
            assert is_found.tolist() == [True]
            assert rows["v"].tolist() == [2]
            found.append(name)
    return " ".join(found)


def test_index_decorator() -> None:
    def of(decorator: object) -> str:
        @decorator
        @source(webhook.endpoint("I"), disorder="1d", cdc="upsert")
        @dataset
        class D:
            k: int = field(key=True)
            v: int
            t: datetime

        return works(D)

    assert of(index) == "online offline"
    assert of(index()) == "online offline"
    assert of(index(type="primary", online=True, offline=None)) == "online"
    assert of(index(online=False, offline="forever")) == "offline"
    assert of(index("primary")) == "" if False else True


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
    with refused(Exception, "Orphan", "must have an owner", at=False):
        client.commit("m", datasets=[namespace["Orphan"]])
    with refused(Exception, "Lonely", "must have an owner", at=False):
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


@source(webhook.endpoint("E"), disorder="14d", cdc="upsert")
@dataset(index=True)
class Two:
    a: int = field(key=True, erase_key=True)
    b: int = field(key=True, erase_key=True)
    c: int = field(key=True)
    v: int
    t: datetime


@dataset(index=True)
class Down:
    a: int = field(key=True)
    b: int = field(key=True)
    v: int
    t: datetime

    @pipeline
    @inputs(Two)
    def p(cls, two: Dataset):
        return two.changelog(delete="gone").drop("c", "gone").groupby("a", "b").latest()


@mock
def test_erase(client: MockClient) -> None:
    client.commit("m", [User, Two, Down])
    rows = pd.DataFrame({"a": [1, 1, 2], "b": [1, 2, 1], "c": [1, 1, 1], "v": [1, 2, 3], "t": [JAN1] * 3})
    client.log("w", "E", rows)
    assert client.erase("Nothing", pd.DataFrame({"a": [1]})).status_code == 404
    assert client.erase(Two, pd.DataFrame({"a": [1], "b": [1]})).status_code == 200
    assert sorted(client.get_dataset_df("Two")["v"].tolist()) == [2, 3]
    found = client.lookup(Two, pd.DataFrame({"a": [1, 1], "b": [1, 2], "c": [1, 1]}))
    assert found[1].tolist() == [False, True]
    assert found[0]["v"].tolist() == [pd.NA, 2]
    assert len(client.get_dataset_df("Down")) == 3
    client.log("w", "E", rows)
    client.log("w", "E", pd.DataFrame({"a": [1], "b": [1], "c": [9], "v": [9], "t": [JAN1]}))
    assert client.lookup(Two, pd.DataFrame({"a": [1], "b": [1], "c": [9]}))[1].tolist() == [False]


@mock
def test_bad_erasures(client: MockClient) -> None:
    client.commit("m", [User, Two, Down])
    for frame, name in (({"a": [1]}, "b"), ({"a": [1], "b": [1], "c": [1]}, "c"), ({"a": [1], "b": [1], "z": [1]}, "z"),
                        ({"a": [1], "b": [1], "v": [1]}, "v")):  # fmt: skip
        with refused(ValueError, name, "Two"):
            client.erase(Two, pd.DataFrame(frame))
    with refused(TypeError, "5"):
        client.erase(5, pd.DataFrame({"a": [1]}))
    with refused(ValueError, "Down"):
        client.erase("Down", pd.DataFrame({"a": [1]}))


@featureset
class Features:
    uid: int = feature()
    name: str = feature()
    found: bool = feature()

    @extractor(deps=[User])
    @inputs("uid")
    @outputs("name", "found")
    def by_lookup(cls, ts: pd.Series, uid: pd.Series):
        rows, found = User.lookup(ts, uid=uid, fields=["name"])
        assert list(rows.columns) == ["name"]
        every, found2 = User.lookup(ts, uid=uid)
        assert list(every.columns) == ["uid", "name", "email", "updated_at", "created_at"]
        assert isinstance(found, pd.Series)
        assert list(every.index) == list(range(len(uid)))
        assert str(every["uid"].dtype) == "Int64"
        assert found.tolist() == found2.tolist()
        return pd.DataFrame({"name": rows["name"].fillna("?"), "found": found})


@mock
def test_lookup_in_extractors(client: MockClient) -> None:
    client.commit("m", [User], [Features])
    client.log("w", "User", pd.DataFrame({
        "uid": [1, 1], "name": ["a", "b"], "email": [None, "x@y"], "updated_at": [JAN1, datetime(2024, 1, 3)],
        "created_at": [JAN1, JAN1],
    }))  # fmt: skip
    df = client.query(
        outputs=[Features.name, Features.found],
        inputs=[Features.uid],
        input_dataframe=pd.DataFrame({"Features.uid": [2, 1]}),
    )
    assert df["Features.name"].tolist() == ["?", "b"]
    assert df["Features.found"].tolist() == [False, True]
    df = client.query_offline(
        outputs=[Features], inputs=["Features.uid"], timestamp_column="at",
        input_dataframe=pd.DataFrame({"Features.uid": [1, 1], "at": [datetime(2024, 1, 2), datetime(2023, 1, 1)]}),
    )  # fmt: skip
    assert df["Features.name"].tolist() == ["a", "?"]
    assert list(df.columns) == ["Features.uid", "Features.name", "Features.found", "at"]
