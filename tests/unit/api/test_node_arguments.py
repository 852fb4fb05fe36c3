"""Operators' methods called with arguments of wrong types: errors of umbel, with place and hint, whatever the value."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.api.streams import FOREVER, Cities, Events, Users, built
from tests.unit.refusals import PLACE, refusal
from umbel.aggregates import Count
from umbel.api.grouped import Grouped
from umbel.api.node import Node
from umbel.errors import UmbelError

E, U, EU = (Events,), (Users,), (Events, Users)
METHODS: dict[str, tuple[tuple[Any, ...], Callable[..., Any]]] = {
    "filter": (E, lambda e, v: e.filter(v)),
    "assign a name": (E, lambda e, v: e.assign(v, int, len)),
    "assign a type": (E, lambda e, v: e.assign("n", v, len)),
    "assign a function": (E, lambda e, v: e.assign("n", int, v)),
    "assign by name": (E, lambda e, v: e.assign(n=v)),
    "transform": (E, lambda e, v: e.transform(v)),
    "transform schema": (E, lambda e, v: e.transform(len, schema=v)),
    "transform type": (E, lambda e, v: e.transform(len, schema={"uid": v, "t": int})),
    "rename": (E, lambda e, v: e.rename(v)),
    "rename to": (E, lambda e, v: e.rename({"uid": v})),
    "drop": (E, lambda e, v: e.drop(v)),
    "drop columns": (E, lambda e, v: e.drop(columns=v)),
    "select": (E, lambda e, v: e.select(v)),
    "select columns": (E, lambda e, v: e.select(columns=v)),
    "dropnull": (E, lambda e, v: e.dropnull(v)),
    "dropnull columns": (E, lambda e, v: e.dropnull(columns=v)),
    "explode": (E, lambda e, v: e.explode(v)),
    "explode columns": (E, lambda e, v: e.explode(columns=v)),
    "dedup": (E, lambda e, v: e.dedup(v)),
    "dedup by": (E, lambda e, v: e.dedup(by=v)),
    "dedup window": (E, lambda e, v: e.dedup("uid", window=v)),
    "union": (E, lambda e, v: e.union(v)),
    "join": (E, lambda e, v: e.join(v, "left", on=["uid"])),
    "join how": (EU, lambda e, u, v: e.join(u, v, on=["uid"], fields=["city"])),
    "join on": (EU, lambda e, u, v: e.join(u, "left", on=v, fields=["city"])),
    "join left_on": (EU, lambda e, u, v: e.join(u, "left", left_on=v, right_on=["uid"], fields=["city"])),
    "join right_on": (EU, lambda e, u, v: e.join(u, "left", left_on=["uid"], right_on=v, fields=["city"])),
    "join within": (EU, lambda e, u, v: e.join(u, "left", on=["uid"], within=v, fields=["city"])),
    "join fields": (EU, lambda e, u, v: e.join(u, "left", on=["uid"], fields=v)),
    "changelog delete": (U, lambda u, v: u.changelog(delete=v)),
    "changelog insert": (U, lambda u, v: u.changelog(insert=v)),
    "groupby": (E, lambda e, v: e.groupby(v).latest()),
    "groupby window": (E, lambda e, v: e.groupby("uid", window=v).aggregate(n=Count())),
    "groupby latest": (E, lambda e, v: e.groupby(v).latest()),
    "groupby first": (E, lambda e, v: e.groupby(v).first()),
    "aggregate": (E, lambda e, v: e.groupby("uid").aggregate(v)),
    "aggregate by name": (E, lambda e, v: e.groupby("uid").aggregate(n=v)),
    "aggregate of": (E, lambda e, v: e.groupby("uid").aggregate(n=Count(of=v, window=FOREVER, unique=True))),
    "aggregate window": (E, lambda e, v: e.groupby("uid").aggregate(n=Count(window=v))),
    "aggregate emit": (E, lambda e, v: e.groupby("uid").aggregate(n=Count(window=FOREVER), emit=v)),
    "aggregate along": (E, lambda e, v: e.groupby("uid").aggregate(n=Count(window=FOREVER), along=v)),
}
VALUES: list[Any] = [
    3, 1.5, True, None, b"uid", "uid", "zz", "", {"uid"}, {}, {1: 2}, {"uid": 3}, {"uid": None}, {"uid": object()}, [], (), [1],
    [None], ["uid", 3], [["uid"]], ("1d", 5), (5, "1d"), (None,), object(), ..., int, object, Cities,
]  # fmt: skip


def test_every_method_is_called() -> None:
    public = {name for kind in (Node, Grouped) for name in vars(kind) if not name.startswith("_")}
    assert public - {"then", "schema"} == {name.partition(" ")[0] for name in METHODS} | {"first", "latest"}


@pytest.mark.parametrize("name", METHODS)
def test_errors_are_umbels(name: str) -> None:
    datasets, call = METHODS[name]
    for value in VALUES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                built(lambda *nodes, value=value: call(*nodes, value), *datasets)
            except UmbelError as error:
                assert PLACE.search(str(error)), (value, str(error))
                assert "hint:" in str(error), (value, str(error))


REFUSED: dict[str, tuple[tuple[Any, ...], Callable[..., Any], tuple[str, ...]]] = {
    "rename: a list": (E, lambda e: e.rename(["uid", "id"]), ("rename in pipeline 'D.p'", "['uid', 'id']", "dict")),
    "rename: new name": (E, lambda e: e.rename({"uid": 3}), ("rename", "D.p", "3")),
    "rename: old name": (E, lambda e: e.rename({3: "id"}), ("rename", "D.p", "3")),
    "rename: no name": (E, lambda e: e.rename({"uid": ""}), ("rename", "D.p", "''")),
    "transform: a list": (E, lambda e: e.transform(len, schema=["uid"]), ("transform", "D.p", "['uid']", "dict")),
    "transform: no schema": (E, lambda e: e.transform(len, schema=[]), ("transform", "D.p", "[]", "dict")),
    "transform: name": (E, lambda e: e.transform(len, schema={3: int}), ("transform", "D.p", "3")),
    "transform: type": (E, lambda e: e.transform(len, schema={"uid": 3}), ("transform", "D.p", "uid", "3")),
    "assign: name": (E, lambda e: e.assign(3, int, len), ("assign", "D.p", "3")),
    "assign: type": (E, lambda e: e.assign("n", 3, len), ("assign", "D.p", "n", "3")),
    "join: fields": (
        EU,
        lambda e, u: e.join(u, "left", on=["uid"], fields="city"),
        ("join", "D.p", "fields", "'city'"),
    ),
    "join: no fields": (EU, lambda e, u: e.join(u, "left", on=["uid"], fields=3), ("join", "D.p", "fields", "3")),
    "join: a set": (EU, lambda e, u: e.join(u, "left", on=["uid"], fields={"city"}), ("join", "D.p", "fields", "city")),
    "changelog: delete": (U, lambda u: u.changelog(delete=3), ("changelog", "D.p", "delete", "3")),
    "changelog: insert": (U, lambda u: u.changelog(insert=["i"]), ("changelog", "D.p", "insert", "['i']")),
    "changelog: empty": (U, lambda u: u.changelog(delete=""), ("changelog", "D.p", "delete", "''")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_types_are_named(name: str) -> None:
    datasets, call, words = REFUSED[name]
    with refusal((TypeError, ValueError), *words):
        built(call, *datasets)


def test_a_join_may_take_no_fields() -> None:
    assert built(lambda e, u: e.join(u, "inner", on=["uid"], fields=[]), *EU).fields == ()
