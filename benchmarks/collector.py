"""The collector beside a minimal compiled server in Go, which also answers once events are on disk.

    python -m benchmarks.collector [SECONDS]

Events of 1 KB over 64 connections that are kept open, one by one and in batches of 100. Both servers check that bodies are
objects of JSON, and write all requests that arrive during a sync together; the generator is written in Go, too. The
servers run at the same time, and take turns; the medians count. Needs Go.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil

from benchmarks.data import CACHE
from benchmarks.figure import Figure
from benchmarks.process import free_port

SECONDS, TURNS = 4.0, 5
CONNECTIONS, BYTES, BATCH = 64, 1024, 100
ONE_BAR, BATCH_BAR = 0.5, 0.8
SOURCES = Path(__file__).with_name("go")


def run() -> list[Figure]:
    """Measure the two servers in turn."""
    return figures(SECONDS)


def figures(seconds: float) -> list[Figure]:
    """Measure each of them for so many seconds a turn."""
    load = built("load")
    with tempfile.TemporaryDirectory(dir=CACHE) as folder, contextlib.ExitStack() as stack:
        place = Path(folder)
        servers = {
            "Go": stack.enter_context(compiled(place / "go")),
            "Go, bodies unchecked": stack.enter_context(compiled(place / "unchecked", "-unchecked")),
            "umbel": stack.enter_context(collector(place / "umbel", "--processes", str(psutil.cpu_count() or 1))),
            "umbel, one process": stack.enter_context(collector(place / "one")),
        }
        return [
            *_compared(load, servers, 1, seconds, "one by one", ONE_BAR),
            *_compared(load, servers, BATCH, seconds, f"batches of {BATCH}", BATCH_BAR),
        ]


def _compared(
    load: Path, servers: dict[str, int], batch: int, seconds: float, title: str, bar: float
) -> Iterator[Figure]:
    found: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
    spent = 0.0
    for _ in range(TURNS):
        for name, port in servers.items():
            before = cpu()
            found[name].append(sent(load, port, "-batch", str(batch), "-seconds", str(seconds)))
            spent += cpu() - before if name == "umbel" else 0.0
    if any(turn["refused"] for turns in found.values() for turn in turns):
        raise SystemExit(f"requests were refused: {found}")
    rates = {
        name: statistics.median(turn["events"] / turn["seconds"] for turn in turns) for name, turns in found.items()
    }
    for name, rate in rates.items():
        late = statistics.median(turn["p99"] for turn in found[name]) * 1000
        yield Figure(f"collector, {title}: {name}", rate, "events/s", note=f"p99 {late:.1f} ms")
    events = sum(turn["events"] for turn in found["umbel"])
    yield Figure(f"collector, {title}: umbel, of one core", events / spent, "events/s", note="by its CPU time")
    yield Figure(f"collector, {title}: umbel / Go", rates["umbel"] / rates["Go"], "×", at_least=bar)
    yield Figure(
        f"collector, {title}: umbel / Go, bodies unchecked", rates["umbel"] / rates["Go, bodies unchecked"], "×"
    )


def cpu() -> float:
    """Return the seconds of CPU time of the collectors started here."""
    found = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "python" in process.name():
                times = process.cpu_times()
                found += times.user + times.system
    return found


def built(name: str) -> Path:
    """Return a program written in Go, compiled."""
    go = shutil.which("go", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/go/bin"]))
    if go is None:
        raise SystemExit("this benchmark needs Go, https://go.dev/dl")
    CACHE.mkdir(parents=True, exist_ok=True)
    subprocess.run([go, "build", "-o", str(CACHE.absolute() / name), f"./{name}"], cwd=SOURCES, check=True)
    return CACHE.absolute() / name


def sent(load: Path, port: int, *options: str) -> dict[str, float]:
    """Run the generator; return what it measured."""
    command = [str(load), "-address", f"127.0.0.1:{port}", "-connections", str(CONNECTIONS), "-size", str(BYTES)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


@contextlib.contextmanager
def compiled(folder: Path, *options: str) -> Iterator[int]:
    """Run the server in Go for a `with` block; give its port."""
    folder.mkdir()
    port = free_port()
    command = [str(built("server")), "-address", f"127.0.0.1:{port}", "-dir", str(folder), *options]
    with _running(command, folder / "log", port):
        yield port


@contextlib.contextmanager
def collector(folder: Path, *options: str) -> Iterator[int]:
    """Run `umbel collect` for a `with` block; give its port."""
    folder.mkdir(exist_ok=True)
    port = free_port()
    command = [sys.executable, "-m", "umbel.cli.main", "collect", "--dir", str(folder / "events"), "--port", str(port)]
    with _running([*command, *options], folder / "log", port):
        yield port


@contextlib.contextmanager
def _running(command: list[str], log: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                with contextlib.suppress(httpx.TransportError):
                    if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                        break
                time.sleep(0.05)
            else:
                raise SystemExit(f"it does not answer: {log.read_text()}")
            yield process
        finally:
            process.terminate()
            process.wait(60)


if __name__ == "__main__":
    for figure in figures(*map(float, sys.argv[1:])) if sys.argv[1:] else run():
        print(f"{figure.name}: {figure.value:,.2f} {figure.unit} {figure.bar} {figure.verdict} {figure.note}")
