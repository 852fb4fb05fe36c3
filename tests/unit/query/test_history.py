"""Lookups that need history read no more of it than the part they need."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest

from tests.deployed import Deployed
from umbel.api.commit import check_commit
from umbel.changes.change_filter import ChangeFilter
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.expr import col
from umbel.lib import inputs
from umbel.local.runner import LocalRunner
from umbel.offline import answering
from umbel.offline.answering import Answering
from umbel.query.history import LogPart
from umbel.runtime.batch import drain
from umbel.runtime.history import replayed

__owner__ = "test@umbel.dev"

web = Webhook(name="web")
BEGIN = datetime(2024, 5, 1, tzinfo=UTC)
ROWS, USERS = 4000, 20


@source(web.endpoint("A"), disorder="1d", cdc="append")
@dataset
class Event:
    user: str
    amount: float
    parts: list[int]
    t: datetime


def over(name: str, steps: Any) -> Any:
    """Return a dataset that counts and sums what some steps make of the events."""

    @pipeline
    @inputs(Event)
    def counted(cls, events):
        return (
            steps(events)
            .groupby("who")
            .aggregate(
                n=Count(window=Continuous("1h")),
                total=Sum(of="amount", window=Continuous("1h")),
                ever=Count(window=Continuous("forever")),
            )
        )

    annotations = {"who": str, "n": int, "total": float, "ever": int, "t": datetime}
    members = {"__module__": __name__, "__annotations__": annotations, "who": field(key=True), "counted": counted}
    return dataset(index=True)(type(name, (), members))


def _upper(frame: Any) -> Any:
    return frame["user"].str.upper().str.lower()


def _same(frame: Any) -> Any:
    return frame


renamed = {"user": "who"}
WAYS = {
    "Renamed": (lambda events: events.rename(renamed), True),
    "Filtered": (lambda events: events.rename(renamed).filter(col("amount") >= 0.0), True),
    "Called": (lambda events: events.rename(renamed).filter(lambda df: df["amount"] >= 0), True),
    "Assigned": (lambda events: events.assign(amount=(col("amount") * 1.0).astype(float)).rename(renamed), True),
    "Chosen": (lambda events: events.rename(renamed).select("who", "amount"), True),
    "Exploded": (lambda events: events.explode("parts").rename(renamed), True),
    "United": (lambda events: events.rename(renamed).filter(col("amount") < 5.0) + events.rename(renamed), True),
    "Made": (lambda events: events.assign("who", str, _upper), False),
    "Transformed": (lambda events: events.transform(_same).rename(renamed), False),
}
"""How events reach the aggregate, and whether the user is known in the events' log."""
DATASETS = {name: over(name, steps) for name, (steps, _) in WAYS.items()}


def rows() -> list[dict[str, Any]]:
    """Return events, each second one; many in each tile of an hour."""
    return [
        {
            "user": f"u{number % USERS}",
            "amount": float(number % 7),
            "parts": [1, 2],
            "t": BEGIN + timedelta(seconds=number),
        }
        for number in range(ROWS)
    ]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    found = Deployed(tmp_path_factory.mktemp("deployed"))
    found.commit([Event, *DATASETS.values()])
    events = rows()
    for start in range(0, ROWS, 1000):
        found.log("A", events[start : start + 1000])
        drain(found.deployment)
    yield found
    found.close()


@pytest.mark.parametrize("name", WAYS)
def test_a_part_of_the_history_has_the_values_of_all(deployed: Deployed, name: str) -> None:
    """At instants between the first and the last row of a tile, of which the state has no values."""
    place, read = deployed.deployment, list[tuple[LogPart, int]]()
    node = place.graph(place.catalog.revision()).outputs[name]
    at = [BEGIN + timedelta(seconds=each) for each in (1500, 3790, 3999)]
    found = deployed.lookup(name, [{"who": f"u{number}"} for number in (3, 5, 5)], at)
    factor = 2 if name == "Exploded" else 1
    replay = cast(Any, node.operator).replay(
        replayed(place, node), pl.DataFrame({"who": ["u3", "u5", "u5"], "_time": at})
    )
    for row, user, second, changed in zip(found, (3, 5, 5), (1500, 3790, 3999), replay["_at_changed"], strict=True):
        mine = [n for n in range(second + 1) if n % USERS == user]
        recent = [n for n in mine if n >= second - 3600]
        if name == "United":
            mine, recent = ([*each, *(n for n in each if n % 7 < 5)] for each in (mine, recent))
        assert row == {
            "who": f"u{user}",
            "n": factor * len(recent),
            "total": pytest.approx(factor * sum(n % 7 for n in recent)),
            "ever": factor * len(mine),
            "t": changed,
        }

    def spy(each: Any, part: LogPart) -> pl.DataFrame:
        changes = place.changes.part(each, part)
        read.append((part, changes.height))
        return changes

    first = BEGIN + timedelta(seconds=3600)
    needed = ChangeFilter(pl.DataFrame({"who": ["u3", None]}), "t", int(first.timestamp() * 1e6), None)
    part, everything = replayed(place, node, needed, spy), replayed(place, node)
    matching = (pl.col("who") == "u3") & (pl.col("t") >= first)
    keys = part.columns
    assert part.filter(matching).sort(keys).equals(everything.select(keys).filter(matching).sort(keys))
    if name != "Transformed":  # which may move rows to any instant
        assert all(height <= ROWS - 3600 for _, height in read)
    assert all((height == (ROWS - 3600) / USERS) == WAYS[name][1] for _, height in read)
    is_called = name in ("Called", "Made", "Transformed")
    assert all((part.columns is None) == (is_called or name in ("Chosen", "Exploded", "United")) for part, _ in read)


def test_in_process_the_same_is_read(tmp_path: Path) -> None:
    runner = LocalRunner(check_commit([Event, DATASETS["Filtered"]], ()).datasets.values())
    frame = pl.DataFrame(rows()).with_columns(pl.col("t").cast(pl.Datetime("us", "UTC")))
    runner.ingest("Event", frame)
    at = pl.Series([BEGIN + timedelta(seconds=1500)], dtype=pl.Datetime("us", "UTC"))
    found, mask = runner.lookups.online("Filtered", pl.DataFrame({"who": ["u3"]}), at)
    assert mask.to_list() == [True]
    assert found["ever"].to_list() == [75]


@pytest.mark.parametrize("limit", [1_000, 1 << 30])
def test_a_history_larger_than_its_estimate_is_not_cached(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """As of rows with long texts: it is read whole once, and from then on in parts."""
    place = deployed.deployment
    job = Answering.__new__(Answering)
    job._deployment, job._read, job._large = place, {}, set()
    monkeypatch.setattr(answering, "ROW_BYTES", 0)
    monkeypatch.setattr(answering, "HISTORY_BYTES", limit)
    node = place.graph(place.catalog.revision()).outputs["Renamed"]
    needed = ChangeFilter(pl.DataFrame({"who": ["u3"]}), "t")
    assert job._history(node, needed).height == ROWS
    assert bool(job._read) == (limit > 1_000)
    assert job._history(node, needed).height == (ROWS if limit > 1_000 else ROWS / USERS)
