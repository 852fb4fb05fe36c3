"""What is flipped or lost in the catalog's file is found, whatever it was; what another program has written is not checked."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

import umbel.catalog
from tests.seeds import new_seed
from umbel.catalog.catalog import Catalog, DeadLetter, JobProgress
from umbel.catalog.removals import Removals
from umbel.catalog.row_sums import COVERED, row_sum
from umbel.catalog.tokens import Role, Tokens
from umbel.catalog.verdicts import Verdicts
from umbel.errors import Damaged, UmbelError

Rows = dict[str, list[Any]]
NEWEST = "definition_pieces"
"""A table that an older version does not write."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Rows]:
    """Return a catalog's file, and the rows of the tables that are covered."""
    path = tmp_path_factory.mktemp("whole") / "catalog.db"
    catalog = Catalog(f"sqlite:///{path}")
    catalog.setting("shards", 4)
    catalog.note("store", "1f" * 16)
    catalog.note("store", "2e" * 16)
    for number in range(3):
        catalog.commit("main", f"number {number}", bytes(range(256)) * 30)
    catalog.erase("main", "People", ["of people"], b"\0\xff" * 300)
    epoch = catalog.take_over("live")
    letter = DeadLetter("Sales", 0, "1", "no number", b"x" * 500, 500)
    for number in range(25):
        catalog.finish("live", JobProgress(number, 1, {"plan": number}), {("Sales", "rows"): 3}, [letter], epoch=epoch)
    catalog.backfill(["a" * 16, "b" * 16], done=True)
    catalog.backfill(["a" * 16], done=False)
    Removals(catalog).add({"c" * 16: "Old"}, 7.0)
    Verdicts(catalog).reject("f", {"row": "it failed"})
    Verdicts(catalog).suspect(["g"])
    catalog.add_secret("password", b"gAAAA")
    Tokens(catalog).create("reader", Role.READER)
    catalog.check(deep=True)
    catalog.close()
    found = path.read_bytes(), rows_of(path)
    assert all(found[1].values())
    return found


def rows_of(path: Path) -> Rows:
    with closing(sqlite3.connect(path)) as database:
        return {table.name: sorted(database.execute(f"SELECT * FROM {table.name}"), key=repr) for table in COVERED}


@contextmanager
def damaging(path: Path) -> Iterator[sqlite3.Connection]:
    """Change rows behind the back of SQLite's triggers, as a disk does."""
    with closing(sqlite3.connect(path)) as database, database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        yield database


def damage_of(path: Path) -> str:
    """Return what a check says of a catalog, empty if nothing."""
    try:
        with closing(Catalog(f"sqlite:///{path}")) as catalog:
            catalog.check(deep=True)
    except UmbelError as error:
        return error.message
    return ""


@pytest.mark.parametrize("table", COVERED, ids=lambda table: table.name)
def test_each_value_is_covered(table: sa.Table, whole: tuple[bytes, Rows], tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    for column in table.columns:
        path.write_bytes(whole[0])
        with damaging(path) as database:
            (row,) = database.execute(f"SELECT rowid FROM {table.name} LIMIT 1").fetchone()
            database.execute(f'UPDATE {table.name} SET "{column.name}" = 12345 WHERE rowid = {row}')
        found = damage_of(path)
        assert table.name in found, column.name
        assert ("is missing" if column.primary_key else "is not as it was written") in found, column.name
    path.write_bytes(whole[0])
    with damaging(path) as database:
        database.execute(f"DELETE FROM {table.name}")
    assert f"{table.name} " in damage_of(path)
    assert "is missing" in damage_of(path)


def swept(whole: tuple[bytes, Rows], tmp_path: Path, places: list[int], bit: Callable[[], int]) -> None:
    """Flip a bit at places: it is found, or the rows are the same."""
    path, data = tmp_path / "catalog.db", whole[0]
    unseen = 0
    for place in places:
        for each in tmp_path.iterdir():
            each.unlink()
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << bit()]) + data[place + 1 :])
        if not damage_of(path):
            assert rows_of(path) == whole[1], place
            unseen += 1
    assert unseen < len(places), "more is unseen than the free bytes of pages and the tables that are not covered"


def test_a_flipped_bit_is_found_or_changes_nothing(whole: tuple[bytes, Rows], tmp_path: Path) -> None:
    chance = random.Random(new_seed())
    written = [place for place, byte in enumerate(whole[0]) if byte]
    """Nine of ten bytes are free ones of pages, which hide what is not found."""
    places = chance.sample(written, 30) + chance.sample(range(len(whole[0])), 10)
    swept(whole, tmp_path, places, lambda: chance.randrange(8))


@pytest.mark.nightly
def test_any_flipped_bit_is_found_or_changes_nothing(whole: tuple[bytes, Rows], tmp_path: Path) -> None:
    chance = random.Random(new_seed())
    swept(whole, tmp_path, [*range(0, len(whole[0]), 37)], lambda: chance.randrange(8))


def test_what_is_decisive_is_looked_at_before_it_is_used(whole: tuple[bytes, Rows], tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    path.write_bytes(whole[0])
    with damaging(path) as database:
        database.execute("UPDATE tokens SET role = 'admin'")
    with closing(Catalog(f"sqlite:///{path}")) as catalog:
        catalog.check_decisive()
        with damaging(path) as database:
            database.execute("UPDATE settings SET value = '8' WHERE name = 'shards'")
        with pytest.raises(Damaged, match="settings 'shards' is not as it was written"):
            catalog.check_decisive()


def test_text_that_is_none_is_damage(whole: tuple[bytes, Rows], tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    path.write_bytes(whole[0])
    with damaging(path) as database:
        database.execute("UPDATE commits SET message = CAST(x'ff00fe' AS TEXT)")
    assert "commits" in damage_of(path)


def test_rows_of_an_older_version_get_checksums(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    catalog = Catalog(f"sqlite:///{path}")
    catalog.note("store", "x")
    catalog.close()
    config = Config()
    config.set_main_option("script_location", str(Path(umbel.catalog.__file__).parent / "migrations"))
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0009")
    engine.dispose()
    assert damage_of(path) == ""
    with damaging(path) as database:
        database.execute("UPDATE settings SET value = '1' WHERE name = 'store'")
    assert "settings 'store'" in damage_of(path)


def test_an_older_version_that_still_runs_may_write(whole: tuple[bytes, Rows], tmp_path: Path) -> None:
    """Another process has migrated the tables meanwhile: what this one wrote was damage to the next one that started."""
    path = tmp_path / "catalog.db"
    path.write_bytes(whole[0])
    with closing(sqlite3.connect(path)) as older, older:
        for table in (each for each in COVERED if each.name != NEWEST):
            names = [f'"{column.name}"' for column in table.columns]
            (key, *_) = (f'"{column.name}"' for column in table.primary_key.columns)
            copied = ", ".join(f"{name} || '2'" if name == key else name for name in names)
            older.execute(f"INSERT OR IGNORE INTO {table.name} ({', '.join(names)}) SELECT {copied} FROM {table.name}")
            rows = [row for (row,) in older.execute(f"SELECT rowid FROM {table.name}")]
            older.execute(f"UPDATE {table.name} SET {key} = {key} || '1' WHERE rowid = {rows[0]}")
            older.execute(f"DELETE FROM {table.name} WHERE rowid = {rows[-1]}")
    assert damage_of(path) == ""


def test_what_umbel_writes_after_another_program_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    with closing(Catalog(f"sqlite:///{path}")) as catalog:
        catalog.note("store", "x")
        with closing(sqlite3.connect(path)) as older, older:
            older.execute("UPDATE settings SET value = '7'")
        catalog.check(deep=True)
        catalog.note("store", "z")
    with damaging(path) as database:
        database.execute("UPDATE settings SET value = 'w'")
    assert "settings 'store'" in damage_of(path)


def test_a_row_that_is_there_already_stays_checked(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    with closing(Catalog(f"sqlite:///{path}")) as catalog:
        assert catalog.setting("shards", 4) == catalog.setting("shards", 5)
    with damaging(path) as database:
        database.execute("UPDATE settings SET value = '5'")
    assert "settings 'shards'" in damage_of(path)


def test_mistakes_of_the_caller_are_no_damage(tmp_path: Path) -> None:
    with (
        closing(Catalog(f"sqlite:///{tmp_path / 'catalog.db'}")) as catalog,
        pytest.raises(sa.exc.ProgrammingError),
        catalog.sessions() as session,
    ):
        session.execute(sa.text("SELECT :it"), {"it": object()})


@pytest.mark.parametrize("name", [b"CREATE TABLE settings", b"CREATE TABLE alembic_version", b"CREATE TABLE row_sums"])
def test_a_damaged_schema_is_damage(whole: tuple[bytes, Rows], tmp_path: Path, name: bytes) -> None:
    path = tmp_path / "catalog.db"
    for place in (0, 3, 8, 14, len(name) - 1):
        for bit in (0, 7):
            for each in tmp_path.iterdir():
                each.unlink()
            at = whole[0].index(name) + place
            path.write_bytes(whole[0][:at] + bytes([whole[0][at] ^ 1 << bit]) + whole[0][at + 1 :])
            with pytest.raises(Damaged) as error, closing(Catalog(f"sqlite:///{path}")) as catalog:
                catalog.check(deep=True)
            assert error.value.hint


def test_values_of_other_types_have_other_checksums() -> None:
    values: list[Any] = [None, 0, 1, 0.0, 1.0, "", "0", "1", b"", b"0", b"1"]
    sums = {row_sum(value) for value in values}
    assert len(sums) == len(values)
    assert row_sum("ab", "c") != row_sum("a", "bc")
    assert row_sum(1, None) != row_sum(None, 1)
