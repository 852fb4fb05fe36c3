from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.extending.install import declare
from umbel.errors import InvalidValue, PackageError, UnknownName
from umbel.state import urls
from umbel.state.file import FileStore
from umbel.state.memory import MemoryStore
from umbel.state.port import OldState, Stamp
from umbel.state.urls import open_store


def test_memory_is_new_each_time() -> None:
    one, other = open_store("memory://", 3), open_store("memory://", 3)
    assert isinstance(one, MemoryStore)
    assert one.shards == 3
    with one.transaction(0, ["o"], Stamp(1, 1)):
        pass
    assert other.state_ids(0) == []


def test_a_directory(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/a b?flush_bytes=1048576&sync=off", 1)
    assert isinstance(store, FileStore)
    with store.transaction(0, ["o"], Stamp(1, 1)):
        pass
    assert (tmp_path / "a b" / "shard-000" / "journal").is_dir()
    store.close()


@pytest.mark.parametrize(
    "url", ["fiel:///x", "runs://", "tables:///x", "ports://", "keys://", "", "../memory://", "/tmp/x"]
)
def test_unknown_schemes_are_refused_with_the_known_ones(url: str) -> None:
    with pytest.raises(UnknownName, match="file"):
        open_store(url, 1)


def test_a_directory_is_needed() -> None:
    with pytest.raises(InvalidValue, match="directory"):
        open_store("file://", 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("flushbytes=7", "unknown setting 'flushbytes'; did you mean 'flush_bytes'"),
        ("map_size=1048576", "unknown setting 'map_size'"),
        ("flush_bytes=7GB", "flush_bytes must be a number of bytes, found '7GB'"),
        ("flush_bytes=0", "flush_bytes must be a number of bytes, found '0'"),
        ("flush_bytes=-1", "flush_bytes must be a number of bytes, found '-1'"),
        ("flush_bytes=²", "flush_bytes must be a number of bytes"),
        ("sync=no", "sync must be 'on' or 'off', found 'no'"),
    ],
)
def test_settings_are_checked(tmp_path: Path, settings: str, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        open_store(f"file://{tmp_path}/db?{settings}", 1)
    assert not (tmp_path / "db").exists()


def test_state_of_another_format_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text('{"format": 3, "shards": 1, "identity": "x"}')
    with pytest.raises(OldState, match="format 3 by another version") as raised:
        open_store(f"file://{tmp_path}", 1)
    assert "compute it anew" in str(raised.value.hint)


@pytest.mark.parametrize("shards", [0, -1])
def test_shards_are_needed(shards: int) -> None:
    with pytest.raises(InvalidValue, match="at least one shard"):
        open_store("memory://", shards)


ELSEWHERE = """
from umbel.state.memory import MemoryStore
class Elsewhere(MemoryStore): ...
def open_url(url, shards, settings):
    store = Elsewhere(shards)
    store.where = f"{url.netloc} {settings}"
    return store
"""


def test_another_package_adds_a_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {"stores_elsewhere": ELSEWHERE}
    declare(tmp_path, "stores-elsewhere", urls.GROUP, {"elsewhere": "stores_elsewhere:open_url"}, modules)
    monkeypatch.syspath_prepend(tmp_path)
    store: Any = open_store("elsewhere://host?a=1", 2)
    assert store.where == "host {'a': '1'}"
    with pytest.raises(UnknownName, match="did you mean 'elsewhere'"):
        open_store("elsewere://", 1)


def test_a_scheme_of_two_packages_names_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(tmp_path, "one-store", urls.GROUP, {"memory": "one_store:open_url"}, {})
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PackageError, match=r"'memory': umbel\.state\.memory and package 'one-store' 1\.0"):
        open_store("memory://", 1)
    assert isinstance(open_store(f"file://{tmp_path / 'db'}", 1), FileStore)


def test_a_package_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {"broken_store": "raise OSError('no library')"}
    declare(tmp_path, "broken-store", urls.GROUP, {"broken": "broken_store:open_url"}, modules)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PackageError, match=r"package 'broken-store' 1\.0 .* cannot be loaded: OSError: no library"):
        open_store("broken://", 1)
