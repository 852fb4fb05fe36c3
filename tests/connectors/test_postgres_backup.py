"""Backups of a deployment whose catalog is in PostgreSQL, and where they can be restored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Self
from uuid import uuid4

import psycopg
import pytest

from tests.deployed import Deployed
from tests.sales import check_all
from tests.scenarios.server import HOST
from tests.selling import Shop
from tests.servers.postgres import PASSWORD, USER, PostgresServer
from umbel.catalog.catalog import Catalog
from umbel.catalog.snapshots import unwritten
from umbel.errors import InvalidValue
from umbel.runtime.batch import drain
from umbel.runtime.recovery.backup import backup
from umbel.runtime.recovery.cut import CATALOG
from umbel.runtime.recovery.repository import Repository
from umbel.runtime.recovery.restore import restore

MakeDatabase = Callable[[], str]


@pytest.fixture
def database(postgres_server: PostgresServer) -> MakeDatabase:
    """Return a function that makes an empty database and returns its URL; its sessions are not in UTC."""

    def made() -> str:
        name = f"catalog_{uuid4().hex}"
        postgres_server.run(f"CREATE DATABASE {name}")
        postgres_server.run(f"ALTER DATABASE {name} SET timezone TO 'Asia/Kolkata'")
        return f"postgresql://{USER}:{PASSWORD}@{HOST}:{postgres_server.port}/{name}"

    return made


@pytest.fixture
def shop(tmp_path: Path, database: MakeDatabase) -> Iterator[Shop]:
    made = Shop(tmp_path, catalog_url=database())
    made.sell()
    yield made
    made.deployed.close()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.at(str(tmp_path / "backups"))


def recorded(catalog: Catalog) -> list[tuple[datetime, str]]:
    """Return the events of a catalog; SQLite stores instants without a time zone."""
    return [(each.at if each.at.tzinfo else each.at.replace(tzinfo=UTC), each.text) for each in catalog.events(100)]


def check_goes_on(shop: Shop, found: Deployed) -> None:
    """Check the answers, also after a commit, an event and a batch."""
    drain(found.deployment)
    check_all(found, shop.rows, shop.users)
    found.deployment.catalog.record_event("test", "info", "restored")
    before = found.deployment.catalog.latest()
    assert found.deployment.catalog.commit("other", "one more", b"1") > before
    found.close()


@pytest.mark.parametrize("into", ["the folder", "another database"])
def test_what_is_restored_answers_the_same(
    shop: Shop, repository: Repository, tmp_path: Path, database: MakeDatabase, into: str
) -> None:
    shop.deployed.deployment.vault.add("password", "opensesame")
    shop.deployed.deployment.catalog.record_event("test", "info", "backed up")
    shop.moved(repository)
    shop.sell()
    shop.flush()
    shop.moved(repository)
    catalog, settings = shop.deployed.deployment.catalog, {}
    events = recorded(catalog)
    assert events
    target = tmp_path / "elsewhere"
    if into == "the folder":
        restore(repository, target)
    else:
        settings = {"catalog_url": database()}
        restore(repository, target, catalog_url=settings["catalog_url"])
        assert not list(target.glob(f"{CATALOG}*"))
    found = Deployed(target, **settings)
    assert recorded(found.deployment.catalog) == events
    assert found.deployment.vault.names() == ["password"]
    check_goes_on(shop, found)


def test_nobody_writes_the_catalog_while_the_cut_is_taken(shop: Shop) -> None:
    deployment, written = shop.deployed.deployment, threading.Event()

    def write() -> None:
        deployment.catalog.record_event("test", "info", "waited")
        written.set()

    with unwritten(deployment.catalog_url):
        assert deployment.catalog.latest() == 1, "readers go on"
        writer = threading.Thread(target=write)
        writer.start()
        assert not written.wait(1)
    assert written.wait(300)
    writer.join()


def test_a_writer_of_several_tables_is_waited_for(shop: Shop, repository: Repository, tmp_path: Path) -> None:
    """It has written one table and will write another one that is locked earlier: neither may end the other."""
    url = shop.deployed.deployment.catalog_url
    with closing(psycopg.connect(url)) as writer:
        writer.execute("INSERT INTO settings (name, value) VALUES ('test', '1')")
        with ThreadOf(lambda: backup(shop.deployed.deployment, repository)) as running:
            running.join(1)
            assert running.is_alive()
            writer.execute("UPDATE jobs SET epoch = epoch")
            writer.commit()
    restore(repository, tmp_path / "elsewhere")
    found = Deployed(tmp_path / "elsewhere")
    check_all(found, shop.rows, shop.users)
    found.close()


class ThreadOf(threading.Thread):
    """A thread that must end without an error at the end of a block."""

    def __init__(self, run: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._do, self._error = run, None

    def run(self) -> None:
        try:
            self._do()
        except BaseException as error:
            self._error = error

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.join(300)
        assert not self.is_alive()
        if self._error is not None:
            raise self._error


RESTORE = """
import sys
from pathlib import Path
from umbel.runtime.recovery.repository import Repository
from umbel.runtime.recovery.restore import restore
restore(Repository.at(sys.argv[1]), Path(sys.argv[2]), catalog_url=sys.argv[3])
"""


def test_a_restore_that_is_killed_before_the_folder_appears_is_repeated(
    shop: Shop, repository: Repository, tmp_path: Path, database: MakeDatabase
) -> None:
    """The database had the catalog already, and was refused as not empty."""
    shop.moved(repository)
    url, target = database(), tmp_path / "elsewhere"
    environment = {**os.environ, "UMBEL_FAILPOINT": "complete:1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", RESTORE, repository.title, str(target), url]
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    assert not target.exists()
    with pytest.raises(InvalidValue, match="there is a catalog"):
        restore(repository, tmp_path / "another", catalog_url=url)
    restore(repository, target, catalog_url=url)
    check_goes_on(shop, Deployed(target, catalog_url=url))


def test_a_catalog_is_not_overwritten(shop: Shop, repository: Repository, tmp_path: Path) -> None:
    shop.moved(repository)
    with pytest.raises(InvalidValue, match="there is a catalog"):
        restore(repository, tmp_path / "elsewhere", catalog_url=shop.deployed.deployment.catalog_url)
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(InvalidValue, match="SQLite is restored into the folder"):
        restore(repository, tmp_path / "elsewhere", catalog_url=f"sqlite:///{tmp_path / 'other.db'}")
    check_all(shop.deployed, shop.rows, shop.users)
