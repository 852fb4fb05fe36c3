"""What a table-table join reads: the rows that change and those around them, not the whole history of their keys."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Optional

import polars as pl
import pytest

from umbel.api.commit import check_commit
from umbel.datasets import dataset, field, pipeline
from umbel.lib import inputs
from umbel.local.runner import LocalRunner
from umbel.state.tables import TimedTable

__owner__ = "tests@example.com"
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
BEGUN = NOON + timedelta(minutes=10)
ACCOUNTS, OWNERS = 2_000, 2


@dataset(index=True)
class Account:
    account: int = field(key=True)
    owner: int
    balance: int
    at: datetime


@dataset(index=True)
class Owner:
    owner: int = field(key=True)
    tier: str
    at: datetime


@dataset(index=True)
class Owned:
    account: int = field(key=True)
    owner: int
    balance: int
    tier: Optional[str]
    at: datetime

    @pipeline
    @inputs(Account, Owner)
    def joined(cls, accounts, owners):  # type: ignore[no-untyped-def]
        return accounts.join(owners, how="left", on=["owner"])


def frame(**columns: Any) -> pl.DataFrame:
    return pl.DataFrame(columns).with_columns(pl.col("at").cast(pl.Datetime("us", "UTC")))


@pytest.fixture
def runner() -> LocalRunner:
    made = LocalRunner(check_commit([Account, Owner, Owned], []).datasets.values())
    versions = [(owner, version) for version in range(50) for owner in range(OWNERS)]
    at = [NOON + timedelta(seconds=version) for _, version in versions]
    tiers = [f"t{version}" for _, version in versions]
    made.ingest("Owner", frame(owner=[owner for owner, _ in versions], tier=tiers, at=at))
    ids = list(range(ACCOUNTS))
    owners, at = [number % OWNERS for number in ids], [BEGUN + timedelta(microseconds=number) for number in ids]
    made.ingest("Account", frame(account=ids, owner=owners, balance=ids, at=at))
    return made


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows that each scan of a table returned."""
    heights, scan = list[int](), TimedTable.scan

    def counted(self: TimedTable, *args: Any, **options: Any) -> pl.DataFrame:
        found = scan(self, *args, **options)
        heights.append(found.height)
        return found

    monkeypatch.setattr(TimedTable, "scan", counted)
    return heights


def test_a_left_row_is_joined_without_the_other_rows_of_its_key(runner: LocalRunner, read: list[int]) -> None:
    before = runner.changes("Owned").height
    runner.ingest("Account", frame(account=[7], owner=[1], balance=[0], at=[NOON + timedelta(hours=1)]))
    assert runner.changes("Owned").height == before + 2
    assert sum(read) < 20, "a row of 1,000 of its owner"


def test_a_right_row_is_joined_without_the_versions_before_it(runner: LocalRunner, read: list[int]) -> None:
    before = runner.changes("Owned").height
    runner.ingest("Owner", frame(owner=[1], tier=["new"], at=[NOON + timedelta(hours=1)]))
    made = runner.changes("Owned")[before:]
    assert made.height == ACCOUNTS // OWNERS * 2, "each account of the owner ends, and begins with the tier"
    assert sum(read) < 2 * ACCOUNTS // OWNERS + 20, (
        "the owner's accounts and their joined rows, and two of its 50 versions"
    )


@pytest.mark.parametrize("minute", [5, 30, 90])
def test_a_deleted_right_row_leaves_one_gap(runner: LocalRunner, minute: int) -> None:
    """Two deletions of one key: the gap begins with the first one in time, whichever comes first."""
    gone = frame(owner=[1], tier=[""], at=[NOON + timedelta(hours=1)])
    for each in (timedelta(hours=1), timedelta(minutes=minute)):
        rows = gone.with_columns(pl.lit(NOON + each).cast(pl.Datetime("us", "UTC")).alias("at"))
        runner.ingest("Owner", rows.with_columns(pl.col("at").alias("_at"), pl.lit(-1, pl.Int64).alias("_weight")))
    changes = runner.changes("Owned").filter(pl.col("account") == 1).drop("_seq")
    net = changes.group_by(pl.exclude("_weight")).agg(pl.col("_weight").sum()).filter(pl.col("_weight") != 0)
    begins = net.filter(pl.col("_weight") > 0).sort("at").select("tier", "at").rows()
    begun = BEGUN + timedelta(microseconds=1)
    gap = max(begun, NOON + timedelta(minutes=min(60, minute)))
    with_tier = [("t49", begun)] if minute > 10 else []
    assert begins == [*with_tier, (None, gap)]
