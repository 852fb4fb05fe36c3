"""Secrets: encrypted in the catalog, readable with the key only, the key readable by its owner only."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from umbel.catalog.catalog import Catalog
from umbel.catalog.vault import Vault
from umbel.errors import InvalidValue, Terminal, UnknownName


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


def test_what_is_missing_or_there_already(vault: Vault) -> None:
    vault.add("token", "a")
    with pytest.raises(InvalidValue, match="token"):
        vault.add("token", "b")
    assert vault.get("token") == "a"
    for refused in (vault.get, vault.delete, lambda name: vault.update(name, "x")):
        with pytest.raises(UnknownName, match="did you mean 'token'"):
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
    path.write_bytes(bytes([key[0] ^ 1]) + key[1:])
    with pytest.raises(Terminal, match="encrypted under another key"):
        vault.check()
    path.unlink()
    with pytest.raises(Terminal, match=r"there is no .*secret\.key"):
        vault.check()
    assert not path.exists()
    path.write_bytes(key)
    vault.check()
