"""Pipelines: what they record, and what is refused (api §2.5)."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Optional

import pandas as pd
import pytest

from tests.unit.api.streams import FOREVER, Events, Users
from tests.unit.refusals import Cases, check_refused, refusal
from umbel.aggregates import Average, Count, ExpDecaySum, Sum
from umbel.api.dataset import Dataset, dataset, record_of
from umbel.api.field import field
from umbel.api.inputs import includes, inputs
from umbel.api.metadata import desc, meta
from umbel.api.pipeline import pipeline
from umbel.definitions.records import leaves
from umbel.expr import col
from umbel.operators.leaf import Leaf
from umbel.types.windows import Continuous, Tumbling

refused = Cases()


def test_a_pipeline_is_built_once_with_its_place_meta_and_env() -> None:
    calls = []

    @dataset
    class D:
        uid: int
        t: datetime

        @pipeline(env="prod")
        @includes(len)
        @meta(owner="a@b.c", description="why")
        @inputs(Events)
        def p(cls, events):
            calls.append(str(cls.uid))
            return events.select("uid")

    assert calls == ["uid"]
    (found,) = record_of(D).pipelines
    assert (found.name, [leaf.dataset for leaf in leaves(found.output)], found.meta.description) == (
        "p",
        ["Events"],
        "why",
    )
    assert (found.env.selects("prod"), found.env.selects("dev")) == (True, False)
    assert found.location.startswith(__file__)
    assert found.output.pipeline == "D.p"
    assert D.num_pipelines() == 1


def test_a_pipeline_may_return_its_input() -> None:
    @dataset
    class D:
        uid: int
        amount: float
        note: Optional[str]
        tags: list[str]
        at: datetime
        t: datetime = field(timestamp=True)

        @pipeline
        @inputs(Events)
        def p(cls, events):
            return events

    assert isinstance(record_of(D).pipelines[0].output, Leaf)


def test_desc_of_a_pipeline() -> None:
    @pipeline
    @inputs(Events)
    @meta(description="why")
    def p(cls, events):
        return events

    assert desc(p) == "why"


@refused(TypeError, "'p'", "'cls'", "'self'")
def first_parameter() -> None:
    @pipeline
    @inputs(Events)
    def p(self, events):
        return events


@refused(TypeError, "'p'", "no inputs")
def no_inputs() -> None:
    @pipeline
    def p(cls, events):
        return events


@refused(TypeError, "'p'", "'int'", "not a dataset")
def input_is_no_dataset() -> None:
    @pipeline
    @inputs(int)
    def p(cls, events):
        return events


@refused(TypeError, "'p'", "2 inputs", "1 parameters")
def count_of_inputs() -> None:
    @pipeline
    @inputs(Events, Users)
    def p(cls, events):
        return events


@refused(TypeError, "D.p", "returns nothing")
def returns_nothing() -> None:
    @dataset
    class D:
        t: datetime

        @pipeline
        @inputs(Events)
        def p(cls, events):
            events.select("uid")


@refused(TypeError, "'E.p'", "'Totals'")
def terminal_input() -> None:
    @dataset(index=True)
    class Totals:
        uid: int = field(key=True)
        n: int
        t: datetime

        @pipeline
        @inputs(Events)
        def p(cls, events):
            return events.groupby("uid").aggregate(n=Count(window=FOREVER))

    @dataset
    class E:
        n: int
        t: datetime

        @pipeline
        @inputs(Totals)
        def p(cls, totals):
            return totals


@refused(
    TypeError,
    "D.p",
    "timestamp is 't' in the pipeline, 'u' in the dataset",
    "key column 'uid' (int) is in the pipeline, but not in the dataset",
    "value column 'amount' is float in the pipeline, Optional[float] in the dataset",
    "value column 'uid' (int) is in the dataset, but not in the pipeline",
    "value column 'extra' (str) is in the dataset, but not in the pipeline",
    "value column 'note' is Optional[str] in the pipeline, str in the dataset",
    "test_pipeline.py:",
)
def other_schema() -> None:
    @dataset
    class D:
        uid: int
        amount: Optional[float]
        extra: str
        note: str
        u: datetime

        @pipeline
        @inputs(Events)
        def p(cls, events):
            return events.select("uid", "amount", "note").groupby("uid").latest()


@refused(ValueError, "D", "duplicate pipeline name 'p'")
def duplicate_pipelines() -> None:
    @dataset
    class D:
        uid: int
        t: datetime

        @pipeline(env="a")
        @inputs(Events)
        def p(cls, events):
            return events.select("uid")

        @pipeline(env="b")
        @inputs(Events)
        def p(cls, events):  # noqa: F811
            return events.select("uid")


@refused(ValueError, "'a b'")
def bad_env() -> None:
    @pipeline(env="a b")
    @inputs(Events)
    def p(cls, events):
        return events


def bodies(name: str, body: Callable[[Any], Any], *texts: str) -> None:
    def define() -> None:
        @dataset
        class D:
            uid: int
            t: datetime

            @pipeline
            @inputs(Events)
            def p(cls, events):
                return body(events)

    refused.add(name, define, TypeError, "pipeline 'D.p'", "test_pipeline.py:", *texts)


bodies("rows by a condition", lambda e: e[e["uid"] > 1], "['uid']", "no pandas frame", 'filter(col("n") > 1)')
bodies("rows one by one", lambda e: [*e], "no pandas frame")
bodies("the number of rows", len, "no len()")
bodies("two conditions", lambda e: e.filter(col("uid") > 1, col("uid") < 3), "filter()", "3 were given")
bodies("a column of groups", lambda e: e.groupby("uid")["amount"].sum(), "not subscriptable")
bodies("a column of first", lambda e: e.groupby("uid").first("amount"), "first()")
bodies("groups", lambda e: e.groupby("uid", "amount"), "returns groupby('uid', 'amount')")
bodies("no call", lambda e: e.groupby("uid").latest, "Grouped.latest of groupby('uid')", ".latest()")


@pytest.mark.parametrize(("define", "error", "texts"), refused.found)
def test_refused(define: Any, error: type[Exception], texts: tuple[str, ...]) -> None:
    check_refused(define, error, texts)


def test_functions_of_a_pipeline_carry_its_includes() -> None:
    def helper() -> int:
        return 1

    @dataset
    class D:
        uid: int
        t: datetime

        @pipeline
        @inputs(Events)
        @includes(helper)
        def p(cls, events):
            return events.filter(lambda df: df["uid"] > 1).select("uid")

    condition = record_of(D).pipelines[0].output.parents[0].condition  # type: ignore[attr-defined]
    assert condition.function.includes == (helper,)
    assert condition.function(pd.DataFrame({"uid": [1, 2]})).tolist() == [False, True]


@dataset
class A:
    k: int
    v: float
    o: Optional[str]
    t: datetime


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


def test_datasets_of_discrete_windows_and_final_ones_are_inputs() -> None:
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

    with refusal(TypeError, "q", "Agg"):
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
        with refusal(ValueError, name if name != "groupby" else "aggregate", "terminal", "B.p"):

            @dataset
            class B:
                k: int = field(key=True)
                n: int
                t: datetime

                @pipeline
                @inputs(A)
                def p(cls, a: Dataset):
                    return step(a.groupby("k").aggregate(n=Count(window=Continuous("1h"))))

    with refusal(ValueError, "terminal", "C.p"):

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


def test_wrong_aggregates() -> None:
    with refusal(TypeError, "'v'", "int", "float", "W.p"):

        @dataset
        class W:
            k: int = field(key=True)
            v: int
            t: datetime

            @pipeline
            @inputs(A)
            def p(cls, a: Dataset):
                return a.groupby("k").aggregate(v=Sum(of="v", window=Continuous("1h")))

    with refusal(TypeError, "avg", "Optional[float]", "float", "X.p"):

        @dataset
        class X:
            k: int = field(key=True)
            avg: float
            t: datetime

            @pipeline
            @inputs(A)
            def p(cls, a: Dataset):
                return a.groupby("k").aggregate(avg=Average(of="v", window=Continuous("1h"), default=None))
