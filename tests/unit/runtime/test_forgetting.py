"""State that the watermark has passed is dropped by merges: rows, sessions, panes and timers do not grow with time."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest

from umbel.api.commit import check_commit
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Sum, dataset, field, pipeline
from umbel.dtypes import Hopping, Session, Tumbling, Window
from umbel.lib import inputs
from umbel.log.ingest import IngestLog
from umbel.runtime.batch import drain
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment
from umbel.state.runs.maintenance import maintain
from umbel.state.runs.shard import ShardOptions

__owner__ = "tests@umbel.dev"

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
DAYS, ROWS, FAN = 36, 40, 3
hook = Webhook(name="web")


@source(hook.endpoint("clicks"), disorder="1d", cdc="append")
@dataset
class Click:
    user: int
    item: int
    at: datetime


@dataset
class Once:
    user: int
    item: int
    at: datetime

    @pipeline
    @inputs(Click)
    def once(cls, clicks):  # type: ignore[no-untyped-def]
        return clicks.dedup(by=["user", "item"], window=Tumbling("1h"))


@dataset
class Spaced:
    user: int
    item: int
    at: datetime

    @pipeline
    @inputs(Click)
    def spaced(cls, clicks):  # type: ignore[no-untyped-def]
        return clicks.dedup(by=["user"], window=Session("20m"))


@dataset(index=True)
class Visit:
    user: int = field(key=True)
    window: Window = field(key=True)
    clicks: int
    at: datetime

    @pipeline
    @inputs(Click)
    def visits(cls, clicks):  # type: ignore[no-untyped-def]
        return clicks.groupby("user", window=Session("30m")).aggregate(clicks=Count())


@dataset(index=True)
class OnceVisit:
    user: int = field(key=True)
    window: Window = field(key=True)
    items: int
    at: datetime

    @pipeline
    @inputs(Once)
    def visits(cls, once):  # type: ignore[no-untyped-def]
        return once.groupby("user", window=Session("30m")).aggregate(items=Sum(of="item"))


@dataset(index=True)
class Hour:
    user: int = field(key=True)
    window: Window = field(key=True)
    clicks: int
    at: datetime

    @pipeline
    @inputs(Click)
    def hours(cls, clicks):  # type: ignore[no-untyped-def]
        return clicks.groupby("user", window=Tumbling("1h")).aggregate(clicks=Count())


@dataset(index=True)
class Overlapping:
    user: int = field(key=True)
    window: Window = field(key=True)
    items: int
    at: datetime

    @pipeline
    @inputs(Once)
    def windows(cls, once):  # type: ignore[no-untyped-def]
        return once.groupby("user", window=Hopping("2h", "1h")).aggregate(items=Sum(of="item"))


DATASETS = [Click, Once, Spaced, Visit, OnceVisit, Hour, Overlapping]
DROPPED = {"rows", "windows", "timers"}
"""The tables that only rows within the disorder are needed in."""


def rows_of(day: int) -> list[dict[str, Any]]:
    """Return the rows that come on a day; every tenth is as late as the disorder allows."""
    chance, found = random.Random(day), []
    for number in range(ROWS):
        late = timedelta(hours=23) if number % 10 == 0 and day else timedelta()
        at = BEGIN + timedelta(days=day, seconds=number * 86_400 // ROWS) - late
        found.append({"user": chance.randrange(8), "item": chance.randrange(3), "at": at.isoformat()})
    return found


def processed(folder: Path, *, at_once: bool) -> tuple[Deployment, dict[int, Counter[str]]]:
    """Return a deployment that has processed all days, and the stored rows by table after some of them."""
    url = f"file://{folder / 'state'}?flush_bytes=1&sync=off"
    deployment = Deployment.at(folder, shards=1, store_url=url)
    commit(deployment, check_commit(DATASETS, []))
    sizes = dict[int, Counter[str]]()
    log = IngestLog(folder, "web", "clicks")
    for day in range(DAYS):
        rows = rows_of(day)
        log.append_blocking(orjson.dumps(rows), len(rows))
        if not at_once or day == DAYS - 1:
            drain(deployment)
            sizes[day] = stored(deployment)
    log.close()
    return deployment, sizes


def stored(deployment: Deployment) -> Counter[str]:
    """Return the rows in the runs of each table, after a merge."""
    (shard,) = deployment.store._shards  # type: ignore[attr-defined]
    maintain(shard, flush_bytes=1)
    found = Counter[str]()
    for table, entries in shard.refresh().manifest.runs.items():
        found[table.rpartition("/")[2]] += sum(each.rows for each in entries)
    return found


def current(deployment: Deployment, name: str) -> pl.DataFrame:
    """Return the rows of a dataset that are there."""
    node = deployment.graph(deployment.catalog.revision()).outputs[name]
    changes = deployment.changes.read(node)
    columns = list(node.operator.schema.names)
    net = changes.group_by(columns).agg(pl.col("_weight").sum()).filter(pl.col("_weight") != 0)
    return net.sort(columns)


def test_what_is_stored_does_not_grow_and_results_are_those_of_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that have expired remain until their file is merged: what is stored goes up and down with the merges."""
    monkeypatch.setattr("umbel.state.file.ShardOptions", partial(ShardOptions, fan=FAN))
    daily, sizes = processed(tmp_path / "daily", at_once=False)
    together, _ = processed(tmp_path / "together", at_once=True)
    for each in DATASETS:
        name = each.__name__
        assert current(daily, name).equals(current(together, name)), name
        assert current(daily, name).height > DAYS
    for name in DROPPED:
        first, second = (max(sizes[day][name] for day in half) for half in (range(DAYS // 2), range(DAYS // 2, DAYS)))
        assert 0 < second <= 1.4 * first, (name, [sizes[day][name] for day in sizes])
    for deployment in (daily, together):
        deployment.store.close()
        deployment.catalog.close()


@pytest.mark.parametrize("day", [0])
def test_rows_come_within_the_disorder(day: int) -> None:
    """The test above is about rows that are accepted, as late as they may be."""
    newest = max(datetime.fromisoformat(row["at"]) for row in rows_of(day))
    later = [datetime.fromisoformat(row["at"]) for row in rows_of(day + 1)]
    assert min(later) > newest - timedelta(days=1)
