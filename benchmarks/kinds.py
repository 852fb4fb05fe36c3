"""Fields of many kinds: the rows of a pipeline with one more field for a second of CPU, beside those of it without.

    python -m benchmarks.kinds [ROWS]

Payments of JSON are summed by customer, in one process. Each kind adds a field to the rows that are validated, or another way of
reading them, and the ratio is what remains of the plain rate; each is the best of two runs, the plain ones before and behind.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any, Optional

import numpy as np
import orjson

from benchmarks.figure import Figure
from umbel.connectors import Files, source
from umbel.connectors import eval as computed
from umbel.datasets import Dataset, Sum, dataset, field, index, pipeline
from umbel.dtypes import Continuous, Decimal, Embedding, struct
from umbel.lib import inputs

__owner__ = "benchmarks@example.com"
ROWS = 200_000
PLAIN = {"customer": int, "amount": float, "at": datetime}
LEAST = 0.5


@struct
class Place:
    """Where it was paid."""

    latitude: float
    longitude: float


KINDS: Mapping[str, tuple[str, Any, float | None]] = {
    "a text": ("name", str, LEAST),
    "a truth value": ("is_online", bool, LEAST),
    "a day": ("day", date, LEAST),
    "an optional number": ("discount", Optional[int], LEAST),
    "a decimal": ("price", Decimal[2], LEAST),
    "a decimal as text": ("exact_price", Decimal[2], LEAST),
    "a list": ("tags", list[str], LEAST),
    "a struct": ("place", Place, LEAST),
    "a vector": ("vector", Embedding[4], LEAST),
    "a dictionary": ("options", dict[str, int], None),
}
"""The name and the type of one more field, and the least ratio that it should cost; dictionaries are read one by one."""
FUNCTIONS: Mapping[str, Mapping[str, Any]] = {
    "where in Python": {"where": lambda df: df["amount"] >= 0},
    "preproc in Python": {"preproc": {"amount": computed(lambda df: df["amount"] * 2, schema={"amount": float})}},
}
"""Options of the source; a function of the user may read any member, so that all of them are read."""


def run() -> list[Figure]:
    """Measure all kinds."""
    return figures(ROWS)


def figures(rows: int) -> list[Figure]:
    """Measure all kinds with some rows."""
    with tempfile.TemporaryDirectory(prefix="umbel-kinds-") as folder:
        write(Path(folder, "payments.ndjson"), rows)
        cases: dict[str, tuple[Mapping[str, Any], Mapping[str, Any], float | None]] = {
            **{f"and {kind}": ({name: dtype}, {}, least) for kind, (name, dtype, least) in KINDS.items()},
            **{name: ({}, options, None) for name, options in FUNCTIONS.items()},
        }
        plain = [per_second(folder, rows, {}, {}) for _ in range(3)][1:]
        best = {
            name: max(per_second(folder, rows, fields, options) for _ in range(2))
            for name, (fields, options, _) in cases.items()
        }
        plain += [per_second(folder, rows, {}, {}) for _ in range(2)]
    base = max(plain)
    return [
        Figure("plain", base, "rows/s", note=f"per second of CPU, {rows:,} rows of 14 members"),
        *(Figure(name, best[name] / base, "×", at_least=least) for name, (_, _, least) in cases.items()),
    ]


def write(path: Path, rows: int) -> None:
    """Write payments as lines of JSON."""
    random = np.random.default_rng(5)
    customers, cents = random.integers(0, rows // 10, rows).tolist(), random.integers(0, 100_000, rows).tolist()
    with path.open("wb") as file:
        for row, (customer, amount) in enumerate(zip(customers, cents, strict=True)):
            day = f"2026-01-{1 + row * 27 // rows:02}"
            payment = {
                "customer": customer,
                "amount": amount / 100,
                "name": f"customer {customer:07}",
                "is_online": amount % 2 == 0,
                "day": day,
                "discount": amount % 10 or None,
                "price": amount / 100,
                "exact_price": f"{amount // 100}.{amount % 100:02}",
                "tags": ["new", "paid", f"shop {amount % 7}"],
                "place": {"latitude": amount / 1111, "longitude": customer / 1111},
                "vector": [0.1, 0.2, 0.3, 0.4],
                "options": {"size": amount % 5, "color": amount % 3},
                "channel": "web",
                "at": f"{day}T{row % 24:02}:{row % 60:02}:00Z",
            }
            file.write(orjson.dumps(payment) + b"\n")


def per_second(folder: str, rows: int, fields: Mapping[str, Any], options: Mapping[str, Any]) -> float:
    """Return the rows for a second of CPU of the pipeline with more fields, and with options of its source."""
    from umbel.api.commit import check_commit
    from umbel.runtime.batch import drain
    from umbel.runtime.commit import commit
    from umbel.runtime.deployment import Deployment

    with tempfile.TemporaryDirectory(prefix="umbel-kinds-") as place:
        deployment = Deployment.at(Path(place), shards=2)
        commit(deployment, check_commit(definitions(folder, fields, options), []))
        begun = time.process_time()
        drain(deployment)
        seconds = time.process_time() - begun
        deployment.store.close()
        deployment.catalog.close()
    return rows / seconds


def definitions(folder: str, fields: Mapping[str, Any], options: Mapping[str, Any]) -> list[Any]:
    """Return the datasets: payments, and their sums by customer."""
    files = Files(name="payments", folder=folder).path("*.ndjson")
    payment = _dataset("Payment", {**PLAIN, **fields})
    sourced = source(files, disorder="3d", cdc="append", **options)(payment)

    def total(cls: Any, payments: Dataset) -> Any:
        return payments.groupby("customer").aggregate(total=Sum(of="amount", window=Continuous("7d")))

    summed: Callable[..., Any] = pipeline(inputs(sourced)(total))
    columns = {"customer": int, "total": float, "at": datetime}
    return [sourced, index(_dataset("Total", columns, customer=field(key=True), total_of=summed))]


def _dataset(name: str, columns: Mapping[str, Any], **members: Any) -> Any:
    body = {"__annotations__": dict(columns), "__module__": __name__, **members}
    return dataset(type(name, (), body))


if __name__ == "__main__":
    for each in figures(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS):
        print(each)
