"""One client over two transports: the same calls on a server and in process have the same results and errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tests.contracts.transport_shop import (
    DAY,
    JAN,
    USERS,
    Alias,
    Computed,
    Constant,
    Platform,
    Spent,
    User,
    Users,
    begun,
    mocked,
    served_at,
)
from umbel.client import Client
from umbel.errors import InvalidValue, NotSupported, UmbelError, UnknownName
from umbel.featuresets import feature as F
from umbel.featuresets import featureset

__owner__ = "tests@example.com"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Platform, Platform]]:
    """Return a server and a mock client with the same definitions and rows; tests add nothing that others see."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UMBEL_EXTRACTOR_SECONDS", "120")
        for served in served_at(tmp_path_factory.mktemp("served")):
            yield begun(served), begun(mocked())


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[tuple[Platform, Platform]]:
    """Return a server and a mock client of the test's own."""
    for served in served_at(tmp_path):
        yield begun(served), begun(mocked())


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame(columns)


def users(*uids: Any, dtype: Any = "int64") -> pd.DataFrame:
    return pd.DataFrame({"User.uid": pd.Series(list(uids), dtype=dtype)})


def who(*uids: Any) -> pd.DataFrame:
    return pd.DataFrame({"Computed.who": list(uids)})


AT = pd.Series([JAN, JAN - DAY, JAN + DAY, JAN + 2 * DAY])
DATED = frame(**{"User.uid": [1, 1, 1, 3], "at": AT})
OFFLINE = [each for each in User.features if each.name != "live"]

READS: dict[str, Callable[[Client], Any]] = {
    "all features": lambda c: c.query([User.uid], [User], users(1, 2, 3)),
    "features as text": lambda c: c.query(["User.uid"], ["User.price", "User"], users(2)),
    "no rows": lambda c: c.query([User.uid], [User], users()),
    "a frame without columns": lambda c: c.query([User.uid], [User], pd.DataFrame()),
    "extractors": lambda c: c.query([Computed.who], [Computed], who(1, 2, 3)),
    "extractors without rows": lambda c: c.query([Computed.who], [Computed.twice, Computed.word], who()),
    "nulls of extractors": lambda c: c.query([Computed.who], [Computed.word], who(0, 1)),
    "an alias of an extractor": lambda c: c.query([Computed.who], [Alias.again, Computed.twice], who(1)),
    "an alias of an input": lambda c: c.query([Computed.who], [Alias.same], who(1)),
    "inputs in their dtype": lambda c: c.query([User.uid], [User.uid], users(1, 2, dtype="int32")),
    "inputs as text": lambda c: c.query([User.uid], [User.uid, User.name], users("1", "2", dtype="object")),
    "no inputs": lambda c: c.query([], [Constant.day], frame(other=[1, 2, 3])),
    "no inputs, offline": lambda c: c.query_offline([], [Constant.day], "at", DATED),
    "no inputs and no rows": lambda c: c.query([], [Constant.day], pd.DataFrame()),
    "a workflow": lambda c: c.query([User.uid], [User.name], users(1), workflow="fraud", sampling_rate=0.5),
    "offline": lambda c: c.query_offline([User.uid], OFFLINE, "at", DATED),
    "offline without rows": lambda c: c.query_offline([User.uid], OFFLINE, "at", DATED.head(0)),
    "offline without rows and columns": lambda c: c.query_offline([User.uid], OFFLINE, "at", pd.DataFrame()),
    "offline extractors": lambda c: c.query_offline(
        [Computed.who], [Computed], "when", frame(**{"Computed.who": [1, 1], "when": ["2024-01-01", "2023-01-01"]})
    ),
    "offline with other columns": lambda c: c.query_offline(
        [User.uid], [User.uid, User.name], "at", frame(id=[1, 2], at=[JAN, JAN]), feature_to_column_map={User.uid: "id"}
    ),
    "offline with two features of one column": lambda c: c.query_offline(
        [User.uid, Computed.who],
        [User.name, Computed.twice],
        "at",
        frame(id=[1, 2], at=[JAN, JAN]),
        feature_to_column_map={User.uid: "id", Computed.who: "id"},
    ),
    "offline with instants that are an input of another type": lambda c: c.query_offline(
        [Computed.who], [Computed.twice], "Computed.who", frame(**{"Computed.who": [1_704_067_200, 1_704_153_600]})
    ),
    "offline with instants named like an input": lambda c: c.query_offline(
        [User.uid],
        [User.name],
        "User.uid",
        frame(id=[1], **{"User.uid": [JAN]}),
        feature_to_column_map={User.uid: "id"},
    ),
    "options of NumPy": lambda c: c.query(
        [User.uid], [User.name], users(1), log=np.bool_(False), sampling_rate=np.float32(0.5)
    ),
    "lookup": lambda c: c.lookup(Users, frame(uid=[1, 2, 3])),
    "lookup by name": lambda c: c.lookup("Spent", frame(uid=["1", 2])),
    "lookup of one field": lambda c: c.lookup(Users, frame(uid=[1]), ["tags"]),
    "lookup of fields": lambda c: c.lookup(Users, frame(uid=[1]), [Users.price, "name"]),
    "lookup as of instants": lambda c: c.lookup(Users, frame(uid=[1, 1, 1, 2]), timestamps=AT),
    "lookup of no keys": lambda c: c.lookup(Users, frame(uid=[])),
    "rows of a dataset": lambda c: c.inspect("Orders").sort_values(["uid", "t"], ignore_index=True),
    "branches": lambda c: (c.branch(), c.list_branches()),
    "erasing in an unknown dataset": lambda c: c.erase("Nobody", frame(uid=[1])).status_code,
    "no rows logged": lambda c: c.log("shop", "users", USERS.head(0)).status_code,
}

REFUSALS: dict[str, Callable[[Client], Any]] = {
    "an unknown feature": lambda c: c.query([User.uid], ["User.nam"], users(1)),
    "an unknown featureset": lambda c: c.query([User.uid], ["Nobody"], users(1)),
    "an unknown input": lambda c: c.query(["User.id"], [User.name], users(1)),
    "a featureset as an input": lambda c: c.query([User], [User.name], users(1)),
    "features that are no list": lambda c: c.query("User.uid", [User.name], users(1)),
    "no extractor": lambda c: c.query([User.name], [User.orders], frame(**{"User.name": ["x"]})),
    "a missing column": lambda c: c.query([User.uid], [User.name], frame(uid=[1])),
    "a value of another type": lambda c: c.query([User.uid], [User.name], users("x", dtype="object")),
    "rows that are no frame": lambda c: c.query([User.uid], [User.name], [1]),
    "rows of Polars": lambda c: c.query([User.uid], [User.name], pl.DataFrame({"User.uid": [1]})),
    "a rate that is no number": lambda c: c.query([User.uid], [User.name], users(1), sampling_rate="many"),
    "a workflow that is no text": lambda c: c.query([User.uid], [User.name], users(1), workflow=5),
    "a failing extractor": lambda c: c.query([Computed.who], [Computed.word], who(-1)),
    "a rate that is no share": lambda c: c.query([User.uid], [User.name], users(1), sampling_rate=2.0),
    "a workflow that is no name": lambda c: c.query([User.uid], [User.name], users(1), workflow=""),
    "a workflow that is no name, offline": lambda c: c.query_offline([User.uid], [User.name], "at", DATED, workflow=""),
    "no offline index": lambda c: c.query_offline([User.uid], [User.live], "at", DATED),
    "no instants": lambda c: c.query_offline([User.uid], [User.name], "when", DATED),
    "instants that are none": lambda c: c.query_offline(
        [User.uid], [User.name], "at", frame(**{"User.uid": [1], "at": ["soon"]})
    ),
    "instants named like an output": lambda c: c.query_offline(
        [User.uid], [User.name], "User.name", frame(**{"User.uid": [1], "User.name": [JAN]})
    ),
    "a column of an input that is not there": lambda c: c.query_offline(
        [User.uid], [User.name], "at", DATED, feature_to_column_map={User.uid: "id"}
    ),
    "a column of what is no input": lambda c: c.query_offline(
        [User.uid], [User.name], "at", DATED, feature_to_column_map={User.name: "at"}
    ),
    "neither a frame nor files": lambda c: c.query_offline([User.uid], [User.name], "at"),
    "a frame and files": lambda c: c.query_offline([User.uid], [User.name], "at", DATED, input_s3="x"),
    "offline rows that are no frame": lambda c: c.query_offline([User.uid], [User.name], "at", {"User.uid": [1]}),
    "lookup in an unknown dataset": lambda c: c.lookup("Nobody", frame(uid=[1])),
    "lookup without an index": lambda c: c.lookup("Orders", frame(uid=[1])),
    "lookup without an offline index": lambda c: c.lookup("OnlyOnline", frame(uid=[1]), timestamps=pd.Series([JAN])),
    "lookup of an unknown field": lambda c: c.lookup(Users, frame(uid=[1]), ["nme"]),
    "lookup of fields that are no list": lambda c: c.lookup(Users, frame(uid=[1]), "name"),
    "lookup by a missing key": lambda c: c.lookup(Users, frame(id=[1])),
    "lookup by a key of another type": lambda c: c.lookup(Users, frame(uid=["x"])),
    "lookup by a null": lambda c: c.lookup(Users, frame(uid=[None])),
    "lookup by no columns": lambda c: c.lookup(Users, pd.DataFrame()),
    "lookup by keys of Polars": lambda c: c.lookup(Users, pl.DataFrame({"uid": [1]})),
    "lookup by keys that are no frame": lambda c: c.lookup(Users, [1]),
    "lookup of other instants than keys": lambda c: c.lookup(Users, frame(uid=[1]), timestamps=AT),
    "lookup of no dataset": lambda c: c.lookup(3, frame(uid=[1])),
    "rows of an unknown dataset": lambda c: c.inspect("Nobody"),
    "erasing by another key": lambda c: c.erase(Users, frame(id=[1])),
    "erasing where no key is marked": lambda c: c.erase(Spent, frame(uid=[1])),
    "erasing in no dataset": lambda c: c.erase(3, frame(uid=[1])),
    "an unknown endpoint": lambda c: c.log("shop", "nowhere", USERS),
    "no rows for an unknown endpoint": lambda c: c.log("shop", "nowhere", USERS.head(0)),
    "rows to log that are no frame": lambda c: c.log("shop", "users", [{"uid": 1}]),
    "batches of nothing": lambda c: c.log("shop", "users", USERS, batch_size=0),
    "a branch that exists": lambda c: c.init_branch("main"),
    "a branch that cannot be named": lambda c: c.init_branch("with space"),
    "a clone of an unknown branch": lambda c: c.clone_branch("new", "nowhere"),
    "deleting main": lambda c: c.delete_branch("main"),
    "deleting an unknown branch": lambda c: c.delete_branch("nowhere"),
    "a secret that exists": lambda c: c.add_secret("word", "x"),
    "a secret whose name has a slash": lambda c: c.add_secret("a/b", "x"),
    "a secret whose name is no text": lambda c: c.add_secret(5, "x"),
    "a secret that is no text": lambda c: c.add_secret("other", 3),
    "updating an unknown secret": lambda c: c.update_secret("nothing", "x"),
    "deleting an unknown secret": lambda c: c.delete_secret("nothing"),
    "a commit of the same name twice": lambda c: c.commit(message="m", datasets=[Users, Users]),
    "a commit without an input": lambda c: c.commit(message="m", datasets=[Spent]),
    "a commit of no dataset": lambda c: c.commit(message="m", datasets=[User]),
}


WORDED = {
    "lookup by a missing key", "lookup by no columns", "lookup by a key of another type", "lookup by a null",
    "a failing extractor", "an unknown endpoint", "no rows for an unknown endpoint", "rows of an unknown dataset",
}  # fmt: skip
"""Refusals of the same class in other words: a server names the JSON, or the row."""


PREFIX, PLACE = re.compile(r"^the server answered \d+: "), re.compile(r" \(at .*\)$")


def same(found: Any, expected: Any) -> None:
    """Compare results: frames with their dtypes and order, others by value."""
    assert type(found) is type(expected)
    if isinstance(found, pd.DataFrame):
        pd.testing.assert_frame_equal(found, expected)
    elif isinstance(found, pd.Series):
        pd.testing.assert_series_equal(found, expected)
    elif isinstance(found, tuple):
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    else:
        assert found == expected


@pytest.mark.parametrize("name", READS)
def test_results(both: tuple[Platform, Platform], name: str) -> None:
    served, local = both
    same(READS[name](served.client), READS[name](local.client))


@pytest.mark.parametrize("name", REFUSALS)
def test_errors(both: tuple[Platform, Platform], name: str) -> None:
    """An error is of one kind, except that programs expect a `ValueError` of an endpoint that a mock client does not know."""
    served, local = (refused(REFUSALS[name], platform.client) for platform in both)
    kinds = {"an unknown endpoint": InvalidValue, "no rows for an unknown endpoint": InvalidValue}
    assert type(local) is kinds.get(name, type(served)), (str(served), str(local))
    message = PLACE.sub("", PREFIX.sub("", served.message))
    assert (message == local.message) is (name not in WORDED), (message, local.message)


@pytest.mark.parametrize("name", ["with space", "", "ä", "a?b", 5, None, ("a",), "nowhere", "a/b"], ids=repr)
def test_every_operation_refuses_such_a_branch(both: tuple[Platform, Platform], name: Any) -> None:
    operations = {
        **{key: READS[key] for key in ("all features", "offline", "lookup", "rows of a dataset")},
        "erase": lambda c: c.erase(Users, frame(uid=[1])),
        "erase in an unknown dataset": lambda c: c.erase("Nobody", frame(uid=[1])),
        "commit": lambda c: c.commit(message="m", datasets=[Users]),
        "incremental commit": lambda c: c.add(Users),
        "clone": lambda c: c.clone_branch("new", name),
        "delete": lambda c: c.delete_branch(name),
    }
    for key, call in operations.items():
        found = []
        for platform in both:
            platform.client.checkout(name)
            try:
                found.append(refused(call, platform.client))
            finally:
                platform.client.checkout("main")
        served, local = found
        kind = UnknownName if name in ("nowhere", "a/b") else InvalidValue
        assert type(local) is type(served) is kind, (key, str(served), str(local))


def refused(call: Callable[[Client], Any], client: Client) -> UmbelError:
    with pytest.raises(UmbelError) as caught:
        call(client)
    return caught.value


def extended() -> Any:
    @featureset
    class More:
        uid: int
        name: Optional[str] = F(Users.name)

    return More


def more(client: Client) -> Any:
    return client.query(["More.uid"], ["More.name"], frame(**{"More.uid": [1, 2]}))


LATE = USERS.tail(1).assign(name="late", t=JAN - DAY)
NEWER = USERS.tail(1).assign(name="new", t=JAN + 2 * DAY)
NAMES = READS["lookup as of instants"]


def erased(platform: Platform) -> Iterator[Any]:
    client = platform.client
    yield client.erase(Users, frame(uid=[1])).status_code
    yield client.lookup(Users, frame(uid=[1, 2]))
    client.log("shop", "users", NEWER)
    platform.settle()
    yield client.lookup(Users, frame(uid=[1, 2]))


def cloned(platform: Platform) -> Iterator[Any]:
    client = platform.client
    client.clone_branch("dev", from_branch="main")
    yield client.branch(), client.list_branches()
    yield NAMES(client)
    client.commit(message="more", featuresets=[extended()], incremental=True)
    platform.settle()
    yield more(client)
    client.checkout("main")
    yield type(refused(more, client))
    client.checkout("dev")
    client.delete_branch("dev")
    yield client.branch(), client.list_branches()


def emptied(platform: Platform) -> Iterator[Any]:
    client = platform.client
    client.init_branch("new")
    yield type(refused(lambda c: c.lookup(Users, frame(uid=[1])), client))
    client.checkout("main")
    client.commit(message="none")
    yield type(refused(lambda c: c.lookup(Users, frame(uid=[1])), client))


def late(platform: Platform) -> Iterator[Any]:
    client = platform.client
    client.log("shop", "users", pd.concat([NEWER, LATE]), batch_size=1)
    platform.settle()
    yield client.lookup(Users, frame(uid=[1]))
    yield client.lookup(Users, frame(uid=[1, 1]), timestamps=pd.Series([JAN - DAY, JAN + DAY]))


def nowhere(platform: Platform) -> Iterator[Any]:
    client = platform.client
    client.checkout("nowhere")
    yield client.branch()
    for name in ("all features", "offline", "lookup", "rows of a dataset", "erasing in an unknown dataset"):
        yield name, type(refused(READS[name], client))
    yield type(refused(lambda c: c.commit(message="m", datasets=[Users]), client))
    yield type(refused(lambda c: c.add(extended()), client))
    client.checkout("nowhere", init=True)
    yield client.list_branches()


def secret(platform: Platform) -> Iterator[Any]:
    client = platform.client
    yield client.update_secret("word", "bye").ok
    yield client.query([Computed.who], [Computed.word], who(1))
    yield client.delete_secret("word").ok
    yield type(refused(lambda c: c.query([Computed.who], [Computed.word], who(1)), client))


def added(platform: Platform) -> Iterator[Any]:
    client = platform.client
    yield client.add(extended()).ok
    platform.settle()
    yield more(client)
    yield NAMES(client)


@pytest.mark.parametrize(
    "calls", [erased, cloned, emptied, late, nowhere, secret, added], ids=lambda each: each.__name__
)
def test_sequences(fresh: tuple[Platform, Platform], calls: Callable[[Platform], Iterator[Any]]) -> None:
    for found, expected in zip(*map(calls, fresh), strict=True):
        same(found, expected)


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.lineage(),
        lambda c: c.xray(),
        lambda c: c.branch_status(),
        lambda c: c.feature_log(),
        lambda c: c.corrections([User.uid]),
        lambda c: c.query([User.uid], [User.name], users(1), log=True),
    ],
)
def test_what_only_a_server_answers(both: tuple[Platform, Platform], call: Callable[[Client], Any]) -> None:
    served, local = both
    call(served.client)
    with pytest.raises(NotSupported, match="needs a server"):
        call(local.client)


def test_what_only_a_mock_client_answers(both: tuple[Platform, Platform]) -> None:
    served, local = both
    assert local.client.get_secret("word") == "hello"
    with pytest.raises(NotSupported, match="write-only over HTTP"):
        served.client.get_secret("word")
    assert local.client.track_offline_query("7").status_code == 404
    with pytest.raises(UnknownName):
        served.client.track_offline_query("7")


def test_options_without_effect_are_warned_about(both: tuple[Platform, Platform]) -> None:
    for platform in both:
        with pytest.warns(UserWarning, match="use_v2 and num_dpus have no effect"):
            platform.client.query_offline([User.uid], [User.name], "at", DATED, num_dpus=3)
