"""Credentials are resolved when they are used, from the secrets of the deployment."""

from __future__ import annotations

import json

import pytest

from umbel.connectors import credentials
from umbel.connectors.credentials import check_credential, provide_vault, resolved
from umbel.definitions.secret import Secret
from umbel.errors import NotSupported, Transient, UnknownName


class Vault:
    """One secret."""

    def get(self, name: str) -> str:
        if name != "login":
            raise UnknownName(f"secret '{name}' does not exist")
        return json.dumps({"user": "ann", "deep": {"port": 5}})


def test_a_text_is_its_own_value() -> None:
    assert resolved("pw") == "pw"


def test_a_secret_is_one_of_the_deployment_or_a_part_of_it() -> None:
    provide_vault(Vault())
    assert json.loads(resolved(Secret(arn="login")))["user"] == "ann"
    assert resolved(Secret(arn="login")["user"]) == "ann"
    assert resolved(Secret(arn="login")["deep"]["port"]) == "5"
    with pytest.raises(Transient, match=r"secret 'login' has no part \['deep'\]\['host'\]") as report:
        resolved(Secret(arn="login")["deep"]["host"])
    assert "ann" not in str(report.value)
    with pytest.raises(Transient, match="'other'"):
        resolved(Secret(arn="other"))


def test_a_process_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "_vaults", [])
    with pytest.raises(Transient, match="this process has no secrets"):
        resolved(Secret(arn="login"))


def test_a_secret_of_aws_is_refused() -> None:
    secret = Secret(arn="arn:aws:secretsmanager:eu-west-1:1:secret:x")
    for use in (lambda: check_credential(secret, "Kafka 'k'"), lambda: resolved(secret)):
        with pytest.raises(NotSupported, match="AWS Secrets Manager"):
            use()
