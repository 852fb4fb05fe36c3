"""Secrets on the command line: stored from a pipe, listed without values, their key rotated, all in the audit log."""

from __future__ import annotations

from pathlib import Path

from tests.unit.cli.conftest import Umbel
from umbel.runtime.deployment import Deployment


def test_secrets_live_their_life(umbel: Umbel, tmp_path: Path) -> None:
    place = ["--dir", str(tmp_path / "umbel")]
    values = {"password": "hunter2 ü", "key": '{"a":\n 1}', "empty": ""}
    for name, value in values.items():
        stored = umbel("secret", "set", name, *place, input=f"{value}\n")
        assert stored.exit_code == 0, stored.output
        assert "hunter2" not in stored.output
    assert umbel("secret", "set", "password", *place, input="changed").exit_code == 0
    values["password"] = "changed"
    listed = umbel("secret", "list", *place).output
    assert listed.split() == sorted(values)
    key = tmp_path / "umbel" / "secret.key"
    before = key.read_bytes()
    assert "3 secrets" in umbel("secret", "rotate", *place).output
    assert key.read_bytes() != before
    vault = Deployment.at(tmp_path / "umbel").vault
    assert {name: vault.get(name) for name in vault.names()} == values
    assert umbel("secret", "delete", "empty", *place).exit_code == 0
    missing = umbel("secret", "delete", "passwort", *place)
    assert missing.exit_code != 0
    audit = umbel("audit", *place).output
    for each in ("secret set", "secret rotate", "secret delete"):
        assert each in audit
    assert "changed" not in audit
