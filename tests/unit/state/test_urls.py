from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from urllib.parse import SplitResult

import pytest

from umbel.errors import InvalidValue, UnknownName
from umbel.state import urls
from umbel.state.lmdb import LmdbStore
from umbel.state.memory import MemoryStore
from umbel.state.port import Stamp
from umbel.state.urls import open_store


def test_memory_is_new_each_time() -> None:
    one, other = open_store("memory://", 3), open_store("memory://", 3)
    assert isinstance(one, MemoryStore)
    assert one.shards == 3
    with one.transaction(0, ["o"], Stamp(1, 1)):
        pass
    assert other.owners(0) == []


def test_a_directory(tmp_path: Path) -> None:
    store = open_store(f"lmdb://{tmp_path}/a b?map_size=1048576&sync=off", 1)
    assert isinstance(store, LmdbStore)
    with store.transaction(0, ["o"], Stamp(1, 1)):
        pass
    assert (tmp_path / "a b" / "shard-000" / "data.mdb").exists()
    store.close()


@pytest.mark.parametrize("url", ["lmb:///x", "ports://", "keys://", "", "../memory://", "/tmp/x"])
def test_unknown_schemes_are_told_what_there_is(url: str) -> None:
    with pytest.raises(UnknownName, match="lmdb"):
        open_store(url, 1)


def test_a_directory_is_needed() -> None:
    with pytest.raises(InvalidValue, match="directory"):
        open_store("lmdb://", 1)


@pytest.mark.parametrize("shards", [0, -1])
def test_shards_are_needed(shards: int) -> None:
    with pytest.raises(InvalidValue, match="at least one shard"):
        open_store("memory://", shards)


class Elsewhere(MemoryStore):
    """A store of another package."""

    where = ""


def open_elsewhere(url: SplitResult, shards: int, settings: dict[str, str]) -> Elsewhere:
    store = Elsewhere(shards)
    store.where = f"{url.netloc} {settings}"
    return store


def test_another_package_adds_a_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("elsewhere", f"{__name__}:open_elsewhere", urls.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: open_elsewhere)
    monkeypatch.setattr(urls, "entry_points", lambda **wanted: EntryPoints([entry]).select(**wanted))
    store = open_store("elsewhere://host?a=1", 2)
    assert isinstance(store, Elsewhere)
    assert store.where == "host {'a': '1'}"
    with pytest.raises(UnknownName, match="did you mean 'elsewhere'"):
        open_store("elsewere://", 1)
