"""Asking for offline queries that run as jobs, waiting for them, and reading what they leave."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.unit.serving.conftest import Served
from umbel.catalog.offline_jobs import OfflineJobs
from umbel.offline import driver
from umbel.offline.driver import OfflineDriver, RunsParts, in_this_process

OUTPUTS = ["Origin.origin", "Origin.departures", "Origin.average", "Origin.is_late"]
PATH = "/api/v1/query_offline"
HOUR = datetime(2013, 12, 1, 10, tzinfo=UTC)


def ask(served: Served, body: dict[str, Any], branch: str = "main", **changes: Any) -> dict[str, Any]:
    query = {"inputs": ["Origin.origin"], "outputs": OUTPUTS, "timestamp_column": "at"}
    answer = served.post(PATH, query | body | changes, headers={"X-UMBEL-BRANCH": branch})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def place(prefix: str, form: Any = "json") -> dict[str, Any]:
    return {"bucket": "data", "prefix": prefix, "format": form}


def ended(served: Served, report: dict[str, Any], within: float = 300) -> dict[str, Any]:
    deadline = time.monotonic() + within
    while report["status"] in ("PENDING", "RUNNING"):
        assert time.monotonic() < deadline, report
        time.sleep(0.05)
        report = served.http.get(f"{PATH}/status", params={"request_id": report["request_id"]}).json()
    return report


def worked(idle: Served, report: dict[str, Any]) -> dict[str, Any]:
    """Run a job in this process; return how it is then."""
    job = OfflineJobs(idle.deployment.catalog).get(report["request_id"])
    OfflineDriver(idle.deployment, in_this_process(idle.deployment)).run(job)
    return dict(idle.http.get(f"{PATH}/status", params={"request_id": job.id}).json())


def lines(path: Path, rows: Sequence[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = b"".join(row if isinstance(row, bytes) else orjson.dumps(row) + b"\n" for row in rows)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def found(buckets: Path, report: dict[str, Any]) -> list[Path]:
    folder = buckets / report["output_bucket"] / report["output_prefix"]
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def rows_of(buckets: Path, report: dict[str, Any]) -> list[dict[str, Any]]:
    folder = buckets / report["output_bucket"] / report["output_prefix"]
    return [json.loads(line) for path in sorted(folder.glob("part-*")) for line in path.read_text().splitlines()]


def errors_of(buckets: Path, report: dict[str, Any]) -> list[dict[str, Any]]:
    folder = buckets / report["output_bucket"] / report["output_prefix"] / "_errors"
    return [json.loads(line) for path in sorted(folder.glob("*.json")) for line in path.read_text().splitlines()]


def queried_at_once(served: Served, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the answer to the same rows sent in the body."""
    data = {name: [row[name] for row in rows] for name in rows[0]}
    columns = ask(served, {"data": data})
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def many(count: int) -> list[dict[str, Any]]:
    origins = ["JFK", "LGA", "EWR"]
    return [
        {"Origin.origin": origins[n % 3], "at": (HOUR + timedelta(minutes=7 * n % 600)).isoformat()}
        for n in range(count)
    ]


def small_parts(patch: pytest.MonkeyPatch, size: int = 2000) -> None:
    """Make parts of some dozen lines."""
    patch.setattr("umbel.offline.inputs.PART_BYTES", size)
    patch.setattr("umbel.offline.parts.PART_BYTES", size)
    patch.setattr(driver, "EVERY", 0.0)


def driven(idle: Served, run_parts: RunsParts | None = None) -> OfflineDriver:
    return OfflineDriver(idle.deployment, run_parts or in_this_process(idle.deployment))
