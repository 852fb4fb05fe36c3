"""A shop whose tables feed datasets: the datasets, and what is in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, cast

import polars as pl

from tests.deployed import Deployed, pauses
from umbel.api.dataset import redefined
from umbel.connectors import source
from umbel.connectors.polling import reader_state, stop_polling
from umbel.datasets import dataset, field
from umbel.definitions.arguments import ReadOptions
from umbel.runtime.batch import drain
from umbel.runtime.plans import PlannedSplit

__owner__ = "shop@example.com"
PATIENCE = 600.0


def orders(
    database: Any,
    *,
    name: str = "Orders",
    table: str = "orders",
    every: str = "1s",
    disorder: str = "1h",
    cursor: str = "updated_at",
    **options: Any,
) -> Any:
    """Return the keyed dataset of the table `orders`, or of one like it."""
    read = {"cdc": "upsert", **options}
    connector = database.table(table, None if read["cdc"] == "native" else cursor)

    @source(connector, disorder=disorder, every=every, **read)
    @dataset(index=True)
    class Orders:
        id: int = field(key=True)
        note: str
        updated_at: datetime

    return redefined(cast("Any", Orders), name=name)


@contextmanager
def deployed(folder: Path, *datasets: Any) -> Iterator[Deployed]:
    """Return a deployment of datasets, whose sources are read no more after the block."""
    made = Deployed(folder / "umbel")
    try:
        if datasets:
            made.commit(datasets)
        yield made
    finally:
        stop_polling(folder)
        made.close()


def examine(connector: Any, *columns: str, **options: Any) -> None:
    """Check a source as a commit does.

    Args:
        connector: of the table.
        columns: those that fields need; all for none.
        options: of the source, where they differ from those of a dataset whose key is `id`.
    """
    described = {"directory": Path(), "key": "D@1/0#x", "dataset": "D", "cdc": "native", "every": 1, "disorder": 1}
    needed = {"columns": columns or None, "keys": ("id",), "is_keyed": True}
    connector.reader_of(ReadOptions(**{**described, **needed, **options})).examine()


def until(made: Deployed, condition: Callable[[], Any], within: float = PATIENCE) -> None:
    """Process what comes in until a condition holds."""
    deadline, pausing = time.monotonic() + within, pauses()
    while not condition():
        assert time.monotonic() < deadline, (made.taken(), letters(made))
        if drain(made.deployment):
            pausing = pauses()
        time.sleep(next(pausing))


def first_split(made: Deployed) -> PlannedSplit:
    """Return the only split of the first plan that has one: a batch may begin before the server has answered."""
    plans = map(made.deployment.plans().read, count(1))
    (split,) = next(plan.splits for plan in plans if plan.splits)
    return split


def process(made: Deployed, seconds: float) -> None:
    """Process what comes in for some time."""
    start = time.monotonic()
    until(made, lambda: time.monotonic() - start > seconds)


def troubles(folder: Path) -> list[str]:
    """Return what hinders the threads that read sources into a folder or below it."""
    return [trouble for path in folder.rglob("poll.lock") if (trouble := reader_state(path.parent)[1])]


def letters(made: Deployed) -> Sequence[Any]:
    """Return the dead letters."""
    return made.deployment.catalog.dead_letters()


def rows_of(made: Deployed, name: str, columns: Sequence[str], at: datetime | None = None) -> list[tuple[Any, ...]]:
    """Return the rows of a keyed dataset as of an instant, by key."""
    log = made.changes(name)
    now = datetime(9000, 1, 1, tzinfo=UTC) if at is None else at
    return sorted(current(log, "id", now).select(columns).rows())


def current(log: pl.DataFrame, key: str, now: datetime) -> pl.DataFrame:
    """Return the last row of each key in a change log, without the deleted ones."""
    known = log.filter(pl.col("_at") <= now)
    balance = known.group_by(pl.exclude("_weight", "_at")).agg(pl.col("_weight").sum())
    return balance.filter(pl.col("_weight") > 0).unique(key, keep="any") if balance.height else balance
