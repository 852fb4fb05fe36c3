"""Logins at Redshift with temporary passwords of a role, which is assumed through the Security Token Service."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.shop_datasets import deployed, letters, orders, until
from tests.connectors.test_redshift_cursor import SHOP, cluster, database, inserted, run, shop
from tests.servers import redshift_passwords, sts
from tests.servers.redshift import CLUSTER, WORKGROUP, FakeRedshift
from tests.servers.redshift_passwords import PasswordService
from umbel.connectors import roles
from umbel.errors import InvalidValue, PackageError, Transient

__all__ = ["cluster", "database"]
ROLE, USER = "arn:aws:iam::123456789012:role/reader", "IAMR:reader"
BASE, BASE_SECRET = "AKIABASE", "base-secret-4711"
SESSION = ("ASIASESSION", "session-secret-4711")


@pytest.fixture
def passwords(cluster: FakeRedshift, monkeypatch: pytest.MonkeyPatch) -> Iterator[PasswordService]:
    """Return the service of passwords; the endpoints of the cluster and the workgroup are here."""

    def made(user: str, password: str) -> None:
        cluster.users[user] = password
        run(cluster, f"""ALTER ROLE "{user}" PASSWORD '{password}'""")

    run(cluster, f'DROP ROLE IF EXISTS "{USER}"', f'CREATE ROLE "{USER}" LOGIN')
    run(cluster, f'GRANT USAGE ON SCHEMA {SHOP} TO "{USER}"', f'GRANT SELECT ON {SHOP}.orders TO "{USER}"')
    known = socket.getaddrinfo

    def resolved(host: Any, *arguments: Any, **options: Any) -> Any:
        return known("127.0.0.1" if host in {CLUSTER, WORKGROUP} else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    roles._KEYS.clear()
    service = PasswordService((*SESSION, "token1"), "shop", USER, made)
    tokens = sts.TokenService({BASE: BASE_SECRET}, ROLE, SESSION)
    with sts.running(tokens), redshift_passwords.running(service):
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", tokens.url)
        monkeypatch.setenv("AWS_ENDPOINT_URL_REDSHIFT", service.url)
        monkeypatch.setenv("AWS_ENDPOINT_URL_REDSHIFT_SERVERLESS", service.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", BASE)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", BASE_SECRET)
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        yield service
    roles._KEYS.clear()


def with_role(cluster: FakeRedshift, host: str) -> Any:
    return shop(cluster, host=host, username=None, password=None, s3_access_role_arn=ROLE)


@pytest.mark.parametrize(
    ("host", "request_of"),
    [(CLUSTER, "GetClusterCredentialsWithIAM shop"), (WORKGROUP, "RedshiftServerless.GetCredentials shop")],
)
def test_a_table_is_read_with_the_role(
    passwords: PasswordService, cluster: FakeRedshift, tmp_path: Path, host: str, request_of: str
) -> None:
    inserted(cluster, 1, 10)
    with deployed(tmp_path, orders(with_role(cluster, host))) as made:
        until(made, lambda: made.taken().get("Orders") == 10)
        inserted(cluster, 11, 20)
        until(made, lambda: made.taken()["Orders"] == 20)
        assert letters(made) == []
    assert set(passwords.requests) == {f"{request_of} warehouse"}
    assert {each["user"] for each in cluster.starts} == {USER}


@pytest.mark.parametrize("host", [CLUSTER, WORKGROUP])
def test_errors_say_what_to_do(
    passwords: PasswordService, cluster: FakeRedshift, tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(cluster, f'REVOKE SELECT ON {SHOP}.orders FROM "{USER}"')
    with pytest.raises(InvalidValue, match=r'GRANT SELECT(?s:.*)TO "IAMR:reader"'), place(tmp_path, cluster, host):
        pass
    passwords.refuses = "AccessDenied" if host == CLUSTER else "AccessDeniedException"
    with pytest.raises(InvalidValue, match=r"must allow redshift(?s:.*)Credentials"), place(tmp_path, cluster, host):
        pass
    passwords.refuses, passwords.name = None, "other"
    with pytest.raises(InvalidValue, match="there is no such"), place(tmp_path, cluster, host):
        pass
    passwords.refuses = "Throttling"
    with pytest.raises(Transient, match="no password of role"), place(tmp_path, cluster, host):
        pass
    with pytest.raises(InvalidValue, match="needs the endpoint of a cluster"), place(tmp_path, cluster, "localhost"):
        pass
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(PackageError, match=r"pip install 'umbel\[aws\]'"), place(tmp_path, cluster, host):
        pass


def place(folder: Path, cluster: FakeRedshift, host: str) -> Any:
    return deployed(folder, orders(with_role(cluster, host)))
