"""The fluent operators: what they build (api §4)."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Optional

import pytest

from tests.unit.api.streams import FOREVER, Cities, Events, Users, built, typed
from umbel.aggregates import Count, Sum
from umbel.api.dataset import Dataset
from umbel.expr import col, now, repeat
from umbel.operators.aggregate import Aggregation
from umbel.operators.dedup import Dedup
from umbel.operators.join import AsOfJoin, TableJoin
from umbel.operators.leaf import Leaf
from umbel.types.windows import Session, Tumbling, Window

BUILT: list[tuple[str, Callable[..., Any], tuple[Dataset, ...], dict[str, Any]]] = [
    ("filter expression", lambda e: e.filter(col("uid") > 1).select("uid"), (Events,), {"uid": int, "t": datetime}),
    (
        "filter function",
        lambda e: e.filter(lambda df: df["uid"] > 1).select(["uid"]),
        (Events,),
        {"uid": int, "t": datetime},
    ),
    (
        "drop styles",
        lambda e: e.drop("note", "tags").drop(["at"]).drop(columns=["amount"]),
        (Events,),
        {"uid": int, "t": datetime},
    ),
    ("drop by field", lambda u: u.drop(Users.city).drop("at"), (Users,), {"uid": int, "ut": datetime}),
    (
        "rename",
        lambda u: u.rename({"uid": "id", "ut": "t"}).drop("at"),
        (Users,),
        {"id": int, "city": str, "t": datetime},
    ),
    (
        "assign function",
        lambda u: u.assign("n", Optional[int], lambda df: df["uid"]).select("uid", "n"),
        (Users,),
        {"uid": int, "n": Optional[int], "ut": datetime},
    ),
    (
        "assign expression",
        lambda u: u.assign(n=(col("uid") + 1).astype(int), city=col("uid").astype(int)).drop("at"),
        (Users,),
        {"uid": int, "city": int, "n": int, "ut": datetime},
    ),
    (
        "transform",
        lambda u: u.transform(lambda df: df, schema={"uid": int, "x": float, "ut": datetime}),
        (Users,),
        {"uid": int, "x": float, "ut": datetime},
    ),
    (
        "transform with an empty schema",
        lambda u: u.transform(lambda df: df, schema={}).select("uid"),
        (Users,),
        {"uid": int, "ut": datetime},
    ),
    ("dropnull", lambda e: e.dropnull().select("note"), (Events,), {"note": str, "t": datetime}),
    (
        "dropnull of one",
        lambda u: u.dropnull("at").select("uid", "at"),
        (Users,),
        {"uid": int, "at": datetime, "ut": datetime},
    ),
    ("explode", lambda e: e.explode("tags").select("tags"), (Events,), {"tags": Optional[str], "t": datetime}),
    ("union", lambda e, f: (e + f).select("uid"), (Events, Events), {"uid": int, "t": datetime}),
    (
        "changelog",
        lambda u: u.changelog(delete="gone").drop("at"),
        (Users,),
        {"uid": int, "city": str, "gone": bool, "ut": datetime},
    ),
    (
        "join left",
        lambda e, u: e.join(u, how="left", on=["uid"], fields=["city", "ut"]).select("uid", "city", "ut"),
        (Events, Users),
        {"uid": int, "city": Optional[str], "ut": Optional[datetime], "t": datetime},
    ),
    (
        "join inner",
        lambda e, u: e.drop("at").join(u, how="inner", on=["uid"]).select("city", "at"),
        (Events, Users),
        {"city": str, "at": Optional[datetime], "t": datetime},
    ),
    (
        "join on others",
        lambda u, c: u.join(c, "inner", left_on=["city"], right_on=["city"]).drop("at"),
        (Users, Cities),
        {"uid": int, "city": str, "size": int, "ut": datetime},
    ),
    (
        "latest",
        lambda e: e.select("uid", "amount").groupby("uid").latest(),
        (Events,),
        {"uid": int, "amount": float, "t": datetime},
    ),
    (
        "first",
        lambda e: e.select("uid", "amount").groupby(["uid"]).first(),
        (Events,),
        {"uid": int, "amount": float, "t": datetime},
    ),
    (
        "aggregate by name",
        lambda e: e.groupby("uid").aggregate(n=Count(window=FOREVER)),
        (Events,),
        {"uid": int, "n": int, "t": datetime},
    ),
    (
        "aggregate into field",
        lambda e: e.groupby("uid").aggregate(
            [Count(window=FOREVER, into_field="n")], s=Sum(of="amount", window=FOREVER)
        ),
        (Events,),
        {"uid": int, "n": int, "s": float, "t": datetime},
    ),
    (
        "aggregate in windows",
        lambda e: e.groupby("uid", window=Tumbling("1h")).aggregate(n=Count()),
        (Events,),
        {"uid": int, "window": Window, "n": int, "t": datetime},
    ),
    (
        "only windows",
        lambda e: e.groupby("uid", window=Session("1h")).aggregate(),
        (Events,),
        {"uid": int, "window": Window, "t": datetime},
    ),
    (
        "along",
        lambda e: e.groupby("uid").aggregate(n=Count(window=FOREVER), along="at"),
        (Events,),
        {"uid": int, "n": int, "t": datetime},
    ),
]


@pytest.mark.parametrize(
    ("body", "datasets", "expected"), [each[1:] for each in BUILT], ids=[each[0] for each in BUILT]
)
def test_built(body: Callable[..., Any], datasets: tuple[Dataset, ...], expected: dict[str, Any]) -> None:
    assert built(body, *datasets).schema.dtypes == typed(expected)


def test_join_keeps_bounds_and_kind() -> None:
    asof = built(lambda e, u: e.drop("at").join(u, "left", on=["uid"], within=("1d", "2h")), Events, Users)
    assert isinstance(asof, AsOfJoin)
    assert (asof.back, asof.ahead, asof.inner) == (86_400_000_000, 7_200_000_000, False)
    assert (asof.left_on, asof.right_on) == (("uid",), ("uid",))
    table = built(lambda u, c: u.join(c, "inner", on=["city"]), Users, Cities)
    assert isinstance(table, TableJoin)
    assert (table.back, table.ahead) == (None, 0)
    assert table.exchange() == (("city",), ("city",))


@pytest.mark.parametrize(
    ("body", "by"),
    [
        (lambda e: e.dedup(), ("uid", "amount", "note", "tags", "at")),
        (lambda e: e.dedup("uid", "amount"), ("uid", "amount")),
        (lambda e: e.dedup(by="uid", window=Tumbling("1h")), ("uid",)),
        (lambda e: e.dedup(by=["uid"], window=Session("1h")), ("uid",)),
    ],
)
def test_dedup(body: Callable[..., Any], by: tuple[str, ...]) -> None:
    found = built(body, Events)
    assert isinstance(found, Dedup)
    assert found.columns == by
    assert found.schema.dtypes == typed(Events.schema())


def test_joining_the_dataset_itself_means_the_input() -> None:
    found = built(lambda e, u: e.drop("at").join(Users, "inner", on=["uid"]), Events, Users)
    assert isinstance(found.parents[1], Leaf)


def test_selecting_everything_warns_and_changes_nothing() -> None:
    with pytest.warns(UserWarning, match="all columns"):
        assert isinstance(built(lambda u: u.select("uid", "city", "at"), Users), Leaf)


def test_emit_final_and_discrete_windows_are_not_terminal() -> None:
    final = built(lambda e: e.groupby("uid").aggregate(n=Count(window=FOREVER), emit="final").drop("n"), Events)
    assert not final.is_terminal
    discrete = built(lambda e: e.groupby("uid").aggregate(n=Count(window=Tumbling("1h"))).filter(col("n") > 1), Events)
    assert not discrete.is_terminal
    eager = built(lambda e: e.groupby("uid").aggregate(n=Count(window=FOREVER)), Events)
    assert isinstance(eager, Aggregation)
    assert eager.is_terminal


def test_inserts_only_follows_sources_and_operators() -> None:
    assert built(lambda e: e.select("uid"), Events).inserts_only
    assert not built(lambda u: u.changelog(delete="d"), Users).inserts_only


def test_now_over_rows_that_stay() -> None:
    assert built(lambda e: e.filter(now().dt.since(col("t"), "day") < 30), Events).inserts_only


@pytest.mark.parametrize(
    ("body", "dataset"),
    [
        (lambda u: u.filter(now().dt.since(col("ut"), "day") < 30), Users),
        (lambda u: u.assign(age=now().dt.since(col("ut")).astype(int)), Users),
        (lambda e: e.dedup("uid").assign(n=now().astype(datetime)), Events),
        (lambda u: u.changelog("d").filter(repeat(now(), by=1).list.len() > 0), Users),
    ],
)
def test_now_over_rows_that_may_be_taken_back_is_warned_of(body: Any, dataset: Any) -> None:
    with pytest.warns(UserWarning, match=r"now\(\) in .* updated or deleted.* in a feature"):
        built(body, dataset)


def test_deprecation_of_continuous_windows_over_keyed_input() -> None:
    with pytest.warns(DeprecationWarning, match="keyed"):
        built(lambda u: u.groupby("city").aggregate(n=Count(window=FOREVER)), Users)
