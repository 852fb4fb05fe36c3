"""Rows per second of offline queries over Parquet files, as jobs of a server, with the memory of all its processes.

    python -m benchmarks.offline_job [ROWS [SMALL_ROWS]]

Twenty windowed features as of the instant of each row. One job of ROWS rows, and one of SMALL_ROWS, which shows what beginning
a job costs. The server runs without a worker; the time is that from the request to the marker.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl

from benchmarks.figure import Figure, readable
from benchmarks.process import GIB, Watch, free_port
from benchmarks.serving import DAY, DAYS, INPUTS, KEYS, prepare

ROWS, SMALL = 1_000_000, 1_000
SEED = 11
PATH = "/api/v1/query_offline"


def run() -> list[Figure]:
    """Measure a large job and a small one."""
    return figures(ROWS, SMALL)


def figures(rows: int, small: int) -> list[Figure]:
    """Measure jobs of so many rows."""
    with tempfile.TemporaryDirectory(prefix="umbel-offline-") as folder:
        place = Path(folder)
        prepare(place)
        os.environ["UMBEL_BUCKETS"] = (place / "buckets").as_uri()
        for number, name in ((rows, "large"), (small, "small")):
            _requested(number, place / "buckets" / "data" / name)
        port = free_port()
        command = [sys.executable, "-m", "umbel", "serve", "--dir", str(place / "umbel"), "--port", str(port)]
        server = subprocess.Popen(command)
        watch = Watch(server.pid)
        watch.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
                _until_ready(http)
                short, long = _answered(http, "small"), _answered(http, "large")
        finally:
            watch.stop()
            server.terminate()
            server.wait(60)
    note = f"{rows:,} rows × 20 features"
    return [
        Figure("offline job", rows / long, "rows/s", note=note),
        Figure("memory of server and job, peak", watch.pss / GIB, "GiB", note=note),
        Figure(f"offline job of {small:,} rows", short, "s"),
    ]


def _answered(http: httpx.Client, name: str) -> float:
    """Return the seconds that a job takes."""
    inputs = [f"Risk.{each}" for each in INPUTS]
    body = {
        "inputs": inputs,
        "outputs": ["Risk"],
        "timestamp_column": "at",
        "feature_to_column_map": dict(zip(inputs, INPUTS, strict=True)),
        "input": {"bucket": "data", "prefix": f"{name}/"},
        "output": {"bucket": "data", "prefix": "answers"},
    }
    begun = time.perf_counter()
    report = http.post(PATH, json=body).raise_for_status().json()
    while report["status"] in {"PENDING", "RUNNING"}:
        time.sleep(0.05)
        report = http.get(f"{PATH}/status", params={"request_id": report["request_id"]}).raise_for_status().json()
    if report["status"] != "COMPLETED":
        raise RuntimeError(report)
    return time.perf_counter() - begun


def _requested(rows: int, folder: Path) -> None:
    """Write rows to ask about, in row groups of 100,000."""
    random = np.random.default_rng(SEED)
    now = time.time_ns() // 1000
    columns: dict[str, Any] = {name: random.integers(0, KEYS, rows) for name in INPUTS[:3]}
    columns["device"] = [f"d{number}" for number in random.integers(0, KEYS, rows)]
    columns["at"] = pl.Series(random.integers(now - DAYS * DAY // 2, now, rows)).cast(pl.Datetime("us", "UTC"))
    folder.mkdir(parents=True)
    pl.DataFrame(columns).write_parquet(folder / "rows.parquet", row_group_size=100_000)


def _until_ready(http: httpx.Client) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            if http.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise RuntimeError("the server is not ready")


def main(rows: str = str(ROWS), small: str = str(SMALL)) -> None:
    """Measure and print the figures."""
    for figure in figures(int(rows), int(small)):
        print(f"{figure.name:35} {readable(figure.value):>10} {figure.unit:8} {figure.note}")


if __name__ == "__main__":
    main(*sys.argv[1:])
