"""An umbel of our own for the demo: started as a user would, queried over HTTP."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import psutil

INSTANT = pl.Datetime("us", "UTC")
STARTS_WITHIN = 900.0
"""Seconds; a start takes seconds on a machine with nothing else to do, and minutes on one that is busy."""
EVERY = 30.0


class Server:
    """`umbel run examples.flights.features` in a folder, on a free port.

    Args:
        folder: where umbel keeps everything.
        data: the folder of the files.
        workers: how many Spark tasks run at once.
    """

    def __init__(self, folder: Path, data: Path, workers: int) -> None:
        self._log = (folder / "umbel.log").open("wb")
        self.log = folder / "umbel.log"
        port = _free_port()
        command = [sys.executable, "-m", "umbel.cli.main", "run", "examples.flights.features"]
        options = ["--dir", str(folder / "umbel"), "--port", str(port), "-w", str(workers)]
        environment = {**os.environ, "FLIGHTS_DATA": str(data)}
        self._process = subprocess.Popen([*command, *options], env=environment, stdout=self._log, stderr=self._log)
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)

    def wait_until_ready(self, said: Callable[[str], None] = lambda _: None, within: float = STARTS_WITHIN) -> None:
        """Return when it answers.

        Args:
            said: gets a line every half minute that it takes.
            within: seconds after which it is given up.
        """
        begun = reported = time.monotonic()
        while self._process.poll() is None and (now := time.monotonic()) < begun + within:
            if self._is_ready():
                return
            if now - reported >= EVERY:
                reported = now
                said(f"umbel starts, for {now - begun:.0f} s now: Java and Spark first, then the files")
            time.sleep(0.1)
        seconds = time.monotonic() - begun
        raise SystemExit(f"umbel did not start in {seconds:.0f} s; {self.end_of_log}")

    @property
    def end_of_log(self) -> str:
        """The last lines that umbel printed, for a message: the log goes with the folder."""
        return f"the end of its log:\n{self.log.read_text(errors='replace')[-3000:]}"

    def _is_ready(self) -> bool:
        try:
            return self._http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def post(self, endpoint: str, rows: Sequence[Mapping[str, Any]], batch: str) -> None:
        """Post rows to the webhook; try again while the server is away. The batch's name makes that harmless."""
        body = {"webhook": "airports", "endpoint": endpoint, "data": rows}
        for _ in range(100):
            try:
                answer = self._http.post("/api/v1/log", json=body, headers={"Idempotency-Key": batch})
            except httpx.TransportError:
                time.sleep(0.1)
                continue
            if answer.status_code < 500:
                answer.raise_for_status()
                return
            time.sleep(0.1)
        raise SystemExit("the webhook does not answer")

    def ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Post a question."""
        answer = self._http.post(path, json=body)
        if answer.status_code != 200:
            raise SystemExit(f"{path} answered {answer.status_code}: {answer.text[:1000]}")
        found: dict[str, Any] = answer.json()
        return found

    def lookup(self, dataset: str, keys: pl.DataFrame, at: pl.Series) -> pl.DataFrame:
        """Return the rows of keys as of instants, with `asked_at`; keys not found have nulls."""
        body = {"keys": keys.to_dict(as_series=False), "timestamps": [each.isoformat() for each in at]}
        found = self.ask(f"/api/v1/dataset/{dataset}/lookup", body)
        return pl.DataFrame(found["data"], infer_schema_length=None).with_columns(at.alias("asked_at"))

    def taken(self) -> dict[str, int]:
        """Return how many rows each dataset has taken in."""
        lines = (line for line in self._http.get("/api/v1/metrics").text.splitlines() if 'outcome="rows"' in line)
        return {
            line.split('"')[1]: int(float(line.split()[-1])) for line in lines if line.startswith("umbel_dataset_rows")
        }

    def serves(self) -> bool:
        """Return whether the definitions answer queries: they do once the rows that were there have been read."""
        return bool(self._http.get("/api/v1/branch/status").json()["state"] == "serving")

    def kill_one(self) -> str:
        """Kill one process of the worker, any of them, with SIGKILL; return which."""
        workers = [each for each in self._children() if "work" in each.cmdline()[:5]]
        family = [member for worker in workers for member in (worker, *worker.children(recursive=True))]
        if not family:
            return ""
        victim = random.choice(family)
        name = "driver" if victim in workers else "JVM" if victim.name().startswith("java") else "Python worker"
        victim.send_signal(signal.SIGKILL)
        return f"{name} {victim.pid}"

    def stop(self) -> list[psutil.Process]:
        """Stop it as Ctrl-C does; return the processes that are left over."""
        family = psutil.Process(self._process.pid).children(recursive=True)
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._http.close()
        self._log.close()
        _, left = psutil.wait_procs(family, timeout=10)
        return [each for each in left if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]

    def _children(self) -> list[psutil.Process]:
        return psutil.Process(self._process.pid).children()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
