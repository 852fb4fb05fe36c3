"""Lookups inside of extractors: what they may ask, and what they get."""

from __future__ import annotations

from datetime import datetime, timedelta

import pandas as pd
import pytest

from tests.unit.query.definitions import JAN, Tables
from umbel.api.commit import check_commit
from umbel.datasets import dataset, field
from umbel.dtypes import struct
from umbel.errors import UmbelError
from umbel.featuresets import extractor, featureset
from umbel.lib import inputs, outputs
from umbel.query.execute import QueryEngine, repeated
from umbel.query.rows import Instants
from umbel.query.session import QueryMode
from umbel.testing import latest
from umbel.types.dtypes import Int

__owner__ = "test@umbel.dev"


@struct
class Point:
    x: int


@dataset(index=True)
class Users:
    uid: int = field(key=True)
    age: int
    place: Point
    t: datetime


@dataset(offline=True)
class Past:
    uid: int = field(key=True)
    t: datetime


ROWS = {"Users": [{"uid": 1, "age": 30, "place": {"x": 5}, "t": JAN}], "Past": [{"uid": 1, "t": JAN}]}
SEEN = {}


@featureset
class Looks:
    uid: int
    age: int
    undeclared: int
    unindexed: int
    broken: int

    @extractor(deps=[Users])
    @inputs("uid")
    @outputs("age")
    def of_users(cls, ts, uid):
        rows, found = Users.lookup(ts, uid=uid)
        SEEN.update(rows=rows, found=found)
        return rows["age"].fillna(-1).rename(str(cls.age))

    @extractor(deps=[Users])
    @inputs("uid")
    @outputs("undeclared")
    def of_another(cls, ts, uid):
        rows, _ = Past.lookup(ts, uid=uid)
        return rows["uid"].rename("undeclared")

    @extractor(deps=[Past])
    @inputs("uid")
    @outputs("unindexed")
    def of_the_past(cls, ts, uid):
        _, found = Past.lookup(ts, uid=uid)
        return uid.where(found, -1).rename("unindexed")

    @extractor(deps=[Users])
    @inputs("uid")
    @outputs("broken")
    def of_text(cls, ts, uid):
        rows, _ = Users.lookup(ts, uid=uid.map(lambda _: "x"))
        return rows["uid"].rename("broken")


def ask(name, uids, at=None):
    committed = check_commit([Users, Past], [Looks])
    engine = QueryEngine(committed, Tables(list(committed.datasets.values()), ROWS))
    mode = QueryMode.ONLINE if at is None else QueryMode.OFFLINE
    plan = engine.plan(["Looks.uid"], [f"Looks.{name}"], mode)
    column = Int().ingest(uids).values
    when = repeated(at or JAN + timedelta(days=1), len(uids))
    return engine.run(plan, {"Looks.uid": column}, Instants.of(when), mode).to_pandas()[f"Looks.{name}"].tolist()


def test_rows_come_in_order_with_structs_as_objects_and_nullable_columns():
    assert ask("age", [2, 1]) == [-1, 30]
    rows, found = SEEN["rows"], SEEN["found"]
    assert list(rows.columns) == ["uid", "age", "place", "t"]
    assert rows["uid"].tolist() == [2, 1]
    assert rows["place"].tolist() == [pd.NA, Point(5)]
    assert rows["t"].tolist() == [pd.NaT, pd.Timestamp(JAN)]
    assert found.tolist() == [False, True]
    assert str(rows["age"].dtype) == "Int64"


def test_the_index_is_that_of_the_query():
    assert ask("unindexed", [1, 2], JAN) == [1, -1]
    with pytest.raises(ValueError, match="dataset 'Past' has no online index"):
        ask("unindexed", [1])


def test_a_dataset_that_is_not_declared():
    with pytest.raises(
        ValueError, match=r"Extractor of_another in Looks looks up dataset 'Past'.*allowed: \['Users'\]"
    ):
        ask("undeclared", [1], JAN)


def test_keys_of_another_type():
    with pytest.raises(UmbelError, match="lookup on dataset 'Users': 'uid': cannot cast to"):
        ask("broken", [1])


def test_outside_of_a_query_nobody_answers(monkeypatch):
    monkeypatch.setattr(latest, "_by_hand", [])  # the client of another test would
    with pytest.raises(ValueError, match="Users"):
        Users.lookup(pd.Series([JAN]), uid=pd.Series([1]))
