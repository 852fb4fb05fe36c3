"""Buckets read with a role that is assumed through the Security Token Service, and an Iceberg table with it."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog

from tests.connectors.s3_shop import Place, clicks, deployed, lines, place
from tests.connectors.shop_datasets import deployed as shop_deployed
from tests.connectors.shop_datasets import orders, rows_of, until
from tests.s3server import KEY, SECRET
from tests.servers.sts import TokenService, running
from umbel.connectors import S3, roles
from umbel.connectors.buckets import bucket_of
from umbel.connectors.delta_tables import options_of
from umbel.errors import InvalidValue, PackageError, Transient
from umbel.runtime.batch import drain

__all__ = ["place"]
ROLE = "arn:aws:iam::123456789012:role/reader"
BASE, BASE_SECRET = "AKIABASE", "base-secret-4711"
NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def service(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenService]:
    """Return the service; the bucket's server knows its sessions, and not the worker's own key."""
    roles._KEYS.clear()
    with running(TokenService({BASE: BASE_SECRET}, ROLE, (KEY, SECRET))) as found:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", found.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", BASE)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", BASE_SECRET)
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        yield found
    roles._KEYS.clear()


def taken(made: Any, count: int) -> None:
    for _ in range(100):
        drain(made.deployment)
        if made.taken().get("Clicks", 0) >= count:
            break
    assert made.taken()["Clicks"] == count


def test_objects_are_read_with_the_role(service: TokenService, place: Place, tmp_path: Path) -> None:
    place.put("raw/a.json", lines(range(10)))
    with pytest.raises(InvalidValue), deployed(tmp_path / "own", clicks(place)):
        pass  # the worker's own key is of no use there
    with deployed(tmp_path, clicks(place, s3=S3(name="lake", role_arn=ROLE))) as made:
        taken(made, 10)
        place.put("raw/b.json", lines(range(10, 15)))
        until(made, lambda: made.taken()["Clicks"] == 15)
    assert service.requests == [ROLE], "one session serves all requests"


def test_the_role_is_assumed_with_the_key_of_the_source(
    service: TokenService, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "other")
    place.put("raw/a.json", lines(range(10)))
    keys = {"aws_access_key_id": BASE, "aws_secret_access_key": BASE_SECRET}
    with deployed(tmp_path, clicks(place, s3=S3(name="lake", role_arn=ROLE, **keys))) as made:
        taken(made, 10)


def test_an_offline_query_assumes_the_role_with_the_key_of_the_request(service: TokenService, place: Place) -> None:
    place.put("raw/a.json", lines(range(10)))
    own = S3(name="lake", role_arn=ROLE, aws_access_key_id=BASE, aws_secret_access_key=BASE_SECRET)
    bucket = bucket_of(own.bucket(place.name, prefix="raw/"), str)
    assert [each.path for each in bucket.listed("raw/")] == ["raw/a.json"]
    assert service.requests == [ROLE], "one session serves all requests"


def test_keys_are_renewed_before_they_expire(service: TokenService, monkeypatch: pytest.MonkeyPatch) -> None:
    first = roles.assumed("S3", ROLE, None, None)
    assert roles.assumed("S3", ROLE, None, None) is first
    passed = timedelta(minutes=49)

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + passed

    monkeypatch.setattr(roles, "datetime", Later)
    assert roles.assumed("S3", ROLE, None, None) is first
    passed = timedelta(minutes=51)
    second = roles.assumed("S3", ROLE, None, None)
    assert second.token != first.token
    assert len(service.requests) == 2


def test_a_key_that_is_valid_serves_while_the_service_is_down(
    service: TokenService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.lifetime = timedelta(minutes=5)
    first = roles.assumed("S3", ROLE, None, None)
    service.is_down, passed = True, timedelta(minutes=3)

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + passed

    monkeypatch.setattr(roles, "datetime", Later)
    assert roles.assumed("S3", ROLE, None, None) is first
    passed = timedelta(minutes=6)
    with pytest.raises(Transient, match="ServiceUnavailable"):
        roles.assumed("S3", ROLE, None, None)
    service.is_down = False
    assert roles.assumed("S3", ROLE, None, None) is not first


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"role": "arn:aws:iam::123456789012:role/other"}, InvalidValue, "AccessDenied.*\n.*trust policy"),
        ({"keys": {}}, InvalidValue, "InvalidClientTokenId.*\n.*correct the key"),
        ({"keys": {BASE: "another"}}, InvalidValue, "SignatureDoesNotMatch.*\n.*correct the secret"),
        ({"is_down": True}, Transient, "ServiceUnavailable"),
    ],
)
def test_a_refusal_is_an_error_at_commit(
    service: TokenService,
    place: Place,
    tmp_path: Path,
    change: dict[str, Any],
    error: Any,
    message: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name, value in change.items():
        setattr(service, name, value)
    caplog.set_level(logging.DEBUG, "umbel")
    with pytest.raises(error) as caught, deployed(tmp_path, clicks(place, s3=S3(name="lake", role_arn=ROLE))):
        pass
    assert re.search(message, str(caught.value)), str(caught.value)
    for secret in (SECRET, BASE_SECRET):
        assert secret not in str(caught.value)
        assert secret not in caplog.text


def test_a_missing_package_is_an_error_at_commit(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with (
        pytest.raises(PackageError, match=r"umbel\[aws\]"),
        deployed(tmp_path, clicks(place, s3=S3(name="lake", role_arn=ROLE))),
    ):
        pass


def test_a_revoked_role_stops_reading_until_it_is_granted_again(
    service: TokenService, place: Place, tmp_path: Path
) -> None:
    place.put("raw/a.json", lines(range(10)))
    with deployed(tmp_path, clicks(place, s3=S3(name="lake", role_arn=ROLE))) as made:
        taken(made, 10)
        roles._KEYS.clear()
        service.role = "another"
        place.put("raw/b.json", lines(range(10, 20)))
        until(made, lambda: len(service.requests) > 1)
        until(made, lambda: any(each.trouble for each in made.deployment._sources()[1]) or len(service.requests) > 2)
        assert made.taken()["Clicks"] == 10
        service.role = ROLE
        until(made, lambda: made.taken()["Clicks"] == 20)


class Tables:
    def __init__(self, place: Place, format: str) -> None:
        self._place, self._format = place, format

    def table(self, name: str, _: Any = None) -> Any:
        return S3(name="lake", role_arn=ROLE).bucket(self._place.name, prefix=f"tables/{name}", format=self._format)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_tables_are_read_with_the_role(service: TokenService, place: Place, tmp_path: Path, format: str) -> None:
    address = f"s3://{place.name}/tables/orders"

    def add(ids: list[int]) -> None:
        at = pa.array([NOW] * len(ids), pa.timestamp("us", "UTC"))
        rows = pa.table({"id": pa.array(ids, pa.int64()), "note": ["n"] * len(ids), "updated_at": at})
        if format == "delta":
            options = {**options_of(place.server.environment), **place.server.environment}
            feed = {"delta.enableChangeDataFeed": "true"}
            write_deltalake(address, rows, mode="append", storage_options=options, configuration=feed)
            return
        catalog = iceberg_catalog(place, tmp_path)
        catalog.create_namespace_if_not_exists("shop")
        catalog.create_table_if_not_exists("shop.orders", rows.schema, location=address).append(rows)

    add([1, 2, 3])
    made_of = orders(Tables(place, format), cdc="native", every="1s", disorder="30d")
    with shop_deployed(tmp_path, made_of) as made:
        until(made, lambda: len(rows_of(made, "Orders", ["id"])) == 3, 60)
        add([4, 5])
        until(made, lambda: rows_of(made, "Orders", ["id"]) == [(each,) for each in range(1, 6)], 60)
    assert service.requests == [ROLE]


def iceberg_catalog(place: Place, folder: Path) -> Any:
    properties = {"s3.endpoint": place.server.url, "s3.access-key-id": KEY, "s3.secret-access-key": SECRET}
    uri = f"sqlite:///{folder}/catalog.db"
    return load_catalog("lake", type="sql", uri=uri, warehouse=f"s3://{place.name}/w", **properties)
