"""Unusual ways to write definitions: run by `exec`, inherited, quoted, with `@classmethod`, in older spellings."""

import linecache
from datetime import datetime, timezone
from typing import Any, List, Optional

import pandas as pd
import pytest

from tests.unit.refusals import refusal
from umbel.datasets import Dataset, dataset, field, pipeline
from umbel.dtypes import Dict as OldDict
from umbel.dtypes import Option, struct
from umbel.featuresets import extractor, featureset
from umbel.featuresets import feature as F
from umbel.lib import desc, inputs, outputs
from umbel.testing import MockClient, log, mock

__owner__ = "team@example.com"
T = datetime(2024, 1, 1, tzinfo=timezone.utc)

PROGRAM = """
from datetime import datetime
from typing import List, Optional

from umbel.datasets import dataset, field, pipeline
from umbel.featuresets import extractor, feature as F, featureset
from umbel.lib import inputs, outputs

__owner__ = "team@example.com"
FACTOR = 3


def helper(x):
    return x * FACTOR


@dataset
class Events:
    # whose it is
    uid: int
    x: int
    tags: "List[str]"
    t: datetime


@dataset(index=True)
class Newest:
    uid: int = field(key=True)
    y: int
    t: datetime

    @pipeline
    @inputs(Events)
    def p(cls, events):
        return events.assign("y", int, lambda df: helper(df["x"])).drop("x", "tags").groupby("uid").latest()


@featureset
class User:
    uid: int
    y: Optional[int] = F(Newest.y)
    z: int

    @extractor
    @inputs("y")
    @outputs("z")
    def twice(cls, ts, y):
        return helper(y.fillna(0)).rename("z")
"""


def answers(names: dict[str, Any]) -> list[list[Any]]:
    @mock
    def run(client: MockClient) -> list[list[Any]]:
        client.commit("m", datasets=[names["Events"], names["Newest"]], featuresets=[names["User"]])
        log(names["Events"], pd.DataFrame({"uid": [1], "x": [2], "tags": [[]], "t": [T]}))
        df = client.query(inputs=["User.uid"], outputs=["User"], input_dataframe=pd.DataFrame({"User.uid": [1, 2]}))
        return df.values.tolist()

    return run()


@pytest.mark.parametrize("first", ["", "from __future__ import annotations\n"])
@pytest.mark.parametrize("names", [{}, {"__name__": "__main__"}, {"__name__": "of_no_file"}])
def test_run_by_exec_without_a_file(first: str, names: dict[str, Any]) -> None:
    names = dict(names)
    exec(first + PROGRAM, names)
    assert answers(names) == [[1, 6, 18], [2, pd.NA, 0]]


def test_a_cell_of_a_notebook() -> None:
    file = "<ipython-input-1-0123456789ab>"
    linecache.cache[file] = (len(PROGRAM), None, PROGRAM.splitlines(keepends=True), file)
    names = {"__name__": "__main__"}
    exec(compile(PROGRAM, file, "exec"), names)
    assert answers(names) == [[1, 6, 18], [2, pd.NA, 0]]
    assert desc(names["Events"].uid) == "whose it is"


def test_a_field_without_a_type_is_refused() -> None:
    with refusal(TypeError, "dataset 'D': 'uid' without a type", "uid: int = field(key=True)"):

        @dataset
        class D:
            uid = field(key=True)
            x: int
            t: datetime


def test_annotations_and_methods_are_inherited() -> None:
    class Keyed:
        uid: int = field(key=True)
        t: datetime

    @struct
    class Place:
        city: str

    @struct
    class Address(Place):
        street: Optional[str]

    @dataset(index=True)
    class D(Keyed):
        at: Address

    class Counted:
        uid: int
        n: int

        @extractor
        @inputs("uid")
        @outputs("n")
        def next(cls, ts, uid):
            return (uid + 1).rename("n")

    @featureset
    class Q(Counted):
        at: Optional[Address] = F(D.at)

    assert [each.name for each in D.fields] == ["uid", "t", "at"]
    assert D.timestamp_field == "t"
    client = MockClient()
    client.commit("m", datasets=[D], featuresets=[Q])
    log(D, pd.DataFrame({"uid": [1], "at": [{"city": "Lund", "street": None}], "t": [T]}))
    df = client.query(inputs=["Q.uid"], outputs=["Q"], input_dataframe=pd.DataFrame({"Q.uid": [1]}))
    assert df.columns.tolist() == ["Q.uid", "Q.n", "Q.at"]
    assert df.values.tolist() == [[1, 2, Address(city="Lund", street=pd.NA)]]


def test_datasets_and_featuresets_are_not_inherited_from() -> None:
    @dataset
    class D:
        a: int
        t: datetime

    @featureset
    class Q:
        a: int

    with refusal(TypeError, "D", "inherited"):

        class E(D):
            b: int

    with refusal(TypeError, "Q", "inherited"):

        class R(Q):
            b: int


def test_classmethod_above_a_decorator() -> None:
    @dataset
    class Events:
        uid: int
        t: datetime

    @dataset(index=True)
    class Newest:
        uid: int = field(key=True)
        t: datetime

        @classmethod
        @pipeline
        @inputs(Events)
        def p(cls, events: Dataset) -> Any:
            return events.groupby("uid").latest()

    @featureset
    class Q:
        a: int
        b: int

        @classmethod
        @extractor
        @inputs("a")
        @outputs("b")
        def next(cls, ts, a):
            return (a + 1).rename("b")

    assert Newest.num_pipelines() == 1
    client = MockClient()
    client.commit("m", datasets=[Events, Newest], featuresets=[Q])
    df = client.query(inputs=["Q.a"], outputs=["Q.b"], input_dataframe=pd.DataFrame({"Q.a": [1]}))
    assert df["Q.b"].tolist() == [2]


def test_older_spellings_of_types_warn() -> None:
    with pytest.warns(DeprecationWarning, match=r"Optional\[T\]"):
        assert Option[int] == Optional[int]
    with pytest.warns(DeprecationWarning, match=r"Dict\[str, T\]"):
        of_ints = OldDict[int]
    assert of_ints == OldDict[str, int]


def test_definitions_do_not_take_numbers_for_text() -> None:
    @dataset(index=True)
    class D:
        uid: int = field(key=True)
        s: str
        names: List[str]
        t: datetime

    with refusal(ValueError, "Q.s", "expected str", "1"):

        @featureset
        class Q:
            uid: int
            s: str = F(D.s, default=1)


def test_arguments_of_another_shape_are_distinguished() -> None:
    @dataset(index=True)
    class D:
        uid: int = field(key=True)
        s: str
        t: datetime

    @featureset
    class Q:
        uid: int
        s: Optional[str] = F(D.s)

    client = MockClient()
    with refusal(TypeError, "datasets", "list", "D"):
        client.commit("m", datasets=D)
    client.commit("m", datasets=[D], featuresets=[Q])
    requested = pd.DataFrame({"Q.uid": [1]})
    with refusal(TypeError, "inputs", "list", "Q.uid"):
        client.query(inputs=Q.uid, outputs=[Q.s], input_dataframe=requested)
    with refusal(TypeError, "feature", "Dataset(D"):
        client.query(inputs=[Q.uid], outputs=[D], input_dataframe=requested)
    with refusal(ValueError, "Q.uid", "more than once"):
        client.query(inputs=[Q.uid], outputs=[Q.s], input_dataframe=pd.concat([requested, requested], axis=1))
    with refusal(ValueError, "fields", "list", "'s'"):
        client.lookup(D, keys=pd.DataFrame({"uid": [1]}), fields="s")
    rows, _ = client.lookup(D, keys=pd.DataFrame({"uid": [1]}), fields=[])
    assert rows.columns.tolist() == ["uid", "s", "t"]


def test_a_field_is_no_input_of_an_extractor() -> None:
    @dataset(index=True)
    class D:
        uid: int = field(key=True)
        t: datetime

    with refusal(TypeError, "'D.uid'", "Field", "Q"):

        @featureset
        class Q:
            a: int

            @extractor
            @inputs(D.uid)
            @outputs("a")
            def same(cls, ts, uid):
                return uid.rename("a")
