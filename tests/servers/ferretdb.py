"""FerretDB: MongoDB's protocol over SQLite, compiled by Go from its own module proxy, over a temporary folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path

from tests.jars import CACHE
from tests.scenarios.server import HOST, free_port
from tests.servers.golang import REMEDY, go
from tests.servers.missing import missing
from umbel.processes.process_tree import die_with

PATIENCE = 240.0
UNKNOWN = frozenset({"decimal", "minKey", "maxKey", "javascript", "NaN"})
"""Types and values that it cannot store, and refuses in filters."""


@cache
def program() -> str:
    """Return the path of the program, compiled if it is not there yet."""
    own = Path(__file__).with_name("ferretdb")
    digest = sha256(b"".join((own / each).read_bytes() for each in ("go.mod", "go.sum", "main.go"))).hexdigest()
    made = CACHE / f"ferretdb-{digest[:12]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "ferretdb.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            source = CACHE / f"{made.name}-source"
            shutil.copytree(own, source, dirs_exist_ok=True)
            command = [go(), "build", "-mod=readonly", "-o", str(made), "."]
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=source)
            if done.returncode:
                missing("FerretDB", done.stderr[-500:], REMEDY)
    return str(made)


@dataclass
class FerretDB:
    """A server that can be killed and started again; its data stay.

    Args:
        folder: of its data.
        port: that it listens on.
    """

    folder: Path
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    unknown = UNKNOWN

    def start(self) -> None:
        """Start it, and wait until it answers."""
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        with (self.folder / "ferretdb.log").open("ab") as log:
            self._process = subprocess.Popen(
                [program(), f"{HOST}:{self.port}", str(self.folder / "data")],
                stdout=log,
                stderr=log,
                preexec_fn=die_with(os.getpid()),
            )
        deadline = time.monotonic() + PATIENCE
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection((HOST, self.port), 1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        raise OSError((self.folder / "ferretdb.log").read_text()[-2000:])

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
