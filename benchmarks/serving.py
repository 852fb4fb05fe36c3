"""Online queries over HTTP: 20 features over 4 windowed datasets of 100 000 keys each, one server process.

The load comes from a process of its own (`benchmarks.load`). Latency is measured at 1 000 requests a second, from the instant
each was due, evenly and at random; throughput with as many requests as are answered. The same load on `/healthz`, which does
nothing, tells what of it is the machine's and the generator's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import orjson
import polars as pl
import psutil

from benchmarks.figure import Figure
from benchmarks.load import QUERY
from benchmarks.process import free_port

KEYS, ROWS, FILES = 100_000, 1_000_000, 4
DAYS, DAY = 8, 86_400_000_000
SECONDS = 10
RATE = 1000
SEED = 7
FEATURES = "benchmarks.serving_features"
INPUTS = ("user", "card", "merchant", "device")


def run() -> list[Figure]:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="umbel-serving-") as folder:
        place = Path(folder)
        prepare(place)
        single, many = bodies(place / "single", 1, 5000), bodies(place / "many", 100, 300)
        with served(place / "umbel") as server:
            server.load(single, 3, 4)
            floor = server.load("-", SECONDS, 32, RATE, "/healthz")
            paced = server.measured(single, SECONDS, 32, RATE)
            random = server.measured(single, SECONDS, 32, RATE, "random")
            full = server.measured(single, SECONDS, 16)
            hundred = server.measured(many, SECONDS, 1, 20)
    spent = f"{full['cpu']:.2f} ms of CPU a request, in groups"
    return [
        Figure("query of 1 row, p99", paced["p99"], "ms", at_most=5, note=f"at {RATE} requests/s, due when due"),
        Figure("query of 1 row, arrivals at random, p99", random["p99"], "ms", note=f"at {RATE} requests/s"),
        Figure("nothing at all, p99", floor["p99"], "ms", note=f"/healthz at {RATE} requests/s"),
        Figure("query of 1 row, median", paced["median"], "ms"),
        Figure("queries of 1 row", full["per_second"], "requests/s", at_least=1000, note=spent),
        Figure("query of 100 rows, p99", hundred["p99"], "ms", at_most=25, note="at 20 requests/s"),
        Figure("query of 100 rows, median", hundred["median"], "ms"),
    ]


def prepare(folder: Path) -> None:
    """Make events, commit the features and process everything."""
    data = folder / "data"
    data.mkdir()
    os.environ["SERVING_DATA"] = str(data)
    generator, now = np.random.default_rng(SEED), time.time_ns() // 1000
    span = DAYS * DAY // FILES
    for number in range(FILES):
        begin = now - DAYS * DAY + number * span
        _events(generator, begin, begin + span).write_parquet(data / f"{number}.parquet")

    from umbel.cli.loading import definitions
    from umbel.runtime.batch import drain
    from umbel.runtime.commit import commit
    from umbel.runtime.deployment import Deployment

    deployment = Deployment.at(folder / "umbel")
    commit(deployment, definitions(FEATURES))
    drain(deployment)
    deployment.store.close()


def _events(generator: np.random.Generator, begin: int, end: int) -> pl.DataFrame:
    rows = ROWS // FILES
    at = np.sort(generator.integers(begin, end, rows))
    keys = {name: generator.integers(0, KEYS, rows) for name in INPUTS[:3]}
    device = [f"d{number}" for number in generator.integers(0, KEYS, rows)]
    amount = generator.gamma(2, 30, rows).round(2)
    return pl.DataFrame({**keys, "device": device, "amount": amount, "at": pl.Series(at)}).with_columns(
        pl.col("at").cast(pl.Datetime("us", "UTC"))
    )


def bodies(file: Path, rows: int, count: int) -> Path:
    """Write the bodies of queries for random keys, one a line."""
    from umbel.cli.loading import definitions

    generator = np.random.default_rng(SEED)
    names = [f"Risk.{name}" for name in INPUTS]
    features = definitions(FEATURES).featuresets["Risk"].features
    outputs = [each.fqn for each in features if each.fqn not in names]
    with file.open("wb") as opened:
        for _ in range(count):
            keys = {name: generator.integers(0, KEYS, rows).tolist() for name in names}
            keys["Risk.device"] = [f"d{number}" for number in keys["Risk.device"]]
            opened.write(orjson.dumps({"inputs": names, "outputs": outputs, "data": keys}) + b"\n")
    return file


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs.

    Args:
        process: the one that was started; its children answer.
        port: where it listens.
    """

    process: psutil.Process
    port: int

    def measured(
        self, file: Path, seconds: float, connections: int, rate: float | None = None, arrivals: str = "even"
    ) -> dict[str, float]:
        """Return the report of a load, with the CPU time the server took for each request, in ms."""
        before = self._cpu()
        report = self.load(file, seconds, connections, rate, arrivals=arrivals)
        return {**report, "cpu": (self._cpu() - before) / report["requests"] * 1e3}

    def load(
        self,
        file: Path | str,
        seconds: float,
        connections: int,
        rate: float | None = None,
        path: str = QUERY,
        arrivals: str = "even",
    ) -> dict[str, float]:
        """Run the load generator; return its report."""
        options = [self.port, file, seconds, connections, rate or "", path, arrivals]
        command = [sys.executable, "-m", "benchmarks.load", *map(str, options)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        report: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        if report["failures"]:
            raise RuntimeError(f"{report['failures']:.0f} of {report['requests']:.0f} queries failed")
        return report

    def _cpu(self) -> float:
        family = [self.process, *self.process.children(recursive=True)]
        return sum(sum(each.cpu_times()[:2]) for each in family)


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    """Run a server for the length of a block."""
    port = free_port()
    command = [sys.executable, "-m", "umbel.cli.main", "serve", "--dir", str(folder), "--port", str(port)]
    with subprocess.Popen(command) as process:
        try:
            _wait(port)
            yield Server(psutil.Process(process.pid), port)
        finally:
            process.terminate()


def _wait(port: int, within: float = 120) -> None:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise TimeoutError("the server does not answer")
