"""Secrets: encrypted in the catalog, readable with the key only, the key readable by its owner only."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from umbel.catalog.catalog import Catalog
from umbel.catalog.vault import Vault, fresh_key
from umbel.errors import InvalidValue, Terminal, UnknownName
from umbel.state.disk import sync_directory


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(Catalog(f"sqlite:///{tmp_path / 'catalog.db'}"), tmp_path / "keys" / "secret.key")


def test_secrets_come_back(vault: Vault) -> None:
    vault.add("token", "geheim ü")
    assert vault.get("token") == "geheim ü"
    vault.update("token", "")
    assert vault.get("token") == ""
    vault.add("another", "x")
    assert list(vault.names()) == ["another", "token"]
    vault.delete("token")
    assert list(vault.names()) == ["another"]


@pytest.mark.parametrize("name", ["env:TOKEN", "file:/run/token", "", "  ", "a\0b", "a\nb"])
def test_names_by_which_no_secret_would_be_found_are_refused(vault: Vault, name: str) -> None:
    with pytest.raises(InvalidValue, match="cannot be the name of a secret"):
        vault.add(name, "x")
    vault.add("environment:token", "x")
    assert vault.names() == ["environment:token"]


def test_what_is_missing_or_there_already(vault: Vault) -> None:
    vault.add("token", "a")
    with pytest.raises(InvalidValue, match="token"):
        vault.add("token", "b")
    assert vault.get("token") == "a"
    for refused in (vault.get, vault.delete, lambda name: vault.update(name, "x")):
        with pytest.raises(UnknownName, match="no secret 'tokem' "):
            refused("tokem")


def test_nothing_readable_is_stored(vault: Vault, tmp_path: Path) -> None:
    vault.add("token", "hunter2hunter2")
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("catalog.db*"))
    assert b"hunter2" not in stored
    assert b"token" in stored


def test_the_key_is_private_and_made_once(vault: Vault, tmp_path: Path) -> None:
    vault.add("token", "a")
    key = tmp_path / "keys" / "secret.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert [path.name for path in key.parent.iterdir()] == ["secret.key"]
    again = Vault(Catalog(f"sqlite:///{tmp_path / 'catalog.db'}"), key)
    assert again.get("token") == "a"


def test_another_key_opens_nothing(vault: Vault, tmp_path: Path) -> None:
    vault.add("token", "a")
    (tmp_path / "keys" / "secret.key").unlink()
    with pytest.raises(Terminal, match="another key"):
        vault.get("token")


def test_a_key_made_meanwhile_stays(vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Vault(Catalog(f"sqlite:///{tmp_path / 'catalog.db'}"), tmp_path / "keys" / "secret.key")
    exists = Path.exists

    def just_then(self: Path) -> bool:
        if self.name == "secret.key":
            monkeypatch.setattr(Path, "exists", exists)
            other.add("first", "1")
            return False
        return exists(self)

    monkeypatch.setattr(Path, "exists", just_then)
    vault.add("second", "2")
    assert (other.get("first"), other.get("second")) == ("1", "2")


def test_a_key_that_is_damaged_or_missing_is_reported(vault: Vault, tmp_path: Path) -> None:
    vault.check()
    vault.add("token", "a")
    vault.check()
    path = tmp_path / "keys" / "secret.key"
    key = path.read_bytes()
    for harmed in (key[:-1], key[: len(key) // 2], b"", b"\xff" * 44):
        path.write_bytes(harmed)
        for look in (vault.check, lambda: vault.get("token"), lambda: vault.add("other", "b")):
            with pytest.raises(Terminal, match="is damaged") as error:
                look()
            assert error.value.hint
    path.write_bytes(fresh_key().encode())
    with pytest.raises(Terminal, match="encrypted under another key"):
        vault.check()
    path.unlink()
    with pytest.raises(Terminal, match=r"there is no .*secret\.key"):
        vault.check()
    assert not path.exists()
    path.write_bytes(key)
    vault.check()


def files(vault: Vault, tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "keys").iterdir())


def test_a_rotated_key_opens_all_and_the_old_one_nothing(vault: Vault, tmp_path: Path) -> None:
    for n in range(5):
        vault.add(f"s{n}", f"value {n}")
    sealed, path = vault.seal(b"request"), tmp_path / "keys" / "secret.key"
    old = path.read_bytes()
    assert vault.rotate() == 5
    new = path.read_bytes()
    assert new != old
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert files(vault, tmp_path) == ["secret.key"]
    assert [vault.get(f"s{n}") for n in range(5)] == [f"value {n}" for n in range(5)]
    with pytest.raises(Terminal):
        vault.unseal(sealed)
    path.write_bytes(old)
    with pytest.raises(Terminal, match="another key"):
        vault.get("s0")


class Torn(BaseException):
    """The process ends."""


@pytest.mark.parametrize("step", range(1, 9))
def test_an_interrupted_rotation_loses_nothing_and_is_completed(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """At every write of a file or a secret: all can be read, added and changed, and the next rotation ends it."""
    for n in range(3):
        vault.add(f"s{n}", f"value {n}")
    path, steps = tmp_path / "keys" / "secret.key", iter(range(1, 100))
    old = path.read_bytes()

    def torn(call: Any) -> Any:
        def wrapped(*arguments: Any) -> Any:
            if next(steps) == step:
                raise Torn
            return call(*arguments)

        return wrapped

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", torn(Path.replace))
        patch.setattr("umbel.catalog.vault.sync_directory", torn(sync_directory))
        patch.setattr(Catalog, "exchange_secret", torn(Catalog.exchange_secret))
        if step < 8:
            with pytest.raises(Torn):
                vault.rotate()
        else:
            vault.rotate()
    again = Vault(Catalog(f"sqlite:///{tmp_path / 'catalog.db'}"), path)
    again.check()
    again.update("s1", "changed")
    again.add("s3", "added")
    again.rotate()
    assert [again.get(f"s{n}") for n in range(4)] == ["value 0", "changed", "value 2", "added"]
    assert len(path.read_bytes().split()) == 1
    assert old not in path.read_bytes()


def test_a_rotation_deletes_the_drafts_of_killed_processes(vault: Vault, tmp_path: Path) -> None:
    """They had a key that the rotation was to replace."""
    vault.add("token", "x")
    key = tmp_path / "keys" / "secret.key"
    (key.parent / ".secret.key.4711").write_bytes(key.read_bytes())
    vault.rotate()
    assert [path.name for path in key.parent.iterdir()] == ["secret.key"]
    assert vault.get("token") == "x"


def test_secrets_that_are_written_during_a_rotation_are_under_the_new_key(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a process that read the old key just before, and stored after the rotation had looked."""
    vault.add("first", "1")
    other = Vault(Catalog(f"sqlite:///{tmp_path / 'catalog.db'}"), tmp_path / "keys" / "secret.key")
    put = Catalog.put_secret

    def meanwhile(self: Catalog, name: str, encrypted: bytes) -> None:
        monkeypatch.setattr(Catalog, "put_secret", put)
        other.rotate()
        put(self, name, encrypted)

    monkeypatch.setattr(Catalog, "put_secret", meanwhile)
    vault.update("first", "2")
    assert other.get("first") == "2"


def test_rotations_at_once_end_in_one_key(vault: Vault, tmp_path: Path) -> None:
    for n in range(20):
        vault.add(f"s{n}", str(n))
    url, path = f"sqlite:///{tmp_path / 'catalog.db'}", tmp_path / "keys" / "secret.key"
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: Vault(Catalog(url), path).rotate(), range(4))) == [20] * 4
    assert [vault.get(f"s{n}") for n in range(20)] == [str(n) for n in range(20)]


def test_the_key_may_be_in_the_environment(vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = fresh_key(), fresh_key()
    monkeypatch.setenv("UMBEL_VAULT_KEY", first)
    vault.add("token", "a")
    assert not (tmp_path / "keys").exists()
    with pytest.raises(InvalidValue, match="no second key"):
        vault.rotate()
    monkeypatch.setenv("UMBEL_VAULT_KEY", f"{second} {first}")
    assert vault.get("token") == "a"
    assert vault.rotate() == 1
    monkeypatch.setenv("UMBEL_VAULT_KEY", second)
    vault.check()
    assert vault.get("token") == "a"
    for wrong in ("", "x", f"{second} x"):
        monkeypatch.setenv("UMBEL_VAULT_KEY", wrong)
        with pytest.raises(Terminal, match="in UMBEL_VAULT_KEY is damaged") as report:
            vault.get("token")
        assert second not in str(report.value)
