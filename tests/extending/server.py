"""`umbel run` with packages on its path that are installed nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.scenarios.server import HOST, free_port

PATIENCE = 600.0


class Running:
    """A server and its worker.

    Args:
        folder: of the deployment.
        path: the folders to import from.
        arguments: of the command `umbel`.
        environment: further variables.
    """

    def __init__(self, folder: Path, path: list[Path], *arguments: str, environment: Mapping[str, str]) -> None:
        self.folder, self.port, self.out = folder, free_port(), folder / "out.log"
        command = [sys.executable, "-m", "umbel", *arguments, "--dir", str(folder / "umbel"), "--port", str(self.port)]
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "COLUMNS": "300", **environment}
        self._variables = variables
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(command, env=variables, stdout=out, stderr=out, cwd=folder)
        self.http = httpx.Client(base_url=f"http://{HOST}:{self.port}", timeout=60)

    @property
    def output(self) -> str:
        logs = [path.read_text() for path in (self.folder / "umbel" / "logs").glob("*er.log")]
        return self.out.read_text() + "".join(logs)

    def wait(self, condition: Callable[[], object]) -> None:
        """Wait until a condition is true, while the process lives."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, self.output
            assert self.process.poll() is None, self.output
            time.sleep(0.1)

    def is_ready(self) -> bool:
        """Return True once the server answers."""
        try:
            return self.http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def commit(self, module: str) -> None:
        """Commit a module with the command line."""
        command = [sys.executable, "-m", "umbel", "commit", module, "--url", str(self.http.base_url)]
        done = subprocess.run(
            command, env=self._variables, cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (done.stderr, self.output)

    def query(self, featureset: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the features of one row of inputs."""
        data = {name: [value] for name, value in inputs.items()}
        answer = self.http.post("/api/v1/query", json={"inputs": list(inputs), "outputs": [featureset], "data": data})
        assert answer.status_code == 200, (answer.text, self.output)
        return {name: values[0] for name, values in answer.json().items()}

    def stop(self) -> None:
        """End all processes."""
        self.http.close()
        if self.process.poll() is None:
            family = psutil.Process(self.process.pid).children(recursive=True)
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            for each in psutil.wait_procs(family, timeout=10)[1]:
                each.kill()
