"""What the mock client takes in, and what it makes of it."""

from __future__ import annotations

from datetime import datetime

import pandas as pd
import pytest

from tests.unit.refusals import refusal
from tests.unit.testing.shop import (
    DAY,
    JAN,
    ROWS,
    VISITS,
    Users,
    Visits,
    committed,
    users,
    webhook,
)
from umbel.connectors import eval, source
from umbel.datasets import dataset, pipeline
from umbel.expr import col
from umbel.lib import inputs
from umbel.testing import MockClient

__owner__ = "test@umbel.dev"


@pytest.fixture
def client():
    return committed()


def test_equal_rows_of_a_keyless_dataset_count(client):
    twice = pd.concat([VISITS, VISITS])
    client.log("hook", "visits", twice)
    assert len(client.get_dataset_df("Visits")) == 6
    assert users(client, 1)["User.total"].tolist() == [6]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": None}, "column 'name' of type str: null"),
        ({"age": "old"}, "column 'age' of type Optional[int]: expected int, got 'old'"),
        ({"uid": None}, "column 'uid' of type int: null"),
        ({"t": "whenever"}, "column 't' of type datetime"),
    ],
)
def test_rows_that_do_not_fit_are_refused_with_all_others(client, change, message):
    with refusal(Exception, "Schema validation failed during data insertion to Users: ", message):
        client.log("hook", "users", pd.concat([ROWS, ROWS.head(1).assign(**change)]))
    with refusal(ValueError, "column 'name' of type str: the column is missing"):
        client.log("hook", "users", ROWS.drop(columns="name"))
    with refusal(ValueError, "expected str; is 'nmae' meant to be 'name'? (row 0", "add the column"):
        client.log("hook", "users", ROWS.rename(columns={"name": "nmae"}))
    with refusal(ValueError, "the column is missing, expected datetime; is 'T' meant to be 't'?"):
        client.log("hook", "users", ROWS.rename(columns={"t": "T"}))
    assert client.get_dataset_df("Users").empty


def test_further_columns_are_ignored_and_no_rows_are_fine(client):
    assert client.log("hook", "users", ROWS.assign(extra=1)).status_code == 200
    assert client.log("hook", "users", ROWS.head(0)).status_code == 200
    assert client.log("hook", "users", pd.DataFrame()).status_code == 200
    assert len(client.get_dataset_df("Users")) == 3


def test_unknown_endpoints(client):
    with refusal(Exception, "endpoint 'nowhere' of webhook 'hook'"):
        client.log("hook", "nowhere", ROWS)
    with refusal(Exception, "webhook 'other'", "users"):
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
