"""The sustained chain: collector → transformation → dataset → online feature, at 13,900 events a second.

    python -m benchmarks.chain [SECONDS [RATE]]

That is 1.2 billion a day. Events of 1 KB arrive in batches of 100 over 64 connections. Twice a second it is read how many
events the dataset has, and a feature is queried. The backlog has the shape of a saw, since batches take all that has
arrived: the rate of processing is taken from the end of one batch to the end of another. The first third does not
count. The long form is 600 seconds; needs Go.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import psutil

from benchmarks.collector import BATCH, BYTES, CONNECTIONS, built, collector
from benchmarks.data import CACHE
from benchmarks.figure import Figure
from benchmarks.process import free_port

SECONDS, RATE = 60.0, 13_900.0
EVERY = 0.5
ACCEPTED = 'umbel_collect_events_total{outcome="accepted"'
PROCESSED = 'umbel_dataset_rows{dataset="Click",outcome="rows"'
PROCESSED_BAR = 0.95
"""The share of the events of a time that are processed in it, up to the length of a batch."""


@dataclass
class Samples:
    """What was read: seconds since the start, events accepted and processed, milliseconds of a query."""

    seconds: list[float] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)
    processed: list[float] = field(default_factory=list)
    query: list[float] = field(default_factory=list)


def run() -> list[Figure]:
    """Run the short form."""
    return figures(SECONDS, RATE)


def figures(seconds: float, rate: float = RATE) -> list[Figure]:
    """Run the chain for so many seconds."""
    load = built("load")
    with tempfile.TemporaryDirectory(dir=CACHE) as folder, collector(Path(folder) / "edge") as events:
        with _umbel(Path(folder), events) as url:
            options = ["-rate", str(rate), "-seconds", str(seconds), "-batch", str(BATCH), "-fresh"]
            command = [str(load), "-address", f"127.0.0.1:{events}", "-connections", str(CONNECTIONS)]
            before = _cpu()
            sending = subprocess.Popen([*command, "-size", str(BYTES), *options], stdout=subprocess.PIPE, text=True)
            samples = _sampled(sending, events, url)
            after = _cpu()
            counted = _counted(url, events)
        report = json.loads(sending.communicate()[0])
    return list(_figures(report, samples, {name: after[name] - before.get(name, 0.0) for name in after}, counted))


def _figures(report: dict[str, float], samples: Samples, cpu: dict[str, float], counted: float) -> Iterator[Figure]:
    took, rate = report["seconds"], report["events"] / report["seconds"]
    steady = [n for n, each in enumerate(samples.seconds) if each > took / 3]
    ends = [n for n in steady[1:] if samples.processed[n] > samples.processed[n - 1]]
    note = (
        f"{took:.0f} s, {psutil.cpu_count()} cores, {report['refused']:.0f} refused, p99 {report['p99'] * 1000:.0f} ms"
    )
    yield Figure("chain: events accepted", rate, "events/s", note=note)
    if len(ends) < 2:
        raise SystemExit("too few batches ended: a longer run is needed")
    first, last = ends[0], ends[-1]
    passed = samples.seconds[last] - samples.seconds[first]
    share = (samples.processed[last] - samples.processed[first]) / passed / rate
    note = f"{len(ends)} batches in {passed:.0f} s"
    yield Figure("chain: processed / accepted", share, "×", at_least=PROCESSED_BAR, note=note)
    backlog = [samples.accepted[n] - samples.processed[n] for n in steady]
    growth = np.polyfit([samples.seconds[n] for n in steady], backlog, 1)[0]
    yield Figure("chain: growth of the backlog", growth / rate, "of the rate", note="regression")
    yield Figure("chain: backlog, median", statistics.median(backlog) / rate, "s of input")
    yield Figure("chain: query of a feature, median", statistics.median(samples.query), "ms")
    yield Figure("chain: events that the feature has counted / accepted", counted / report["events"], "×", at_least=1.0)
    cores = psutil.cpu_count() or 1
    for name, spent in sorted(cpu.items()):
        yield Figure(
            f"chain: CPU of {name}", 100 * spent / took / cores, "%", note=f"{spent / took:.2f} of {cores} cores"
        )


def _cpu() -> dict[str, float]:
    """Return the seconds of CPU time of the processes that this one has started, by what they do."""
    found: dict[str, float] = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            line, times = " ".join(process.cmdline()), process.cpu_times()
            spent = times.user + times.system + times.children_user + times.children_system
            name = "generator" if "/load" in line else "collector" if " collect " in line else "server"
            if name == "server" and " serve " not in line:
                name = "worker"
            found[name] = found.get(name, 0.0) + spent
    return found


def _sampled(sending: subprocess.Popen[str], events: int, url: str) -> Samples:
    found, begun = Samples(), time.monotonic()
    with httpx.Client(timeout=60) as client:
        while sending.poll() is None:
            found.seconds.append(time.monotonic() - begun)
            found.accepted.append(_metric(client, f"http://127.0.0.1:{events}/metrics", ACCEPTED))
            found.processed.append(_metric(client, f"{url}/api/v1/metrics", PROCESSED))
            at = time.perf_counter()
            _query(client, url, ["u1", "u2", "u3"])
            found.query.append((time.perf_counter() - at) * 1000)
            time.sleep(max(0.0, begun + EVERY * len(found.seconds) - time.monotonic()))
    return found


def _counted(url: str, events: int) -> float:
    """Return the number of events in the features of all users, once nothing is left to be read."""
    users = ["first", *(f"u{n}" for n in range(10_000))]
    with httpx.Client(timeout=60) as client:
        deadline, total = time.monotonic() + 120, 0.0
        accepted = _metric(client, f"http://127.0.0.1:{events}/metrics", ACCEPTED)
        while time.monotonic() < deadline and total < accepted:
            total = sum(_query(client, url, users))
            time.sleep(0.5)
    return total - 1  # that which was awaited before the others


def _metric(client: httpx.Client, url: str, name: str) -> float:
    lines = client.get(url).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def _query(client: httpx.Client, url: str, users: list[str]) -> list[float]:
    body = {"outputs": ["User.clicks"], "inputs": ["User.user"], "data": {"User.user": users}}
    found = client.post(f"{url}/api/v1/query", json=body).json()
    return list(found["User.clicks"] if isinstance(found, dict) else [row["User.clicks"] for row in found])


@contextlib.contextmanager
def _umbel(folder: Path, events: int) -> Iterator[str]:
    """Run `umbel run` for a `with` block; give its URL once a feature has counted a first event."""
    port = free_port()
    command = [sys.executable, "-m", "umbel.cli.main", "run", "benchmarks.chain_features", "-w", "1"]
    environment = {**os.environ, "BENCHMARK_COLLECTOR": str(folder / "edge" / "events")}
    url, first = f"http://127.0.0.1:{port}", {"user": "first", "amount": 1, "kind": "A", "page": {"url": "/p/1"}}
    with (folder / "log").open("wb") as log, httpx.Client(timeout=60) as client:
        stamp = {"sent_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        client.post(f"http://127.0.0.1:{events}/api/v1/events/clicks", json={**first, **stamp}).raise_for_status()
        process = subprocess.Popen(
            [*command, "--dir", str(folder / "umbel"), "--port", str(port)], stdout=log, stderr=log, env=environment
        )
        try:
            deadline = time.monotonic() + 180
            while not _is_seen(client, url):
                if time.monotonic() > deadline or process.poll() is not None:
                    raise SystemExit(f"umbel did not come up: {(folder / 'log').read_text()[-3000:]}")
                time.sleep(0.3)
            yield url
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def _is_seen(client: httpx.Client, url: str) -> bool:
    try:
        return _query(client, url, ["first"]) == [1]
    except (httpx.TransportError, KeyError, TypeError):
        return False


if __name__ == "__main__":
    for figure in figures(*map(float, sys.argv[1:])) if sys.argv[1:] else run():
        print(f"{figure.name}: {figure.value:,.2f} {figure.unit} {figure.bar} {figure.verdict} {figure.note}")
