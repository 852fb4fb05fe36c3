"""Credentials are resolved when they are used, from the secrets of the deployment."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.secrets_manager import SecretsManager, running
from tests.servers.sts import TokenService
from tests.servers.sts import running as running_sts
from umbel.connectors import aws_secrets, credentials, roles
from umbel.connectors.credentials import check_credential, provide_vault, resolved
from umbel.definitions.secret import Secret
from umbel.errors import InvalidValue, PackageError, Transient, UnknownName


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


ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:shop/kafka-AbCdEf"
ROLE = "arn:aws:iam::123456789012:role/reader"


def test_a_variable_or_a_file_is_read_at_each_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_LOGIN", '{"user": "ann"}')
    assert resolved(Secret(arn="env:SHOP_LOGIN")["user"]) == "ann"
    path = tmp_path / "password"
    for value in ("one", "two ü", "ends\n\n", ""):
        path.write_text(f"{value}\n")
        assert resolved(Secret(arn=f"file:{path}")) == value
    path.write_bytes(b"\xff")
    for arn, words in (
        (f"file:{path}", "no text"),
        (f"file:{tmp_path}/none", "No such file"),
        ("env:NONE", "has no NONE"),
    ):
        with pytest.raises(Transient, match=words) as report:
            resolved(Secret(arn=arn))
        assert "each worker" in str(report.value.hint)
    with pytest.raises(InvalidValue, match=r"is not in AWS, and has role_arn="):
        check_credential(Secret(arn="env:X", role_arn=ROLE), "Kafka 'k'")


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[SecretsManager]:
    monkeypatch.setattr(aws_secrets, "_VALUES", {})
    monkeypatch.setattr(roles, "_KEYS", {})
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    keys, session = {"AKIAWORKER": "worker-secret"}, ("ASIAROLE", "role-secret")
    service = SecretsManager({**keys, session[0]: session[1]}, {ARN: '{"password": "pw1", "n": 5}'})
    with running_sts(TokenService(keys, ROLE, session)) as tokens, running(service):
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", tokens.url)
        monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", service.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAWORKER")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "worker-secret")
        yield service


def test_a_secret_of_aws_is_read_and_read_again_after_a_minute(
    manager: SecretsManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = Secret(arn=ARN)
    check_credential(secret, "Kafka 'k'")
    assert [resolved(secret["password"]), resolved(secret["n"])] == ["pw1", "5"]
    assert manager.requests == [("AKIAWORKER", ARN)]
    manager.values[ARN] = '{"password": "pw2"}'
    assert resolved(secret["password"]) == "pw1"
    monkeypatch.setattr(aws_secrets, "RETAINED_FOR", -1.0)
    assert resolved(secret["password"]) == "pw2"
    manager.values[ARN] = b64encode(b"binary")
    assert resolved(Secret(arn=ARN, role_arn=ROLE)) == "binary"
    assert manager.requests[-1] == ("ASIAROLE", ARN)


def test_a_secret_of_aws_that_cannot_be_read_is_reported_with_a_remedy(
    manager: SecretsManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    for code in ("AccessDeniedException", "DecryptionFailure", "ResourceNotFoundException"):
        manager.refusal = code
        with pytest.raises(Transient, match=code) as report:
            resolved(Secret(arn=ARN))
        assert report.value.hint
    manager.refusal = ""
    assert resolved(Secret(arn=ARN)["password"]) == "pw1"  # a failure is not retained
    with pytest.raises(InvalidValue, match=r"role/other cannot be assumed"):
        resolved(Secret(arn=ARN, role_arn="arn:aws:iam::123456789012:role/other"))
    monkeypatch.setattr(aws_secrets, "_VALUES", {})
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret-1")
    with pytest.raises(Transient, match="InvalidSignatureException") as report:
        resolved(Secret(arn=ARN))
    assert "wrong-secret-1" not in str(report.value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", "http://127.0.0.1:9")
    monkeypatch.setattr(aws_secrets, "PATIENCE", 1)
    with pytest.raises(Transient, match="EndpointConnectionError"):
        resolved(Secret(arn=ARN))


def test_another_arn_and_a_missing_package_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for arn in ("arn:aws:secretsmanager:x", "arn:aws:ssm:eu-west-1:123456789012:parameter/x", f"{ARN}\nx", "arn:x"):
        with pytest.raises(InvalidValue, match="no ARN of a secret"):
            check_credential(Secret(arn=arn), "Kafka 'k'")
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(PackageError, match=r"pip install 'umbel\[aws\]'"):
        check_credential(Secret(arn=ARN), "Kafka 'k'")
