"""Errors when data flows: kinds, names, place and remedy (api §13)."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, List, Optional

import pandas as pd
import pytest

from tests.unit.refusals import refusal
from umbel.connectors import Webhook, source
from umbel.datasets import Dataset, dataset, field, pipeline
from umbel.expr import col, lit
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


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def cancelled(df: pd.DataFrame) -> pd.Series:
    raise asyncio.CancelledError("too late")  # a BaseException


def mute(df: pd.DataFrame) -> pd.Series:
    raise Mute


BODIES: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    "filter": (lambda a: a.filter(boom), ("filter", "boom", "D.pipe", "bang")),
    "no Exception": (lambda a: a.filter(cancelled), ("filter", "cancelled", "D.pipe", "CancelledError", "too late")),
    "no text": (lambda a: a.assign("v", int, mute), ("column v", "D.pipe", "Mute", "its text cannot be made: RuntimeError")),
    "no such column": (lambda a: a.assign("v", int, lambda df: df["mani"]), ("column v", "D.pipe", "no column 'mani'; did you mean 'many'?", __file__)),
    "no such attribute": (lambda a: a.filter(lambda df: df.zz > 1), ("filter", "D.pipe", "no column 'zz'; known: k, many, more, t, v")),
    "a key of something else": (lambda a: a.filter(lambda df: {}["mani"]), ("filter", "D.pipe", "KeyError: 'mani'")),
    "filter type": (lambda a: a.filter(lambda df: df["v"]), ("filter", "D.pipe", "bool")),
    "assign": (lambda a: a.assign("v", int, boom), ("Error in assign node for column v for pipeline D.pipe", "bang")),
    "assign type": (lambda a: a.assign("v", int, lambda df: df["v"] * 1.5 + 0.25), ("Error in assign node for column v for pipeline D.pipe", "int")),
    "assign value": (lambda a: a.assign("v", int, lambda df: df["v"].where(df["v"] < 0)), ("column v for pipeline D.pipe, InvalidValue: null, and int is not Optional (row 0)",)),
    "assign expression": (lambda a: a.assign(v=(col("v") // lit(0)).astype(int)), ("assign", "v", "D.pipe")),
    "transform": (lambda a: a.transform(boom), ("transform", "boom", "D.pipe", "bang")),
    "transform columns": (lambda a: a.transform(lambda df: df.assign(x=1)), ("transform", "D.pipe", "schema")),
    "transform rows": (lambda a: a.transform(lambda df: df[:0]), ("transform", "D.pipe")),
    "explode": (lambda a: a.explode("many", "more").assign(many=lit([1], List[int]).astype(List[int]), more=lit([1], List[int]).astype(List[int])), ("explode", "D.pipe")),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_user_functions(name: str) -> None:
    body, words = BODIES[name]
    with refusal(Exception, *words):
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
    with refusal(Exception, "Extractor e in FS failed to run with error", "bang"):
        extracting(lambda cls, ts, a: boom(a))
    with refusal(Exception, "e", "FS", "returned invalid schema", "b", "int"):
        extracting(lambda cls, ts, a: pd.Series(["x", "y"], name="b"))
    with refusal(ValueError, "e", "FS", "name"):
        extracting(lambda cls, ts, a: pd.Series([1, 2]))
    with refusal(Exception, "e", "FS", "list"):
        extracting(lambda cls, ts, a: [1, 2])
    with refusal(Exception, "FS.b", "FS.a", "1", "2"):
        extracting(lambda cls, ts, a: pd.Series([1], name="b"))
    with refusal(ValueError, "e", "FS", "Table", "Online"):
        extracting(lambda cls, ts, a: Table.lookup(ts, k=a)[0]["v"].rename("b"), Online)
    with refusal(ValueError, "e", "Table"):
        extracting(lambda cls, ts, a: a, Table, commit=())
    with refusal(ValueError, "e", "Unindexed", "index"):
        extracting(lambda cls, ts, a: a, Unindexed)


@mock
def test_lookups_need_the_index_they_read(client: MockClient) -> None:
    client.commit("m", [Table, Online, Unindexed])
    keys = pd.DataFrame({"k": [1]})
    with refusal(ValueError, "Online", "offline"):
        client.lookup("Online", keys, timestamps=pd.Series([T]))
    with refusal(ValueError, "Unindexed", "define an index on dataset Unindexed"):
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
def test_features_without_extractor_or_input(client: MockClient) -> None:
    client.commit("m", featuresets=[FS])
    df = pd.DataFrame({"FS.a": [1]})
    with refusal(ValueError, "No extractor found for feature", "FS.alone"):
        client.query(inputs=["FS.a"], outputs=["FS.alone"], input_dataframe=df)
    with refusal(Exception, "FS.alone", "FS.a"):
        client.query(inputs=["FS.a", "FS.alone"], outputs=["FS.b"], input_dataframe=df)
    with refusal(Exception, "nothing"):
        client.query(inputs=["FS.a"], outputs=["nothing"], input_dataframe=df)
    with refusal(Exception, "FS.o"):
        client.query(inputs=["FS.a"], outputs=["FS.o"], input_dataframe=pd.DataFrame({"FS.a": [0]}))
