"""A Prometheus in a process of its own over a temporary folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.scenarios.server import HOST, free_port
from tests.servers.missing import missing

PATIENCE = 240.0


class Prometheus:
    """A Prometheus that scrapes targets twice a second.

    Args:
        port: where it answers.
    """

    def __init__(self, port: int) -> None:
        self.http = httpx.Client(base_url=f"http://{HOST}:{port}", timeout=30)

    def value(self, query: str) -> float:
        """Return the value of a query that gives one."""
        found = self.http.get("/api/v1/query", params={"query": query}).json()
        assert found["status"] == "success", found
        (series,) = found["data"]["result"]
        return float(series["value"][1])

    def series(self, query: str) -> int:
        """Return the number of time series of a query."""
        return len(self.http.get("/api/v1/query", params={"query": query}).json()["data"]["result"])


@contextmanager
def scraping(folder: Path, targets: Sequence[tuple[str, int, str]]) -> Iterator[Prometheus]:
    """Run a Prometheus for the length of a block.

    Args:
        folder: of its data.
        targets: the name of a job, its port and path, each.
    """
    program = shutil.which("prometheus")
    if program is None:
        missing("Prometheus", "it is not installed", "apt-get install prometheus")
    jobs = [
        {"job_name": name, "metrics_path": path, "static_configs": [{"targets": [f"{HOST}:{port}"]}]}
        for name, port, path in targets
    ]
    settings = {"global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"}, "scrape_configs": jobs}
    (folder / "prometheus.yml").write_text(json.dumps(settings))  # JSON is YAML
    port = free_port()
    command = [program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address={HOST}:{port}"], stdout=log, stderr=log)
    try:
        found, deadline = Prometheus(port), time.monotonic() + PATIENCE
        while not _is_ready(found, len(targets)):
            assert time.monotonic() < deadline, (folder / "prometheus.log").read_text()
            time.sleep(0.1)
        yield found
    finally:
        process.terminate()
        process.wait(30)


def _is_ready(prometheus: Prometheus, targets: int) -> bool:
    try:
        return prometheus.series("up == 1") == targets
    except (httpx.TransportError, KeyError, ValueError):
        return False
