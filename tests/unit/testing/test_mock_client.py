"""The mock client: commit, log, query, lookup, as a server would, at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Optional

import pandas as pd
import pytest

from umbel.connectors import Webhook, eval, source  # noqa: A004
from umbel.datasets import Count, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.errors import NotSupported
from umbel.expr import col
from umbel.featuresets import extractor, featureset
from umbel.featuresets import feature as F
from umbel.lib import inputs, outputs
from umbel.testing import MockClient

__owner__ = "test@umbel.dev"

JAN = datetime(2024, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
webhook = Webhook(name="hook")


@source(webhook.endpoint("users"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Users:
    uid: int = field(key=True, erase_key=True)
    name: str
    age: Optional[int]
    t: datetime


@source(webhook.endpoint("visits"), disorder="1d", cdc="append")
@dataset
class Visits:
    uid: int
    n: int
    t: datetime


@dataset(index=True)
class Visited:
    uid: int = field(key=True)
    total: int
    recent: int
    t: datetime

    @pipeline
    @inputs(Visits)
    def count(cls, visits):
        return visits.groupby("uid").aggregate(
            total=Sum(of="n", window=Continuous("forever")), recent=Count(window=Continuous("1d"))
        )


@featureset
class User:
    uid: int
    name: str = F(Users.name, default="?")
    age: Optional[int] = F(Users.age)
    total: int = F(Visited.total, default=0)
    shout: str

    @extractor(deps=[Users])
    @inputs("uid")
    @outputs("shout")
    def shouted(cls, ts, uid):
        rows, _ = Users.lookup(ts, uid=uid, fields=["name"])
        return rows["name"].fillna("nobody").str.upper().rename("shout")


DATASETS = [Users, Visits, Visited]
ROWS = pd.DataFrame(
    {"uid": [1, 1, 2], "name": ["ann", "anna", "bob"], "age": [30, 31, None], "t": [JAN, JAN + DAY, JAN]}
)
VISITS = pd.DataFrame({"uid": [1, 1, 2], "n": [1, 2, 5], "t": [JAN, JAN + HOUR, JAN]})


@pytest.fixture
def client():
    client = MockClient()
    response = client.commit(message="all", datasets=DATASETS, featuresets=[User])
    assert (response.status_code, response.ok) == (200, True)
    return client


def users(client, *uids, **options):
    frame = pd.DataFrame({"User.uid": list(uids)})
    return client.query(inputs=[User.uid], outputs=[User], input_dataframe=frame, **options)


def test_log_and_query(client):
    assert client.log("hook", "users", ROWS).status_code == 200
    client.log("hook", "visits", VISITS)
    found = users(client, 1, 2, 3)
    assert list(found.columns) == ["User.uid", "User.name", "User.age", "User.total", "User.shout"]
    assert found["User.name"].tolist() == ["anna", "bob", "?"]
    assert found["User.age"].tolist() == [31, pd.NA, pd.NA]
    assert found["User.total"].tolist() == [3, 5, 0]
    assert found["User.shout"].tolist() == ["ANNA", "BOB", "NOBODY"]
    assert [str(each) for each in found.dtypes] == ["Int64", "string", "Int64", "Int64", "string"]


def test_names_may_be_given_as_text(client):
    client.log("hook", "users", ROWS)
    frame = pd.DataFrame({"User.uid": [2]})
    assert client.query(["User.uid"], ["User.name"], frame)["User.name"].tolist() == ["bob"]
    assert list(client.query(["User.uid"], ["User"], frame).columns) == [each.fqn() for each in User.features]


def test_rows_of_the_future_are_invisible(client):
    client.log("hook", "users", ROWS.assign(t=datetime.now(UTC) + DAY))
    assert users(client, 1)["User.name"].tolist() == ["?"]


def test_query_offline(client):
    client.log("hook", "users", ROWS)
    frame = pd.DataFrame(
        {"User.uid": [1, 1, 1], "at": [JAN - DAY, "2024-01-01T00:00:00Z", (JAN + 2 * DAY).timestamp()]}
    )
    found = client.query_offline(
        inputs=[User.uid], outputs=[User.name, User.shout], timestamp_column="at", input_dataframe=frame
    )
    assert list(found.columns) == ["User.name", "User.shout", "at"]
    assert found["User.name"].tolist() == ["?", "ann", "anna"]
    assert found["User.shout"].tolist() == ["NOBODY", "ANN", "ANNA"]
    assert str(found["at"].dtype) == "datetime64[ns, UTC]"


def test_query_offline_with_columns_of_other_names(client):
    client.log("hook", "users", ROWS)
    frame = pd.DataFrame({"who": [2], "at": [JAN]})
    found = client.query_offline(
        [User.uid], [User.name], "at", input_dataframe=frame, feature_to_column_map={User.uid: "who"}
    )
    assert found["User.name"].tolist() == ["bob"]


def test_what_queries_refuse(client):
    frame = pd.DataFrame({"User.uid": [1]})
    with pytest.raises(NotSupported):
        users(client, 1, log=True)
    with pytest.raises(NotImplementedError):
        users(client, 1, log=True)
    with pytest.raises(Exception, match=r"misses columns \['User.uid'\]; required: \['User.uid'\], present: \['uid'\]"):
        client.query([User.uid], [User.name], pd.DataFrame({"uid": [1]}))
    with pytest.raises(Exception, match=r"input column 'User.uid': feature User.uid: cannot cast to int"):
        client.query([User.uid], [User.name], pd.DataFrame({"User.uid": ["x"]}))
    with pytest.raises(Exception, match=r"'User' is a featureset.*User\.uid, User\.name"):
        client.query([User], [User.name], frame)
    with pytest.raises(Exception, match="has no feature 'nam'; did you mean 'name'"):
        client.query([User.uid], ["User.nam"], frame)
    with pytest.raises(ValueError, match=r"No extractor found for feature User\.uid"):
        client.query([User.name], [User.total], pd.DataFrame({"User.name": ["x"]}))
    with pytest.raises(Exception, match="timestamp column 'at' is not in"):
        client.query_offline([User.uid], [User.name], "at", input_dataframe=frame)
    with pytest.raises(ValueError, match="input_dataframe"):
        client.query_offline([User.uid], [User.name], "at")


def test_inputs_are_cast_by_name(client):
    client.log("hook", "users", ROWS)
    frame = pd.DataFrame({"User.name": ["zoe"], "User.uid": ["2"]})
    found = client.query([User.uid, User.name], [User.uid, User.name, User.age], frame)
    assert found.iloc[0].tolist() == [2, "zoe", pd.NA]


def test_an_empty_input_gives_an_empty_frame(client):
    assert client.query([User.uid], [User], pd.DataFrame()).empty
    assert client.query([User.uid], [User], pd.DataFrame({"User.uid": []})).empty
    assert client.query_offline([User.uid], [User.name], "at", input_dataframe=pd.DataFrame()).empty


def test_lookup(client):
    client.log("hook", "users", ROWS)
    rows, found = client.lookup("Users", pd.DataFrame({"uid": [1, 9]}))
    assert list(rows.columns) == ["uid", "name", "age", "t"]
    assert rows["name"].tolist() == ["anna", pd.NA]
    assert rows["uid"].tolist() == [1, 9]
    assert found.tolist() == [True, False]
    names, found = client.lookup(Users, pd.DataFrame({"uid": [1, 1]}), ["name"], pd.Series([JAN, JAN - DAY]))
    assert (names.name, names.tolist(), found.tolist()) == ("name", ["ann", pd.NA], [True, False])
    pair, _ = client.lookup(Users, pd.DataFrame({"uid": [1]}), [Users.age, Users.name])
    assert list(pair.columns) == ["age", "name"]


def test_what_lookups_refuse(client):
    keys = pd.DataFrame({"uid": [1]})
    with pytest.raises(KeyError, match="Nobody"):
        client.lookup("Nobody", keys)
    with pytest.raises(ValueError, match="no field 'nme'"):
        client.lookup("Users", keys, ["nme"])
    with pytest.raises(ValueError, match="keys must be a pandas DataFrame"):
        client.lookup("Users", [1])
    with pytest.raises(ValueError, match=r"missing key columns \['uid'\]"):
        client.lookup("Users", pd.DataFrame({"id": [1]}))
    with pytest.raises(ValueError, match="1 keys, but 2 timestamps"):
        client.lookup("Users", keys, timestamps=pd.Series([JAN, JAN]))
    with pytest.raises(ValueError, match="no index"):
        client.lookup("Visits", pd.DataFrame())


def test_tables(client):
    assert list(client.get_dataset_df("Users").columns) == ["uid", "name", "age", "t"]
    assert client.get_dataset_df("Users").empty
    assert client.get_dataset_df("Visited").empty
    client.log("hook", "users", ROWS)
    client.log("hook", "users", ROWS.assign(name="late", t=JAN - DAY).head(1))
    assert client.get_dataset_df("Users")["name"].tolist() == ["late", "ann", "bob", "anna"]
    client.log("hook", "visits", VISITS.head(2))
    table = client.get_dataset_df(Visited)
    second = timedelta(seconds=1)
    assert [tuple(row) for row in table.itertuples(index=False)] == [
        (1, 1, 1, JAN),
        (1, 3, 2, JAN + HOUR),
        (1, 3, 1, JAN + DAY + second),
        (1, 3, 0, JAN + DAY + HOUR + second),
    ]
    assert len(client.inspect("Users", n=3)) == 3


def test_equal_rows_of_a_keyless_dataset_count(client):
    twice = pd.concat([VISITS, VISITS])
    client.log("hook", "visits", twice)
    assert len(client.get_dataset_df("Visits")) == 6
    assert users(client, 1)["User.total"].tolist() == [6]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": None}, "column 'name' of type str: null"),
        ({"age": "old"}, r"column 'age' of type Optional\[int\]: expected int, got 'old'"),
        ({"t": "whenever"}, "column 't' of type datetime"),
    ],
)
def test_rows_that_do_not_fit_are_refused_with_all_others(client, change, message):
    with pytest.raises(Exception, match=f"Schema validation failed during data insertion to Users: .*{message}"):
        client.log("hook", "users", pd.concat([ROWS, ROWS.head(1).assign(**change)]))
    with pytest.raises(ValueError, match="column 'name' of type str: the column is missing"):
        client.log("hook", "users", ROWS.drop(columns="name"))
    assert client.get_dataset_df("Users").empty


def test_further_columns_are_ignored_and_no_rows_are_fine(client):
    assert client.log("hook", "users", ROWS.assign(extra=1)).status_code == 200
    assert client.log("hook", "users", ROWS.head(0)).status_code == 200
    assert client.log("hook", "users", pd.DataFrame()).status_code == 200
    assert len(client.get_dataset_df("Users")) == 3


def test_unknown_endpoints(client):
    with pytest.raises(Exception, match="endpoint 'nowhere' of webhook 'hook'"):
        client.log("hook", "nowhere", ROWS)
    with pytest.raises(Exception, match="webhook 'other'"):
        client.log("other", "users", ROWS)


def test_log_to_any_dataset(client):
    client.log_to(Users, ROWS)
    assert users(client, 1)["User.name"].tolist() == ["anna"]
    client.log("hook", "visits", VISITS)
    client.log_to("Visited", pd.DataFrame({"uid": [1], "total": [70], "recent": [7], "t": [JAN + 2 * DAY]}))
    assert users(client, 1, 2)["User.total"].tolist() == [70, 5]
    with pytest.raises(Exception, match="'Nobody' is not registered"):
        client.log_to("Nobody", ROWS)


def test_each_dataset_of_an_endpoint_gets_the_rows_as_they_came():
    shared = webhook.endpoint("shared")

    @source(
        shared,
        disorder="1d",
        cdc="append",
        preproc={"n": eval(col("n") * 10, schema={"n": int})},
        where=eval(col("n") > 10),
    )
    @dataset
    class Tenfold:
        n: int
        t: datetime

    @source(shared, disorder="1d", cdc="append")
    @source(webhook.endpoint("more"), disorder="1d", cdc="append")
    @dataset
    class Plain:
        n: int
        t: datetime

    client = MockClient()
    client.commit(message="shared", datasets=[Tenfold, Plain])
    client.log("hook", "shared", pd.DataFrame({"n": [1, 2], "t": [JAN, JAN]}))
    assert client.get_dataset_df("Tenfold")["n"].tolist() == [20]
    assert client.get_dataset_df("Plain")["n"].tolist() == [1, 2]
    client.log("hook", "more", pd.DataFrame({"n": [3], "t": [JAN]}))
    assert client.get_dataset_df("Plain")["n"].tolist() == [1, 2, 3]


def test_a_call_that_one_dataset_refuses_reaches_none():
    shared = webhook.endpoint("shared")

    @source(shared, disorder="1d", cdc="append")
    @dataset
    class Takes:
        n: int
        t: datetime

    @source(shared, disorder="1d", cdc="append")
    @dataset
    class Refuses:
        n: str
        other: int
        t: datetime

    client = MockClient()
    client.commit(message="shared", datasets=[Takes, Refuses])
    with pytest.raises(Exception, match="insertion to Refuses"):
        client.log("hook", "shared", pd.DataFrame({"n": [1], "t": [JAN]}))
    assert client.get_dataset_df("Takes").empty


def test_a_call_on_which_a_pipeline_fails_leaves_nothing_behind():
    @dataset
    class Strict:
        n: int
        t: datetime

        @pipeline
        @inputs(Visits)
        def check(cls, visits):
            return visits.select("n").assign("n", int, lambda df: df["n"].map(lambda n: 1 // (5 - n)))

    client = MockClient()
    client.commit(message="strict", datasets=[Visits, Strict])
    client.log("hook", "visits", VISITS.head(2))
    with pytest.raises(Exception, match="assign"):
        client.log("hook", "visits", VISITS)
    assert len(client.get_dataset_df("Visits")) == 2
    client.log("hook", "visits", VISITS.head(1))
    assert len(client.get_dataset_df("Strict")) == 3


def test_a_bounded_source_ends_after_idleness():
    @source(webhook.endpoint("a"), disorder="1d", cdc="append", bounded=True, idleness="1h")
    @source(webhook.endpoint("b"), disorder="1d", cdc="append", bounded=True, idleness="0.000001s")
    @dataset
    class Some:
        n: int
        t: datetime

    client = MockClient()
    client.commit(message="some", datasets=[Some])
    rows = pd.DataFrame({"n": [1], "t": [JAN]})
    assert client.log("hook", "a", rows).status_code == 200
    assert client.log("hook", "b", rows).status_code == 200
    assert len(client.get_dataset_df("Some")) == 1


def test_env_selects_sources():
    @source(webhook.endpoint("dev"), disorder="1d", cdc="append", env="dev")
    @source(webhook.endpoint("prod"), disorder="1d", cdc="append", env="prod")
    @dataset
    class Some:
        n: int
        t: datetime

    client = MockClient()
    client.commit(message="some", datasets=[Some], env="dev")
    rows = pd.DataFrame({"n": [1], "t": [JAN]})
    client.log("hook", "dev", rows)
    with pytest.raises(Exception, match="endpoint 'prod'"):
        client.log("hook", "prod", rows)


def test_a_commit_starts_empty_an_incremental_one_keeps(client):
    client.log("hook", "users", ROWS)
    client.log("hook", "visits", VISITS)
    client.commit(message="again", datasets=DATASETS, featuresets=[User])
    assert users(client, 1)["User.name"].tolist() == ["?"]

    client.log("hook", "users", ROWS)

    @featureset
    class More:
        uid: int
        name: Optional[str] = F(Users.name)

    client.commit(message="more", featuresets=[More], incremental=True)
    frame = pd.DataFrame({"More.uid": [1]})
    assert client.query([More.uid], [More.name], frame)["More.name"].tolist() == ["anna"]
    assert users(client, 1)["User.name"].tolist() == ["anna"]
    assert {each.__name__ for each in client.get_datasets()} == {"Users", "Visits", "Visited"}
    assert [each.__name__ for each in client.get_featuresets()] == ["User", "More"]


def test_a_pipeline_committed_later_sees_what_was_logged_before(client):
    client.log("hook", "visits", VISITS)

    @dataset(index=True)
    class Doubled:
        uid: int = field(key=True)
        n: int
        t: datetime

        @pipeline
        @inputs(Visits)
        def double(cls, visits):
            return visits.assign(n=(col("n") * 2).astype(int)).groupby("uid").latest()

    client.commit(message="doubled", datasets=[Doubled], incremental=True)
    rows, _ = client.lookup("Doubled", pd.DataFrame({"uid": [1, 2]}))
    assert rows["n"].tolist() == [4, 10]


def test_what_commits_refuse(client):
    with pytest.raises(TypeError):
        client.commit(message="x", datasets=[User])
    with pytest.raises(ValueError, match="Users"):
        client.commit(message="x", datasets=[Users, Users])
    with pytest.raises(ValueError, match="Visits"):
        client.commit(message="x", datasets=[Visited])
    assert users(client, 1)["User.name"].tolist() == ["?"], "a refused commit changes nothing"


def test_erase(client):
    client.log("hook", "users", ROWS)
    assert client.erase(Users, pd.DataFrame({"uid": [1]})).status_code == 200
    assert client.get_dataset_df("Users")["uid"].tolist() == [2]
    assert users(client, 1, 2)["User.name"].tolist() == ["?", "bob"]
    client.log("hook", "users", ROWS.assign(t=JAN + 3 * DAY))
    assert users(client, 1)["User.name"].tolist() == ["?"]
    _, found = client.lookup("Users", pd.DataFrame({"uid": [1, 2]}), timestamps=pd.Series([JAN, JAN]))
    assert found.tolist() == [False, True]
    assert client.erase("Nobody", pd.DataFrame({"uid": [1]})).status_code == 404


@pytest.mark.parametrize(
    ("keys", "field"), [({"id": [1]}, "id"), ({"uid": [1], "name": ["x"]}, "name"), ({}, "uid")], ids=str
)
def test_what_erase_refuses(client, keys, field):
    with pytest.raises(ValueError, match=f"field '{field}'"):
        client.erase(Users, pd.DataFrame(keys))
    with pytest.raises(ValueError, match="Visits"):
        client.erase(Visits, pd.DataFrame({"uid": [1]}))
    with pytest.raises(TypeError):
        client.erase(3, pd.DataFrame({"uid": [1]}))


def test_the_rest(client):
    assert client.is_integration_client() is False
    assert client.integration_mode() == "mock"
    assert client.track_offline_query("x").status_code == 404
    assert client.cancel_offline_query("x").status_code == 404
    client.sleep()
    client.sleep(30)

    @dataset
    class Added:
        n: int
        t: datetime

    client.add(Added)
    assert client.get_dataset_df("Added").empty


def test_older_spellings():
    client = MockClient()
    with pytest.warns(DeprecationWarning, match="commit"):
        client.sync(datasets=DATASETS, featuresets=[User])
    client.log("hook", "users", ROWS)
    frame = pd.DataFrame({"User.uid": [1], "at": [JAN]})
    with pytest.warns(DeprecationWarning, match="query"):
        found = client.extract_features(
            output_feature_list=[User.name], input_feature_list=[User.uid], input_dataframe=frame
        )
    assert found["User.name"].tolist() == ["anna"]
    with pytest.warns(DeprecationWarning, match="query_offline"):
        found = client.extract_historical_features(
            output_feature_list=[User.name], input_feature_list=[User.uid], timestamp_column="at", input_dataframe=frame
        )
    assert found["User.name"].tolist() == ["ann"]
