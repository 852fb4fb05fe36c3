"""§2.4 and §9.1 amended: `Dataset.lookup` anywhere while a mock client exists."""

from datetime import datetime, timedelta, timezone
from typing import List, Optional

import pandas as pd
import pytest

from tests.unit.refusals import refusal
from umbel.connectors import Webhook, source
from umbel.datasets import Average, Count, Dataset, Max, Min, Sum, dataset, field, index, pipeline
from umbel.dtypes import Continuous, Tumbling, Window, struct
from umbel.featuresets import extractor, featureset
from umbel.featuresets import feature as F
from umbel.lib import inputs, outputs
from umbel.testing import MockClient, log, mock

__owner__ = "team@example.com"
T = datetime(2024, 1, 1, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
W = Webhook(name="w")


@struct
class Place:
    lat: int
    lon: Optional[int]


@source(W.endpoint("Users"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Users:
    uid: int = field(key=True)
    name: str
    home: Optional[Place]
    t: datetime


@source(W.endpoint("Visits"), disorder="1d", cdc="append")
@dataset
class Visits:
    uid: int
    at: Place
    spent: float
    t: datetime


@index(online=True, offline=None)
@dataset
class Spent:
    uid: int = field(key=True)
    n: int
    total: float
    mean: float
    low: float
    high: Optional[float]
    t: datetime

    @pipeline
    @inputs(Visits)
    def p(cls, visits: Dataset):
        forever = Continuous("forever")
        return visits.groupby("uid").aggregate(
            n=Count(window=forever),
            total=Sum(of="spent", window=Continuous("1h")),
            mean=Average(of="spent", window=forever),
            low=Min(of="spent", default=-5.0, window=forever),
            high=Max(of="spent", window=forever),
        )


@dataset(index=True)
class ByPlace:
    at: Place = field(key=True)
    n: int
    t: datetime

    @pipeline
    @inputs(Visits)
    def p(cls, visits: Dataset):
        return visits.groupby("at").aggregate(n=Count(window=Continuous("forever")))


@dataset(online=True)
class Hourly:
    uid: int = field(key=True)
    window: Window = field(key=True)
    n: int
    t: datetime

    @pipeline
    @inputs(Visits)
    def p(cls, visits: Dataset):
        return visits.groupby("uid", window=Tumbling("1h")).aggregate(n=Count())


ALL = [Users, Visits, Spent, ByPlace, Hourly]


def users(*rows: tuple[int, str, datetime]) -> pd.DataFrame:
    return pd.DataFrame([{"uid": uid, "name": name, "home": None, "t": at} for uid, name, at in rows])


def visits(*rows: tuple[int, float, datetime]) -> pd.DataFrame:
    return pd.DataFrame(
        [{"uid": uid, "at": {"lat": uid, "lon": None}, "spent": spent, "t": at} for uid, spent, at in rows]
    )


def names(*at: datetime, uid: int = 1) -> list[object]:
    rows, _ = Users.lookup(pd.Series(at), uid=pd.Series([uid] * len(at)))
    return rows["name"].tolist()


@mock
def test_right_after_log(client) -> None:
    client.commit(message="m", datasets=ALL)
    client.log("w", "Users", users((1, "a", T), (2, "b", T)))
    rows, found = Users.lookup(pd.Series([T, T, T]), uid=pd.Series([2, 3, 1]))
    assert list(rows.columns) == ["uid", "name", "home", "t"]
    assert rows["name"].tolist() == ["b", pd.NA, "a"]
    assert found.tolist() == [True, False, True]
    client.log("w", "Users", users((1, "z", T + HOUR)))
    assert names(T - HOUR, T, T + HOUR, T + 2 * HOUR) == [pd.NA, "a", "z", "z"]
    log(Users, users((1, "late", T + HOUR / 2)))
    assert names(T, T + HOUR / 2, T + HOUR) == ["a", "late", "z"]


@mock
def test_past_instants_without_an_offline_index(client) -> None:
    client.commit(message="m", datasets=ALL)
    client.log("w", "Visits", visits((1, 10.0, T), (1, 20.0, T + HOUR / 2)))
    at = pd.Series([T - HOUR, T, T + HOUR / 2, T + HOUR, T + HOUR + timedelta(seconds=1), T + 9 * HOUR])
    rows, found = Spent.lookup(at, uid=pd.Series([1] * 6))
    assert found.tolist() == [False, True, True, True, True, True]
    assert rows["n"].tolist() == [pd.NA, 1, 2, 2, 2, 2]
    assert rows["total"].tolist() == [pd.NA, 10.0, 30.0, 30.0, 20.0, 0.0]
    assert rows["low"].tolist() == [-5.0, 10.0, 10.0, 10.0, 10.0, 10.0]


@mock
def test_nothing_logged_yet(client) -> None:
    client.commit(message="m", datasets=ALL)
    rows, found = Users.lookup(pd.Series([T, T]), uid=pd.Series([1, 2]))
    assert list(rows.columns) == ["uid", "name", "home", "t"]
    assert rows.isna().all(axis=None)
    assert found.tolist() == [False, False]
    rows, found = Spent.lookup(pd.Series([T]), uid=pd.Series([1]))
    assert list(rows.columns) == ["uid", "n", "total", "mean", "low", "high", "t"]
    assert rows[["uid", "n", "total", "high", "t"]].isna().all(axis=None)
    assert (rows["mean"].tolist(), rows["low"].tolist(), found.tolist()) == ([0.0], [-5.0], [False])
    rows, found = Users.lookup(pd.Series([], dtype="datetime64[ns, UTC]"), uid=pd.Series([], dtype=int))
    assert (list(rows.columns), len(rows), len(found)) == (["uid", "name", "home", "t"], 0, 0)


@mock
def test_fields_struct_keys_window_keys(client) -> None:
    client.commit(message="m", datasets=ALL)
    client.log("w", "Visits", visits((1, 10.0, T), (1, 20.0, T + HOUR / 2), (2, 1.0, T + HOUR)))
    rows, found = ByPlace.lookup(
        pd.Series([T + HOUR] * 3), at=pd.Series([Place(1, None), {"lat": 2, "lon": None}, Place(1, 7)]), fields=["n"]
    )
    assert (list(rows.columns), rows["n"].tolist(), found.tolist()) == (["n"], [2, 1, pd.NA], [True, True, False])
    spans = pd.Series([Window(begin=T, end=T + HOUR), Window(begin=T + HOUR, end=T + 2 * HOUR)])
    rows, found = Hourly.lookup(pd.Series([T + 3 * HOUR] * 2), uid=pd.Series([1, 1]), window=spans, fields=[Hourly.n])
    assert (rows["n"].tolist(), found.tolist()) == ([2, pd.NA], [True, False])
    client.log("w", "Users", pd.DataFrame({"uid": [1], "name": ["a"], "home": [Place(3, None)], "t": [T]}))
    rows, _ = Users.lookup(pd.Series([T]), uid=pd.Series([1]), fields=["home", "t"])
    assert rows["home"].tolist() == [Place(3, pd.NA)]
    assert rows["home"][0]["lat"] == 3
    assert rows["t"].tolist() == [pd.Timestamp(T)]


@mock
def test_another_commit_replaces(client) -> None:
    client.commit(message="m", datasets=[Users])
    client.log("w", "Users", users((1, "a", T)))
    assert names(T) == ["a"]
    client.commit(message="again", datasets=[Users])
    assert names(T) == [pd.NA]
    client.commit(message="other", datasets=[Visits])
    with refusal(ValueError, "'Users' is not committed", at=False):
        names(T)
    users_v2 = _another_users()
    client.commit(message="v2", datasets=[users_v2])
    client.log("w", "Users", pd.DataFrame({"id": [1], "name": ["new"], "t": [T]}))
    rows, _ = users_v2.lookup(pd.Series([T]), id=pd.Series([1]))
    assert rows["name"].tolist() == ["new"]
    with refusal(ValueError, "version 2", "'id'"):
        names(T)


def _another_users():
    @source(W.endpoint("Users"), disorder="1d", cdc="upsert")
    @dataset(index=True, version=2)
    class Users:
        id: int = field(key=True)
        name: str
        t: datetime

    return Users


@mock
def test_branches(client) -> None:
    client.commit(message="m", datasets=ALL)
    client.log("w", "Users", users((1, "main", T)))
    client.clone_branch("copy", "main")
    log(Users, users((1, "copy", T + HOUR)))
    assert names(T + HOUR) == ["copy"]
    client.checkout("main")
    assert names(T + HOUR) == ["main"]
    client.init_branch("empty")
    with refusal(ValueError, "'Users' is not committed", at=False):
        names(T)
    client.checkout("nowhere")
    with pytest.raises(KeyError, match="nowhere"):
        names(T)


@mock
def test_erased_rows_are_gone(client) -> None:
    @dataset(index=True)
    class Erasable:
        uid: int = field(key=True, erase_key=True)
        t: datetime

    client.commit(message="m", datasets=[Erasable])
    log(Erasable, pd.DataFrame({"uid": [1, 2], "t": [T, T]}))
    client.erase(Erasable, pd.DataFrame({"uid": [1]}))
    _, found = Erasable.lookup(pd.Series([T, T]), uid=pd.Series([1, 2]))
    assert found.tolist() == [False, True]


@mock
def test_the_online_index_is_needed(client) -> None:
    @dataset(offline=True)
    class Offline:
        uid: int = field(key=True)
        t: datetime

    @dataset
    class Neither:
        uid: int = field(key=True)
        t: datetime

    client.commit(message="m", datasets=[Offline, Neither])
    one = {"uid": pd.Series([1])}
    with refusal(ValueError, "online"):
        Offline.lookup(pd.Series([T]), **one)
    with refusal(ValueError, "define an index on dataset 'Neither'", at=False):
        Neither.lookup(pd.Series([T]), **one)
    with refusal(ValueError, "Users", "missing key 'uid'", at=False):
        Users.lookup(pd.Series([T]))
    with refusal(ValueError, "1 timestamps, but 2", at=False):
        Users.lookup(pd.Series([T]), uid=pd.Series([1, 2]))


@mock
def test_a_missing_instant_is_refused(client) -> None:
    """It was an assertion of ours that failed, with status 500 on a server."""
    client.commit(message="m", datasets=ALL)
    for ts in (pd.Series([T, None]), pd.Series([pd.NaT, pd.NaT])):
        with refusal(ValueError, "lookup on dataset 'Users'", "of 2 timestamps are missing", at=False):
            Users.lookup(ts, uid=pd.Series([1, 2]))


@featureset
class Named:
    uid: int = F()
    name: Optional[str]

    @extractor(deps=[Users])
    @inputs("uid")
    @outputs("name")
    def look(cls, ts, uid):
        rows, _ = Users.lookup(ts, uid=uid, fields=["name"])
        return rows["name"]


@featureset
class Undeclared:
    uid: int = F()
    n: Optional[int]

    @extractor(deps=[Users])
    @inputs("uid")
    @outputs("n")
    def look(cls, ts, uid):
        rows, _ = Spent.lookup(ts, uid=uid)
        return rows["n"]


@mock
def test_extractors_keep_their_rules(client) -> None:
    client.commit(message="m", datasets=ALL, featuresets=[Named, Undeclared])
    client.log("w", "Users", users((1, "a", T)))
    frame = pd.DataFrame({"Named.uid": [1, 2]})
    assert client.query(["Named.uid"], ["Named.name"], frame)["Named.name"].tolist() == ["a", pd.NA]
    with pytest.raises(Exception, match="not in its deps"):
        client.query(["Undeclared.uid"], ["Undeclared.n"], pd.DataFrame({"Undeclared.uid": [1]}))
    named = Named.look(Named, pd.Series([T]), pd.Series([1]))  # called directly: answered by the client
    assert named["Named.name"].tolist() == ["a"] if isinstance(named, pd.DataFrame) else named.tolist() == ["a"]


@mock
def test_pipelines_cannot_look_up(client) -> None:
    @dataset
    class Bad:
        uid: int
        at: Place
        spent: float
        t: datetime

        @pipeline
        @inputs(Visits)
        def p(cls, visits: Dataset):
            return visits.filter(lambda df: Users.lookup(df["t"], uid=df["uid"])[1])

    client.commit(message="m", datasets=[Users, Visits, Bad])
    with pytest.raises(Exception, match="cannot look up datasets"):
        client.log("w", "Visits", visits((1, 1.0, T)))
    assert names(T) == [pd.NA]


def test_many_rows_at_once() -> None:
    client = MockClient()
    client.commit(message="m", datasets=ALL)
    client.log("w", "Visits", visits(*((uid % 50, 1.0, T + uid * timedelta(minutes=1)) for uid in range(500))))
    requested: List[int] = list(range(60)) * 10
    rows, found = Spent.lookup(pd.Series([T + 20 * HOUR] * len(requested)), uid=pd.Series(requested))
    assert rows["n"].tolist() == [10 if uid < 50 else pd.NA for uid in requested]
    assert found.tolist() == [uid < 50 for uid in requested]
