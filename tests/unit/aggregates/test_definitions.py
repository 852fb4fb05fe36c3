"""Definitions of aggregates: arguments, supported types, types of results, and errors that say what is wrong."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from umbel import aggregates as a
from umbel.errors import InvalidType, InvalidValue
from umbel.functions.fingerprint import fingerprint
from umbel.types import dtypes as d
from umbel.types.schema import Schema
from umbel.types.windows import Continuous, Hopping, Session, Tumbling

TYPES: dict[str, d.DType] = {
    "i": d.Int(),
    "oi": d.Optional(d.Int()),
    "f": d.Float(),
    "of": d.Optional(d.Float()),
    "dec": d.Decimal(2),
    "odec": d.Optional(d.Decimal(2)),
    "s": d.Str(),
    "os": d.Optional(d.Str()),
    "b": d.Bool(),
    "day": d.Date(),
    "at": d.Datetime(),
    "l": d.List(d.Int()),
    "m": d.Dict(d.Str()),
    "e": d.Embedding(3),
    "few": d.Between(d.Int(), 0, 9),
    "st": d.Struct("Place", (("x", d.Int()),)),
}
ROWS = Schema((("k", d.Int()),), tuple(TYPES.items()), "t")


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (a.Count(), "int"),
        (a.Count(of="s", unique=True, approx=True), "int"),
        (a.Sum(of="i"), "int"),
        (a.Sum(of="oi"), "int"),
        (a.Sum(of="few"), "int"),
        (a.Sum(of="of"), "float"),
        (a.Sum(of="odec"), "Decimal[2]"),
        (a.Average(of="dec"), "float"),
        (a.Average(of="oi", default=None), "Optional[float]"),
        (a.Stddev(of="dec"), "float"),
        (a.Stddev(of="i", default=None), "Optional[float]"),
        (a.Quantile(of="dec", p=0.5, approx=True), "Optional[float]"),
        (a.Quantile(of="oi", p=0.5, approx=True, default=1.0), "float"),
        (a.ExpDecaySum(of="i", half_life="1h"), "float"),
        (a.Min(of="oi"), "Optional[int]"),
        (a.Max(of="oi", default=0), "int"),
        (a.Min(of="f", default=1), "float"),
        (a.Min(of="dec", default=Decimal("1.50")), "Decimal[2]"),
        (a.Max(of="day", default=date(2024, 1, 1)), "date"),
        (a.Max(of="at", default=datetime(2024, 1, 1, tzinfo=UTC)), "datetime"),
        (a.LastK(of="os", limit=2, dedup=False), "List[Optional[str]]"),
        (a.LastK(of="os", limit=2, dedup=False, dropnull=True), "List[str]"),
        (a.LastK(of="e", limit=2, dedup=True), "List[Embedding[3]]"),
        (a.FirstK(of="st", limit=2, dedup=False, dropnull=False), "List[Place]"),
        (a.Distinct(of="s", unordered=True), "List[str]"),
        (a.Distinct(of="l", unordered=True), "List[List[int]]"),
    ],
)
def test_result_types(aggregate: a.Aggregate, expected: str) -> None:
    aggregate.check(ROWS)
    assert str(aggregate.result_type(ROWS)) == expected


@pytest.mark.parametrize(
    ("aggregate", "error", "words"),
    [
        (a.Count(of="s", unique=True), InvalidValue, ["exact unique not supported"]),
        (a.Count(unique=True, approx=True), InvalidValue, ["of"]),
        (a.Count(of="f", unique=True, approx=True), InvalidType, ["'f'", "float", "hashable"]),
        (a.Count(of="at", unique=True, approx=True), InvalidType, ["'at'", "datetime"]),
        (a.Count(dropnull=True), InvalidValue, ["dropnull", "of"]),
        (a.Count(of="i", dropnull=True), InvalidValue, ["dropnull", "'i'", "int"]),
        (a.Sum(of="s"), InvalidType, ["Sum", "'s'", "str"]),
        (a.Sum(of="nope"), InvalidValue, ["Sum", "'nope'"]),
        (a.Average(of="b"), InvalidType, ["Average", "'b'", "bool"]),
        (a.Stddev(of="at"), InvalidType, ["Stddev", "'at'", "datetime"]),
        (a.Quantile(of="s", p=0.5, approx=True), InvalidType, ["Quantile", "'s'", "str"]),
        (a.Quantile(of="f", p=0.5), InvalidValue, ["approx"]),
        (a.Quantile(of="f", p=1.5, approx=True), InvalidValue, ["1.5"]),
        (a.Quantile(of="f", p=-0.1, approx=True), InvalidValue, ["-0.1"]),
        (a.ExpDecaySum(of="s", half_life="1h"), InvalidType, ["ExpDecaySum", "'s'", "str"]),
        (a.ExpDecaySum(of="f", half_life="1x"), InvalidValue, ["half_life", "'x'"]),
        (a.ExpDecaySum(of="f", half_life="0s"), InvalidValue, ["half_life", "0s"]),
        (a.Min(of="s"), InvalidType, ["Min", "'s'", "str"]),
        (a.Max(of="b"), InvalidType, ["Max", "'b'", "bool"]),
        (a.Min(of="i", default=1.5), InvalidType, ["1.5", "int", "'i'"]),
        (a.Min(of="i", default=True), InvalidType, ["True", "int"]),
        (a.Max(of="dec", default=True), InvalidType, ["True", "Decimal[2]"]),
        (a.Max(of="day", default=datetime(2024, 1, 1, tzinfo=UTC)), InvalidType, ["datetime", "date"]),
        (a.Max(of="at", default=0), InvalidType, ["0", "datetime"]),
        (a.LastK(of="s", limit=1, dedup=False, dropnull=True), InvalidValue, ["dropnull", "'s'"]),
        (a.LastK(of="s", limit=0, dedup=False), InvalidValue, ["limit", "0"]),
        (a.LastK(of="s", limit=2**63, dedup=False), InvalidValue, ["limit", str(2**63)]),
        (a.FirstK(of="s", limit=1, dedup=False, dropnull=True), InvalidType, ["dropnull", "'s'"]),
        (a.Distinct(of="s", unordered=False), InvalidValue, ["unordered=True"]),
        (a.Distinct(of="f", unordered=True), InvalidType, ["'f'", "float"]),
        (a.Distinct(of="s", unordered=True, dropnull=True), InvalidValue, ["dropnull", "'s'"]),
    ],
)
def test_what_is_refused(aggregate: a.Aggregate, error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        aggregate.named("total").check(ROWS)
    assert all(word in str(caught.value) for word in ["'total'", *words]), str(caught.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: a.Sum(), ["Sum", "'of'", "missing"]),
        (lambda: a.Sum("x"), ["Sum", "keyword"]),
        (lambda: a.Sum(of="x", wndow=1), ["Sum", "'wndow'", "window"]),
        (lambda: a.Sum(of=1), ["Sum", "'of'", "str", "int"]),
        (lambda: a.LastK(of="x"), ["'limit', 'dedup'"]),
        (lambda: a.LastK(of="x", limit="3", dedup=False), ["'limit'", "'3'"]),
        (lambda: a.LastK(of="x", limit=True, dedup=False), ["'limit'", "bool"]),
        (lambda: a.LastK(of="x", limit=3, dedup=1), ["'dedup'", "int"]),
        (lambda: a.FirstK(of="x", limit=3, dedup=False), ["'dropnull'"]),
        (lambda: a.Quantile(of="x"), ["'p'"]),
        (lambda: a.Distinct(of="x"), ["'unordered'"]),
        (lambda: a.Average(of="x", default="0"), ["'default'", "str"]),
        (lambda: a.Count(window=Session("1h")), ["Count", "Session", "groupby"]),
        (lambda: a.Count(window=5), ["Count", "window", "int"]),
        (lambda: a.Average(of="v", default=10**400), ["Average", "must be float", "found 1000"]),
    ],
)
def test_wrong_arguments_are_value_errors(make: Any, words: list[str]) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        make()
    assert isinstance(caught.value, InvalidValue)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_every_kind_of_window_but_sessions() -> None:
    for window in (Continuous("1h"), Continuous("forever"), Tumbling("1h"), Hopping("2h", "1h")):
        assert a.Count(window=window).window == window


def test_window_as_text_is_the_older_spelling() -> None:
    with pytest.warns(DeprecationWarning, match="Continuous"):
        assert a.Count(window="1h").window == Continuous("1h")  # type: ignore[arg-type]


def test_of_takes_a_field() -> None:
    class Field:
        name = "x"

    assert a.Sum(of=Field()).of == "x"  # type: ignore[arg-type]


def test_definitions_are_values() -> None:
    one, same = (a.Quantile(of="x", p=0.5, approx=True, window=Tumbling("1h")) for _ in range(2))
    assert one == same
    assert hash(one) == hash(same)
    assert fingerprint(one) == fingerprint(same) != fingerprint(a.Quantile(of="x", p=0.6, approx=True))
    assert pickle.loads(pickle.dumps(one)) == one
    assert one.named("q").into_field == "q"


def test_algebra_is_what_states_depend_on() -> None:
    day, week = (a.Average(of="x", window=Continuous(w), into_field=w) for w in ("1d", "7d"))
    assert day.algebra == week.algebra == a.Average(of="x", default=1.0).algebra
    assert day.algebra != a.Average(of="y").algebra
    assert a.Quantile(of="x", p=0.1, approx=True).algebra == a.Quantile(of="x", p=0.9, approx=True).algebra
    assert a.LastK(of="x", limit=1, dedup=False).algebra != a.LastK(of="x", limit=2, dedup=False).algebra


def test_aggregate_type_is_the_common_class() -> None:
    assert isinstance(a.Count(), a.AggregateType)
