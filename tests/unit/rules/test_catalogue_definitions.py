"""The error catalogue, at definition: kinds, names, place and remedy (api §13). What other files of this folder test is not here."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, List, Optional

import pytest

from tests.unit.rules.refusals import refused
from umbel.datasets import (
    Average,
    Count,
    Dataset,
    Distinct,
    ExpDecaySum,
    FirstK,
    LastK,
    Max,
    Min,
    Quantile,
    Sum,
    dataset,
    field,
    pipeline,
)
from umbel.dtypes import Continuous, Hopping, Session, Tumbling
from umbel.expr import col
from umbel.featuresets import extractor, feature, featureset
from umbel.lib import inputs, outputs

__owner__ = "team@example.com"
DAY = Continuous("1d")


@dataset
class Stream:
    k: int
    v: int
    o: Optional[int]
    s: str
    many: List[int]
    when: datetime
    t: datetime = field(timestamp=True)


@dataset
class Other:
    k: int
    v: float
    t: datetime


@dataset(index=True)
class Table:
    k: int = field(key=True)
    v: int
    r: str
    o: Optional[int]
    t: datetime


@dataset(index=True)
class Texts:
    s: str = field(key=True)
    v: int
    t: datetime


def made(body: Callable[..., Any], *datasets: Dataset) -> None:
    @dataset
    class D:
        x: int
        t: datetime

        @pipeline
        @inputs(*datasets)
        def pipe(cls, a: Dataset, *more: Dataset):
            return body(a, *more)

    del D


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], type[Exception], tuple[str, ...]]] = {
    "union": (lambda a, b: a + b, (Stream, Other), ValueError, ("v", "int", "float", "D.pipe")),
    "union keyed": (lambda a: a + a, (Table,), TypeError, ("k", "D.pipe")),
    "explode keyed": (lambda a: a.explode("v"), (Table,), TypeError, ("k", "D.pipe")),
    "first keyed": (lambda a: a.groupby("v").first(), (Table,), TypeError, ("k", "D.pipe")),
    "latest keyed": (lambda a: a.groupby("v").latest(), (Table,), TypeError, ("k", "D.pipe")),
    "dedup keyed": (lambda a: a.dedup("v"), (Table,), ValueError, ("k", "D.pipe")),
    "changelog keyless": (lambda a: a.changelog(delete="d"), (Stream,), TypeError, ("D.pipe",)),
    "changelog both": (lambda a: a.changelog(delete="d", insert="i"), (Table,), ValueError, ("D.pipe",)),
    "changelog none": (lambda a: a.changelog(), (Table,), ValueError, ("D.pipe",)),
    "rename empty": (lambda a: a.rename({}), (Stream,), ValueError, ("rename", "D.pipe")),
    "rename unknown": (lambda a: a.rename({"zz": "y"}), (Stream,), ValueError, ("zz", "D.pipe", "many")),
    "rename existing": (lambda a: a.rename({"v": "s"}), (Stream,), ValueError, ("s", "D.pipe")),
    "drop none": (lambda a: a.drop(), (Stream,), ValueError, ("D.pipe",)),
    "drop both": (lambda a: a.drop("v", columns=["s"]), (Stream,), ValueError, ("D.pipe",)),
    "drop key": (lambda a: a.drop("k"), (Table,), ValueError, ("'k'", "D.pipe", "v, r")),
    "drop time": (lambda a: a.drop("t"), (Stream,), ValueError, ("'t'", "D.pipe", "many")),
    "drop unknown": (lambda a: a.drop(["zz"]), (Stream,), ValueError, ("zz", "D.pipe", "many")),
    "select key": (lambda a: a.select("v"), (Table,), ValueError, ("'k'", "D.pipe")),
    "select unknown": (lambda a: a.select("zz"), (Stream,), ValueError, ("zz", "D.pipe")),
    "select none": (lambda a: a.select(), (Stream,), ValueError, ("D.pipe",)),
    "dropnull plain": (lambda a: a.dropnull("v"), (Stream,), ValueError, ("'v'", "D.pipe")),
    "dropnull time": (lambda a: a.dropnull("t"), (Stream,), ValueError, ("'t'", "D.pipe")),
    "dropnull unknown": (lambda a: a.dropnull("zz"), (Stream,), ValueError, ("zz", "D.pipe")),
    "dropnull nothing": (lambda a: a.dropnull(), (Other,), ValueError, ("D.pipe",)),
    "explode unknown": (lambda a: a.explode("zz"), (Stream,), ValueError, ("zz", "D.pipe")),
    "explode plain": (lambda a: a.explode("v"), (Stream,), (TypeError, ValueError), ("'v'", "int", "D.pipe")),
    "join keys": (lambda a, b: a.join(b, how="left", on=["v"]), (Stream, Table), ValueError, ("'v'", "Table", "D.pipe")),
    "join keyless": (lambda a, b: a.join(b, how="left", on=["k"]), (Stream, Other), ValueError, ("Other", "D.pipe")),
    "join node": (lambda a, b: a.join(b.filter(col("v") > 1), how="left", on=["k"]), (Stream, Table), ValueError, ("D.pipe",)),
    "join thing": (lambda a: a.join(5, how="left", on=["k"]), (Stream,), TypeError, ("5", "D.pipe")),
    "join types": (lambda a, b: a.join(b, how="left", left_on=["v"], right_on=["s"]), (Stream, Texts), TypeError, ("'v'", "int", "str", "D.pipe")),
    "join optional": (lambda a, b: a.join(b, how="left", left_on=["o"], right_on=["k"]), (Stream, Table), TypeError, ("'o'", "Optional[int]", "D.pipe")),
    "join how": (lambda a, b: a.join(b, how="outer", on=["k"]), (Stream, Table), ValueError, ("outer", "D.pipe")),
    "join within": (lambda a, b: a.join(b, how="left", on=["k"], within=("1d",)), (Stream, Table), ValueError, ("within", "1d", "D.pipe")),
    "join ahead": (lambda a, b: a.join(b, how="left", on=["k"], within=("1d", "forever")), (Stream, Table), ValueError, ("forever", "D.pipe")),
    "join none": (lambda a, b: a.join(b, how="left", on=["k"], within=("1d", None)), (Stream, Table), ValueError, ("within", "D.pipe")),
    "join no on": (lambda a, b: a.join(b, how="left"), (Stream, Table), ValueError, ("on", "D.pipe")),
    "join both on": (lambda a, b: a.join(b, how="left", on=["k"], left_on=["k"], right_on=["k"]), (Stream, Table), ValueError, ("on", "D.pipe")),
    "join text on": (lambda a, b: a.join(b, how="left", on="k"), (Stream, Table), ValueError, ("on", "D.pipe")),
    "join clash": (lambda a, b: a.join(b, how="left", on=["k"]), (Stream, Table), ValueError, ("'v'", "Stream", "Table", "D.pipe")),
    "join fields": (lambda a, b: a.join(b, how="left", on=["k"], fields=["zz"]), (Stream, Table), ValueError, ("zz", "D.pipe")),
    "filter type": (lambda a: a.filter(col("v") + 1), (Stream,), TypeError, ("int", "D.pipe")),
    "filter optional": (lambda a: a.filter(col("o") > 1), (Stream,), TypeError, ("Optional[bool]", "D.pipe")),
    "filter thing": (lambda a: a.filter(5), (Stream,), ValueError, ("5", "D.pipe")),
    "assign bare": (lambda a: a.assign(x=col("v") + 1), (Stream,), TypeError, ("'x'", "astype", "D.pipe")),
    "assign thing": (lambda a: a.assign(x=5), (Stream,), ValueError, ("'x'", "5", "D.pipe")),
    "assign type": (lambda a: a.assign(x=(col("v") * 1.5).astype(int)), (Stream,), TypeError, ("'x'", "int", "float", "1.5", "D.pipe")),
    "assign compile": (lambda a: a.assign(x=(col("s") + 1).astype(int)), (Stream,), ValueError, ("'x'", "str", "D.pipe")),
    "assign key": (lambda a: a.assign(k=col("v").astype(int)), (Table,), ValueError, ("'k'", "D.pipe")),
    "assign time": (lambda a: a.assign(t=col("t").astype(datetime)), (Stream,), ValueError, ("'t'", "D.pipe")),
    "transform key": (lambda a: a.transform(lambda df: df, schema={"k": str, "v": int, "t": datetime}), (Table,), TypeError, ("'k'", "int", "str", "D.pipe")),
    "transform time": (lambda a: a.transform(lambda df: df, schema={"k": int, "v": int}), (Table,), TypeError, ("'t'", "D.pipe")),
}  # fmt: skip
AGGREGATES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], type[Exception], tuple[str, ...]]] = {
    "sum": (lambda a: a.groupby("k").aggregate(x=Sum(of="s", window=DAY)), (Stream,), TypeError, ("'s'", "str", "D.pipe")),
    "average": (lambda a: a.groupby("k").aggregate(x=Average(of="s", window=DAY)), (Stream,), TypeError, ("'s'", "str")),
    "min": (lambda a: a.groupby("k").aggregate(x=Min(of="s", window=DAY)), (Stream,), TypeError, ("'s'", "str")),
    "unknown": (lambda a: a.groupby("k").aggregate(x=Sum(of="zz", window=DAY)), (Stream,), Exception, ("zz",)),
    "distinct": (lambda a: a.groupby("k").aggregate(x=Distinct(of="when", unordered=True, window=DAY)), (Stream,), TypeError, ("when", "datetime")),
    "ordered": (lambda a: a.groupby("k").aggregate(x=Distinct(of="v", unordered=False, window=DAY)), (Stream,), ValueError, ("unordered",)),
    "unique": (lambda a: a.groupby("k").aggregate(x=Count(of="v", unique=True, window=DAY)), (Stream,), ValueError, ("unique",)),
    "unique of": (lambda a: a.groupby("k").aggregate(x=Count(unique=True, approx=True, window=DAY)), (Stream,), ValueError, ("of",)),
    "dropnull": (lambda a: a.groupby("k").aggregate(x=Count(of="v", dropnull=True, window=DAY)), (Stream,), ValueError, ("v",)),
    "lastk": (lambda a: a.groupby("k").aggregate(x=LastK(of="v", limit=2, dedup=False, dropnull=True, window=DAY)), (Stream,), ValueError, ("v",)),
    "firstk": (lambda a: a.groupby("k").aggregate(x=FirstK(of="v", limit=2, dedup=False, dropnull=True, window=DAY)), (Stream,), TypeError, ("v",)),
    "default": (lambda a: a.groupby("k").aggregate(x=Max(of="v", default=1.5, window=DAY)), (Stream,), TypeError, ("1.5", "int")),
    "quantile": (lambda a: a.groupby("k").aggregate(x=Quantile(of="v", p=2, approx=True, window=DAY)), (Stream,), ValueError, ("2",)),
    "exact": (lambda a: a.groupby("k").aggregate(x=Quantile(of="v", p=0.5, window=DAY)), (Stream,), ValueError, ("approx",)),
    "half life": (lambda a: a.groupby("k").aggregate(x=ExpDecaySum(of="v", half_life="1x", window=DAY)), (Stream,), ValueError, ("1x",)),
    "mixed": (lambda a: a.groupby("k").aggregate(x=Count(window=DAY), y=Count(window=Tumbling("1d"))), (Stream,), ValueError, ("D.pipe", "Continuous", "Tumbling")),
    "lookback": (lambda a: a.groupby("k").aggregate(x=Count(window=Tumbling("1d", "1d")), y=Count(window=Tumbling("1d"))), (Stream,), ValueError, ("D.pipe", "lookback")),
    "session": (lambda a: a.groupby("k").aggregate(x=Count(window=Session("1d"))), (Stream,), ValueError, ("Session",)),
    "continuous": (lambda a: a.groupby("k", window=DAY).aggregate(x=Count()), (Stream,), TypeError, ("D.pipe", "Continuous")),
    "forever": (lambda a: a.groupby("k", window=Hopping("forever", "1d")).aggregate(x=Count()), (Stream,), TypeError, ("D.pipe", "forever")),
    "keyed window": (lambda a: a.groupby("v", window=Tumbling("1d")).aggregate(x=Count()), (Table,), ValueError, ("D.pipe", "k")),
    "own window": (lambda a: a.groupby("k", window=Tumbling("1d")).aggregate(x=Count(window=Tumbling("2d"))), (Stream,), ValueError, ("D.pipe", "1d", "2d")),
    "window first": (lambda a: a.groupby("k", window=Tumbling("1d")).first(), (Stream,), ValueError, ("D.pipe",)),
    "along": (lambda a: a.groupby("k").aggregate(x=Count(window=DAY), along="v"), (Stream,), ValueError, ("D.pipe", "'v'", "int")),
    "along unknown": (lambda a: a.groupby("k").aggregate(x=Count(window=DAY), along="zz"), (Stream,), ValueError, ("D.pipe", "zz")),
    "along thing": (lambda a: a.groupby("k").aggregate(x=Count(window=DAY), along=5), (Stream,), ValueError, ("D.pipe", "5")),
    "along final": (lambda a: a.groupby("k").aggregate(x=Count(window=DAY), along="when", emit="final"), (Stream,), ValueError, ("D.pipe", "when", "final")),
    "along window": (lambda a: a.groupby("k", window=Tumbling("1d")).aggregate(x=Count(), along="when"), (Stream,), ValueError, ("D.pipe", "when")),
    "emit": (lambda a: a.groupby("k").aggregate(x=Count(window=DAY), emit="often"), (Stream,), ValueError, ("often", "eager", "final")),
    "decay final": (lambda a: a.groupby("k").aggregate(x=ExpDecaySum(of="v", half_life="1d", window=DAY), emit="final"), (Stream,), ValueError, ("final",)),
    "keyed tumbling": (lambda a: a.groupby("r").aggregate(x=Count(window=Tumbling("1d"))), (Table,), ValueError, ("D.pipe", "along")),
    "no keys": (lambda a: a.groupby().aggregate(x=Count(window=DAY)), (Stream,), ValueError, ("D.pipe",)),
    "unknown key": (lambda a: a.groupby("zz").aggregate(x=Count(window=DAY)), (Stream,), Exception, ("zz", "D.pipe")),
    "no aggregate": (lambda a: a.groupby("k").aggregate(), (Stream,), TypeError, ("D.pipe",)),
    "no name": (lambda a: a.groupby("k").aggregate(Count(window=DAY)), (Stream,), ValueError, ("Count",)),
    "not one": (lambda a: a.groupby("k").aggregate(x=5), (Stream,), ValueError, ("'x'", "5")),
    "reserved": (lambda a: a.groupby("k").aggregate(emit=Count(window=DAY)), (Stream,), ValueError, ("emit",)),
    "argument": (lambda a: a.groupby("k").aggregate(x=Sum(off="v", window=DAY)), (Stream,), ValueError, ("off",)),
    "dedup unknown": (lambda a: a.dedup("zz"), (Stream,), ValueError, ("zz", "D.pipe")),
    "dedup time": (lambda a: a.dedup("t"), (Stream,), ValueError, ("t", "D.pipe")),
    "dedup lookback": (lambda a: a.dedup("v", window=Tumbling("1d", "1d")), (Stream,), ValueError, ("lookback", "D.pipe")),
    "dedup hopping": (lambda a: a.dedup("v", window=Hopping("1d", "1h")), (Stream,), TypeError, ("Hopping", "D.pipe")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operators(name: str) -> None:
    body, datasets, kind, words = CASES[name]
    with refused(kind, *words):
        made(body, *datasets)


@pytest.mark.parametrize("name", AGGREGATES)
def test_aggregates(name: str) -> None:
    body, datasets, kind, words = AGGREGATES[name]
    with refused(kind, *words):
        made(body, *datasets)


def of(annotation: Any, made_of: Any, **others: Any) -> None:
    annotations = {name: kind for name, (kind, _) in others.items()} | {"f": annotation}
    values = {name: value for name, (_, value) in others.items()} | {"f": made_of}
    featureset(type("FS", (), {"__annotations__": annotations, "__module__": __name__, **values}))


@featureset
class Base:
    k: int
    x: Optional[int] = feature(Table.v)


def test_references() -> None:
    k = (int, feature())
    with refused(TypeError, "f", "Optional[int]", "int", "Table.v", "FS"):
        of(int, feature(Table.v), k=k)
    with refused(TypeError, "f", "int", "Optional[int]", "FS"):
        of(Optional[int], feature(Table.v, default=1), k=k)
    with refused(ValueError, "f", "'k'", "Table", "FS"):
        of(Optional[int], feature(Table.v))
    with refused(ValueError, "Stream", "FS"):
        of(Optional[int], feature(Stream.v), k=k)
    with refused((TypeError, ValueError), "f", "x", "FS"):
        of(int, feature(Table.v, default="x"), k=k)
    with refused(TypeError, "f", "Base.x", "Optional[int]", "int"):
        of(int, feature(Base.x))
    with refused(TypeError, "2"):
        feature(Table.v, Table.r)
    with refused(TypeError, "default", "1"):
        feature(default=1)
    with refused(TypeError, "f", "5"):
        of(int, feature(5))
    with refused(TypeError, "f", "int", "float", "1.5"):
        of(int, feature(col("k") * 1.5), k=k)
    with refused(ValueError, "zz", "FS"):
        of(int, feature(col("zz") + 1), k=k)
    with refused(ValueError, "default"):
        of(int, feature(col("k") + 1, default=1), k=k)
    with refused(ValueError, "'f'", "'g'", "Table.v"):
        of(Optional[int], feature(Table.v), k=k, g=(Optional[int], feature(Table.v)))
    with refused(TypeError, "f", "5", "int"):
        of(int, 5)


def extracting(**decorators: Any) -> None:
    body = decorators.pop("body", lambda cls, ts, a: a)
    for name, decorate in decorators.items():
        del name
        body = decorate(body)
    body.__name__ = "e"
    annotations = {"a": int, "b": int}
    featureset(
        type(
            "FS",
            (),
            {
                "__annotations__": annotations,
                "__module__": __name__,
                "a": feature(),
                "b": feature(),
                "e": extractor(body),
            },
        )
    )


def test_extractors() -> None:
    with refused(TypeError, "e", "Base", "Featureset"):
        extracting(i=inputs(Base), o=outputs("b"))
    with refused(TypeError, "e", "5"):
        extracting(i=inputs(5), o=outputs("b"))
    with refused(ValueError, "e", "zz", "a", "b"):
        extracting(i=inputs("zz"), o=outputs("b"))
    with refused(ValueError, "e", "zz", "a", "b"):
        extracting(i=inputs("a"), o=outputs("zz"))
    with refused(TypeError, "e", "Base.x"):
        extracting(i=inputs("a"), o=outputs(Base.x))
    with refused(ValueError, "inputs"):
        extracting(i=inputs(), o=outputs("b"))
    with refused(TypeError, "e", "self", "cls"):
        extracting(i=inputs("a"), o=outputs("b"), body=lambda self, ts, a: a)
    with refused(TypeError, "e", "now", "ts"):
        extracting(i=inputs("a"), o=outputs("b"), body=lambda cls, now, a: a)
