"""Purges: the bytes of erased rows are gone from every file, and nothing else is."""

from __future__ import annotations

import errno
import sqlite3
import threading
import time
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal as Number
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.deployed import Deployed, wait_until
from tests.town import BOB, GONE, SECRET, START, Town, damage, filled, person, town, where
from umbel.catalog.cloning import clone
from umbel.catalog.purges import Mentions, PurgeProgress, Purges
from umbel.processes.locks import alone
from umbel.runtime.erasures import erase
from umbel.runtime.purge import purge_before
from umbel.runtime.recovery.backup import backup
from umbel.runtime.recovery.repository import Repository, writer_of
from umbel.runtime.recovery.restore import restore, verify
from umbel.state import disk

__all__ = ["filled", "town"]


def test_bytes_are_where_they_are_looked_for(town: Town) -> None:
    found = where(town.folder, SECRET)
    kinds = {each.partition("/")[0] for each in found}
    assert {"store", "changes", "ingest"} <= kinds
    assert any("catalog.db" in each for each in found)
    assert any(each.endswith(".run") for each in found)
    assert any("journal/" in each for each in found)
    assert any(each.endswith(".parquet") for each in found)
    assert any(each.endswith(".arrow") for each in found)


def test_erased_bytes_are_gone_from_every_file(town: Town) -> None:
    before = town.online(), town.offline()
    revision = town.erase(GONE)
    town.process()
    assert town.progress().revision == revision
    assert (town.progress().error, town.progress().left) == ("", 0)
    for text in (SECRET, GONE):
        assert where(town.folder, text) == []
    assert (town.online(), town.offline()) == before
    assert damage(town) == []
    town.reopen()
    assert (town.online(), town.offline()) == before


def test_a_backup_after_a_purge_shares_no_object_with_erased_bytes(town: Town, tmp_path: Path) -> None:
    repository = Repository.at(str(tmp_path / "backups"))
    backup(town.deployed.deployment, repository)
    assert has_bytes(tmp_path / "backups")
    town.erase(GONE)
    town.process()
    backup(town.deployed.deployment, repository)
    assert has_bytes(tmp_path / "backups")
    backup(town.deployed.deployment, repository, keep=1)
    assert not has_bytes(tmp_path / "backups")
    before = town.online(), town.offline()
    restore(repository, tmp_path / "elsewhere")
    town.deployed.close()
    town.deployed = Deployed(tmp_path / "elsewhere")
    assert (town.online(), town.offline()) == before


def test_a_backup_of_a_clock_that_was_set_back_shares_no_object_with_erased_bytes(
    town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository.at(str(tmp_path / "backups"))
    now = time.time()
    with monkeypatch.context() as wrong:
        wrong.setattr(time, "time", lambda: now + 3600)
        backup(town.deployed.deployment, repository)
    assert has_bytes(tmp_path / "backups")
    town.erase(GONE)
    town.process()
    backup(town.deployed.deployment, repository, keep=1)
    assert not has_bytes(tmp_path / "backups")
    verify(repository)


def test_a_backup_of_before_a_restore_shares_no_object_with_bytes_erased_after_it(town: Town, tmp_path: Path) -> None:
    """Revisions of a restored deployment begin again: another purge has the same one."""
    repository = Repository.at(str(tmp_path / "backups"))
    backup(town.deployed.deployment, repository)
    town.erase(BOB)
    town.process()
    backup(town.deployed.deployment, repository)
    town.deployed.close()
    (first, second), town.folder = repository.ids(), tmp_path / "elsewhere"
    restore(repository, town.folder, first)
    town.deployed = Deployed(town.folder)
    revision = town.erase(GONE)
    town.process()
    assert revision == repository.read_list(second).purged
    assert where(town.folder, SECRET) == []
    backup(town.deployed.deployment, repository, keep=1)
    assert not has_bytes(tmp_path / "backups")
    verify(repository)


def test_a_draft_of_before_a_purge_is_not_used_after_two_kills(town: Town, tmp_path: Path) -> None:
    repository = Repository.at(str(tmp_path / "backups"))
    backup(town.deployed.deployment, repository)
    (before,) = repository.ids()
    left = repository.read_list(before)
    repository.delete_list(before)  # as if it had been killed before it was listed
    repository.write_draft(writer_of(town.folder), left)
    town.erase(GONE)
    town.process()
    with pytest.raises(KeyboardInterrupt):
        backup(town.deployed.deployment, repository, progress=_killed)
    backup(town.deployed.deployment, repository, keep=1)
    assert not has_bytes(tmp_path / "backups")
    verify(repository)


def _killed(done: int, size: int) -> None:
    raise KeyboardInterrupt


def has_bytes(folder: Path) -> bool:
    return any(SECRET.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_purge_waits_for_a_backup(town: Town) -> None:
    revision = town.erase(GONE)
    with alone(town.folder, "backup"):
        town.process()
        assert town.progress().step == "waits for the end of a backup"
        assert where(town.folder, SECRET)
    purges = Purges(town.deployed.deployment.catalog)
    assert purges.is_open
    assert not purges.is_due()  # it does not try with every batch
    purges.note(replace(town.progress(), tried=time.time() + 3600))  # of a clock that was set back
    assert purges.is_due()
    town.process()
    assert (town.progress().revision, town.progress().step) == (revision, "")
    assert where(town.folder, SECRET) == []


def test_the_files_of_a_killed_backup_are_gone_too(town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("umbel.runtime.recovery.cut.shutil.rmtree", lambda *_, **__: None)  # nothing is tidied up
        with pytest.raises(KeyboardInterrupt):
            backup(town.deployed.deployment, Repository.at(str(tmp_path / "backups")), progress=_killed)
    assert any(".backup/" in each for each in where(town.folder, SECRET))
    town.erase(GONE)
    town.process()
    assert (town.progress().error, where(town.folder, SECRET)) == ("", [])


def test_two_erasures_at_once(town: Town) -> None:
    town.erase(GONE)
    last = town.erase(BOB, "p3@example.com")
    Purges(town.deployed.deployment.catalog).request(last - 1)  # the earlier of the two requests comes later
    town.process()
    assert town.progress().revision == last
    assert [where(town.folder, text) for text in (SECRET, GONE, BOB, "p3@example.com")] == [[]] * 4
    at, keys = START + timedelta(days=30), [{"email": f"p{number}@example.com", "region": "eu"} for number in (2, 3, 4)]
    assert [each is not None for each in town.deployed.lookup("People", keys, [at] * 3)] == [True, False, True]


def test_an_erased_key_that_is_a_value_elsewhere_stays_there(town: Town) -> None:
    town.deployed.log("people", [person("friend@example.com", 9, GONE)])
    town.process()
    town.erase(GONE)
    town.process()
    (row,) = town.deployed.lookup(
        "People", [{"email": "friend@example.com", "region": "eu"}], [START + timedelta(days=1)]
    )
    assert row["name"] == GONE
    assert where(town.folder, SECRET) == []
    assert town.progress().left == 0


def test_a_full_disk_loses_nothing(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    before = town.online(), town.offline()
    town.erase(GONE)
    written, write = [0], disk.write

    def full(file: int, data: Any, at: int) -> None:
        written[0] += len(data)
        if written[0] > limit:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(file, data, at)

    failures = 0
    for limit in range(0, 400_000, 10_000):
        written[0] = 0
        monkeypatch.setattr(disk, "write", full)
        purge_before(town.deployed.deployment, town.deployed.deployment.catalog.latest(), 1 << 40)
        monkeypatch.setattr(disk, "write", write)
        assert (town.online(), town.offline()) == before, limit
        if not town.progress().error:
            break
        assert "space" in town.progress().error, limit
        failures += 1
        Purges(town.deployed.deployment.catalog).note(PurgeProgress())
    assert failures > 2
    town.process()
    assert town.progress().error == ""
    assert where(town.folder, SECRET) == []
    assert (town.online(), town.offline()) == before


@pytest.mark.parametrize("kind", ["*.run", "*.parquet"])
def test_damage_is_reported_and_everything_stays(town: Town, kind: str) -> None:
    path = max(town.folder.rglob(kind), key=lambda each: (SECRET.encode() in each.read_bytes(), each.stat().st_size))
    path.write_bytes(path.read_bytes()[:-9] + b"x" * 9)
    town.erase(GONE)
    files = {*town.folder.rglob("*.run"), *town.folder.rglob("*.parquet")}
    purge_before(town.deployed.deployment, town.deployed.deployment.catalog.latest(), 1 << 40)
    assert path.parent.name in town.progress().error or path.name in town.progress().error
    assert town.progress().revision == 0
    assert {each for each in files if not each.exists()} == set() or kind == "*.parquet"


@pytest.mark.parametrize("reason", ["database or disk is full", "database disk image is malformed"])
def test_a_catalog_that_cannot_be_rewritten_ends_no_batch(
    town: Town, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """The error of SQLite ended the worker, at each attempt."""
    codes = {
        "database or disk is full": sqlite3.SQLITE_FULL,
        "database disk image is malformed": sqlite3.SQLITE_CORRUPT,
    }
    connect = sqlite3.connect

    class Vacuumed(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql == "VACUUM":
                error = sqlite3.OperationalError(reason)
                error.sqlite_errorcode = codes[reason]
                raise error
            return super().execute(sql, *values)

    town.erase(GONE)
    monkeypatch.setattr(sqlite3, "connect", lambda *names, **options: connect(*names, **options, factory=Vacuumed))
    purge_before(town.deployed.deployment, town.deployed.deployment.catalog.latest(), 1 << 40)
    assert reason in town.progress().error
    assert town.progress().revision == 0
    monkeypatch.undo()
    Purges(town.deployed.deployment.catalog).note(PurgeProgress())
    town.process()
    assert town.progress().error == ""
    assert where(town.folder, SECRET) == []


def test_readers_go_on_during_a_purge(town: Town) -> None:
    before, failures, seen, stop = (town.online(), town.offline()), list[BaseException](), [0], threading.Event()
    other = Town(town.folder)

    def read() -> None:
        try:
            while not stop.is_set():
                assert (other.online(), other.offline()) == before
                seen[0] += 1
        except BaseException as error:
            failures.append(error)

    town.erase(GONE)
    thread = threading.Thread(target=read)
    thread.start()
    wait_until(lambda: seen[0] or failures, lambda: seen)
    town.process()
    until = seen[0] + 1
    wait_until(lambda: seen[0] > until or failures, lambda: seen)
    stop.set()
    thread.join()
    other.deployed.close()
    assert failures == []
    assert where(town.folder, SECRET) == []


def test_a_key_erased_on_one_branch_only_stays_for_the_other(town: Town) -> None:
    place = town.deployed.deployment
    clone(place.catalog, "copy", "main")
    town.erase(GONE)
    town.process()
    assert town.progress().left == 1
    assert "another branch has them" in town.progress().notes[-1]
    assert where(town.folder, SECRET)
    revision = erase(place, "copy", "People", {"email": pl.Series([GONE])})
    Purges(place.catalog).request(revision)
    town.process()
    assert (town.progress().left, where(town.folder, SECRET), where(town.folder, GONE)) == (0, [], [])


def test_mentions_are_whole_words() -> None:
    found = Mentions([("bob", 7), ('quo"te',), ("ü",)])
    assert found(b'{"name": "bob", "n": 7}')
    assert not found(b'{"name": "bobby", "n": 7}')
    assert not found(b'{"name": "bob", "n": 77}')
    assert found(b'{"k": "quo\\"te"}')
    assert found(b'{"k": "\\u00fc"}')
    assert found('{"k": "ü"}'.encode())
    assert not found('{"k": "für"}'.encode())


@pytest.mark.parametrize(
    ("key", "texts", "others"),
    [
        (b"\xfb\xff?", [b'{"k": "+/8/"}', b'{"k": "+\\/8\\/"}', b"fbff3f"], [b'{"k": "+/8/A"}']),
        (Number("1.50"), [b'{"k": 1.5}', b'{"k": "1.50"}'], [b'{"k": 1.51}', b'{"k": 11.5}']),
        (Number("20.00"), [b'{"k": 20}', b'{"k": 20.0}'], [b'{"k": 200}']),
        (START, [b'{"k": "2024-01-01T00:00:00Z"}', b"2024-01-01 00:00:00"], [b'{"k": "2024-01-01T00:00:01Z"}']),
        ({"a": 7, "b": [b"?"], "c": None}, [b'{"k": {"b": ["Pw=="], "a": 7}}'], [b'{"k": {"a": 7}}', b""]),
        (True, [b'{"k": true}'], [b'{"k": false}']),
        ({"c": None}, [], [b"", b"{}"]),
    ],
)
def test_mentions_of_keys_that_are_no_texts(key: Any, texts: list[bytes], others: list[bytes]) -> None:
    found = Mentions([(key,)])
    assert [found(each) for each in (*texts, *others)] == [True] * len(texts) + [False] * len(others)
