"""The catalog: revisions, owners of jobs, finished batches, counts and dead letters that stay exact when steps are repeated."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.ddl.impl import DefaultImpl
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from umbel.catalog import catalog as module
from umbel.catalog.catalog import (
    FOLDED_AT_ONCE,
    RAW_LIMIT,
    RETAINED_BATCHES,
    Catalog,
    DeadLetter,
    JobEpoch,
    JobProgress,
)
from umbel.catalog.row_sums import SUMS
from umbel.catalog.tables import CatalogRow
from umbel.errors import Terminal, Transient, UnknownName
from umbel.state.port import Fenced

JOB = "live"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'place' / 'catalog.db'}"


@pytest.fixture
def catalog(url: str) -> Any:
    opened = Catalog(url)
    yield opened
    opened.close()


def letter(position: str, **fields: Any) -> DeadLetter:
    known = {"dataset": "Payment", "source": 0, "reason": "broken", "raw": b"{", "size": 1}
    return DeadLetter(position=position, **{**known, **fields})


def scripts() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(Path(module.__file__).parent / "migrations"))
    return ScriptDirectory.from_config(config)


def test_a_setting_stays_what_it_was_first(catalog: Catalog, url: str) -> None:
    assert catalog.setting("shards", 4) == 4
    assert Catalog(url).setting("shards", 8) == 4


def test_commits_are_numbered(catalog: Catalog) -> None:
    assert catalog.revision() == 0
    first, other = catalog.commit("main", "one", b"1"), catalog.commit("dev", "two", b"2")
    last = catalog.commit("main", "three", b"3")
    assert first < other < last
    assert (catalog.revision(), catalog.revision("dev")) == (last, other)
    assert catalog.definitions(first) == b"1"
    assert [commit.message for commit in catalog.commits()] == ["one", "three"]
    with pytest.raises(UnknownName, match="revision 99"):
        catalog.definitions(99)


def test_a_finished_batch_is_recorded_once(catalog: Catalog) -> None:
    epoch = catalog.take_over(JOB)
    for _ in range(3):
        dead = [letter("a: byte 1"), letter("a: byte 2", field="x")]
        catalog.finish(
            JOB, JobProgress(1, 7, {"w": 5}), {("Payment", "rows"): 10, ("Payment", "dead"): 2}, dead, epoch=epoch
        )
    assert catalog.counts() == {("Payment", "rows"): 10, ("Payment", "dead"): 2}
    assert catalog.count_dead() == {"Payment": 2}
    assert catalog.progress(JOB, 2) == JobProgress(1, 7, {"w": 5})
    assert catalog.progress(JOB, 1) is None
    assert (catalog.finished(JOB, 1), catalog.finished(JOB, 2)) == (True, False)


def test_a_batch_run_again_replaces_its_counts(catalog: Catalog) -> None:
    epoch = catalog.take_over(JOB)
    catalog.finish(JOB, JobProgress(1, 1), {("A", "rows"): 10, ("A", "late"): 3}, epoch=epoch)
    catalog.finish(JOB, JobProgress(1, 1), {("A", "rows"): 9}, epoch=epoch)
    assert catalog.counts() == {("A", "rows"): 9}


def test_counts_stay_right_when_batches_are_folded(catalog: Catalog) -> None:
    epoch = catalog.take_over(JOB)
    for number in range(3 * RETAINED_BATCHES + 8):
        for _ in range(2):
            catalog.finish(JOB, JobProgress(number, 1), {("A", "rows"): number, ("B", "rows"): 1}, epoch=epoch)
    count = 3 * RETAINED_BATCHES + 8
    assert catalog.counts() == {("A", "rows"): count * (count - 1) // 2, ("B", "rows"): count}
    with sa.create_engine(catalog.url).connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM counters")) <= 2 * (
            RETAINED_BATCHES + FOLDED_AT_ONCE + 1
        )
        assert connection.scalar(sa.text("SELECT count(*) FROM batches")) == RETAINED_BATCHES


def test_jobs_count_for_themselves(catalog: Catalog) -> None:
    for job, count in (("one", 3), ("two", 4)):
        catalog.finish(job, JobProgress(1, 1), {("A", "rows"): count}, epoch=catalog.take_over(job))
    assert catalog.counts() == {("A", "rows"): 7}


def test_who_was_replaced_cannot_finish(catalog: Catalog) -> None:
    old = catalog.take_over(JOB)
    new = catalog.take_over(JOB)
    assert new == old + 1
    with pytest.raises(Terminal, match="taken it over"):
        catalog.finish(JOB, JobProgress(1, 1, {"by": "old"}), {("A", "rows"): 1}, [letter("a")], epoch=old)
    assert catalog.counts() == {}
    assert catalog.count_dead() == {}
    assert not catalog.finished(JOB, 1)
    catalog.finish(JOB, JobProgress(1, 1, {"by": "new"}), {}, epoch=new)


def test_who_was_replaced_cannot_note(catalog: Catalog) -> None:
    old = JobEpoch(JOB, catalog.take_over(JOB))
    catalog.note("progress", 1, old)
    catalog.backfill(["a"], done=True, by=old)
    new = JobEpoch(JOB, catalog.take_over(JOB))
    for write in (
        lambda: catalog.note("progress", 2, old),
        lambda: catalog.note("other", 2, old),
        lambda: catalog.backfill(["a", "b"], done=False, by=old),
        lambda: catalog.bury("backfill", 1, {("A", "dead"): 1}, [letter("a")], old),
        lambda: catalog.check_epoch(old),
        lambda: catalog.check_epoch(JobEpoch("never taken over", 0)),
    ):
        with pytest.raises(Fenced, match="taken it over"):
            write()
    assert (catalog.noted("progress"), catalog.noted("other")) == (1, None)
    assert catalog.backfilled() == {"a"}
    assert (catalog.counts(), catalog.count_dead()) == ({}, {})
    catalog.note("progress", 3, new)
    assert catalog.noted("progress") == 3


def test_dead_letters_come_newest_first_and_cut(catalog: Catalog) -> None:
    epoch = catalog.take_over(JOB)
    long = b"x" * (RAW_LIMIT + 5)
    dead = [letter(f"f: byte {n}") for n in range(5)] + [letter("g", dataset="Other", raw=long, size=len(long))]
    catalog.finish(JOB, JobProgress(1, 1), {}, dead, epoch=epoch)
    assert [found.position for found in catalog.dead_letters("Payment", limit=2)] == ["f: byte 4", "f: byte 3"]
    (other,) = catalog.dead_letters("Other")
    assert (len(other.raw), other.size) == (RAW_LIMIT, RAW_LIMIT + 5)
    assert other.at is not None
    assert len(catalog.dead_letters()) == 6


def test_one_dead_letter_per_place_and_field(catalog: Catalog) -> None:
    epoch = catalog.take_over(JOB)
    same = [letter("p"), letter("p"), letter("p", field="x"), letter("p", source=1), letter("q")]
    for number in (1, 2):
        catalog.finish(JOB, JobProgress(number, 1), {}, same, epoch=epoch)
    assert catalog.count_dead() == {"Payment": 4}


def test_many_dead_letters_are_quick_enough_to_take(catalog: Catalog) -> None:
    epoch = catalog.take_over(JOB)
    catalog.finish(JOB, JobProgress(1, 1), {}, (letter(f"f: byte {n}") for n in range(20_000)), epoch=epoch)
    assert catalog.count_dead() == {"Payment": 20_000}


def test_events_and_backfills(catalog: Catalog) -> None:
    catalog.record_event("work", "error", "it broke")
    catalog.record_event("work", "info", "again")
    assert [event.text for event in catalog.events(1)] == ["again"]
    catalog.backfill(["a", "b"], done=True)
    catalog.backfill(["b"], done=False)
    assert catalog.backfilled() == {"a"}


def test_the_migrations_make_the_tables_the_code_uses(catalog: Catalog) -> None:
    engine = sa.create_engine(catalog.url)
    found = sa.inspect(engine)
    sums = {SUMS} if engine.dialect.name == "sqlite" else set[str]()
    assert set(found.get_table_names()) == {*CatalogRow.metadata.tables, "alembic_version"} | sums
    for name, table in CatalogRow.metadata.tables.items():
        assert {column["name"] for column in found.get_columns(name)} == {column.name for column in table.columns}
        assert set(found.get_pk_constraint(name)["constrained_columns"]) == {c.name for c in table.primary_key.columns}
    with engine.connect() as connection:
        assert MigrationContext.configure(connection).get_current_revision() == scripts().get_current_head()


def test_opening_again_changes_nothing(catalog: Catalog, url: str) -> None:
    catalog.commit("main", "one", b"1")
    again = Catalog(url)
    assert again.revision() == 1
    again.close()


def test_an_older_catalog_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(Path(module.__file__).parent / "migrations"))
        command.upgrade(config, "0001")
        connection.execute(sa.text("INSERT INTO counters VALUES ('A', 'rows', -1, 5), ('A', 'rows', 3, 2)"))
    catalog = Catalog(f"sqlite:///{path}")
    assert catalog.counts() == {("A", "rows"): 7}
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert sa.inspect(engine).get_table_names() == ["alembic_version"]
    catalog.close()


def test_a_migration_cut_short_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[Any]()
    write = DefaultImpl.create_table

    def third_time_dies(self: DefaultImpl, table: sa.Table, **options: Any) -> None:
        made.append(table)
        if len(made) == 3:
            raise KeyboardInterrupt
        write(self, table, **options)

    path = tmp_path / "catalog.db"
    with monkeypatch.context() as patch:
        patch.setattr(DefaultImpl, "create_table", third_time_dies)
        with pytest.raises(KeyboardInterrupt):
            Catalog(f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
    Catalog(f"sqlite:///{path}").close()


OPEN_AND_WRITE = """
import sys
from umbel.catalog.catalog import Catalog, JobProgress
catalog = Catalog(sys.argv[1])
job = sys.argv[2]
epoch = catalog.take_over(job)
for number in range(15):
    catalog.finish(job, JobProgress(number, 1), {("A", "rows"): 1}, epoch=epoch)
    catalog.record_event(job, "info", str(number))
    catalog.commit("main", job, b"")
print(catalog.setting("shards", int(job)))
"""


def test_processes_create_and_write_one_catalog_together(url: str) -> None:
    def run(job: str) -> str:
        command = [sys.executable, "-c", OPEN_AND_WRITE, url, job]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout

    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(run, "123"))
    assert len(set(answers)) == 1
    catalog = Catalog(url)
    assert catalog.counts() == {("A", "rows"): 45}
    assert len(catalog.commits()) == len(catalog.events(1000)) == 45
    catalog.close()


def test_threads_share_a_catalog(catalog: Catalog) -> None:
    with ThreadPoolExecutor(8) as pool:
        epochs = list(pool.map(lambda _: catalog.take_over(JOB), range(40)))
    assert sorted(epochs) == list(range(1, 41))


def test_a_catalog_of_a_newer_version_is_refused(url: str) -> None:
    Catalog(url).close()
    with sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:")).begin() as database:
        database.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(Terminal, match="written by a newer version of umbel: its tables are of revision 9999"):
        Catalog(url)


def test_heads_begin_with_the_main_branch(catalog: Catalog) -> None:
    for branch in ("b", "a", "main", "c"):
        catalog.commit(branch, "", b"1")
    assert list(catalog.heads(catalog.latest())) == ["main", "b", "a", "c"]


def test_a_setting_that_is_noted_at_once_is_noted(tmp_path: Path) -> None:
    """Two of four writers that started together failed: the setting was inserted meanwhile."""
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    catalogs = [Catalog(url) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for name in map(str, range(30)):
            list(pool.map(lambda each, name=name: each.note(name, {"by": name}), catalogs))  # type: ignore[misc]
            assert catalogs[0].noted(name) == {"by": name}
    catalogs[0].check(deep=True)


def test_a_catalog_that_cannot_be_opened_for_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "catalog.db").mkdir()
    with pytest.raises(Transient) as failed:
        Catalog(f"sqlite:///{tmp_path / 'catalog.db'}")
    assert "a catalog is in sqlite:///path" in str(failed.value.hint)
    monkeypatch.setattr("umbel.processes.status.FULL", 1 << 60)
    with pytest.raises(Transient) as failed:
        Catalog(f"sqlite:///{tmp_path / 'catalog.db'}")
    assert failed.value.hint == f"the disk of {tmp_path} is full: free some space"
