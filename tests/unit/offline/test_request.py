"""Requests of offline queries: places as clients describe them, credentials in the open only where they are used."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from umbel.catalog.catalog import Catalog
from umbel.catalog.vault import Vault
from umbel.client.plain import location
from umbel.connectors import CSV, S3
from umbel.connectors.buckets import bucket_of
from umbel.definitions.secret import Secret
from umbel.errors import InvalidType, InvalidValue, Terminal, UnknownName
from umbel.offline.request import OfflineRequest, connector_of, revealed


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(Catalog(f"sqlite:///{tmp_path / 'catalog.db'}"), tmp_path / "key")


@pytest.mark.parametrize(
    "place",
    [
        {"prefix": "a/b"},
        {"prefix": ""},
        {"path": "a/b.json"},
        {"path": "a/"},
        {"path": "a/%Y/**/*.csv"},
        {"path": "**/*.json.gz"},
    ],
)
@pytest.mark.parametrize("form", ["json", "parquet", CSV(), CSV(delimiter=";", headers=["a", "b"])])
def test_connectors_come_back_as_they_were_sent(place: dict[str, Any], form: Any) -> None:
    secret = Secret(arn="kept", path=["a", "b"])
    source = S3(name="files", aws_access_key_id="id", aws_secret_access_key=secret)
    sent = source.bucket("data", format=form, **place)
    found = connector_of(location(sent), "input")
    assert (found.bucket, found.prefix, found.suffix, found.format) == (
        sent.bucket,
        sent.prefix,
        sent.suffix,
        sent.format,
    )
    assert found.source == source
    assert connector_of(location(S3.get("kept").bucket("data", prefix="x")), "input").source == S3(name="kept")


def test_requests_are_stored_encrypted(vault: Vault, tmp_path: Path) -> None:
    requested = OfflineRequest(
        ("a.b",), ("c.d",), "at", {"a.b": "x"}, "w", 7, {"D": "0f"}, {"key": "sesame"}, (("f", 1, 2),)
    )
    sealed = vault.seal(requested.encode())
    assert b"sesame" not in sealed
    assert OfflineRequest.decode(vault.unseal(sealed)) == requested
    with pytest.raises(Terminal, match="another key"):
        Vault(Catalog(f"sqlite:///{tmp_path / 'other.db'}"), tmp_path / "other").unseal(sealed)


def test_secrets_are_what_the_server_keeps_under_their_arn(vault: Vault) -> None:
    vault.add("arn:aws:x", '{"user": {"key": "sesame"}, "n": 7}')
    reveal, secret = revealed(vault), Secret(arn="arn:aws:x")
    assert reveal("plain") == "plain"
    assert reveal(secret["user"]["key"]) == "sesame"
    assert reveal(secret["n"]) == "7"
    for missing in (secret["user"]["none"], secret["n"]["x"], Secret(arn="arn:aws:x")["user"]["key"]["deeper"]):
        with pytest.raises(InvalidValue, match="has no member"):
            reveal(missing)
    with pytest.raises(UnknownName, match="arn:none"):
        reveal(Secret(arn="arn:none"))


@pytest.mark.parametrize(
    "options",
    [
        {"endpoint": "http://169.254.169.254"},
        {"endpoint_override": "127.0.0.1:80"},
        {"source": {"endpoint": "http://127.0.0.1"}},
        {"source": {"aws_access_key_id": {"arn": 7}, "aws_secret_access_key": "x"}},
        {"source": {"aws_access_key_id": {"arn": "a", "path": "b"}, "aws_secret_access_key": "x"}},
        {"source": {"role_arn": 7}},
        {"source": {"aws_access_key_id": {"arn": "a", "key": "b"}, "aws_secret_access_key": "x"}},
        {"format": {"delimiter": ";", "header": ["a", "b"]}},
        {"path": "a/%Y/*.json"},
        {"prefix": None, "suffix": "*.json", "path": "a/*"},
        {"prefix": "", "path": "a"},
        {"bucket": ""},
        {"bucket": 7},
        {"prefix": ["a"]},
    ],
)
def test_what_a_place_cannot_have_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises((InvalidValue, InvalidType)):
        connector_of({"bucket": "data", "prefix": "a", **options}, "input")


@pytest.mark.parametrize("member", ["prefix", "path", "format", "source"])
def test_what_is_nested_deeply_is_refused(member: str) -> None:
    deep: Any = []
    for _ in range(2 * sys.getrecursionlimit()):
        deep = [deep]
    for value in (deep, {"delimiter": deep}, {"headers": [deep]}, {"role_arn": deep}):
        with pytest.raises(InvalidValue, match="nested too deeply"):
            connector_of({"bucket": "data", "prefix": "a", member: value}, "input")


@pytest.mark.parametrize(
    "name",
    [".", "a/b", "a b", "169.254.169.254", "127.1", "0x7f000001", "x@127.0.0.1", "a:80", "b?", "arn:aws:s3:::b"],
)
@pytest.mark.parametrize(
    "environment", [{}, {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, {"UMBEL_BUCKETS": "file:///x"}]
)
def test_what_is_no_name_of_a_bucket_is_refused_before_any_request(name: str, environment: dict[str, str]) -> None:
    connector = connector_of({"bucket": name, "prefix": "a"}, "input")
    with pytest.raises(InvalidValue, match="no name of a bucket"):
        bucket_of(connector, str, environment)
