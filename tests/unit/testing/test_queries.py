"""Queries and lookups of the mock client."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pandas as pd
import polars as pl
import pytest

from tests.unit.refusals import refusal
from tests.unit.testing.shop import (
    DAY,
    HOUR,
    JAN,
    ROWS,
    VISITS,
    User,
    Users,
    Visited,
    committed,
    users,
)
from umbel.errors import NotSupported

__owner__ = "test@umbel.dev"


@pytest.fixture
def client():
    return committed()


def test_log_and_query(client):
    assert client.log("hook", "users", ROWS).status_code == 200
    client.log("hook", "visits", VISITS)
    found = users(client, 1, 2, 3)
    assert list(found.columns) == ["User.uid", "User.name", "User.age", "User.total", "User.shout"]
    assert found["User.name"].tolist() == ["anna", "bob", "?"]
    assert found["User.age"].tolist() == [31, pd.NA, pd.NA]
    assert found["User.total"].tolist() == [3, 5, 0]
    assert found["User.shout"].tolist() == ["ANNA", "BOB", "NOBODY"]
    assert [str(each) for each in found.dtypes] == ["int64", "string", "Int64", "Int64", "string"]


def test_names_may_be_text(client):
    client.log("hook", "users", ROWS)
    frame = pd.DataFrame({"User.uid": [2]})
    assert client.query(["User.uid"], ["User.name"], frame)["User.name"].tolist() == ["bob"]
    assert list(client.query(["User.uid"], ["User"], frame).columns) == [each.fqn() for each in User.features]


def test_rows_of_the_future_are_invisible(client):
    client.log("hook", "users", ROWS.assign(t=datetime.now(UTC) + DAY))
    assert users(client, 1)["User.name"].tolist() == ["?"]


def test_busy_keys_are_counted_exactly(client):
    times = [JAN + timedelta(seconds=7 * n) for n in range(500)]
    client.log("hook", "visits", pd.DataFrame({"uid": [1] * 500, "n": [1] * 500, "t": times}))
    at = [JAN + DAY + timedelta(seconds=13 * n) for n in range(300)]
    recent, _ = client.lookup("Visited", pd.DataFrame({"uid": [1] * 300}), ["recent"], pd.Series(at))
    assert recent.tolist() == [sum(instant - DAY <= t <= instant for t in times) for instant in at]


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


def test_instants_in_a_column_named_like_an_input(client):
    client.log("hook", "users", ROWS)
    frame = pd.DataFrame({"who": [1, 1], "User.uid": [JAN - DAY, JAN]})
    found = client.query_offline([User.uid], [User.name], "User.uid", frame, feature_to_column_map={User.uid: "who"})
    assert found["User.name"].tolist() == ["?", "ann"]
    assert found["User.uid"].tolist() == [JAN - DAY, JAN]


def test_a_column_of_an_input_that_is_not_there(client):
    frame = pd.DataFrame({"User.uid": [1], "user": [2], "at": [JAN]})
    with refusal(ValueError, "misses columns ['usr'], which feature_to_column_map names", "did you mean 'user'"):
        client.query_offline([User.uid], [User.name], "at", frame, feature_to_column_map={User.uid: "usr"})
    twice = pd.DataFrame([[1, 1, JAN]], columns=["user", "user", "at"])
    with refusal(ValueError, "has column 'user' more than once"):
        client.query_offline([User.uid], [User.name], "at", twice, feature_to_column_map={User.uid: "user"})
    with refusal(ValueError, "feature_to_column_map names ['User.age'], which are no inputs"):
        client.query_offline([User.uid], [User.name], "at", frame, feature_to_column_map={User.age: "user"})


def test_what_queries_refuse(client):
    frame = pd.DataFrame({"User.uid": [1]})
    with pytest.raises(NotSupported):
        users(client, 1, log=True)
    with refusal(NotImplementedError, "log"):
        users(client, 1, log=True)
    with pytest.raises(Exception, match=r"misses columns \['User.uid'\]; required: \['User.uid'\], present: \['uid'\]"):
        client.query([User.uid], [User.name], pd.DataFrame({"uid": [1]}))
    with refusal(Exception, "input column 'User.uid': feature User.uid: cannot cast to int", "'x'"):
        client.query([User.uid], [User.name], pd.DataFrame({"User.uid": ["x"]}))
    with pytest.raises(Exception, match=r"'User' is a featureset.*User\.uid, User\.name"):
        client.query([User], [User.name], frame)
    with refusal(Exception, "'User'", "has no feature 'nam'; did you mean 'name'"):
        client.query([User.uid], ["User.nam"], frame)
    with refusal(ValueError, "No extractor found for feature User.uid"):
        client.query([User.name], [User.total], pd.DataFrame({"User.name": ["x"]}))
    with refusal(Exception, "timestamp column 'at' is not in", "User.uid"):
        client.query_offline([User.uid], [User.name], "at", input_dataframe=frame)
    with refusal(ValueError, "input_dataframe"):
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
    with refusal(KeyError, "'User'", "'Users'"):
        client.lookup("User", keys)
    with refusal(ValueError, "no field 'nme'", "name"):
        client.lookup("Users", keys, ["nme"])
    with refusal(ValueError, "keys must be a pandas DataFrame"):
        client.lookup("Users", [1])
    with refusal(ValueError, "keys must be a pandas DataFrame", "got polars.DataFrame", "to_pandas()"):
        client.lookup("Users", pl.from_pandas(keys))
    with refusal(TypeError, "input_dataframe must be a pandas DataFrame, got polars.DataFrame", "to_pandas()"):
        client.query(inputs=["A.b"], outputs=["A.c"], input_dataframe=pl.from_pandas(keys))
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
