"""A PostgreSQL server of its own for tests, on a free port, under a temporary folder."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.scenarios.server import HOST, free_port
from tests.servers.missing import missing

USER, PASSWORD = "umbel", "only-for-tests"
PATIENCE = 240.0
REMEDY = "install the package postgresql: tests/servers/install"
SETTINGS = f"""
listen_addresses = '{HOST}'
wal_level = logical
max_wal_senders = 100
max_replication_slots = 100
wal_sender_timeout = 20s
log_min_duration_statement = -1
log_statement = none
shared_buffers = 64MB
max_wal_size = 2GB
"""


@dataclass
class PostgresServer:
    """A server that can be killed and started again.

    Args:
        folder: its data, log and socket.
        programs: the folder of its programs.
        port: where it listens.
    """

    folder: Path
    programs: Path
    port: int
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [self.programs / "postgres", "-D", self.folder / "data", "-p", str(self.port), "-k", self.folder]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, **_account())
        self.wait()

    def wait(self) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(Exception), self.connect() as connection:
                connection.execute("SELECT 1")
                return
            if time.monotonic() > deadline:
                raise OSError(f"the server does not answer:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill it and all its processes at once, as a loss of power would."""
        assert self._process is not None
        others: list[psutil.Process] = []  # each is the leader of a group of its own, and would answer for a moment
        with contextlib.suppress(psutil.NoSuchProcess):
            others = psutil.Process(self._process.pid).children(recursive=True)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for each in others:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        self._process.wait()
        psutil.wait_procs(others, timeout=10)
        (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop all its processes for the length of a block; connections to it stay, and others begin."""
        assert self._process is not None
        leader = psutil.Process(self._process.pid)
        found = [leader, *leader.children(recursive=True)]
        for each in found:
            each.suspend()
        try:
            yield
        finally:
            for each in found:
                each.resume()

    def stop(self) -> None:
        """End it."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def connect(self, database: str = "postgres", **options: Any) -> Any:
        """Return a connection, in autocommit mode."""
        import psycopg

        login = {"user": USER, "password": PASSWORD, "autocommit": True, "connect_timeout": 5}
        return psycopg.connect(host=HOST, port=self.port, dbname=database, **{**login, **options})

    def run(self, *statements: str, database: str = "postgres") -> list[Any]:
        """Run statements; return the rows of the last one."""
        with self.connect(database) as connection:
            for each in statements:
                cursor = connection.execute(each)
            return cursor.fetchall() if cursor.description else []

    @property
    def log(self) -> Path:
        """Its log."""
        return self.folder / "log"


@contextmanager
def running(settings: str = "") -> Iterator[PostgresServer]:
    """Run a server for the length of a block, with further settings."""
    folder = Path(tempfile.mkdtemp(prefix="umbel-postgres-"))
    server = PostgresServer(folder, _programs(), free_port())
    try:
        _initialise(server, settings)
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def standby_of(server: PostgresServer) -> Iterator[PostgresServer]:
    """Run a standby of a server, without its replication slots, for the length of a block."""
    folder = Path(tempfile.mkdtemp(prefix="umbel-postgres-"))
    made = PostgresServer(folder, server.programs, free_port())
    try:
        if os.geteuid() == 0:
            account = pwd.getpwnam("postgres")
            os.chown(folder, account.pw_uid, account.pw_gid)
        made.log.touch()
        command = [server.programs / "pg_basebackup", "-D", folder / "data", "-R", "-c", "fast", "--no-sync"]
        login = f"host={HOST} port={server.port} user={USER} password={PASSWORD}"
        subprocess.run([*command, "-d", login], check=True, capture_output=True, timeout=PATIENCE, **_account())
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


def copy_slots(server: PostgresServer, standby: PostgresServer) -> None:
    """Give a standby the replication slots of its primary, as tools for failover do."""
    standby.kill()
    source, target = (each.folder / "data" / "pg_replslot" for each in (server, standby))
    subprocess.run(["cp", "-a", f"{source}/.", target], check=True, capture_output=True)
    standby.start()


def _initialise(server: PostgresServer, further: str) -> None:
    if os.geteuid() == 0:
        account = pwd.getpwnam("postgres")
        os.chown(server.folder, account.pw_uid, account.pw_gid)
    server.log.touch()
    password = server.folder / "password"
    password.write_text(PASSWORD)
    password.chmod(0o644)
    command = [server.programs / "initdb", "-D", server.folder / "data", "-U", USER, "-A", "scram-sha-256"]
    options = [f"--pwfile={password}", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
    subprocess.run([*command, *options], check=True, capture_output=True, **_account())
    with (server.folder / "data" / "postgresql.conf").open("a") as settings:
        settings.write(SETTINGS + further)


def _account() -> dict[str, Any]:
    """Return the options for running as the account of PostgreSQL, which refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    account = pwd.getpwnam("postgres")
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": [], "cwd": "/"}


def _programs() -> Path:
    """Return the folder of the newest server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("postgres")
    if not found and on_path is None:
        raise FileNotFoundError("there is no program postgres")
    return found[-1].parent if found else Path(str(on_path)).parent


def started_or_missing() -> Iterator[PostgresServer]:
    """Yield a running server; where there can be none, fail in CI, and elsewhere skip."""
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(running())
        except (OSError, KeyError, subprocess.SubprocessError) as error:
            missing("PostgreSQL", str(error), REMEDY)
        yield server
