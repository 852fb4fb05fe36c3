"""The error catalogue, at commit and at run time: kinds, names, place and remedy (api §13)."""

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, List, Optional

import pandas as pd
import pytest

from tests.unit.rules.refusals import refused
from umbel.connectors import Webhook, source
from umbel.datasets import Dataset, dataset, field, pipeline
from umbel.expr import InvalidExprException, col, lit, when
from umbel.featuresets import extractor, feature, featureset
from umbel.lib import inputs, outputs
from umbel.testing import MockClient, mock

__owner__ = "team@example.com"
webhook = Webhook(name="w")
T = datetime(2024, 1, 1, tzinfo=timezone.utc)


@source(webhook.endpoint("e"), disorder="1d", cdc="append")
@dataset
class Stream:
    k: int
    v: int
    many: List[int]
    more: List[int]
    t: datetime


ROWS = pd.DataFrame({"k": [1], "v": [2], "many": [[1]], "more": [[1, 2]], "t": [T]})


@source(webhook.endpoint("t"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Table:
    k: int = field(key=True)
    v: int
    t: datetime


@dataset(online=True)
class Online:
    k: int = field(key=True)
    v: int
    t: datetime


@dataset
class Unindexed:
    k: int = field(key=True)
    v: int
    t: datetime


def run(body: Callable[[Any], Any]) -> None:
    @dataset
    class D:
        k: int
        v: int
        many: List[int]
        more: List[int]
        t: datetime

        @pipeline
        @inputs(Stream)
        def pipe(cls, a: Dataset):
            return body(a)

    client = MockClient()
    client.commit("m", [Stream, D])
    client.log("w", "e", ROWS)


def boom(df: pd.DataFrame) -> pd.Series:
    raise ZeroDivisionError("bang")


BODIES: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    "filter": (lambda a: a.filter(boom), ("filter", "boom", "D.pipe", "bang")),
    "filter type": (lambda a: a.filter(lambda df: df["v"]), ("filter", "D.pipe", "bool")),
    "assign": (lambda a: a.assign("v", int, boom), ("Error in assign node for column v for pipeline D.pipe", "bang")),
    "assign type": (lambda a: a.assign("v", int, lambda df: df["v"] * 1.5 + 0.25), ("Error in assign node for column v for pipeline D.pipe", "int")),
    "assign expression": (lambda a: a.assign(v=(col("v") // lit(0)).astype(int)), ("assign", "v", "D.pipe")),
    "transform": (lambda a: a.transform(boom), ("transform", "boom", "D.pipe", "bang")),
    "transform columns": (lambda a: a.transform(lambda df: df.assign(x=1)), ("transform", "D.pipe", "schema")),
    "transform rows": (lambda a: a.transform(lambda df: df[:0]), ("transform", "D.pipe")),
    "explode": (lambda a: a.explode("many", "more").assign(many=lit([1], List[int]).astype(List[int]), more=lit([1], List[int]).astype(List[int])), ("explode", "D.pipe")),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_user_functions(name: str) -> None:
    body, words = BODIES[name]
    with refused(Exception, *words):
        run(body)


def extracting(func: Callable[..., Any], *deps: Dataset, commit: tuple[Any, ...] = (Table, Online, Unindexed)) -> Any:
    func.__name__ = "e"
    made = extractor(deps=list(deps))(inputs("a")(outputs("b")(func)))
    body = {"__annotations__": {"a": int, "b": int}, "__module__": __name__, "a": feature(), "b": feature(), "e": made}
    FS = featureset(type("FS", (), body))
    client = MockClient()
    client.commit("m", list(commit), [FS])
    return client.query(inputs=["FS.a"], outputs=["FS.b"], input_dataframe=pd.DataFrame({"FS.a": [1, 2]}))


def test_extractors() -> None:
    with refused(Exception, "Extractor e in FS failed to run with error", "bang"):
        extracting(lambda cls, ts, a: boom(a))
    with refused(Exception, "e", "FS", "returned invalid schema", "b", "int"):
        extracting(lambda cls, ts, a: pd.Series(["x", "y"], name="b"))
    with refused(ValueError, "e", "FS", "name"):
        extracting(lambda cls, ts, a: pd.Series([1, 2]))
    with refused(Exception, "e", "FS", "list"):
        extracting(lambda cls, ts, a: [1, 2])
    with refused(Exception, "FS.b", "FS.a", "1", "2"):
        extracting(lambda cls, ts, a: pd.Series([1], name="b"))
    with refused(ValueError, "e", "FS", "Table", "Online"):
        extracting(lambda cls, ts, a: Table.lookup(ts, k=a)[0]["v"].rename("b"), Online)
    with refused(ValueError, "e", "Table"):
        extracting(lambda cls, ts, a: a, Table, commit=())
    with refused(ValueError, "e", "Unindexed", "index"):
        extracting(lambda cls, ts, a: a, Unindexed)


def test_lookup_arguments() -> None:
    ts = pd.Series([T])
    for call, words in (
        (lambda: Table.lookup(ts), ("Table", "'k'")), (lambda: Table.lookup(ts, k=[1]), ("Table", "'k'", "list")),
        (lambda: Table.lookup(ts, 5, k=pd.Series([1])), ("Table",)), (lambda: Table.lookup(pd.Series([1]), k=pd.Series([1])), ("Table", "datetime")),
        (lambda: Table.lookup(ts, k=pd.Series([1, 2])), ("Table", "'k'", "1", "2")), (lambda: Table.lookup(ts, k=pd.Series([1])), ("Table", "committed")),
        (lambda: Table.lookup(ts, k=pd.Series([1]), z=pd.Series([1])), ("Table", "'z'")),
        (lambda: Unindexed.lookup(ts, k=pd.Series([1])), ("define an index on dataset 'Unindexed'",)),
    ):  # fmt: skip
        with refused(ValueError, *words):
            call()
    with refused(Exception, "Stream", "key"):
        Stream.lookup(ts)


@mock
def test_client_lookups(client: MockClient) -> None:
    client.commit("m", [Table, Online, Unindexed])
    keys = pd.DataFrame({"k": [1]})
    with refused(KeyError, "Tabel", "Table"):
        client.lookup("Tabel", keys)
    with refused(ValueError, "zz", "v"):
        client.lookup("Table", keys, fields=["zz"])
    with refused(ValueError, "keys"):
        client.lookup("Table", [1])
    with refused(ValueError, "Online", "offline"):
        client.lookup("Online", keys, timestamps=pd.Series([T]))
    with refused(ValueError, "Unindexed", "define an index on dataset Unindexed"):
        client.lookup("Unindexed", keys)
    rows, found = client.lookup("Table", keys, fields=["v"])
    assert isinstance(rows, pd.Series)
    assert (rows.name, rows.tolist(), found.tolist(), str(found.dtype)) == ("v", [pd.NA], [False], "bool")


@featureset
class FS:
    a: int
    b: int = feature(col("a") + 1)
    alone: int
    o: Optional[int] = feature(col("a") // col("a"))


@mock
def test_queries(client: MockClient) -> None:
    client.commit("m", featuresets=[FS])
    df = pd.DataFrame({"FS.a": [1]})
    with refused(ValueError, "No extractor found for feature", "FS.alone"):
        client.query(inputs=["FS.a"], outputs=["FS.alone"], input_dataframe=df)
    with refused(Exception, "FS.alone", "FS.a"):
        client.query(inputs=["FS.a", "FS.alone"], outputs=["FS.b"], input_dataframe=df)
    with refused(Exception, "FS", "a", "alone"):
        client.query(inputs=[FS], outputs=["FS.b"], input_dataframe=df)
    with refused(Exception, "zz", "FS"):
        client.query(inputs=["FS.a"], outputs=["FS.zz"], input_dataframe=df)
    with refused(Exception, "nothing"):
        client.query(inputs=["FS.a"], outputs=["nothing"], input_dataframe=df)
    with refused(Exception, "FS.a", "int", "x"):
        client.query(inputs=["FS.a"], outputs=["FS.b"], input_dataframe=pd.DataFrame({"FS.a": ["x"]}))
    with refused(NotImplementedError, "log"):
        client.query(inputs=["FS.a"], outputs=["FS.b"], input_dataframe=df, log=True)
    with refused(Exception, "at", "FS.a"):
        client.query_offline(inputs=["FS.a"], outputs=["FS.b"], timestamp_column="at", input_dataframe=df)
    with refused((ValueError, AssertionError), "input_dataframe"):
        client.query_offline(inputs=["FS.a"], outputs=["FS.b"], timestamp_column="at")
    with refused(Exception, "FS.o"):
        client.query(inputs=["FS.a"], outputs=["FS.o"], input_dataframe=pd.DataFrame({"FS.a": [0]}))


def cyclic() -> Any:
    def of(name: str, given: str, made: str) -> Any:
        def func(cls, ts, x):
            return x

        func.__name__ = name
        return extractor(inputs(given)(outputs(made)(func)))

    body = {"__annotations__": {"a": int, "b": int}, "__module__": __name__, "a": feature(), "b": feature()}
    return featureset(type("Round", (), {**body, "one": of("one", "a", "b"), "two": of("two", "b", "a")}))


def twice() -> Any:
    def of(name: str) -> Any:
        def func(cls, ts, x):
            return x.rename("b")

        func.__name__ = name
        return extractor(inputs("a")(outputs("b")(func)))

    body = {"__annotations__": {"a": int, "b": int}, "__module__": __name__, "a": feature(), "b": feature()}
    return featureset(type("Twice", (), {**body, "one": of("one"), "two": of("two")}))


@featureset
class Reader:
    c: int = feature(FS.b)
    d: int

    @extractor
    @inputs("c")
    @outputs("d")
    def doubled(cls, ts, c):
        return (c * 2).rename("d")


def test_commits() -> None:
    with refused(Exception, "Round.a", "Round.b"):
        MockClient().commit("m", featuresets=[cyclic()])
    with refused(TypeError, "Twice", "b", "one", "two"):
        MockClient().commit("m", featuresets=[twice()])
    with refused(ValueError, "Reader", "FS.b", "featureset 'FS'"):
        MockClient().commit("m", featuresets=[Reader])


EXPRESSIONS: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    "types": (lambda: (col("a") + col("s")).typeof({"a": int, "s": str}), ValueError, ("failed to compile expression", "+", "int", "str", 'col("a") + col("s")')),
    "unknown": (lambda: col("zz").typeof({"a": int}), ValueError, ("zz", "a")),
    "compare": (lambda: (col("s") > "x").typeof({"s": str}), ValueError, ("str", ">")),
    "bool": (lambda: bool(col("a")), InvalidExprException, ("a",)),
    "xor": (lambda: col("a") ^ 1, InvalidExprException, ("^",)),
    "name": (lambda: col(5), InvalidExprException, ("5",)),
    "when": (lambda: when(col("a")).otherwise(1), Exception, ()),
    "literal": (lambda: col("a") + [1], Exception, ("[1]",)),
    "callable": (lambda: col("a") + (lambda x: x), TypeError, ("function",)),
    "outermost": (lambda: col("a").astype(int) + 1, TypeError, ()),
    "column": (lambda: col("a").eval(pd.DataFrame({"b": [1]}), {"a": int}), InvalidExprException, ("a",)),
    "null": (lambda: col("a").eval(pd.DataFrame({"a": [None]}), {"a": int}), ValueError, ("a", "int")),
    "division": (lambda: (col("a") // 0).eval(pd.DataFrame({"a": [1]}), {"a": int}), ValueError, ("failed to evaluate expression",)),
    "parse": (lambda: col("s").str.parse(int).eval(pd.DataFrame({"s": ["x"]}), {"s": str}), ValueError, ("failed to evaluate expression", "x")),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions(name: str) -> None:
    call, kind, words = EXPRESSIONS[name]
    with refused(
        kind, *words, at=kind is not TypeError or name != "outermost", remedy=name not in ("outermost", "when")
    ):
        call()
