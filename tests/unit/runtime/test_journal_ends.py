"""How far the journals were written is noted with each batch, and never less than before."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import cast

from umbel.catalog.catalog import Catalog, JobProgress
from umbel.runtime.journal_ends import ENDS, ends_of, forget_ends, noted_ends, reached
from umbel.state.file import FileStore
from umbel.state.memory import open_url
from umbel.state.port import JournalEnd, Stamp, Store

JOB = "live"


def written(folder: Path) -> FileStore:
    store = FileStore(folder, 2)
    with store.transaction(1, ["a"], Stamp(1, 0)):
        pass
    return store


def test_ends_only_grow_and_tasks_report_theirs(tmp_path: Path) -> None:
    store = written(tmp_path)
    here = store.end(1)
    assert here.offset > 64
    assert reached([], store, {}) == [JournalEnd(1, 64), here]
    reported = {0: JournalEnd(2, 70, 3), 1: JournalEnd(1, 65)}
    assert reached([], store, reported) == [reported[0], here]
    before = [JournalEnd(4, 64), JournalEnd(5, 64)]
    assert reached(before, store, reported) == before
    again = FileStore(tmp_path, 2)
    assert again.end(1) < here  # it has not looked yet
    assert again.stamp(1, "a") == Stamp(1, 0)
    assert again.end(1) == here


def test_a_store_in_memory_has_none() -> None:
    from urllib.parse import urlsplit

    store = cast("Store", open_url(urlsplit("memory://"), 2, {}))
    assert reached([JournalEnd(1, 99)], store, {}) == []


def test_they_are_noted_with_a_batch_and_forgotten(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    with closing(Catalog(url)) as catalog:
        assert noted_ends(catalog, JOB) == []
        epoch, ends = catalog.take_over(JOB), [JournalEnd(1, 300, 2), JournalEnd(2, 64)]
        for number in range(2):
            catalog.finish(JOB, JobProgress(number, 1, {"plan": number, ENDS: ends}), {}, epoch=epoch)
        assert noted_ends(catalog, JOB) == ends
        forget_ends(catalog)
        assert noted_ends(catalog, JOB) == []
        last = catalog.progress(JOB, 99)
        assert last is not None
        assert last.state == {"plan": 1}
        assert ends_of(None) == []
        catalog.check(deep=True)


def test_those_of_a_damaged_batch_are_left_to_others(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    with closing(Catalog(url)) as catalog:
        epoch = catalog.take_over(JOB)
        catalog.finish(JOB, JobProgress(0, 1, {ENDS: [JournalEnd(1, 300)]}), {}, epoch=epoch)
        with closing(sqlite3.connect(tmp_path / "catalog.db")) as database, database:
            database.execute("UPDATE batches SET progress = replace(progress, '300', '200')")
        assert noted_ends(catalog, JOB) == []
