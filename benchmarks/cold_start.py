"""Cold start: `umbel run` of what is committed already, until the first query is answered and until the worker runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from benchmarks.figure import Figure
from benchmarks.process import free_port

BAR = 20.0
WITHIN = 300.0
QUERY = {
    "inputs": ["Risk.user", "Risk.card", "Risk.merchant", "Risk.device"],
    "outputs": ["Risk.user_count", "Risk.card_count"],
    "data": {"Risk.user": [1], "Risk.card": [1], "Risk.merchant": [1], "Risk.device": ["d1"]},
}


def run() -> list[Figure]:
    """Measure: the first start commits, the second one is timed."""
    with tempfile.TemporaryDirectory(prefix="umbel-cold-") as folder:
        data = Path(folder, "data")
        data.mkdir()
        os.environ["SERVING_DATA"] = str(data)
        started(Path(folder))
        answered, ready = started(Path(folder))
    return [
        Figure("umbel run, committed: first query answered", answered, "s", at_most=BAR),
        Figure("umbel run, committed: worker runs", ready, "s", note="Spark takes most of it"),
    ]


def started(folder: Path) -> tuple[float, float]:
    """Run umbel until it is ready; return the seconds to the first answer, and to a running worker."""
    command = [sys.executable, "-m", "umbel.cli.main", "run", "benchmarks.serving_features"]
    output, port = folder / "run.log", free_port()
    begun = time.monotonic()
    with output.open("wb") as log:
        options = ["--dir", str(folder / "umbel"), "--port", str(port)]
        process = subprocess.Popen([*command, *options], stdout=log, stderr=log)
    try:
        answered = _until(begun, lambda: _is_answered(port), output)
        return answered, _until(begun, lambda: "ready after" in output.read_text(), output)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def _is_answered(port: int) -> bool:
    try:
        return httpx.post(f"http://127.0.0.1:{port}/api/v1/query", json=QUERY).status_code == 200
    except httpx.TransportError:
        return False


def _until(begun: float, condition: Callable[[], bool], output: Path) -> float:
    while not condition():
        if time.monotonic() - begun > WITHIN:
            raise TimeoutError(output.read_text())
        time.sleep(0.05)
    return time.monotonic() - begun
