"""A clone of a branch is there as a whole, or not at all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import event

from umbel.catalog.catalog import Catalog
from umbel.catalog.cloning import clone
from umbel.errors import Conflict


def test_no_process_sees_a_part_of_a_clone(catalog: Catalog, url: str) -> None:
    catalog.commit("main", "", b"serves")
    catalog.commit("main", "", b"waits", waits=True)
    catalog.erase("main", "D", ["i"], b"keys")
    other, seen = Catalog(url), list[Any]()

    @event.listens_for(catalog.sessions, "after_commit")
    def look(_: Any) -> None:  # what is left by a process that is killed here
        latest = other.latest()
        answering = other.serving(latest).get("copy", 0)
        seen.append(
            (other.definitions(answering), other.definitions(other.head("copy")), other.erasures("copy", latest))
        )

    clone(catalog, "copy", "main")
    other.close()
    assert seen == [(b"serves", b"waits", [("D", "i", b"keys")])]


def test_of_clones_at_once_one_is_made(catalog: Catalog, url: str) -> None:
    catalog.commit("main", "", b"1")
    begin, count = Barrier(4), 4

    def make(_: int) -> bool:
        mine = Catalog(url)
        try:
            begin.wait()
            clone(mine, "copy", "main", after=0)
        except Conflict:
            return False
        finally:
            mine.close()
        return True

    with ThreadPoolExecutor(count) as threads:
        assert sum(threads.map(make, range(count))) == 1
    assert len(catalog.commits("copy")) == 1
    catalog.remove("copy")
    with pytest.raises(Conflict):
        clone(catalog, "copy", "main", after=0)
    assert catalog.definitions(clone(catalog, "copy", "main", after=catalog.revision("copy"))) == b"1"
