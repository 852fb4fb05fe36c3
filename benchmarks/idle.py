"""What an idle worker costs: 50 committed pipelines, no input."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.figure import Figure
from benchmarks.idle_features import DATASETS, PIPELINES

SETTLE, SECONDS = 20.0, 30.0
WITHIN = 300.0


def run() -> list[Figure]:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="umbel-idle-") as folder:
        place = Path(folder) / "umbel"
        committed(place)
        command = [sys.executable, "-m", "umbel.cli.main", "work", "--dir", str(place), "-w", "2"]
        with Path(folder, "work.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait_until_running(place)
            time.sleep(SETTLE)
            before = _spent(process.pid)
            time.sleep(SECONDS)
            after = _spent(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    parts = {name: (after[name] - before.get(name, 0.0)) / SECONDS * 100 for name in after}
    note = ", ".join(f"{name} {share:.1f}" for name, share in sorted(parts.items()))
    return [Figure(f"idle worker, {PIPELINES} pipelines", sum(parts.values()), "% of a core", at_most=10, note=note)]


def committed(place: Path) -> None:
    """Commit a webhook's dataset with 50 pipelines on it."""
    from umbel.api.commit import check_commit
    from umbel.runtime.commit import commit
    from umbel.runtime.deployment import Deployment

    commit(Deployment.at(place), check_commit(DATASETS, []))


def _wait_until_running(place: Path) -> None:
    from umbel.processes.status import read_status

    deadline = time.monotonic() + WITHIN
    while time.monotonic() < deadline:
        status = read_status(place)
        if status is not None and status.is_running:
            return
        time.sleep(0.1)
    raise TimeoutError("the worker does not run")


def _spent(pid: int) -> dict[str, float]:
    """Return the CPU seconds of the worker's processes by what they are."""
    driver = psutil.Process(pid)
    found: dict[str, float] = {}
    for each in [driver, *driver.children(recursive=True)]:
        name = "driver" if each == driver else "JVM" if each.name().startswith("java") else "Python workers"
        found[name] = found.get(name, 0.0) + sum(each.cpu_times()[:2])
    return found
