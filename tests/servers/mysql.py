"""A MariaDB server of its own for tests, on a free port, under a temporary folder."""

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

from tests.scenarios.server import HOST, free_port
from tests.servers.missing import missing

USER, PASSWORD = "umbel", "only-for-tests"
ACCOUNT = "mysql"
PATIENCE = 240.0
REMEDY = "install the package mariadb-server: tests/servers/install"
SETTINGS = f"""[mariadbd]
bind_address = {HOST}
server_id = 1
log_bin = binlog
binlog_format = ROW
binlog_row_image = FULL
binlog_row_metadata = FULL
general_log = ON
general_log_file = general.log
character_set_server = utf8mb4
innodb_buffer_pool_size = 64M
innodb_flush_log_at_trx_commit = 2
innodb_fast_shutdown = 2
performance_schema = OFF
skip_name_resolve = ON
"""


@dataclass
class MySQLServer:
    """A server that can be killed and started again.

    Args:
        folder: its data, log and socket.
        program: the path of its program.
        port: where it listens.
    """

    folder: Path
    program: Path
    port: int
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        folders = [f"--datadir={self.data}", f"--tmpdir={self.temporary}"]
        options = [f"--defaults-file={self.settings}", *folders, f"--port={self.port}"]
        command = [self.program, *options, f"--socket={self.folder}/socket", f"--pid-file={self.folder}/pid"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, **_account())
        self.wait()

    def wait(self) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(Exception):
                self.run("SELECT 1")
                return
            if time.monotonic() > deadline:
                raise OSError(f"the server does not answer:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill it at once, as a loss of power would."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """End it."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def connect(self, database: str | None = None, **options: Any) -> Any:
        """Return a connection, in autocommit mode."""
        import pymysql

        login = {"user": USER, "password": PASSWORD, "autocommit": True, "connect_timeout": 5, "init_command": UTC}
        login["ssl_disabled"] = True  # else the driver loads all authorities of the machine for each connection
        return pymysql.connect(host=HOST, port=self.port, database=database, **{**login, **options})

    def run(self, *statements: str, database: str | None = None) -> list[Any]:
        """Run statements; return the rows of the last one."""
        with self.connect(database) as connection, connection.cursor() as cursor:
            for each in statements:
                cursor.execute(each)
            return list(cursor.fetchall())

    @property
    def data(self) -> Path:
        """The folder of its data."""
        return self.folder / "data"

    @property
    def temporary(self) -> Path:
        """The folder of its temporary tables: in a shared one, each server that starts removes those of all."""
        return self.folder / "tmp"

    @property
    def settings(self) -> Path:
        """The file of its settings."""
        return self.folder / "settings"

    @property
    def log(self) -> Path:
        """Its log of errors."""
        return self.folder / "log"

    @property
    def general_log(self) -> Path:
        """Its log of statements."""
        return self.data / "general.log"


UTC = "SET time_zone = '+00:00'"


@contextmanager
def running(settings: str = "") -> Iterator[MySQLServer]:
    """Run a server for the length of a block, with further settings."""
    folder = Path(tempfile.mkdtemp(prefix="umbel-mysql-"))
    try:
        server = MySQLServer(folder, _program("mariadbd"), free_port())
        _initialise(server, settings)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _initialise(server: MySQLServer, further: str) -> None:
    server.settings.write_text(SETTINGS + further)
    server.settings.chmod(0o644)  # its account reads them, whatever an earlier test has left as umask
    server.log.touch()
    server.temporary.mkdir()
    if os.geteuid() == 0:
        account = pwd.getpwnam(ACCOUNT)
        for folder in (server.folder, server.temporary):
            os.chown(folder, account.pw_uid, account.pw_gid)
    folders = [f"--datadir={server.data}", f"--tmpdir={server.temporary}"]
    # the tables of its catalog without those of time zones, help and tests; the anonymous accounts are never made
    install = [_program("mariadb-install-db"), "--no-defaults", *folders, "--skip-test-db"]
    subprocess.run(
        [*install, "--auth-root-authentication-method=normal"], check=True, capture_output=True, **_account()
    )
    bootstrap = [server.program, "--no-defaults", *folders, "--bootstrap"]
    create = f"FLUSH PRIVILEGES;\nGRANT ALL ON *.* TO '{USER}'@'%' IDENTIFIED BY '{PASSWORD}' WITH GRANT OPTION;\n"
    subprocess.run(bootstrap, input=create.encode(), check=True, capture_output=True, **_account())


def _account() -> dict[str, Any]:
    """Return the options for running as the account of MariaDB, which refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    account = pwd.getpwnam(ACCOUNT)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": [], "cwd": "/"}


def _program(name: str) -> Path:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin:/usr/libexec")
    if found is None:
        raise FileNotFoundError(f"there is no program {name}")
    return Path(found)


def started_or_missing() -> Iterator[MySQLServer]:
    """Yield a running server; where there can be none, fail in CI, and elsewhere skip."""
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(running())
        except (OSError, KeyError, subprocess.SubprocessError) as error:
            printed = (getattr(error, "stderr", None) or b"").decode(errors="replace")
            missing("MariaDB", f"{error}\n{printed}".rstrip(), REMEDY)
        yield server
