"""The connection to the catalog's database, its tables brought up to date."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, create_engine, event

from umbel.errors import Terminal

if TYPE_CHECKING:
    from alembic.config import Config


def migrated(url: str) -> Engine:
    """Return the engine of a database, whose tables are made or brought up to date first.

    Raises:
        Terminal: a newer version has done that.
    """
    engine = _engine(url)
    _migrate(engine)
    return engine


def _engine(url: str) -> Engine:
    engine = create_engine(url, connect_args={"timeout": 60} if url.startswith("sqlite") else {})
    if engine.dialect.name == "sqlite":
        Path(engine.url.database or "").parent.mkdir(parents=True, exist_ok=True)
        event.listen(engine, "connect", _sqlite_settings)
    return engine


def _sqlite_settings(connection: Any, _: Any) -> None:
    for pragma in ("journal_mode=WAL", "busy_timeout=60000", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}")


def _migrate(engine: Engine) -> None:
    """Bring the tables up to date; of several processes one does it, the others wait."""
    from alembic import command
    from alembic.config import Config

    with as_file(files("umbel.catalog") / "migrations") as folder, _alone(engine), engine.begin() as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # the driver begins none before changes of tables
        _check_known(connection, config)
        command.upgrade(config, "head")


def _check_known(connection: Connection, config: Config) -> None:
    """Refuse tables that a newer version has brought up to date."""
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


@contextmanager
def _alone(engine: Engine) -> Iterator[None]:
    """Hold a file lock beside an SQLite database, so that one process migrates it."""
    if engine.dialect.name != "sqlite":
        yield
        return
    import fcntl

    with Path(f"{engine.url.database}.lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
