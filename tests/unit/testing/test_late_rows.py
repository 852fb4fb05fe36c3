"""Tables do not depend on how rows were cut into calls, or on the order of the calls."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pandas as pd
import pytest

from umbel.connectors import Webhook, source
from umbel.datasets import Count, LastK, Max, Stddev, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous, Hopping, Session, Tumbling, Window
from umbel.lib import inputs
from umbel.testing import MockClient

__owner__ = "late@umbel.dev"

webhook = Webhook(name="late")
HOUR = Continuous("1h")


@source(webhook.endpoint("Events"), disorder="14d", cdc="append")
@dataset
class Events:
    uid: int
    x: int
    at: datetime


@source(webhook.endpoint("Owned"), disorder="14d", cdc="upsert")
@dataset
class Owned:
    item: int = field(key=True)
    uid: int
    x: int
    at: datetime


def counted(rows: Any, window: Any, **options: Any) -> Any:
    return rows.groupby("uid").aggregate(n=Count(window=window), total=Sum(of="x", window=window), **options)


def derived(read: Any, body: Callable[[Any], Any], columns: dict[str, Any], keys: dict[str, Any]) -> Any:
    """Make dataset `Derived` with a pipeline of that body."""

    def derive(cls: Any, rows: Any) -> Any:
        return body(rows)

    annotations = {**keys, **columns, "at": datetime}
    fields = {name: field(key=True) for name in keys}
    shape = {"__module__": __name__, "__annotations__": annotations, **fields}
    return dataset(index=bool(keys))(type("Derived", (), {**shape, "derive": pipeline(inputs(read)(derive))}))


SUMS = {"n": int, "total": int}
CASES: dict[str, tuple[Any, Callable[[Any], Any], dict[str, Any], dict[str, Any]]] = {
    "final": (Events, lambda rows: counted(rows, HOUR, emit="final"), SUMS, {"uid": int}),
    "final of a table": (Owned, lambda rows: counted(rows, HOUR, emit="final"), SUMS, {"uid": int}),
    "final forever of a table": (
        Owned,
        lambda rows: counted(rows, Continuous("forever"), emit="final"),
        SUMS,
        {"uid": int},
    ),
    "eager of a table": (Owned, lambda rows: counted(rows, HOUR), SUMS, {"uid": int}),
    "hopping of a table": (Owned, lambda rows: counted(rows, Hopping("forever", "1h")), SUMS, {"uid": int}),
    "windows of windows": (
        Events,
        lambda rows: (
            counted(rows, Hopping("2h", "30m"))
            .groupby("n")
            .aggregate(top=Max(of="total", window=Hopping("forever", "1h"), default=-1))
        ),
        {"top": int},
        {"n": int},
    ),
    "sessions": (
        Events,
        lambda rows: rows.groupby("uid", window=Session("20m")).aggregate(
            n=Count(), last=LastK(of="x", limit=3, dedup=False)
        ),
        {"n": int, "last": list[int]},
        {"uid": int, "window": Window},
    ),
    "sessions by length": (
        Events,
        lambda rows: (
            rows.groupby("uid", window=Session("20m"))
            .aggregate(n=Count(), total=Sum(of="x"))
            .groupby("n")
            .aggregate(spread=Stddev(of="total", window=HOUR), emit="final")
        ),
        {"spread": float},
        {"n": int},
    ),
    "days": (
        Events,
        lambda rows: rows.groupby("uid", window=Tumbling("1h")).aggregate(n=Count()).changelog(delete="gone"),
        {"uid": int, "window": Window, "n": int, "gone": bool},
        {},
    ),
}


def table(made: Any, calls: list[pd.DataFrame], endpoint: str) -> list[str]:
    client = MockClient()
    client.commit(message="case", datasets=[Events, Owned, made])
    for call in calls:
        client.log("late", endpoint, call)
    rows = client.get_dataset_df("Derived")
    return sorted(map(repr, rows.round(9).itertuples(index=False, name=None)))


def logged(draw: random.Random) -> pd.DataFrame:
    instants = [
        pd.Timestamp("2024-01-01", tz="UTC") + pd.Timedelta(seconds=s) for s in draw.sample(range(0, 21600, 37), 14)
    ]
    rows = [{"item": draw.randrange(3), "uid": draw.randrange(2), "x": draw.randrange(4), "at": at} for at in instants]
    return pd.DataFrame(rows)


@pytest.mark.parametrize("name", CASES)
def test_shuffled_calls_give_the_table_of_one_call(name: str) -> None:
    read, body, columns, keys = CASES[name]
    made = derived(read, body, columns, keys)
    for seed in range(2):
        draw = random.Random(seed)
        rows = logged(draw)
        singles = [rows.iloc[[place]] for place in draw.sample(range(len(rows)), len(rows))]
        assert table(made, singles, read.__name__) == table(made, [rows], read.__name__)


def test_final_shows_what_eager_shows() -> None:
    rows = logged(random.Random(1))
    eager, final = (
        table(derived(Events, lambda r, emit=emit: counted(r, HOUR, emit=emit), SUMS, {"uid": int}), [rows], "Events")
        for emit in ("eager", "final")
    )
    assert final == eager


def test_final_sessions_are_those_of_eager() -> None:
    rows = logged(random.Random(1))
    columns, keys = {"n": int}, {"uid": int, "window": Window}
    eager, final = (
        table(
            derived(
                Events,
                lambda r, emit=emit: r.groupby("uid", window=Session("20m")).aggregate(n=Count(), emit=emit),
                columns,
                keys,
            ),
            [rows],
            "Events",
        )
        for emit in ("eager", "final")
    )
    assert final == eager
    assert len(final) > 1
