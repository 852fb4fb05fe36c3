"""Batches that end the worker each time they run: their input is read in smaller ones, and nothing is lost or counted twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.deployed import Deployed
from umbel.catalog.catalog import Catalog
from umbel.connectors import Files, Webhook, source
from umbel.datasets import Count, Sum, dataset, field, pipeline
from umbel.dtypes import Hopping
from umbel.errors import Transient
from umbel.lib import inputs
from umbel.runtime import batch
from umbel.runtime.batch import BatchReport, MicroBatch, drain
from umbel.runtime.deployment import JOB
from umbel.runtime.plans import Plans
from umbel.runtime.retries import RETRIED, smaller
from umbel.state.port import Stamp

__owner__ = "tests@example.com"
JAN = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS, USERS, CITIES = 500, 20, 3
KIB = 1 << 10
TOTAL = Sum(of="amount", window=Hopping("forever", "1h"))
RUN = MicroBatch.run_here


class EndedProcessError(BaseException):
    """Stands for the end of the process: nothing catches it."""


def town(folder: Path) -> list[Any]:
    """Return payments in files and homes by webhook, joined and aggregated in two stages."""

    @source(Files(name="disk", folder=str(folder)).path("*.json"), disorder="14d", cdc="append")
    @dataset
    class Paid:
        user: int
        amount: int
        at: datetime

    @source(Webhook(name="web").endpoint("homes"), disorder="14d", cdc="upsert")
    @dataset(index=True)
    class Home:
        user: int = field(key=True)
        city: str
        at: datetime

    @dataset(index=True)
    class Spent:
        city: str = field(key=True)
        total: int
        at: datetime

        @pipeline
        @inputs(Paid, Home)
        def by_city(cls: Any, paid: Any, homes: Any) -> Any:
            return paid.join(homes, how="inner", on=["user"]).groupby("city").aggregate(total=TOTAL)

    @dataset(index=True)
    class Hours:
        total: int = field(key=True)
        count: int
        at: datetime

        @pipeline
        @inputs(Spent)
        def by_total(cls: Any, spent: Any) -> Any:
            return spent.groupby("total").aggregate(count=Count(window=Hopping("forever", "1d")))

    return [Paid, Home, Spent, Hours]


def write(folder: Path) -> None:
    folder.mkdir(parents=True)
    for file in range(4):
        rows = [
            {"user": n % USERS, "amount": n, "at": (JAN + timedelta(minutes=n * 29 % 9_000)).isoformat()}
            for n in range(file, EVENTS, 4)
        ]
        (folder / f"{file}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def ended_before(begun: MicroBatch) -> BatchReport:
    """End before anything is stored."""
    raise EndedProcessError(f"of {begun.plan.size} bytes")


def ended_after(begun: MicroBatch) -> BatchReport:
    """End when everything is stored but the progress."""
    RUN(begun)
    raise EndedProcessError(f"of {begun.plan.size} bytes")


def processed(place: Path, data: Path) -> tuple[dict[str, pl.DataFrame], int, list[str]]:
    """Process everything with a new process after each one that ends; return tables, ends and messages."""
    opened, ends = Deployed(place), 0
    opened.commit(town(data))
    opened.log("homes", [{"user": n, "city": "ABC"[n % CITIES], "at": JAN - timedelta(days=1)} for n in range(USERS)])
    while True:
        try:
            drain(opened.deployment)
            break
        except EndedProcessError:
            ends += 1
            opened.close()
            opened = Deployed(place)
    assert opened.taken() == {"Paid": EVENTS, "Home": USERS}
    tables = {name: opened.changes(name).drop("_seq") for name in ("Paid", "Home", "Spent", "Hours")}
    tables["Paid"] = tables["Paid"].sort(pl.all())  # its rows are numbered by the splits
    said = [event.text for event in opened.deployment.catalog.events() if "has ended the worker" in event.text]
    opened.close()
    return tables, ends, said


@pytest.mark.parametrize("ended", [ended_before, ended_after], ids=lambda each: each.__name__)
def test_what_a_batch_was_to_read_is_read_in_smaller_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: Callable[[MicroBatch], BatchReport]
) -> None:
    write(tmp_path / "data")
    expected, ends, said = processed(tmp_path / "whole", tmp_path / "data")
    assert (ends, said) == (0, [])
    monkeypatch.setattr(MicroBatch, "run_here", lambda each: (ended if each.plan.size > 6 * KIB else RUN)(each))
    found, ends, said = processed(tmp_path / "ended", tmp_path / "data")
    assert ends == 4  # a quarter of the size was too much as well
    assert len(said) == 2
    assert all(found[name].equals(expected[name]) for name in expected)


@pytest.mark.parametrize("is_large", [True, False], ids=["tables", "tails"])
def test_a_batch_in_the_tables_of_change_logs_is_not_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    """They would have its rows once more; files of their tails are deleted."""
    write(tmp_path / "data")
    monkeypatch.setattr(batch, "TAILED", 0 if is_large else 2 << 20)
    expected, _, _ = processed(tmp_path / "whole", tmp_path / "data")
    finish, left = Catalog.finish, [3]

    def ends(*arguments: Any, **named: Any) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise EndedProcessError
        finish(*arguments, **named)

    monkeypatch.setattr(Catalog, "finish", ends)
    found, times, said = processed(tmp_path / "ended", tmp_path / "data")
    assert (times, len(said)) == (3, 0 if is_large else 1)
    assert all(found[name].equals(expected[name]) for name in expected)


def test_it_is_run_again_as_it_was_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ended the worker may have been something else."""
    write(tmp_path / "data")
    sizes = list[int]()

    def run(each: MicroBatch) -> BatchReport:
        sizes.append(each.plan.size)
        return ended_before(each) if len(sizes) < 3 else RUN(each)

    monkeypatch.setattr(MicroBatch, "run_here", run)
    _, ends, said = processed(tmp_path / "umbel", tmp_path / "data")
    assert (ends, len(said)) == (2, 1)
    assert sizes[0] == sizes[1] > 0
    assert sizes[2] == 0
    assert 0 < sizes[3] <= sizes[0] // 8 + KIB


@pytest.mark.parametrize(
    ("error", "is_excused"),
    [
        (Transient("the bucket does not answer"), True),
        (KeyError("x"), True),
        (MemoryError(), False),
        (
            RuntimeError("Job aborted: ExecutorLostFailure (executor 1 exited caused by one of the running tasks)"),
            False,
        ),
        (RuntimeError("java.lang.OutOfMemoryError: Java heap space"), False),
        (RuntimeError("SparkException: Python worker exited unexpectedly (crashed)"), False),
    ],
    ids=str,
)
def test_reported_errors_do_not_make_batches_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, is_excused: bool
) -> None:
    """A bucket that was away for ten minutes would leave batches of 1 KiB."""
    write(tmp_path / "data")
    place, sizes = Deployed(tmp_path / "umbel"), list[int]()
    place.commit(town(tmp_path / "data"))

    def fails(each: MicroBatch) -> BatchReport:
        sizes.append(each.plan.size)
        raise error

    monkeypatch.setattr(MicroBatch, "run_here", fails)
    for _ in range(6):
        with pytest.raises(type(error)):
            drain(place.deployment)
    assert (len(set(sizes)) == 1) == is_excused
    place.close()


def test_an_end_after_an_excused_one_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "data")
    place, sizes = Deployed(tmp_path / "umbel"), list[int]()
    place.commit(town(tmp_path / "data"))

    def ends(each: MicroBatch) -> BatchReport:
        sizes.append(each.plan.size)
        raise EndedProcessError if len(sizes) > 1 else Transient("the bucket does not answer")

    monkeypatch.setattr(MicroBatch, "run_here", ends)
    for _ in range(4):
        with pytest.raises((EndedProcessError, Transient)):
            drain(place.deployment)
    assert sizes[0] == sizes[1] == sizes[2] > sizes[3] == 0
    place.close()


def test_a_batch_that_cannot_be_smaller_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "data")
    place = Deployed(tmp_path / "umbel", budget=KIB)
    place.commit(town(tmp_path / "data"))
    monkeypatch.setattr(MicroBatch, "run_here", ended_before)
    for _ in range(4):
        with pytest.raises(EndedProcessError):
            drain(place.deployment)
    assert place.deployment.catalog.noted(RETRIED) == [1, 3]
    assert place.deployment.plans().read(1).splits
    assert place.deployment.catalog.progress(JOB, 10**9) is None
    place.close()


def test_a_finished_batch_is_not_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker may end before Spark has noted its end; sinks may have it."""
    place = Deployed(tmp_path / "umbel")
    place.commit(town(tmp_path / "data"))
    place.log("homes", [{"user": n, "city": "A", "at": JAN} for n in range(9)])
    drain(place.deployment)
    plan, catalog = place.deployment.plans().read(1), place.deployment.catalog
    for _ in range(4):
        begun = MicroBatch.begin(place.deployment, plan, Stamp(catalog.take_over(JOB), 0))
        assert smaller(begun, is_new=False) is begun
    place.close()


def test_stored_rows_of_the_batch_before_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what the retried batch stored is undone."""
    place = Deployed(tmp_path / "umbel")
    place.commit(town(tmp_path / "data"))
    place.log("homes", [{"user": 1, "city": "A", "at": JAN}])
    drain(place.deployment)
    place.log("homes", [{"user": n, "city": "B", "at": JAN} for n in range(2, 30)])
    monkeypatch.setattr(MicroBatch, "run_here", ended_after)
    for _ in range(2):
        with pytest.raises(EndedProcessError):
            drain(place.deployment)
    monkeypatch.setattr(MicroBatch, "run_here", RUN)
    monkeypatch.setattr(Plans, "next", lambda self, start: start + (start < self.last()))  # nothing is read again yet
    drain(place.deployment)
    keys = [{"user": n} for n in range(1, 30)]
    found = place.lookup("Home", keys, [JAN + timedelta(days=1)] * len(keys))
    assert [row and row["city"] for row in found] == ["A"] + [None] * 28
    place.close()
