"""Connections to a catalog in PostgreSQL whose waits end, and remedies for its errors.

It is imported where one is connected to: psycopg is installed for that alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any

import psycopg
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError, OperationalError

if TYPE_CHECKING:
    from sqlalchemy.engine import ExceptionContext

TIMEOUTS = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Parameters of addresses, with defaults: else a machine that is gone is waited for, for hours."""
SETTINGS = {
    "lock_timeout": "60s",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""Settings of sessions: else the server retains the locks of a machine that is gone, for hours, and others wait for them."""
SILENCE = 120.0
"""Seconds without a byte of an answer after which a server is given up: the kernel of one that hangs acknowledges all bytes."""
ACTIVITY_PATIENCE = 10
"""Seconds in which a server that works says so."""
TOO_MANY = "53300"
REMEDIES = {
    "25006": "it is a standby, or default_transaction_read_only is on: UMBEL_CATALOG has to name a server that takes writes",
    "42501": "GRANT the account in UMBEL_CATALOG all privileges on umbel's tables and sequences",
    "53100": "free some disk space on the machine of PostgreSQL",
    TOO_MANY: "end other clients of PostgreSQL, or raise its max_connections or the account's CONNECTION LIMIT",
    "55P03": "another session has locked it: pg_locks and pg_stat_activity show which; end that, and try again",
    "XX": "its data is damaged: see PostgreSQL's log, and restore a backup",
}
"""Remedies by the beginnings of error codes."""
REMEDY = "see whether PostgreSQL runs and can be reached, and try again"
UNKNOWN = "the connection was lost during a commit, and whether it was done is not known"
LOOK = "see whether PostgreSQL runs and can be reached, and whether the change is there, before you repeat it"
_OPERATIONAL = ("25", "42501", "XX")
"""Beginnings of codes that say how the server is, but have other classes in Python."""
_COMMITTING = "umbel: committing"


class PatientConnection(psycopg.Connection[Any]):
    """A connection that is closed once its server has been silent for too long.

    A server that works on a long statement is waited for.
    """

    silence = SILENCE
    """Seconds."""

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **options: Any) -> Any:
        """Wait for the end of an exchange with the server.

        Raises:
            OperationalError: the server is silent.
        """
        return super().wait(_bounded(gen, self.silence, self._give_up), *args, **options)

    def _is_at_work(self) -> bool:
        """Ask the server by another connection whether it works on a statement of this one."""
        address: dict[str, Any] = {
            **self.info.get_parameters(),
            "password": self.info.password,
            "connect_timeout": ACTIVITY_PATIENCE,
        }
        try:
            with _ActivityConnection.connect(**address, autocommit=True) as other:
                found = other.execute(
                    "SELECT state = 'active' FROM pg_stat_activity WHERE pid = %s", [self.info.backend_pid]
                )
                return found.fetchone() == (True,)
        except psycopg.Error:
            return False

    def _give_up(self) -> None:
        if self._is_at_work():
            return
        self.pgconn.finish()
        raise psycopg.OperationalError(f"the server has not answered for {self.silence:.0f} s")


class _ActivityConnection(PatientConnection):
    """A connection that asks once."""

    silence = ACTIVITY_PATIENCE

    def _is_at_work(self) -> bool:
        return False


def set_up(engine: Engine, query: Mapping[str, Any]) -> None:
    """Bound the waits of an engine's connections, and give errors about the server one class.

    Args:
        engine: of PostgreSQL, by psycopg.
        query: the parameters in its URL.
    """
    timeouts = {name: each for name, each in TIMEOUTS.items() if name not in query}

    @event.listens_for(engine, "do_connect")
    def _connected(_: Any, __: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> PatientConnection:
        made = PatientConnection.connect(*arguments, **{**timeouts, **options}, autocommit=True)
        made.execute(
            "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS own (name, value) "
            "JOIN pg_settings USING (name) WHERE source = 'default'",
            [list(SETTINGS), list(SETTINGS.values())],
        )
        made.set_autocommit(False)
        return made

    event.listen(engine, "begin", _begun)
    event.listen(engine, "commit", _committing)
    event.listen(engine, "handle_error", _explained)


def remedy_of(error: BaseException) -> str:
    """Return what to do about an error of PostgreSQL."""
    if UNKNOWN in str(error):
        return LOOK
    code = getattr(error, "sqlstate", None) or ""
    if not code and "too many c" in str(error):  # the error of a refused connection has no code
        code = TOO_MANY
    return next((each for begin, each in REMEDIES.items() if code.startswith(begin)), REMEDY)


def brief_of(error: BaseException) -> str:
    """Return the server's text of an error, but no address."""
    if isinstance(error, psycopg.Error) and error.diag.message_primary:
        return f"the catalog: {error.diag.message_primary}"
    return f"the catalog: {UNKNOWN if UNKNOWN in str(error) else type(error).__name__}"


def _bounded(steps: Generator[Any, Any, Any], seconds: float, give_up: Callable[[], None]) -> Generator[Any, Any, Any]:
    """Pass the steps of an exchange on until the server is silent for too long."""
    try:
        awaited, until = next(steps), time.monotonic() + seconds
        while True:
            ready = yield awaited
            if ready:
                until = time.monotonic() + seconds
            elif time.monotonic() > until:
                give_up()  # returns if it is to be waited for
                until = time.monotonic() + seconds
            awaited = steps.send(ready)
    except StopIteration as end:
        return end.value


def _begun(connection: Connection) -> None:
    connection.info.pop(_COMMITTING, None)


def _committing(connection: Connection) -> None:
    connection.info[_COMMITTING] = True


def _explained(context: ExceptionContext) -> None:
    """Raise an `OperationalError` for an error about the server that has another class."""
    error, connection = context.original_exception, context.connection
    if context.is_disconnect and connection is not None and connection.info.get(_COMMITTING):
        raise _operational(context, psycopg.OperationalError(f"{UNKNOWN}: {error}")) from error
    code = getattr(error, "sqlstate", None) or ""
    if not isinstance(error, psycopg.OperationalError) and (context.is_disconnect or code.startswith(_OPERATIONAL)):
        raise _operational(context, error) from error


def _operational(context: ExceptionContext, error: BaseException) -> DBAPIError:
    return OperationalError(context.statement, context.parameters, error, connection_invalidated=context.is_disconnect)
