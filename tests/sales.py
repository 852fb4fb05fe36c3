"""Sales and who bought: definitions on every kind of source, rows for them, and the results in plain Python."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Optional

import polars as pl

from tests.comparing import assert_rows
from tests.deployed import Deployed
from umbel.connectors import CSV, Files, Webhook, source
from umbel.datasets import Average, Count, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.expr import col
from umbel.lib import inputs

__owner__ = "spark@umbel.dev"

START = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
Row = dict[str, Any]


def at(minute: float) -> datetime:
    return START + timedelta(minutes=minute)


# ---- definitions -----------------------------------------------------------------------------------------------------


def base(folder: Path) -> list[Any]:
    sales, users = _sources(folder)
    priced = _priced(sales, users)
    return [sales, users, priced, *_results(priced)]


def _sources(folder: Path) -> tuple[Any, Any]:
    files, web = Files(name="files", folder=str(folder)), Webhook(name="web")

    @source(files.path("a/*.ndjson"), disorder="30d", cdc="append", every="1s")
    @source(files.path("b/*.csv", format=CSV()), disorder="30d", cdc="append", every="1s")
    @source(files.path("c/*.parquet", format="parquet"), disorder="30d", cdc="append", every="1s")
    @source(files.path("d/*.ndjson.gz"), disorder="30d", cdc="append", every="1s")
    @source(web.endpoint("sales"), disorder="30d", cdc="append")
    @dataset(index=False)
    class Sales:
        user: int
        amount: float
        kind: str
        t: datetime

    @source(web.endpoint("users"), disorder="30d", cdc="upsert")
    @dataset(index=True)
    class Users:
        user: int = field(key=True)
        tier: str
        t: datetime

    return Sales, Users


def _priced(sales: Any, users: Any) -> Any:
    @dataset
    class Priced:
        user: int
        amount: float
        kind: str
        tier: Optional[str]
        double: float
        t: datetime

        @pipeline
        @inputs(sales, users)
        def priced(cls, sales, users):
            retained = sales.filter(col("amount") > 0).assign(double=(col("amount") * 2).astype(float))
            return retained.join(users, how="left", on=["user"])

    return Priced


def _results(priced_sales: Any) -> list[Any]:
    @dataset(index=True)
    class Totals:
        user: int = field(key=True)
        count: int
        total: float
        hourly: float
        mean: float
        t: datetime

        @pipeline
        @inputs(priced_sales)
        def totals(cls, priced):
            return priced.groupby("user").aggregate(
                count=Count(window=Continuous("forever")),
                total=Sum(of="double", window=Continuous("forever")),
                hourly=Sum(of="amount", window=Continuous("1h")),
                mean=Average(of="amount", window=Continuous("1h")),
            )

    @dataset(index=True)
    class Last:
        kind: str = field(key=True)
        user: int
        amount: float
        tier: Optional[str]
        double: float
        t: datetime

        @pipeline
        @inputs(priced_sales)
        def last(cls, priced):
            return priced.groupby("kind").latest()

    return [Totals, Last]


def extended(folder: Path) -> list[Any]:
    """Return the same, and pipelines that are new: their input is partly history."""
    datasets = base(folder)
    sales, priced = datasets[0], datasets[2]

    @dataset(index=True)
    class Tiers:
        tier: str = field(key=True)
        count: int
        total: float
        t: datetime

        @pipeline
        @inputs(priced)
        def by_tier(cls, rows):
            return (
                rows.dropnull("tier")
                .groupby("tier")
                .aggregate(count=Count(window=Continuous("forever")), total=Sum(of="amount", window=Continuous("1h")))
            )

    @dataset(index=True)
    class Largest:
        kind: str = field(key=True)
        user: int
        amount: float
        t: datetime

        @pipeline
        @inputs(sales)
        def latest(cls, rows):
            # begins like `Priced`: the filter is shared with a pipeline that already ran
            return rows.filter(col("amount") > 0).groupby("kind").latest()

    return [*datasets, Tiers, Largest]


# ---- rows ------------------------------------------------------------------------------------------------------------


def sales(first: int, count: int) -> list[Row]:
    """Return rows of instants of their own, out of order, some of which the filter drops."""
    rows = [
        {"user": n * 7 % 5, "amount": float(n * 13 % 40 - 5), "kind": "abc"[n % 3], "t": at(n * 1.5)}
        for n in range(first, first + count)
    ]
    return rows[::2] + rows[1::2][::-1]


def shown(row: Row) -> Row:
    return {**row, "t": row["t"].isoformat()}


def lines(rows: list[Row]) -> bytes:
    return b"".join(json.dumps(shown(row)).encode() + b"\n" for row in rows)


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}")
    fresh.write_bytes(content)
    fresh.rename(path)


def put_parquet(path: Path, rows: list[Row]) -> None:
    fresh = path.with_name(f".{path.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows).write_parquet(fresh)
    fresh.rename(path)


def put_everywhere(folder: Path, deployed: Deployed, wave: int) -> list[Row]:
    """Feed all sources at once; return the rows."""
    first = wave * 100
    put(folder / f"a/{wave}.ndjson", lines(sales(first, 20)))
    put(folder / f"b/{wave}.csv", pl.DataFrame(list(map(shown, sales(first + 20, 20)))).write_csv().encode())
    put_parquet(folder / f"c/{wave}.parquet", sales(first + 40, 20))
    put(folder / f"d/{wave}.ndjson.gz", gzip.compress(lines(sales(first + 60, 20))))
    deployed.log("sales", sales(first + 80, 20))
    return sales(first, 100)


USERS = [
    [{"user": 0, "tier": "gold", "t": at(0)}, {"user": 1, "tier": "tin", "t": at(30)}],
    # of user 0 an instant before others that have been joined already: those are corrected
    [{"user": 0, "tier": "iron", "t": at(60)}, {"user": 2, "tier": "gold", "t": at(170)}],
    [{"user": 3, "tier": "tin", "t": at(10)}, {"user": 1, "tier": "gold", "t": at(450)}],
]

# ---- plain Python ----------------------------------------------------------------------------------------------------


def priced(rows: list[Row], users: list[Row]) -> list[Row]:
    """Return what the pipelines make of each row, oldest first."""
    found = []
    for row in sorted(rows, key=lambda row: row["t"]):
        known = [user for user in users if user["user"] == row["user"] and user["t"] <= row["t"]]
        tier = max(known, key=lambda user: user["t"])["tier"] if known else None
        if row["amount"] > 0:
            found.append({**row, "tier": tier, "double": 2 * row["amount"]})
    return found


def window(rows: list[Row], now: datetime) -> list[float]:
    return [row["amount"] for row in rows if now - HOUR <= row["t"]]


def changed(rows: list[Row], now: datetime) -> datetime:
    """Return when a row last came, or left the window of an hour."""
    left = ((row["t"] + HOUR).replace(microsecond=0) + timedelta(seconds=1) for row in rows)
    return max(at for at in (*(row["t"] for row in rows), *left) if at <= now)


def total(rows: list[Row], now: datetime, **key: Any) -> Row | None:
    mine = [row for row in rows if row["t"] <= now and key.items() <= row.items()]
    hour = window(mine, now)
    values = {"count": len(mine), "total": sum(row["double"] for row in mine), "hourly": sum(hour)}
    return {**key, **values, "mean": sum(hour) / len(hour) if hour else 0.0, "t": changed(mine, now)} if mine else None


def tier_total(rows: list[Row], now: datetime, tier: str) -> Row | None:
    mine = [row for row in rows if row["t"] <= now and row["tier"] == tier]
    # not `t`: instants of rows that belonged to the tier for a while count in a collapsed tile
    return {"tier": tier, "count": len(mine), "total": sum(window(mine, now))} if mine else None


def latest(rows: list[Row], now: datetime, kind: str, names: tuple[str, ...]) -> Row | None:
    mine = [row for row in rows if row["t"] <= now and row["kind"] == kind]
    return {name: mine[-1][name] for name in names} if mine else None


MINUTES = (-1, 0, 31, 60, 151, 200, 333, 451, 605, 2000)
LAST = ("kind", "user", "amount", "tier", "double", "t")


def check(deployed: Deployed, dataset: str, keys: list[Row], reference: Callable[[datetime, Row], Row | None]) -> None:
    """Compare lookups of all keys at many instants with a reference."""
    points = [(key, at(minute)) for key in keys for minute in MINUTES]
    found = deployed.lookup(dataset, [key for key, _ in points], [now for _, now in points])
    for (key, now), row in zip(points, found, strict=True):
        expected, what = reference(now, key), (dataset, key, now)
        assert (row is None) == (expected is None), (*what, row, expected)
        if row and expected:
            names = sorted(expected)
            assert_rows([row.get(name) for name in names], [expected.get(name) for name in names], what=what)


def check_all(deployed: Deployed, rows: list[Row], users: list[Row]) -> None:
    """Compare all that `base` answers with what plain Python makes of all rows."""
    made = priced(rows, users)
    check(deployed, "Totals", [{"user": user} for user in range(6)], lambda now, key: total(made, now, **key))
    check(deployed, "Last", [{"kind": kind} for kind in "abcx"], lambda now, key: latest(made, now, key["kind"], LAST))
    logged = deployed.changes("Sales").sort("t")
    assert logged["t"].to_list() == sorted(row["t"] for row in rows)
    assert logged["_weight"].to_list() == [1] * len(rows)
