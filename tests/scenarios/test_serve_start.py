"""`umbel serve` that cannot start: it says why and ends, instead of trying for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenarios.server import free_port
from umbel.processes.process_tree import PARENT


def ended(folder: Path, servers: int, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    (folder / "catalog.db").write_bytes(b"this is no database" * 100)
    command = [sys.executable, "-m", "umbel.cli.main", "serve", "--dir", str(folder), "--port", str(free_port())]
    return subprocess.run(
        [*command, "--servers", str(servers)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("servers", [1, 2])
def test_a_server_that_cannot_open_its_deployment_says_so_at_once(tmp_path: Path, servers: int) -> None:
    found = ended(tmp_path, servers, {})
    assert found.returncode == 2, found.stderr
    assert "the catalog is damaged" in found.stderr
    assert "file is not a database" in found.stderr
    assert "Traceback" not in found.stderr


def test_server_processes_that_cannot_open_the_deployment_are_not_restarted(tmp_path: Path) -> None:
    """A supervisor opens the deployment itself, so the processes of its server are the first to meet the damage."""
    found = ended(tmp_path, 2, {PARENT: str(os.getpid())})
    assert found.returncode == 2, found.stderr
    assert "gave up after 3 failed starts in a row" in found.stderr
    assert "file is not a database" in found.stderr
