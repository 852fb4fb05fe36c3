"""What commits share of their definitions is stored once, is read as it was, and is checked; older catalogs are divided."""

from __future__ import annotations

import random
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from umbel import dataset, field, meta
from umbel.api.commit import check_commit
from umbel.catalog import catalog as module
from umbel.catalog.catalog import Catalog
from umbel.catalog.cloning import clone
from umbel.catalog.definition_pieces import LEAST, RECORD, divided
from umbel.catalog.switching import switch
from umbel.catalog.tables import Commit, DefinitionPiece
from umbel.definitions.serde import dump
from umbel.errors import Conflict, Damaged


@meta(owner="tests@example.com")
@dataset
class Person:
    uid: int = field(key=True)
    name: str
    at: datetime


def fields(changed: int = -1, size: int = 200) -> bytes:
    """Return what definitions of 2,000 fields may look like, one of them changed."""
    chance = random.Random(7)
    records = (chance.randbytes(chance.randrange(size)) + (b"!" if n == changed else b"") for n in range(2000))
    return b"".join(b"definitions.records.Field" + each for each in records)


def stored(catalog: Catalog) -> int:
    """Return the bytes of all definitions in a catalog."""
    with catalog.sessions() as session:
        columns = (Commit.definitions, DefinitionPiece.data)
        return sum(session.scalar(sa.select(sa.func.sum(sa.func.length(each)))) or 0 for each in columns)


def pieces(catalog: Catalog) -> int:
    with catalog.sessions() as session:
        return session.scalar(sa.select(sa.func.count()).select_from(DefinitionPiece)) or 0


def moved(url: str, revision: str) -> None:
    """Take the tables of a catalog to those of an older version."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(Path(module.__file__).parent / "migrations"))
        command.downgrade(config, revision)
    engine.dispose()


def test_what_commits_share_is_stored_once(catalog: Catalog) -> None:
    catalog.commit("main", "first", fields())
    first = stored(catalog)
    assert first < 1.1 * len(fields())
    for number in range(10):
        catalog.commit("main", "one field", fields(changed=number * 150))
    assert stored(catalog) - first < 0.5 * len(fields())
    assert catalog.definitions(1) == fields()
    assert [catalog.definitions(number + 2) == fields(changed=number * 150) for number in range(10)] == [True] * 10
    catalog.check()


def test_revisions_that_are_made_of_others_store_nothing_more(catalog: Catalog) -> None:
    head = catalog.commit("main", "first", fields())
    count = pieces(catalog)
    epoch = catalog.take_over("live")
    made = [catalog.erase("main", "D", ["i"], b"k"), clone(catalog, "b", "main")]
    last = switch(catalog, "live", epoch, "main", made[0])
    assert pieces(catalog) == count
    assert [catalog.definitions(each) == fields() for each in (head, *made, last or 0)] == [True] * 4


def test_a_refused_commit_leaves_no_pieces(catalog: Catalog) -> None:
    catalog.commit("main", "first", b"1")
    with pytest.raises(Conflict):
        catalog.commit("main", "second", fields(), after=0)
    assert pieces(catalog) == 0


def test_small_definitions_are_stored_with_their_commit(catalog: Catalog) -> None:
    for size in (0, 1, LEAST):
        assert catalog.definitions(catalog.commit("main", "small", bytes(size))) == bytes(size)
    assert pieces(catalog) == 0


def test_content_without_records_is_one_piece(catalog: Catalog) -> None:
    data = random.Random(3).randbytes(1 << 20)
    assert catalog.definitions(catalog.commit("main", "large", data)) == data
    assert pieces(catalog) == 1


def test_a_record_of_each_field_is_found_in_definitions() -> None:
    data = dump(check_commit([Person], ()))
    assert len(RECORD.findall(data)) > 3


@pytest.mark.parametrize("what", ["missing", "changed", "no data"])
def test_a_damaged_piece_is_damage(catalog: Catalog, what: str) -> None:
    catalog.commit("main", "first", b"1")
    catalog.commit("main", "second", fields())
    with catalog.sessions.begin() as session:
        piece = session.scalars(sa.select(DefinitionPiece).limit(1)).one()
        if what == "missing":
            session.delete(piece)
        else:
            _, others = divided(fields(changed=3, size=300))
            piece.data = b"" if what == "no data" else next(iter(others.values()))
    assert catalog.definitions(1) == b"1"
    for read in (catalog.check, lambda: catalog.definitions(2)):
        with pytest.raises(Damaged, match="the definitions of revision 2 are not as they were written"):
            read()


def test_definitions_of_an_older_version_are_divided(url: str) -> None:
    with closing(Catalog(url)) as catalog:
        for number in range(4):
            catalog.commit("main", str(number), fields(changed=number))
        size = stored(catalog)
    moved(url, "0011")
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as database:
        whole: Any = database.execute(sa.select(Commit.definitions).order_by(Commit.revision)).scalars().all()
        assert [each.startswith(fields(changed=number)) for number, each in enumerate(whole)] == [True] * 4
        damaged = whole[2].replace(b"records", b"rekords", 1)
        database.execute(sa.update(Commit).where(Commit.revision == 3).values(definitions=damaged))
        database.execute(sa.update(Commit).where(Commit.revision == 4).values(definitions=fields(changed=9)))
    engine.dispose()
    with closing(Catalog(url)) as catalog:
        assert [catalog.definitions(number + 1) == fields(changed=number) for number in range(2)] == [True] * 2
        assert catalog.definitions(4) == fields(changed=9)
        assert stored(catalog) < size + 1.1 * len(fields())
        with pytest.raises(Damaged, match="the definitions of revision 3 are not as they were written"):
            catalog.check()
