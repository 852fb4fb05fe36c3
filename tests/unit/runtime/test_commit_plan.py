"""What a plan says of a commit, and that it is what the commit does."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.shop import AMOUNTS, PADDING, Shop, definitions, opened_shop, sales
from umbel.api.commit import check_commit
from umbel.connectors.splits import SourceSize
from umbel.connectors.webhook import EndpointSource
from umbel.datasets import Count, Sum, dataset, field, index, pipeline
from umbel.dtypes import Continuous
from umbel.errors import InvalidValue, Transient, UmbelError
from umbel.lib import inputs
from umbel.log.change_tail import FileTail
from umbel.runtime import rates
from umbel.runtime.branches import init
from umbel.runtime.commit import commit
from umbel.runtime.commit_plan import CommitPlan, PlannedObject, plan
from umbel.runtime.deployment import RETAINED_FOR, Deployment

__owner__ = "tests@example.com"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with opened_shop(tmp_path) as opened:
        yield opened


def daily(version: int) -> Any:
    """Return `Total` with a pipeline other than that of the shop."""
    sale = sales()

    @index
    @dataset(version=version)
    class Total:
        user: int = field(key=True)
        sales: int
        at: datetime

        @pipeline
        @inputs(sale)
        def made(cls, rows):
            return rows.groupby("user").aggregate(sales=Count(window=Continuous("1d")))

    return [sale, Total]


def totals_of_a_day(version: int) -> Any:
    """Return `Total` with the fields of the shop's, over a day."""

    @index
    @dataset(version=version)
    class Total:
        user: int = field(key=True)
        total: int
        sales: int
        at: datetime

        @pipeline
        @inputs(sales())
        def made(cls, rows):
            day = Continuous("1d")
            return rows.groupby("user").aggregate(total=Sum(of="amount", window=day), sales=Count(window=day))

    return Total


def raised(version: int = 2) -> Any:
    """Return definitions in which the pipeline alone is another."""
    return check_commit(daily(version), [])


def found(made: CommitPlan, kind: str, name: str) -> PlannedObject:
    return next(each for each in made.objects if (each.kind, each.name) == (kind, name))


def content(place: Deployment) -> list[str]:
    """Return all that the catalog has, as text."""
    with sqlite3.connect(place.directory / "catalog.db") as connection:
        return list(connection.iterdump())


def test_a_raised_version_is_rebuilt_from_the_rows_of_its_inputs(shop: Shop) -> None:
    made = plan(shop.place, raised())
    total = found(made, "dataset", "Total")
    assert (total.change, total.details) == ("changed", ["version 1 → 2", "field total removed", "pipeline"])
    assert total.rebuilt is not None
    assert (total.rebuilt.inputs, total.rebuilt.rows) == (["Sale"], len(AMOUNTS))
    assert total.rebuilt.seconds == pytest.approx(len(AMOUNTS) / rates.ASSUMED[rates.LOGS])
    assert total.deleted is not None
    assert total.deleted.after == RETAINED_FOR
    assert found(made, "dataset", "Sale").change == "unchanged"
    assert found(made, "dataset", "Sale").rebuilt is None
    assert found(made, "pipeline", "Total").change == "changed"
    assert (made.waits, made.log_rate.is_measured, made.serving) == (True, False, 1)


def test_a_source_that_is_read_anew_counts_once_for_all_that_read_it(shop: Shop) -> None:
    made = plan(shop.place, definitions(2))
    sale, total = found(made, "dataset", "Sale"), found(made, "dataset", "Total")
    assert sale.rebuilt is not None
    assert total.rebuilt is not None
    assert made.history is not None
    assert sale.rebuilt.rows == total.rebuilt.rows == made.history.rows == len(AMOUNTS)
    assert made.history.bytes is not None
    assert made.history.bytes > len(AMOUNTS) * PADDING
    assert made.history.inputs == ["the source of Sale"]
    assert total.details == ["version 1 → 2", "reads version 2 of Sale"]
    assert sale.deleted is not None
    assert (sale.deleted.rows, sale.deleted.after) == (len(AMOUNTS), None)  # what a source has brought is retained


def test_the_plan_is_what_the_commit_does(shop: Shop) -> None:
    for defined in (raised(), definitions(2), check_commit([sales()], []), definitions()):
        made = plan(shop.place, defined)
        report = commit(shop.place, defined, preview=True)
        for change in ("new", "changed", "removed", "unchanged"):
            assert report[change] == sorted(o.name for o in made.objects if o.change == change and o.kind != "pipeline")
        assert set(report["recomputed"]) <= {each.name for each in made.objects if each.rebuilt}
        before = shop.place.catalog.latest()
        assert made.waits == bool(commit(shop.place, defined)["status"])
        assert made.revision == before
        commit(shop.place, definitions())


def test_what_is_removed_is_said_with_its_data(shop: Shop) -> None:
    made = plan(shop.place, check_commit([sales()], []))
    total, user = found(made, "dataset", "Total"), found(made, "featureset", "User")
    assert (total.change, user.change, found(made, "pipeline", "Total").change) == ("removed",) * 3
    assert total.deleted is not None
    assert total.deleted.after == RETAINED_FOR
    assert (made.history, made.waits) == (None, False)
    gone = plan(shop.place, check_commit([], []))
    assert found(gone, "dataset", "Sale").deleted is not None


def test_without_history_nothing_is_rebuilt(tmp_path: Path) -> None:
    place = Deployment.at(tmp_path, shards=2)
    made = plan(place, definitions())
    assert {each.change for each in made.objects} == {"new"}
    assert (made.revision, made.serving, made.waits, made.history) == (0, 0, False, None)
    commit(place, definitions())
    again = plan(place, raised())
    assert found(again, "dataset", "Total").change == "changed"
    assert (again.history, again.waits) == (None, False)
    place.catalog.close()


def test_a_plan_changes_nothing(shop: Shop) -> None:
    before, revision = content(shop.place), shop.place.catalog.latest()
    files = {path: path.stat().st_mtime_ns for path in shop.place.directory.rglob("*") if "catalog.db" not in path.name}
    for defined in (raised(), definitions(2), check_commit([], []), definitions(3, endpoint="others")):
        plan(shop.place, defined)
    with pytest.raises(InvalidValue, match="its version is still 1"):
        plan(shop.place, raised(1))
    assert (content(shop.place), shop.place.catalog.latest()) == (before, revision)
    now = {path: path.stat().st_mtime_ns for path in shop.place.directory.rglob("*") if "catalog.db" not in path.name}
    assert now == files


@pytest.mark.parametrize("defined", [raised(1), definitions(1, endpoint="sales"), raised(3)])
@pytest.mark.parametrize("options", [{}, {"backfill": False}, {"base": 77, "incremental": True}])
def test_rules_refuse_a_plan_with_the_error_of_the_commit(shop: Shop, defined: Any, options: dict[str, Any]) -> None:
    if not options:
        commit(shop.place, raised(2))
    errors: list[Any] = []
    for run in (plan, commit):
        try:
            run(shop.place, defined, **options)  # type: ignore[operator]
            errors.append(None)
        except UmbelError as error:
            errors.append((error.code, str(error)))
    assert errors[0] == errors[1]


def test_an_incremental_plan_keeps_what_it_does_not_mention(shop: Shop) -> None:
    before = shop.place.branch("main")
    made = plan(shop.place, check_commit([totals_of_a_day(2)], [], before=before), incremental=True, base=1)
    assert found(made, "dataset", "Sale").change == "unchanged"
    assert found(made, "dataset", "Total").rebuilt is not None
    assert not [each for each in made.objects if each.change == "removed"]


def test_the_rate_of_earlier_backfills_is_used(shop: Shop) -> None:
    rates.record(shop.place.catalog, rates.LOGS, rates.WORTH_MEASURING - 1, 1.0)
    assert not plan(shop.place, raised()).log_rate.is_measured
    rates.record(shop.place.catalog, rates.LOGS, 100_000, 10.0)
    rates.record(shop.place.catalog, rates.LOGS, 50_000, 0.0)
    made = plan(shop.place, raised())
    assert made.log_rate == rates.BackfillRate(10_000, is_measured=True)
    assert made.history is not None
    assert made.history.seconds == pytest.approx(len(AMOUNTS) / 10_000)
    again = plan(shop.place, definitions(2))  # reads the source: nothing of that is measured
    assert again.history is not None
    assert again.history.seconds == pytest.approx(len(AMOUNTS) / rates.ASSUMED[rates.SOURCES])
    rates.record(shop.place.catalog, rates.LOGS, 100_000, 1.0)
    assert rates.rate(shop.place.catalog, rates.LOGS).rows_per_second == pytest.approx(150_000 / 6)


def test_rows_are_counted_without_reading_the_files_of_the_table(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    place = shop.place
    node = place.graph(1).outputs["Sale"]
    assert place.changes.flush(node, everything=True)
    for path in (place.directory / "changes" / node.log).rglob("*.parquet"):
        path.write_bytes(b"unreadable")
    monkeypatch.setattr(FileTail, "read", lambda *_: None)
    rows, size = place.changes.measure(node)
    assert rows == len(AMOUNTS)
    assert size > 0


def test_a_branch_that_shares_what_is_computed_rebuilds_nothing(shop: Shop) -> None:
    init(shop.place, "dev")
    same = plan(shop.place, definitions(), branch="dev")
    assert ({each.change for each in same.objects}, same.history, same.waits) == ({"new"}, None, False)
    other = plan(shop.place, raised(1), branch="dev")
    assert found(other, "dataset", "Total").rebuilt is not None
    assert (other.serving, other.waits) == (2, True)  # that of `init`, which is empty
    assert not [each for each in other.objects if each.deleted]


def test_a_plan_while_a_commit_waits(shop: Shop) -> None:
    commit(shop.place, definitions(2))
    back = plan(shop.place, definitions())
    assert (back.revision, back.serving, back.waits, back.history) == (2, 1, False, None)
    again = plan(shop.place, definitions(2))
    assert ({each.change for each in again.objects}, again.waits) == ({"unchanged"}, True)
    assert again.history is None  # what waits is being computed already


def test_a_source_that_does_not_answer_leaves_rows_unknown(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise Transient("no answer")

    monkeypatch.setattr(EndpointSource, "measure", fail)
    monkeypatch.setattr(shop.place.catalog, "counts", dict)
    made = plan(shop.place, definitions(2))
    assert made.history is not None
    assert (made.history.rows, made.history.bytes, made.history.seconds) == (None, None, None)
    assert any("does not answer" in note for note in made.notes)


def test_rows_of_a_source_that_tells_bytes_are_as_many_as_before(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EndpointSource, "measure", lambda *_: SourceSize(bytes=12_345))
    made = plan(shop.place, definitions(2))
    assert made.history is not None
    assert (made.history.rows, made.history.bytes) == (len(AMOUNTS), 12_345)
    monkeypatch.setattr(EndpointSource, "measure", lambda *_: SourceSize(bytes=0))
    assert plan(shop.place, definitions(2)).history is None
