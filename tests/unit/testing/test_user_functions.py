"""What users' functions may return, and which pipelines of a dataset run."""

import os
import subprocess
import sys
from datetime import date, datetime, timezone
from decimal import Decimal as Number
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pandas as pd
import pytest

from umbel.connectors import Webhook, source
from umbel.datasets import Count, Dataset, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous, Decimal
from umbel.lib import inputs
from umbel.testing import MockClient

__owner__ = "team@example.com"
T = datetime(2024, 1, 1, tzinfo=timezone.utc)
ROWS = pd.DataFrame({"k": [1, 2, 1], "v": [1, 2, 3], "t": [T] * 3})


@source(Webhook(name="w").endpoint("A"), disorder="14d", cdc="append")
@dataset
class A:
    k: int
    v: int
    t: datetime


@pytest.mark.parametrize(
    ("declared", "value", "stored"),
    [
        (int, 7, 7),
        (int, np.int64(7), 7),
        (float, 1, 1.0),
        (float, np.float64(1.5), 1.5),
        (bool, True, True),
        (str, "x", "x"),
        (bytes, b"x", b"x"),
        (date, date(2020, 1, 2), date(2020, 1, 2)),
        (Decimal[2], Number("1.5"), Number("1.50")),
        (Optional[float], np.nan, pd.NA),
    ],
)
def test_one_value_for_all_rows(declared: Any, value: Any, stored: Any) -> None:
    @dataset
    class B:
        k: int
        v: int
        x: declared
        t: datetime

        @pipeline
        @inputs(A)
        def p(cls, a: Dataset):
            return a.assign("x", declared, lambda df: value)

    client = MockClient()
    client.commit("m", [A, B])
    client.log("w", "A", ROWS)
    assert client.get_dataset_df("B")["x"].tolist() == [stored] * 3


def test_pipelines_of_several_environments() -> None:
    @dataset(index=True)
    class B:
        k: int = field(key=True)
        n: int
        t: datetime

        @pipeline(env="prod")
        @inputs(A)
        def counted(cls, a: Dataset):
            return a.groupby("k").aggregate(n=Count(window=Continuous("forever")))

        @pipeline(env=["dev", "test"])
        @inputs(A)
        def summed(cls, a: Dataset):
            return a.groupby("k").aggregate(n=Sum(of="v", window=Continuous("forever")))

    for env, expected in {"prod": [2, 1], "test": [4, 2], None: [4, 2]}.items():
        client = MockClient()
        client.commit("m", [A, B], env=env)
        client.log("w", "A", ROWS)
        rows, _ = client.lookup(B, pd.DataFrame({"k": [1, 2]}))
        assert rows["n"].tolist() == expected


SPOTS = """
from datetime import datetime
from typing import List, Optional
import pandas as pd
from umbel import Dataset, Webhook, dataset, extractor, feature, featureset, field, inputs, outputs, pipeline, source
from umbel.dtypes import struct
__owner__ = "team@example.com"

@struct
class Inner:
    y: int

@struct
class Spot:
    x: int
    inners: List[Inner]

@struct
class Unmentioned:
    z: int

def known(values):
    return values.map(lambda each: isinstance(each, Spot) and all(isinstance(inner, Inner) for inner in each.inners))

@source(Webhook(name="web").endpoint("seen"), disorder="14d", cdc="upsert", where=lambda df: known(df["spot"]).astype(bool))
@dataset(index=True)
class Seen:
    k: int = field(key=True)
    spot: Optional[Spot]
    other: Unmentioned
    t: datetime

@dataset(index=True)
class Kept:
    k: int = field(key=True)
    spot: Spot
    other: Unmentioned
    text: str
    t: datetime

    @pipeline
    @inputs(Seen)
    def p(cls, seen: Dataset):
        named = seen.dropnull("spot").assign("text", str, lambda df: df["other"].map(lambda each: type(each).__name__))
        return named.filter(lambda df: known(df["spot"]).astype(bool))

@featureset
class Asked:
    k: int
    spot: Optional[Spot] = feature(Kept.spot)
    is_given: bool
    is_found: bool

    @extractor
    @inputs("spot")
    @outputs("is_given")
    def given(cls, ts, spot):
        return known(spot).astype(bool).rename("is_given")

    @extractor(deps=[Kept])
    @inputs("k")
    @outputs("is_found")
    def found(cls, ts, k):
        return known(Kept.lookup(ts, k=k)[0]["spot"]).astype(bool).rename("is_found")
"""
COMMIT = """
import sys
from pathlib import Path
from spots import Asked, Kept, Seen
from umbel.api.commit import check_commit
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment
commit(Deployment.at(Path(sys.argv[1]), shards=1), check_commit([Seen, Kept], [Asked]))
"""
ANSWER = """
import sys
from functools import partial
from pathlib import Path
import polars as pl
from tests.deployed import Deployed
from umbel.query.execute import QueryEngine
from umbel.query.lookups import Lookups
from umbel.query.rows import Instants
from umbel.query.session import QueryMode
from umbel.runtime.batch import drain
from umbel.runtime.history import replayed
deployed = Deployed(Path(sys.argv[1]), shards=1)
place = deployed.deployment
deployed.log("seen", [{"k": 1, "spot": {"x": 1, "inners": [{"y": 2}]}, "other": {"z": 3}, "t": "2024-01-01T00:00:00Z"}])
drain(place)
revision = place.catalog.latest()
engine = QueryEngine(place.definitions(revision), Lookups(place.graph(revision), place.store, partial(replayed, place)))
plan = engine.plan(["Asked.k"], ["Asked.is_given", "Asked.is_found"], QueryMode.ONLINE)
at = Instants.of(pl.Series([2**51], dtype=pl.Datetime("us", "UTC")))
print(engine.run(plan, {"Asked.k": pl.Series([1])}, at, QueryMode.ONLINE).to_pandas().iloc[0].tolist())
assert "spots" not in sys.modules
"""


def test_structs_are_instances_of_their_class_where_its_module_is_not(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "spots.py").write_text(SPOTS)
    paths = os.pathsep.join([str(Path(__file__).parents[3]), *filter(None, sys.path)])
    for program, where in ((COMMIT, tmp_path / "home"), (ANSWER, tmp_path)):
        command = [sys.executable, "-c", program, str(tmp_path / "umbel")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(where), paths))}
        shown = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False)
        assert shown.returncode == 0, shown.stderr
    assert shown.stdout == "[True, True]\n"
