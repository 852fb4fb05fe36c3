"""A million transfers of one dollar between accounts, in disorder: after each batch all balances sum up to zero.

This is the test of internal consistency known from reviews of stream processors: whoever reads between two batches must never
see a debit without its credit, nor a join that has one side of a correction only.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.deployed import Deployed, live
from tests.seeds import new_seed
from umbel.connectors import Files, source
from umbel.datasets import Count, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous, Tumbling, Window
from umbel.expr import col, lit
from umbel.lib import inputs

ACCOUNTS, HOURS, ROWS_OF_FILE = 200, 8, 40_000
FIRST = datetime(2026, 3, 1, tzinfo=UTC)
LATER = FIRST + timedelta(days=30)
FOREVER = Continuous("forever")

__owner__ = "bank@example.com"


def definitions(folder: Path) -> list[Any]:
    transfer = transfers_in(folder)
    paid, received = hourly_of(transfer)
    return [transfer, balances_of(transfer), paid, received, total_of(received, paid)]


def transfers_in(folder: Path) -> Any:
    @source(
        Files(name="bank", folder=str(folder)).path("*.parquet", format="parquet"),
        disorder="1d",
        cdc="append",
        every="1s",
    )
    @dataset
    class Transfer:
        payer: int
        payee: int
        amount: int
        at: datetime

    return Transfer


def balances_of(transfer: Any) -> Any:
    @dataset(index=True)
    class Balance:
        account: int = field(key=True)
        balance: int
        entries: int
        at: datetime

        @pipeline
        @inputs(transfer)
        def of_both_sides(cls, transfers):
            debits = transfers.assign(change=(lit(0) - col("amount")).astype(int)).rename({"payer": "account"})
            credited = transfers.assign(change=col("amount").astype(int)).rename({"payee": "account"})
            entries = debits.select("account", "change") + credited.select("account", "change")
            return entries.groupby("account").aggregate(
                balance=Sum(of="change", window=FOREVER), entries=Count(window=FOREVER)
            )

    return Balance


def hourly_of(transfer: Any) -> tuple[Any, Any]:
    @dataset(index=True)
    class Paid:
        account: int = field(key=True)
        window: Window = field(key=True)
        paid: int
        at: datetime

        @pipeline
        @inputs(transfer)
        def hourly(cls, transfers):
            grouped = transfers.rename({"payer": "account"}).groupby("account", window=Tumbling("1h"))
            return grouped.aggregate(paid=Sum(of="amount"))

    @dataset(index=True)
    class Received:
        account: int = field(key=True)
        window: Window = field(key=True)
        received: int
        at: datetime

        @pipeline
        @inputs(transfer)
        def hourly(cls, transfers):
            grouped = transfers.rename({"payee": "account"}).groupby("account", window=Tumbling("1h"))
            return grouped.aggregate(received=Sum(of="amount"))

    return Paid, Received


def total_of(hourly_received: Any, hourly_paid: Any) -> Any:
    @dataset(index=True)
    class Total:
        bank: int = field(key=True)
        balance: int
        hours: int
        at: datetime

        @pipeline
        @inputs(hourly_received, hourly_paid)
        def of_all_hours(cls, received, paid):
            both = received.join(paid, how="inner", on=["account", "window"])
            hours = both.assign(bank=lit(1).astype(int), balance=(col("received") - col("paid")).astype(int))
            return hours.groupby("bank").aggregate(
                balance=Sum(of="balance", window=FOREVER), hours=Count(window=FOREVER)
            )

    return Total


def opened() -> pl.DataFrame:
    """Return a transfer of nothing in each hour of each account, so that both sides of the join have all hours."""
    accounts, hours = np.meshgrid(np.arange(ACCOUNTS), np.arange(HOURS))
    return transfers(accounts.ravel(), accounts.ravel(), 0, hours.ravel() * 3600)


def closing() -> pl.DataFrame:
    """Return a transfer of nothing after the last hour, so that the windows of this hour close."""
    nobody = np.zeros(1, np.int64)
    return transfers(nobody, nobody, 0, nobody + HOURS * 3600)


def transfers(payers: Any, payees: Any, amount: int, seconds: Any) -> pl.DataFrame:
    at = pl.Series("at", seconds.astype(np.int64) * 1_000_000).cast(pl.Duration("us")) + FIRST
    return pl.DataFrame({"payer": payers, "payee": payees}).with_columns(pl.lit(amount).alias("amount"), at)


def drawn(chance: np.random.Generator, count: int) -> pl.DataFrame:
    """Return transfers in the order in which they come: about that of their time, with a disorder of hours."""
    seconds = np.sort(chance.integers(0, HOURS * 3600, count))
    payers, payees = chance.integers(0, ACCOUNTS, count), chance.integers(0, ACCOUNTS, count)
    order = np.argsort(seconds + chance.integers(0, 3 * 3600, count))
    return transfers(payers[order], payees[order], 1, seconds[order])


def put(folder: Path, number: int, rows: pl.DataFrame) -> None:
    draft = folder / f".{number:03d}.parquet"
    rows.write_parquet(draft)
    draft.rename(folder / f"{number:03d}.parquet")


class Balances:
    """What is read after each batch, before the next one begins."""

    def __init__(self, deployed: Deployed, chance: np.random.Generator) -> None:
        self._deployed, self._chance = deployed, chance
        self.points: list[int] = []
        self.failures: list[Any] = []

    def append(self, counts: Any) -> None:
        """Read all balances now, and as of an instant of the past; called after each batch."""
        past = FIRST + timedelta(seconds=int(self._chance.integers(0, HOURS * 3600)))
        for at in (LATER, past):
            balance, entries, total = self.read(at)
            if balance or entries % 2 or (total is not None and total["balance"]):
                self.failures.append((at, balance, entries, total, counts))
        self.points.append(self.read(LATER)[1])

    def read(self, at: datetime) -> tuple[int, int, dict[str, Any] | None]:
        """Return the sum of all balances, of all entries, and the total of the bank, as of an instant."""
        accounts = [{"account": account} for account in range(ACCOUNTS)]
        balances, _ = self._deployed.lookup_frame("Balance", accounts, [at] * ACCOUNTS)
        (total,) = self._deployed.lookup("Total", [{"bank": 1}], [at])
        return balances["balance"].sum(), balances["entries"].sum(), total


@pytest.mark.parametrize(
    ("small", "count"),
    [
        (1 << 40, 400_000),
        (0, 200_000),
        *(pytest.param(small, 1_000_000, marks=pytest.mark.nightly) for small in (1 << 40, 0)),
    ],
    ids=["driver", "tasks", "driver, all", "tasks, all"],
)
def test_all_balances_sum_up_to_zero_after_each_batch(spark: Any, tmp_path: Path, small: int, count: int) -> None:
    folder, chance = tmp_path / "files", np.random.default_rng(new_seed())
    folder.mkdir()
    deployed = Deployed(tmp_path / "umbel", budget=1 << 19)
    deployed.commit(definitions(folder))
    rows, balances = drawn(chance, count), Balances(deployed, chance)
    for number, part in enumerate([opened(), *rows.iter_slices(ROWS_OF_FILE), closing()]):
        put(folder, number, part)
    with live(deployed, spark, small, balances) as caught_up:
        caught_up({"Transfer": count + ACCOUNTS * HOURS + 1})
    assert balances.failures == []
    assert len(set(balances.points)) > count // ROWS_OF_FILE // 3, "too few points were looked at"
    entries = 2 * (count + ACCOUNTS * HOURS + 1)
    balance, found, total = balances.read(LATER)
    assert (balance, found) == (0, entries)
    assert total is not None
    assert (total["balance"], total["hours"]) == (0, ACCOUNTS * HOURS)
    assert final(deployed) == by_hand(rows)
    deployed.close()


def final(deployed: Deployed) -> dict[int, int]:
    found, _ = deployed.lookup_frame("Balance", [{"account": each} for each in range(ACCOUNTS)], [LATER] * ACCOUNTS)
    return dict(found.select("account", "balance").iter_rows())


def by_hand(rows: pl.DataFrame) -> dict[int, int]:
    received, paid = (np.bincount(rows[side].to_numpy(), minlength=ACCOUNTS) for side in ("payee", "payer"))
    return dict(enumerate((received - paid).tolist()))
