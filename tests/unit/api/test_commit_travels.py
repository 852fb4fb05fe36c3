"""What a commit makes can be written and read again, whatever it contains."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Optional

import pandas as pd
import pytest

from tests.unit.refusals import refusal
from umbel.aggregates import Count, LastK, Quantile
from umbel.api.commit import check_commit
from umbel.api.dataset import dataset
from umbel.api.expect import expect_column_values_to_be_between
from umbel.api.expectations import expectations
from umbel.api.extractor import extractor
from umbel.api.feature import feature as F
from umbel.api.featureset import featureset
from umbel.api.field import field
from umbel.api.inputs import inputs, outputs
from umbel.api.pipeline import pipeline
from umbel.connectors import S3, Kafka, Kinesis, Postgres, Sample, Webhook, at_timestamp, eval, ref, sink, source
from umbel.definitions.serde import dump, load
from umbel.dtypes import Continuous, Decimal, Embedding, Session, Tumbling, Window, between, oneof, regex, struct
from umbel.expr import col, now, when
from umbel.expr.tree import DEEPEST
from umbel.integrations.aws import Secret

__owner__ = "a@b.c"
FACTOR = 3
SECRET = Secret(arn="a")["key"]
KAFKA = Kafka(name="k", bootstrap_servers="b", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")


@struct
class Point:
    x: int
    y: Optional[float]


def scaled(values: pd.Series) -> pd.Series:
    return values * FACTOR


@source(
    Postgres(name="p", host="h", db_name="d", username=SECRET, password="x").table("t", "at"),
    disorder="1d",
    cdc="append",
    since=datetime(2024, 1, 1),
    bounded=True,
    idleness="1h",
    env="old",
)
@source(
    Kinesis(name="n", role_arn="r").stream("s", at_timestamp(0), format="json"),
    disorder="1d",
    cdc="append",
    preproc={
        "uid": eval(lambda df: scaled(df["raw"]), schema={"raw": int}),
        "kind": ref("a[b]"),
        "money": eval((col("cents") * 1).astype(int), schema={"cents": int}),
        "at": datetime(2024, 1, 1, tzinfo=UTC),
    },
    where=eval(col("uid") > 1),
    sample=Sample(0.5, using=["level"]),
)
@dataset
class Events:
    uid: int
    kind: oneof(str, ["a", "b"])  # type: ignore[valid-type]
    level: between(float, 0.0, 1.0, strict_max=True)  # type: ignore[valid-type]
    code: regex("[a-z]+")  # type: ignore[valid-type]
    money: int
    price: Decimal[2]
    vector: Embedding[3]
    points: list[Point]
    at: Optional[datetime]
    t: datetime = field(timestamp=True)

    @expectations(version=2)
    def expected(cls):
        return [expect_column_values_to_be_between("level", min_value=0, mostly=0.9)]


@source(Webhook(name="w").endpoint("e"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Users:
    uid: int = field(key=True, erase_key=True).meta(description="who", tags=["pii"])
    home: Optional[Point]
    t: datetime


@sink(S3(name="s").bucket("b", prefix="p", format="delta"), how="incremental", renames={"n": "count"})
@sink(KAFKA.topic("t"), cdc="debezium")
@dataset(index=True)
class Sessions:
    uid: int = field(key=True)
    window: Window = field(key=True)
    n: int
    t: datetime

    @pipeline
    @inputs(Events)
    def p(cls, events):
        return events.groupby("uid", window=Session("1h")).aggregate(n=Count())


@dataset(index=True)
class Totals:
    uid: int = field(key=True)
    n: int
    last: list[float]
    median: float
    t: datetime

    @pipeline
    @inputs(Events, Users)
    def p(cls, events, users):
        joined = events.drop("at").join(users, how="left", on=["uid"], within=("1d", "0s"))
        retained = joined.filter(lambda df: scaled(df["money"]) > 1).dedup("uid", window=Tumbling("1h"))
        shown = retained.assign(m=when(col("money") > 1).then(1.5).otherwise(col("level")).astype(float))
        window = Continuous("1d")
        return shown.groupby("uid").aggregate(
            n=Count(window=window),
            last=LastK(of="m", limit=3, dedup=True, window=Continuous("forever")),
            median=Quantile(of="m", p=0.5, default=0.0, approx=True, window=window),
        )


@featureset
class Features:
    uid: int
    # how many
    n: int = F(Totals.n, default=0)
    home: Optional[Point] = F(Users.home)
    age: int = F(now().dt.since_epoch() - col("n"))
    twice: float

    @extractor(deps=[Users])
    @inputs("uid", "n")
    @outputs("twice")
    def doubled(cls, ts, uid, n):
        return pd.Series(scaled(n).astype(float), name=str(cls.twice))


def test_everything_can_be_written_and_read() -> None:
    made = check_commit([Events, Users, Sessions, Totals], [Features])
    read = load(dump(made))
    assert list(read.datasets) == list(made.datasets)
    for name, each in made.datasets.items():
        other = read.datasets[name]
        assert (other.fingerprint, other.signature) == (each.fingerprint, each.signature)
        assert (other.schema, other.sinks, other.expectations) == (each.schema, each.sinks, each.expectations)
        assert (other.meta, other.field_meta, other.erase_keys) == (each.meta, each.field_meta, each.erase_keys)
        assert [_plain(one) for one in other.sources] == [_plain(one) for one in each.sources]
    assert read.featuresets["Features"].fingerprint == made.featuresets["Features"].fingerprint
    doubled: Any = read.featuresets["Features"].extractors[-1]
    assert doubled.function(None, None, pd.Series([2])).tolist() == [6.0]


def _plain(source: Any) -> Any:
    return (source.connector, source.disorder, source.cdc, source.every, source.since, source.idleness, source.sample)


def test_references_to_sources_and_values_of_the_users_classes_travel() -> None:
    @source(Kafka.get("theirs").topic("t"), disorder="1d", cdc="upsert", preproc={"home": Point(1, None)})
    @source(Postgres.get("old").table("t", "at"), disorder="1d", cdc="upsert", preproc={"born": datetime(2000, 1, 1)})
    @dataset(index=True)
    class People:
        uid: int = field(key=True)
        home: Point
        born: datetime
        t: datetime = field(timestamp=True)

        @expectations
        def expected(cls):
            return [expect_column_values_to_be_between(column=cls.uid, min_value=0)]

    @featureset
    class Homes:
        uid: int
        home: Point = F(People.home, default=Point(0, 1.5))
        born: datetime = F(People.born, default=datetime(1970, 1, 1))

    made = check_commit([People], [Homes])
    read = load(dump(made))
    assert read.datasets["People"].fingerprint == made.datasets["People"].fingerprint
    assert read.featuresets["Homes"].fingerprint == made.featuresets["Homes"].fingerprint
    sources = read.datasets["People"].sources
    assert sorted((each.connector.source.name, each.connector.source.is_reference) for each in sources) == [
        ("old", True),
        ("theirs", True),
    ]
    defaults = {each.outputs[0]: getattr(each, "default", None) for each in read.featuresets["Homes"].extractors}
    assert defaults["Homes.home"] == {"x": 0, "y": 1.5}
    assert defaults["Homes.born"] == datetime(1970, 1, 1, tzinfo=UTC)
    [expected] = made.datasets["People"].expectations.expected
    assert expected.arguments["column"] == "uid"


@contextmanager
def recursion(limit: int) -> Iterator[None]:
    """Let a limit of recursion hold: Python's own is 1000, notebooks and other packages raise it."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@source(Webhook(name="web").endpoint("numbers"), disorder="1d", cdc="append")
@dataset
class Numbers:
    x: int
    t: datetime


@pytest.mark.parametrize("limit", [1000, 5000])
@pytest.mark.parametrize("terms", [DEEPEST + 1, 1500])
def test_an_expression_of_too_many_levels_is_refused_whatever_the_limit_is(limit: int, terms: int) -> None:
    with recursion(limit), refusal(ValueError, f"{terms} operators in each other", "in steps"):

        @featureset
        class Score:
            x: float
            total: float = F(sum((col("x") for _ in range(terms)), col("x")))

        check_commit([], [Score])


def test_the_deepest_expression_travels() -> None:
    @featureset
    class Score:
        x: float
        total: float = F(sum((col("x") for _ in range(DEEPEST)), col("x")))

    with recursion(1000):
        made = check_commit([], [Score])
        assert load(dump(made)).featuresets["Score"].fingerprint == made.featuresets["Score"].fingerprint


def test_a_pipeline_of_too_many_operators_is_refused() -> None:
    @dataset
    class Long:
        x: int
        t: datetime

        @pipeline
        @inputs(Numbers)
        def filtered(cls, rows):
            for number in range(400):
                rows = rows.filter(col("x") > number)
            return rows

    with recursion(1000), refusal(ValueError, "'Long'", "too many operators"):
        check_commit([Numbers, Long], [])
