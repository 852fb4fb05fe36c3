"""Members of class bodies beside fields and features (api §2.5, §6.3)."""

import multiprocessing
import pickle
import threading
from datetime import datetime, timezone
from typing import ClassVar, Optional

import cloudpickle
import pandas as pd

from tests.unit.refusals import refusal
from umbel.api.commit import check_commit
from umbel.connectors import Webhook, source
from umbel.datasets import Dataset, dataset, field, pipeline
from umbel.definitions.records import FunctionExtractor
from umbel.expr import col
from umbel.featuresets import extractor, featureset
from umbel.featuresets import feature as F
from umbel.functions.user_function import UserFunction
from umbel.lib import inputs, outputs
from umbel.testing import mock

__owner__ = "team@example.com"

T = datetime(2024, 1, 1, tzinfo=timezone.utc)

W = Webhook(name="w")

RATE = 3


@source(W.endpoint("Events"), disorder="1d", cdc="append")
@dataset
class Events:
    uid: int
    x: int
    t: datetime


class Shared:
    BASE = 1000

    @classmethod
    def based(cls, x):
        return x + cls.BASE


@dataset(index=True)
class Scaled(Shared):
    uid: int = field(key=True)
    x: int
    y: int
    t: datetime

    FACTOR: ClassVar[int] = 10
    LIMITS = {"low": 0, "high": 3}  # noqa: RUF012
    lock = threading.Lock()  # nothing that travels uses it

    class Names:
        column = "y"

    @classmethod
    def scaled(cls, x):
        return cls.based(x * cls.FACTOR)

    @staticmethod
    def capped(x, limit):
        return x.clip(upper=limit) * RATE

    def plain(x):
        return x

    @pipeline
    @inputs(Events)
    def p(cls, events: Dataset):
        def inner(df):
            return cls.scaled(cls.capped(df["x"], cls.LIMITS["high"]))

        retained = events.filter(lambda df: cls.plain(df["x"]) >= cls.LIMITS["low"])
        return retained.assign(cls.Names.column, int, inner).groupby("uid").latest()


ROWS = pd.DataFrame({"uid": [1, 2, 3], "x": [2, 50, -1], "t": [T] * 3})


@mock
def test_members_of_a_dataset_in_its_pipeline(client) -> None:
    client.commit(message="m", datasets=[Events, Scaled])
    client.log("w", "Events", ROWS)
    rows, found = Scaled.lookup(pd.Series([T] * 3), uid=pd.Series([1, 2, 3]))
    assert rows["y"].tolist() == [1060, 1090, pd.NA]
    assert found.tolist() == [True, True, False]


def test_members_of_a_dataset_outside() -> None:
    assert Scaled.scaled(2) == 1020
    assert Scaled.capped(pd.Series([9]), 1).tolist() == [3]
    assert Scaled.plain(4) == 4
    assert (Scaled.FACTOR, Scaled.LIMITS["high"], Scaled.Names.column, Scaled.BASE) == (10, 3, "y", 1000)
    assert [each.name for each in Scaled.fields] == ["uid", "x", "y", "t"]
    with refusal(AttributeError, "nothing", at=False, remedy=False):
        _ = Scaled.nothing


def test_a_field_wins_and_so_does_the_api() -> None:
    class Base:
        name = "constant"
        fields = 3
        lookup = 4

    @dataset
    class D(Base):
        name: str
        t: datetime

    assert str(D.name) == "name"
    assert D.name.dataset == "D"
    assert len(D.fields) == 2
    assert callable(D.lookup)


def _functions(dataset_or_features):
    definitions = check_commit([Events, Scaled], [Rated])
    if dataset_or_features == "dataset":
        node = definitions.datasets["Scaled"].output
        found = []
        while node.parents:
            for each in getattr(node, "columns", ()):
                found.append(getattr(each.computed, "function", None))
            node = node.parents[0]
        return [each for each in found if each is not None]
    return [
        each.function for each in definitions.featuresets["Rated"].extractors if isinstance(each, FunctionExtractor)
    ]


def _run(payload: bytes, queue) -> None:
    function, arguments = pickle.loads(payload)
    queue.put(function(*arguments))


def _elsewhere(function, *arguments):
    """Run a function in a process that has never seen this module."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_run, args=(cloudpickle.dumps((function, arguments)), queue))
    process.start()
    try:
        return queue.get(timeout=120)
    finally:
        process.join()


@featureset
class Rated:
    uid: int = F()
    score: int
    both: int = F(col("uid") + 1)
    half: Optional[float]

    WEIGHT = 7
    lock = threading.Lock()

    @classmethod
    def weighted(cls, x):
        return x * cls.WEIGHT

    @staticmethod
    def shifted(x):
        return x + RATE

    @extractor
    @inputs("uid")
    @outputs("score")
    def scored(cls, ts, uid):
        total = uid.map(lambda each: cls.shifted(cls.weighted(each)))
        return pd.Series(total, name=str(cls.score))

    @extractor
    @inputs(uid)
    @outputs("half")
    def halved(cls, ts, uid):
        score = cls.scored(cls, ts, uid)
        assert score.name == "Rated.score"
        return (score / 2).astype(float).rename("half")


FRAME = pd.DataFrame({"Rated.uid": [1, 2]})


@mock
def test_members_of_a_featureset(client) -> None:
    client.commit(message="m", datasets=[], featuresets=[Rated])
    found = client.query([Rated.uid], [Rated.score, Rated.half, Rated.both], FRAME)
    assert found["Rated.score"].tolist() == [10, 17]
    assert found["Rated.half"].tolist() == [5.0, 8.5]
    assert (Rated.weighted(2), Rated.shifted(1), Rated.WEIGHT) == (14, 4, 7)
    assert Rated.original_cls.WEIGHT == 7
    assert Rated.original_cls.__name__ == "Rated"


def test_they_travel() -> None:
    ts, uid = pd.Series([T]), pd.Series([1])
    scored, halved = _functions("featureset")
    assert _elsewhere(scored, ts, uid).tolist() == [10]
    assert _elsewhere(halved, ts, uid).tolist() == [5.0]
    (assigned,) = _functions("dataset")
    assert _elsewhere(assigned, pd.DataFrame({"x": [2]})).tolist() == [1060]


def test_they_are_part_of_the_fingerprint() -> None:
    def digest(weight, helper, unused) -> str:
        @featureset
        class FS:
            a: int = F()
            b: int

            W = weight
            U = unused

            @classmethod
            def helped(cls, x):
                return helper(x) * cls.W

            @extractor
            @inputs("a")
            @outputs("b")
            def e(cls, ts, a):
                return cls.helped(a).rename("b")

        (function,) = [
            each.function for each in check_commit([], [FS]).featuresets["FS"].extractors if hasattr(each, "function")
        ]
        return function.digest

    one, two = (lambda x: x + 1), (lambda x: x + 2)
    known = digest(1, one, 1)
    assert digest(1, one, 1) == known
    assert digest(1, one, 2) == known  # nothing uses it
    assert digest(2, one, 1) != known
    assert digest(1, two, 1) != known


def test_what_cannot_travel_is_named() -> None:
    @featureset
    class FS:
        a: int = F()
        b: int

        guard = threading.Lock()

        @extractor
        @inputs("a")
        @outputs("b")
        def e(cls, ts, a):
            with cls.guard:
                return a.rename("b")

    with refusal(ValueError, "guard"):
        check_commit([], [FS])


def test_outside_functions_may_use_datasets() -> None:
    function = UserFunction(lambda x: Scaled.scaled(x))
    assert _elsewhere(function, 2) == 1020
