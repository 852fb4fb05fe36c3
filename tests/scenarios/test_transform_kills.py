"""The worker is killed while rows pass a configuration of `umbel transform`; the dataset is that of a run without kills."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Optional

import pytest

from tests import kills
from tests.connectors import killing
from tests.deployed import Deployed, wait_until
from tests.seeds import new_seed
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.lib import inputs
from umbel.transform import loads

__owner__ = "tests@example.com"
START = datetime(2024, 1, 1, tzinfo=UTC)
CONFIG = """
source_field: page.url
target_field: product
transformations:
  - {name: regex_extract, pattern: '/p/(\\d+)', group: 1}
  - {name: cast, type: int}
---
source_field: kind
target_field: kind
transformations:
  - {name: custom_code, code: 'return "-".join(sorted(source_field.lower().split(" ")))'}
---
source_field: price
target_field: price
transformations:
  - {name: cast, type: float, on_error: drop}
---
source_field: robot
transformations:
  - {name: custom_code, code: return not source_field}
  - {name: filter}
---
source_field: at
target_field: at
"""


def row(n: int) -> dict[str, Any]:
    """Return the row of a number: of 41, one is no text, one has a price that is dropped, one is of a robot."""
    url = f"https://shop.example/p/{n}?c=1" if n % 3 else None
    price = "free" if n % 41 == 7 else f"{n % 100}.5"
    kind: Any = n if n % 41 == 5 else "Zeta Alpha"
    return {
        "page": {"url": url},
        "kind": kind,
        "price": price,
        "robot": n % 41 == 9,
        "at": (START + timedelta(seconds=n)).isoformat(),
    }


def expected(rows: range) -> list[tuple[Any, ...]]:
    return sorted(
        (n if n % 3 else 0, "alpha-zeta", n % 100 + 0.5, START + timedelta(seconds=n))
        for n in rows
        if n % 41 not in {5, 7, 9}
    )


def definitions() -> list[Any]:
    @source(
        Webhook(name="web").endpoint("visits"), disorder="30d", cdc="append", transform=loads(CONFIG, "visits.yaml")
    )
    @dataset
    class Visit:
        product: Optional[int]
        kind: str
        price: float
        at: datetime

    @dataset(index=True)
    class Sales:
        kind: str = field(key=True)
        count: int
        total: float
        at: datetime

        @pipeline
        @inputs(Visit)
        def sales(cls, visits: Any) -> Any:
            forever = Continuous("forever")
            return visits.groupby("kind").aggregate(count=Count(window=forever), total=Sum(of="price", window=forever))

    return [Visit, Sales]


def found(deployed: Deployed) -> tuple[Any, ...]:
    """Return all that came of the rows: both datasets, the dead letters, the counts."""
    letters = sorted((each.reason, each.raw) for each in deployed.deployment.catalog.dead_letters("Visit", 100_000))
    visits = deployed.changes("Visit").sort("at")
    return visits, deployed.changes("Sales"), letters, deployed.taken()


def run(folder: Path, worker: Any, waves: list[range], victims: list[str], chance: random.Random) -> tuple[Any, ...]:
    """Log a wave of rows for each victim, kill it at some instant; return all that came of them."""
    deployed = Deployed(folder / "umbel", budget=1 << 18)
    deployed.commit(definitions())
    total = sum(len(wave) - sum(n % 41 in {7, 9} for n in wave) for wave in waves)

    def is_done() -> bool:
        worker.mind()
        return deployed.taken().get("Visit", 0) >= total

    try:
        for wave, victim in zip(waves, victims, strict=True):
            worker.mind()
            for first in range(wave.start, wave.stop, 200):
                deployed.log("visits", [row(n) for n in range(first, min(first + 200, wave.stop))])
            time.sleep(chance.uniform(0, 1.5))  # any instant of the batches
            if victim:
                worker.kill(victim)
        wait_until(
            is_done, lambda: (deployed.taken(), total, (folder / "log").read_text(errors="replace")[-3000:]), 300
        )
        return found(deployed)
    finally:
        worker.end()
        deployed.close()


def check(folder: Path, kind: Any, victims: list[str]) -> None:
    seed = new_seed()
    waves = [range(each * 2000, (each + 1) * 2000) for each in range(len(victims))]
    made = []
    for name, chosen in (("killed", victims), ("calm", [""] * len(victims))):
        place = folder / name
        place.mkdir()
        worker = (
            kind(place / "umbel", place / "log") if name == "killed" else killing.Worker(place / "umbel", place / "log")
        )
        made.append(run(place, worker, waves, chosen, random.Random(seed)))
    (visits, sales, letters, counts), calm = made
    assert visits.equals(calm[0])
    assert sales.select("kind", "count", "total", "at").equals(calm[1].select("kind", "count", "total", "at"))
    assert (letters, counts) == calm[2:]
    rows = range(waves[-1].stop)
    columns = (visits["product"].fill_null(0), visits["kind"], visits["price"], visits["at"])
    assert sorted(zip(*columns, strict=True)) == expected(rows)
    assert len(letters) == sum(n % 41 == 5 for n in rows)
    assert "custom_code of 'kind' (visits.yaml:11): AttributeError" in letters[0][0]


def test_a_worker_without_spark(tmp_path: Path) -> None:
    check(tmp_path, killing.Worker, ["driver"] * 6)


def test_a_live_job(tmp_path: Path) -> None:
    check(tmp_path, kills.Worker, list(kills.VICTIMS))


@pytest.mark.nightly
def test_forty_kills(tmp_path: Path) -> None:
    check(tmp_path, killing.Worker, ["driver"] * 40)
