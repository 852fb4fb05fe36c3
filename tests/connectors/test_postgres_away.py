"""A catalog in PostgreSQL that hangs, is locked or takes no writes: waits end, and errors say what to do."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy.exc import OperationalError

from tests.scenarios.server import HOST
from tests.servers.postgres import PASSWORD, USER, PostgresServer
from umbel.catalog.catalog import Catalog
from umbel.catalog.engine import brief_of, remedy_of
from umbel.catalog.postgres import SETTINGS, UNKNOWN, PatientConnection
from umbel.cli.checks import SettingCheck, deployed, stored
from umbel.runtime.deployment import Deployment


@pytest.fixture
def name(postgres_server: PostgresServer) -> str:
    """Return the name of an empty database."""
    name = f"away_{uuid4().hex}"
    postgres_server.run(f"CREATE DATABASE {name}")
    return name


@pytest.fixture
def url(postgres_server: PostgresServer, name: str) -> str:
    """Return its URL."""
    return f"postgresql://{USER}:{PASSWORD}@{HOST}:{postgres_server.port}/{name}"


@pytest.fixture
def catalog(url: str) -> Iterator[Catalog]:
    with closing(Catalog(url)) as found:
        yield found


def _session(catalog: Catalog, text: str) -> str:
    with catalog.sessions() as session:
        return str(session.connection().exec_driver_sql(text).scalar())


def _set(server: PostgresServer, name: str, setting: str) -> None:
    server.run(f"ALTER DATABASE {name} SET {setting}")
    server.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")


def _original(failed: pytest.ExceptionInfo[OperationalError]) -> BaseException:
    assert failed.value.orig is not None
    return failed.value.orig


def test_sessions_give_up_locks_and_lost_machines(catalog: Catalog) -> None:
    assert {each: _session(catalog, f"SHOW {each}") for each in SETTINGS} == {**SETTINGS, "lock_timeout": "1min"}


def test_a_setting_of_the_server_is_left(catalog: Catalog, postgres_server: PostgresServer, name: str) -> None:
    _set(postgres_server, name, "lock_timeout = '7s'")
    assert _session(catalog, "SHOW lock_timeout") == "7s"


def test_a_lock_of_another_session_is_not_waited_for_without_end(
    url: str, postgres_server: PostgresServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS, "lock_timeout", "200ms")
    with closing(Catalog(url)) as catalog, postgres_server.connect(name, autocommit=False) as other:
        other.execute("LOCK TABLE settings IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(OperationalError, match="lock timeout") as failed:
            catalog.note("a", 1)
        assert "pg_locks" in remedy_of(_original(failed))
        other.rollback()
        catalog.note("a", 2)
        assert catalog.noted("a") == 2


def test_a_wait_for_a_server_that_hangs_ends(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog.note("a", 1)
    monkeypatch.setattr(PatientConnection, "silence", 1.0)
    with catalog.sessions() as session:
        process = int(session.connection().exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
        os.kill(process, signal.SIGSTOP)
        try:
            with pytest.raises(OperationalError, match="has not answered for 1 s") as failed:
                session.connection().exec_driver_sql("SELECT 1")
        finally:
            os.kill(process, signal.SIGCONT)
    assert remedy_of(_original(failed)) == "see whether PostgreSQL runs and can be reached, and try again"
    assert catalog.noted("a") == 1


def test_a_connection_that_hangs_is_replaced(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog.note("a", 1)
    process = int(_session(catalog, "SELECT pg_backend_pid()"))
    monkeypatch.setattr(PatientConnection, "silence", 1.0)
    os.kill(process, signal.SIGSTOP)
    try:
        assert catalog.noted("a") == 1
    finally:
        os.kill(process, signal.SIGCONT)


def test_an_answer_that_comes_slowly_is_waited_for(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PatientConnection, "silence", 1.0)
    slow = "SELECT repeat('x', 20000), pg_sleep(0.4) FROM generate_series(1, 5)"
    with catalog.sessions() as session:
        assert len(session.connection().exec_driver_sql(slow).all()) == 5


def test_a_statement_that_takes_long_is_waited_for(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PatientConnection, "silence", 0.3)
    assert _session(catalog, "SELECT 'done' FROM pg_sleep(2)") == "done"


def test_a_server_that_is_paused_is_not_waited_for_without_end(
    catalog: Catalog, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("umbel.catalog.postgres.ACTIVITY_PATIENCE", 1)
    monkeypatch.setattr(PatientConnection, "silence", 0.5)
    with catalog.sessions() as session:
        connection = session.connection()
        with postgres_server.paused(), pytest.raises(OperationalError, match="has not answered"):
            connection.exec_driver_sql("SELECT 1")
    assert catalog.noted("a") is None


def test_a_read_only_database_can_be_read(catalog: Catalog, postgres_server: PostgresServer, name: str) -> None:
    assert catalog.setting("a", 1) == 1
    _set(postgres_server, name, "default_transaction_read_only = on")
    assert catalog.setting("a", 2) == 1
    with pytest.raises(OperationalError, match="read-only") as failed:
        catalog.note("a", 3)
    assert "standby" in remedy_of(_original(failed))
    assert brief_of(failed.value) == "the catalog: cannot execute INSERT in a read-only transaction"


def test_a_missing_privilege_is_an_error_with_a_remedy(
    catalog: Catalog, url: str, postgres_server: PostgresServer, name: str
) -> None:
    account = f"account_{uuid4().hex}"
    postgres_server.run(f"CREATE ROLE {account} LOGIN PASSWORD '{PASSWORD}'")
    postgres_server.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {account}", database=name)
    with closing(Catalog(url.replace(f"{USER}:", f"{account}:"))) as restricted:
        with pytest.raises(OperationalError, match="permission denied") as failed:
            restricted.note("a", 1)
        assert remedy_of(_original(failed)).startswith("GRANT")


def test_a_commit_whose_answer_is_lost_says_so(catalog: Catalog, postgres_server: PostgresServer, name: str) -> None:
    postgres_server.run(
        "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER lose AFTER INSERT ON settings DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION lose()",
        database=name,
    )
    with pytest.raises(OperationalError, match="whether it was done is not known") as failed:
        catalog.note("a", 1)
    assert brief_of(failed.value) == f"the catalog: {UNKNOWN}"
    assert "whether the change is there" in remedy_of(_original(failed))
    assert catalog.noted("a") is None
    assert catalog.commit("main", "one", b"1") == 1


def test_the_doctor_does_not_take_a_locked_catalog_for_a_damaged_folder(
    url: str, postgres_server: PostgresServer, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS, "lock_timeout", "200ms")
    Deployment.at(tmp_path, catalog_url=url)
    check = SettingCheck(tmp_path, HOST, 1, catalog=url)
    with postgres_server.connect(name, autocommit=False) as other:
        other.execute("LOCK TABLE settings IN ACCESS EXCLUSIVE MODE")
        findings = [*deployed(check), *stored(check)]
    assert [each.level for each in findings] == ["error", "error"]
    assert all("lock timeout" in each.found and "pg_locks" in each.remedy for each in findings)
