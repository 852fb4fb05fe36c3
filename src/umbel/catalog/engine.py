"""The connection to the catalog's database, with migrated tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, make_url
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlalchemy.exc import TimeoutError as NoFreeConnection

from umbel.catalog.checksums import REMEDY
from umbel.catalog.row_sums import add_function, add_triggers, note_all
from umbel.errors import Damaged, InvalidValue, Terminal, Transient, UmbelError, unwrapped
from umbel.processes.status import full_disk
from umbel.state.passwords import masked, passwords_of, remember_all
from umbel.state.stored_json import parse_stored

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy.engine import ExceptionContext

DATABASES = ("sqlite", "postgresql")
DRIVERS = {"psycopg": "umbel[postgres]"}
"""What installs a driver, where it is not the module's name."""
AWAY = (OperationalError, NoFreeConnection)
"""Errors of a database that may be gone by the next attempt."""
_MIGRATING = 0x756D62656C
"""The number of the lock that PostgreSQL gives to one process at a time, until its transaction ends."""
_REMEDY = "a catalog is in sqlite:///path or postgresql://user:password@host/database: --catalog, UMBEL_CATALOG"


def migrated(url: str) -> Engine:
    """Create or migrate a database's tables; return its engine.

    Raises:
        InvalidValue: the URL is not one of a database that can be used.
        Transient: the database cannot be reached.
        Terminal: a newer version has migrated it.
    """
    engine = _engine(url)
    try:
        _migrate(engine)
    except (UnicodeDecodeError, sqlite3.DatabaseError) as error:  # of a new connection
        engine.dispose()
        if _is_damage(error):
            raise _damaged(error) from error
        raise
    except (OperationalError, OSError) as error:
        engine.dispose()
        is_file, reason = engine.dialect.name == "sqlite", str(unwrapped(error)).strip()
        hint = full_disk(Path(engine.url.database or "").parent) if is_file else f"{remedy_of(error)}; {_REMEDY}"
        raise Transient(f"the catalog {masked(url)} cannot be opened: {reason:.500}", hint=hint or _REMEDY) from error
    if engine.dialect.name == "sqlite":  # from now on: there are the tables
        event.listen(engine, "connect", add_triggers)
        engine.dispose()
    return engine


def _engine(url: str) -> Engine:
    remember_all(url)
    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgres", "postgresql"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() not in DATABASES:
            raise InvalidValue(f"--catalog: a catalog cannot be kept in '{parsed.get_backend_name()}'", hint=_REMEDY)
        if parsed.get_backend_name() == "sqlite":
            engine = create_engine(parsed, connect_args={"timeout": 60}, json_deserializer=_decoded)
        else:  # a connection that was lost is replaced before it is used again
            engine = create_engine(parsed, pool_pre_ping=True)
            if engine.driver == "psycopg":
                from umbel.catalog import postgres

                postgres.set_up(engine, parsed.query)
    except ModuleNotFoundError as error:
        package = DRIVERS.get(str(error.name), str(error.name))
        raise InvalidValue(
            f"--catalog: the package '{error.name}', which connects to {parsed.get_backend_name()}, is not installed",
            hint=f"pip install '{package}'",
        ) from error
    except (ArgumentError, ValueError) as error:  # the text of either may contain parts of the password
        if isinstance(error, UmbelError):
            raise
        raise InvalidValue(
            f"--catalog: the catalog's URL cannot be read: {masked(url)}",
            hint=f"{_REMEDY}; signs such as @, : and / in the password quoted: %40",
        ) from (None if passwords_of(url) else error)
    if engine.dialect.name == "sqlite":
        Path(engine.url.database or "").parent.mkdir(parents=True, exist_ok=True)
        event.listen(engine, "connect", _sqlite_settings)
        event.listen(engine, "handle_error", _explained)
    return engine


def _decoded(stored: str) -> Any:
    try:
        return parse_stored(stored)
    except ValueError as error:
        raise Damaged(f"the catalog is damaged: a value in it is not JSON: {error}", hint=REMEDY) from error


def _sqlite_settings(connection: Any, _: Any) -> None:
    for pragma in ("journal_mode=WAL", "busy_timeout=60000", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}")
    add_function(connection)


def _explained(context: ExceptionContext) -> None:
    """Raise `Damaged` for SQLite's errors about corrupt files."""
    if _is_damage(context.original_exception):
        raise _damaged(context.original_exception) from context.original_exception


@contextmanager
def explained() -> Iterator[None]:
    """Translate the errors of a connection to SQLite that is not the engine's.

    Raises:
        Damaged: the file is damaged.
        Transient: the disk is full, or another process has the database.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        if _is_damage(error):
            raise _damaged(error) from error
        remedy = remedy_of(error)
        hint = f"{remedy}: it takes as much as the catalog has" if "full" in str(error) else remedy or "try again"
        raise Transient(f"the catalog: {error}", hint=hint) from error


def remedy_of(error: BaseException) -> str:
    """Return what to do about an error of the database, empty if unknown.

    On a full disk SQLite has an "I/O error" where a file of its log cannot be made or mapped.
    """
    original = unwrapped(error)
    if type(original).__module__.startswith("psycopg"):
        from umbel.catalog import postgres

        return postgres.remedy_of(original)
    reason = str(original)
    if "full" in reason:
        return "free some disk space"
    if "disk I/O error" in reason:
        return "free some disk space, if the disk is full; or else check it"
    return ""


def brief_of(error: BaseException) -> str:
    """Return why a request failed, without the addresses that an error of a connection names."""
    original = unwrapped(error)
    if type(original).__module__.startswith("psycopg"):
        from umbel.catalog import postgres

        return postgres.brief_of(original)
    return type(error).__name__


def _is_damage(error: BaseException) -> bool:
    """Return whether an error comes from a damaged file.

    Among them are tables that are not there, since all have been migrated, and text that is none, which has no code. Mistakes of
    the caller have none, either.
    """
    if isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error, sqlite3.ProgrammingError | sqlite3.InterfaceError
    ):
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
    return isinstance(error, UnicodeDecodeError)


def _damaged(error: BaseException) -> Damaged:
    return Damaged(f"the catalog is damaged: {error}"[:500], hint=REMEDY)


def check(engine: Engine, *, deep: bool = False) -> None:
    """Run the database's own integrity check on its file.

    Raises:
        Damaged: it found damage.
    """
    if engine.dialect.name != "sqlite":
        return
    with engine.connect() as connection:
        pragma = "integrity_check" if deep else "quick_check"
        found = [row[0] for row in connection.exec_driver_sql(f"PRAGMA {pragma}(5)")]
    if found != ["ok"]:
        raise Damaged(f"the catalog is damaged: {'; '.join(found):.500}", hint=REMEDY)


def _migrate(engine: Engine) -> None:
    """Migrate the tables in one process; concurrent processes wait."""
    with _alone(engine):
        if not _is_latest(engine):
            _upgrade(engine)


def _is_latest(engine: Engine) -> bool:
    """Return whether the tables are those of this version.

    Without Alembic: to load it takes 0.1 s of each command.
    """
    versions = (each.name for each in (files("umbel.catalog") / "migrations" / "versions").iterdir())
    latest = max(name[:4] for name in versions if name[:4].isdigit())
    with engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return False
        return [latest] == connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalars().all()


def _upgrade(engine: Engine) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    with as_file(files("umbel.catalog") / "migrations") as folder, engine.begin() as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # the driver begins no transaction before changes of tables
        else:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATING})")
        before = _check_known(connection, config)
        command.upgrade(config, "head")
        if engine.dialect.name == "sqlite" and before != ScriptDirectory.from_config(config).get_current_head():
            note_all(connection)


def _check_known(connection: Connection, config: Config) -> str | None:
    """Refuse tables that were migrated by a newer version; return their revision."""
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    found = MigrationContext.configure(connection).get_current_revision()
    known = [each.revision for each in ScriptDirectory.from_config(config).walk_revisions()]
    if found is not None and found not in known:
        raise Terminal(
            f"the catalog {connection.engine.url} was written by a newer version of umbel: "
            f"its tables are of revision {found}, and this version knows them up to {max(known)}",
            hint="install the version that wrote it, or a newer one",
        )
    return found


@contextmanager
def _alone(engine: Engine) -> Iterator[None]:
    """Lock a file beside an SQLite database, so that one process migrates it."""
    if engine.dialect.name != "sqlite":
        yield
        return
    import fcntl

    with Path(f"{engine.url.database}.lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
