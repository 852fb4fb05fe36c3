"""What new operators read of history: only the columns they need, and whole rows where some are rejected."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from umbel.api.commit import check_commit
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Sum, dataset, field, index, pipeline
from umbel.dtypes import Continuous
from umbel.expr import col
from umbel.graph.graph import Graph, GraphNode
from umbel.lib import inputs
from umbel.runtime.backfill_input import calls_functions, columns_needed, taken_in
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment
from umbel.runtime.guard import WorkerGuard

__owner__ = "tests@example.com"
CHANGES = {"_at", "_weight", "_seq"}


@source(Webhook(name="web").endpoint("orders"), disorder="1d", cdc="append")
@dataset
class Order:
    user: int
    amount: int
    country: str
    note: str
    at: datetime


def totals(build: Any) -> Any:
    """Return a dataset with a sum and a count of orders, after some operators."""

    @pipeline
    @inputs(Order)
    def made(cls: Any, orders: Any) -> Any:
        return (
            build(orders)
            .groupby("user")
            .aggregate(total=Sum(of="amount", window=Continuous("1d")), number=Count(window=Continuous("forever")))
        )

    annotations = {"user": int, "total": int, "number": int, "at": datetime}
    members = {"__module__": __name__, "__annotations__": annotations, "user": field(key=True), "made": made}
    return index(dataset(type("Totals", (), members)))


@dataset
class Abroad:
    user: int
    amount: int
    country: str
    note: str
    at: datetime

    @pipeline
    @inputs(Order)
    def made(cls: Any, orders: Any) -> Any:
        return orders.filter(col("country") != "FR")


def placed(folder: Path, *datasets: Any) -> tuple[Deployment, GraphNode, frozenset[str]]:
    """Return a deployment, the node of the orders, and the state ids of all others."""
    deployment = Deployment.at(folder)
    commit(deployment, check_commit([Order, *datasets], ()))
    graph: Graph = deployment.graph(deployment.catalog.latest())
    (node,) = (each for each in graph.nodes if not each.parents)
    return deployment, node, frozenset(each.state_id for each in graph.nodes if each.parents)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda orders: orders, {"user", "amount", "at"}),
        (lambda orders: orders.filter(col("country") != "FR"), {"user", "amount", "at", "country"}),
        (
            lambda orders: orders.assign(amount=(col("amount") * 2 + col("note").str.len()).astype(int)),
            {"user", "amount", "at", "note"},
        ),
        (lambda orders: orders.assign(amount=col("note").str.len().astype(int)), {"user", "at", "note"}),
        (lambda orders: orders.filter(lambda rows: rows["amount"] > 0), None),
        (lambda orders: orders.assign("amount", int, lambda rows: rows["amount"]), None),
        (lambda orders: orders.drop("note"), None),
    ],
)
def test_columns_that_a_new_dataset_reads(tmp_path: Path, build: Any, expected: AbstractSet[str] | None) -> None:
    _, node, fresh = placed(tmp_path, totals(build))
    assert columns_needed(node, fresh) == (None if expected is None else expected | CHANGES)


def test_a_dataset_with_a_log_reads_all_its_columns(tmp_path: Path) -> None:
    _, node, fresh = placed(tmp_path, Abroad)
    assert columns_needed(node, fresh) == {"user", "amount", "country", "note", "at"}


def test_datasets_that_are_there_read_nothing(tmp_path: Path) -> None:
    _, node, _ = placed(tmp_path, totals(lambda orders: orders.filter(col("country") != "FR")))
    assert columns_needed(node, ()) == set()


def test_functions_are_found_where_new_datasets_call_them(tmp_path: Path) -> None:
    deployment, _, fresh = placed(tmp_path, totals(lambda orders: orders.filter(lambda rows: rows["amount"] > 0)))
    graph = deployment.graph(deployment.catalog.latest())
    assert calls_functions(graph, fresh)
    assert not calls_functions(graph, ())


def rows(amounts: list[int]) -> pl.DataFrame:
    at = pl.Series([datetime(2024, 1, 1, tzinfo=UTC)] * len(amounts), dtype=pl.Datetime("us", "UTC"))
    plain = pl.DataFrame({"user": amounts, "amount": amounts}).with_columns(country=pl.lit("DE"), note=pl.lit("n"))
    return plain.with_columns(at=at, _at=at, _weight=pl.lit(1, pl.Int64), _seq=pl.int_range(pl.len(), dtype=pl.Int64))


@pytest.mark.parametrize("amounts", [[1, 2, 3], [1, 0, 3]])
def test_a_slice_with_rejected_rows_is_read_again_as_a_whole(tmp_path: Path, amounts: list[int]) -> None:
    divided = totals(lambda orders: orders.assign(amount=(col("amount") // col("amount")).astype(int)))
    deployment, node, fresh = placed(tmp_path, divided)
    read = list[AbstractSet[str] | None]()

    def history(columns: AbstractSet[str] | None) -> pl.DataFrame:
        read.append(columns)
        found = rows(amounts)
        return found if columns is None else found.select([name for name in found.columns if name in columns])

    output, guard = taken_in(node, history, fresh, lambda: WorkerGuard(deployment, has_thread=True))
    (made,) = output.frames.values()
    rejected = amounts.count(0)
    assert sum(each.height for each in made) == len(amounts) - rejected
    assert len(read) == 1 + bool(rejected)
    assert sum(guard.counts.values()) == rejected == len(guard.rejected)
    assert all(b'"note"' in each.raw for each in guard.rejected), "a dead letter has all columns"
