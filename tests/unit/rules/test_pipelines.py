"""Pipelines: definitions, schema checks, terminal aggregates, environments (api §2.5, §3.4)."""

from datetime import datetime, timezone
from typing import Optional

import pandas as pd

from tests.unit.rules.refusals import refused
from umbel.connectors import Webhook, source
from umbel.datasets import Average, Count, Dataset, ExpDecaySum, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous, Tumbling
from umbel.expr import col
from umbel.lib import inputs, meta
from umbel.testing import MockClient

__owner__ = "team@example.com"
webhook = Webhook(name="w")
T = datetime(2024, 1, 1, tzinfo=timezone.utc)


@source(webhook.endpoint("A"), disorder="14d", cdc="append")
@dataset
class A:
    k: int
    v: float
    o: Optional[str]
    t: datetime


def test_definitions() -> None:
    with refused(TypeError, "p", "self", "cls"):

        @dataset
        class D1:
            k: int
            t: datetime

            @pipeline
            @inputs(A)
            def p(self, a: Dataset):
                return a

    with refused(TypeError, "p", "input"):

        @dataset
        class D2:
            k: int
            t: datetime

            @pipeline
            def p(cls, a: Dataset):
                return a

    with refused(TypeError, "p", "int"):

        @dataset
        class D3:
            k: int
            t: datetime

            @pipeline
            @inputs(int)
            def p(cls, a: Dataset):
                return a


def test_what_is_returned() -> None:
    with refused(Exception, "D4.p"):

        @dataset
        class D4:
            k: int
            t: datetime

            @pipeline
            @inputs(A)
            def p(cls, a: Dataset):
                a.filter(col("k") > 1)

    with refused(ValueError, "D5", "p"):

        @dataset
        class D5:
            k: int
            t: datetime

            @pipeline
            @inputs(A)
            def p(cls, a: Dataset):
                return a.select("k")

            @pipeline
            @inputs(A)
            def p(cls, a: Dataset):  # noqa: F811
                return a.select("k")


def test_all_mismatches_are_told() -> None:
    with refused(
        TypeError, "D.p", "'k'", "key", "'v'", "float", "int", "'o'", "str", "'missing'", "'t'", "'at'", "value"
    ):

        @dataset
        class D:
            k: int = field(key=True)
            v: int
            missing: str
            at: datetime

            @pipeline
            @inputs(A)
            def p(cls, a: Dataset):
                return a

    with refused(TypeError, "E.p", "o", "Optional[str]", "str"):

        @dataset
        class E:
            k: int
            v: float
            o: str
            t: datetime

            @pipeline
            @inputs(A)
            def p(cls, a: Dataset):
                return a


def terminal(window: object = Continuous("1h"), **options: object) -> Dataset:
    @dataset(index=True)
    class Agg:
        k: int = field(key=True)
        n: int
        t: datetime

        @pipeline
        @inputs(A)
        def p(cls, a: Dataset):
            return a.groupby("k").aggregate(n=Count(window=window), **options)

    return Agg


def test_terminal_datasets_are_no_inputs() -> None:
    def over(D: Dataset) -> Dataset:
        @dataset
        class Next:
            k: int = field(key=True)
            n: int
            t: datetime

            @pipeline
            @inputs(D)
            def q(cls, d: Dataset):
                return d

        return Next

    with refused(TypeError, "q", "Agg"):
        over(terminal())
    with refused(TypeError, "q", "Agg"):
        over(terminal(Continuous("forever")))
    over(terminal(Tumbling("1h")))
    over(terminal(emit="final"))


def test_nothing_follows_a_terminal_node() -> None:
    for name, step in {
        "filter": lambda n: n.filter(col("n") > 1),
        "assign": lambda n: n.assign(x=col("n").astype(int)),
        "transform": lambda n: n.transform(lambda df: df),
        "rename": lambda n: n.rename({"n": "m"}),
        "drop": lambda n: n.drop("n"),
        "select": lambda n: n.select("k", "n"),
        "dropnull": lambda n: n.dropnull(),
        "changelog": lambda n: n.changelog(delete="d"),
        "groupby": lambda n: n.groupby("n").aggregate(m=Count(window=Continuous("1h"))),
    }.items():
        with refused(ValueError, name if name != "groupby" else "aggregate", "terminal", "B.p"):

            @dataset
            class B:
                k: int = field(key=True)
                n: int
                t: datetime

                @pipeline
                @inputs(A)
                def p(cls, a: Dataset):
                    return step(a.groupby("k").aggregate(n=Count(window=Continuous("1h"))))

    with refused(ValueError, "terminal", "C.p"):

        @dataset
        class C:
            k: int = field(key=True)
            n: float
            t: datetime

            @pipeline
            @inputs(A)
            def p(cls, a: Dataset):
                made = a.groupby("k").aggregate(n=ExpDecaySum(of="v", half_life="1h", window=Continuous("forever")))
                return made.filter(col("n") > 1)


def test_pass_through() -> None:
    @dataset
    class Copy:
        k: int
        v: float
        o: Optional[str]
        t: datetime

        @pipeline
        @inputs(A)
        def p(cls, a: Dataset):
            return a

    client = MockClient()
    client.commit("m", [A, Copy])
    client.log("w", "A", pd.DataFrame({"k": [1], "v": [1], "o": [None], "t": [T]}))
    assert len(client.get_dataset_df("Copy")) == 1


def enved(one: object, other: object) -> Dataset:
    @dataset
    class Many:
        k: int
        t: datetime

        @pipeline(env=one)
        @inputs(A)
        def first(cls, a: Dataset):
            return a.filter(col("k") > 1).select("k")

        @pipeline(env=other)
        @inputs(A)
        def second(cls, a: Dataset):
            return a.filter(col("k") <= 1).select("k")

    return Many


def test_several_pipelines() -> None:
    for one, other, words in (
        (None, "dev", ("first",)),
        (None, None, ("first",)),
        ("dev", "dev", ("dev",)),
        (["a", "b"], ["b"], ("b",)),
        ("~a", "b", ("b",)),
        ("~a", "~b", ()),
    ):
        with refused(ValueError, "Many", *words):
            MockClient().commit("m", [A, enved(one, other)], env="dev")
    for one, other, env, expected in (
        ("prod", "dev", "dev", [1]), ("prod", "dev", "prod", [2]), ("prod", "dev", "other", []),
        ("~dev", "dev", "prod", [2]), (["prod", "q"], ["dev", "x"], "x", [1]),
    ):  # fmt: skip
        client = MockClient()
        client.commit("m", [A, enved(one, other)], env=env)
        client.log("w", "A", pd.DataFrame({"k": [1, 2], "v": [1, 1], "o": [None, None], "t": [T, T]}))
        assert client.get_dataset_df("Many")["k"].tolist() == expected


def test_selected_sources() -> None:
    @source(webhook.endpoint("dev"), disorder="1d", cdc="append", env=["dev", "staging"])
    @source(webhook.endpoint("not-prod"), disorder="1d", cdc="append", env="~prod")
    @source(webhook.endpoint("prod"), disorder="1d", cdc="append", env="prod")
    @source(webhook.endpoint("any"), disorder="1d", cdc="append")
    @dataset
    class S:
        k: int
        t: datetime

    expected = {"dev": {"dev", "not-prod", "any"}, "staging": {"dev", "not-prod", "any"}, "prod": {"prod", "any"},
                "x": {"not-prod", "any"}, None: {"dev", "not-prod", "prod", "any"}}  # fmt: skip
    for env, taken in expected.items():
        client = MockClient()
        client.commit("m", [S], env=env)
        for endpoint in ("dev", "not-prod", "prod", "any"):
            try:
                client.log("w", endpoint, pd.DataFrame({"k": [1], "t": [T]}))
            except ValueError:
                assert endpoint not in taken
            else:
                assert endpoint in taken


def test_deleted_pipelines() -> None:
    @dataset
    class D:
        k: int
        t: datetime

        @meta(deleted=True)
        @pipeline
        @inputs(A)
        def gone(cls, a: Dataset):
            return a.select("k")

        @pipeline
        @inputs(A)
        def here(cls, a: Dataset):
            return a.filter(col("k") > 1).select("k")

    client = MockClient()
    client.commit("m", [A, D])
    client.log("w", "A", pd.DataFrame({"k": [1, 2], "v": [1, 1], "o": [None, None], "t": [T, T]}))
    assert client.get_dataset_df("D")["k"].tolist() == [2]
    assert D.num_pipelines() == 2


def test_missing_inputs() -> None:
    with refused(ValueError, "'A'", "Agg", "p"):
        MockClient().commit("m", [terminal()])


def test_wrong_aggregates() -> None:
    with refused(TypeError, "'v'", "int", "float", "W.p"):

        @dataset
        class W:
            k: int = field(key=True)
            v: int
            t: datetime

            @pipeline
            @inputs(A)
            def p(cls, a: Dataset):
                return a.groupby("k").aggregate(v=Sum(of="v", window=Continuous("1h")))

    with refused(TypeError, "avg", "Optional[float]", "float", "X.p"):

        @dataset
        class X:
            k: int = field(key=True)
            avg: float
            t: datetime

            @pipeline
            @inputs(A)
            def p(cls, a: Dataset):
                return a.groupby("k").aggregate(avg=Average(of="v", window=Continuous("1h"), default=None))
